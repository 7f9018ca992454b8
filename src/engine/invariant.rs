//! What is true of every run after every command. Tests and debug builds check it.

use crate::engine::Effect;
use crate::engine::RunState;
use crate::engine::case::Case;
use crate::engine::effect::next_deadline;
use crate::engine::effect::pending_effects;
use crate::engine::part::Part;
use crate::engine::state::BlockState;
use crate::engine::state::Phase;
use crate::engine::state::UnitState;
use crate::engine::unit::UnitId;
use crate::plan::Plan;
use crate::time::Timestamp;

/// Nothing waits without something that wakes it: an effect, a moment or a person.
///
/// # Errors
/// What waits for nothing, or which counter is wrong.
pub fn check(plan: &Plan, run: &RunState, now: Timestamp) -> Result<(), String> {
    if run.finished.is_some() {
        return Ok(());
    }
    counters(run)?;
    let case = Case { plan, run, now };
    let effects = pending_effects(plan, run, now);
    for (unit, state) in run.open() {
        let part = Part::of(plan, &unit.block).ok_or_else(|| format!("{unit} is not in the plan"))?;
        if !is_woken(case, part, &unit, state, &effects) {
            return Err(format!("{unit} is {} and nothing wakes it", state.phase.name()));
        }
    }
    let blocked = run.paused_at.is_some() || !run.asks.is_empty() || run.granted.is_none();
    let busy = run.open_units > 0 || effects.iter().any(|effect| !matches!(effect, Effect::Guard(_)));
    if !blocked && !busy && next_deadline(plan, run, now).is_none() {
        return Err("the run is open and nothing wakes it".to_owned());
    }
    Ok(())
}

fn is_woken(case: Case<'_>, part: Part<'_>, unit: &UnitId, state: &UnitState, effects: &[Effect]) -> bool {
    let has = |wanted: Effect| effects.contains(&wanted);
    let starts = || {
        let undoes = |effect: &Effect| match effect {
            Effect::Prepare(other) => other.block.step == unit.block.step,
            Effect::Open(other) => other.step == unit.block.step,
            Effect::Act { .. }
            | Effect::StopChild { .. }
            | Effect::Observe { .. }
            | Effect::Arm(_)
            | Effect::Watch(_)
            | Effect::Conclude(_)
            | Effect::Guard(_)
            | Effect::Cover(_)
            | Effect::Summarize => false,
        };
        // An undo between two attempts wakes its step when it ends.
        let undo_runs = || {
            let mut open = case.run.open();
            open.any(|(other, _)| other.block.undo.is_some() && other.block.step == unit.block.step)
        };
        !case.may_start() || effects.iter().any(undoes) || undo_runs()
    };
    match &state.phase {
        Phase::Pending { .. } | Phase::Preparing => starts(),
        Phase::Backoff { due } => *due > case.now || starts(),
        Phase::Acting { .. } => {
            !part.is_internal() && has(Effect::Act { unit: unit.clone(), attempt: state.attempt })
        }
        Phase::Observing { settle, .. } => {
            *settle > case.now || has(Effect::Observe { unit: unit.clone(), attempt: state.attempt })
        }
        Phase::Acted => has(Effect::Arm(unit.clone())) || has(Effect::Conclude(unit.clone())),
        Phase::Waiting(_) => has(Effect::Watch(unit.clone())),
        Phase::Concluding => has(Effect::Conclude(unit.clone())),
        Phase::Asking { .. } => case.run.ask_of(unit).is_some(),
        Phase::Sleeping { .. } => true,
        Phase::Failing | Phase::Inherited | Phase::Done(_) => false,
    }
}

fn counters(run: &RunState) -> Result<(), String> {
    let blocks = || run.steps.values().chain(run.undos.values());
    let open = |block: &BlockState| {
        u32::try_from(block.units.values().filter(|unit| unit.is_open()).count()).unwrap_or(u32::MAX)
    };
    if blocks().any(|block| open(block) != block.open) {
        return Err("a block counts its open units wrongly".to_owned());
    }
    if blocks().map(open).sum::<u32>() != run.open_units {
        return Err("the run counts its open units wrongly".to_owned());
    }
    let orphan = run.asks.iter().filter_map(|ask| ask.unit.as_ref()).find(|unit| run.unit(unit).is_none());
    orphan.map_or(Ok(()), |unit| Err(format!("a question is about {unit}, which has not begun")))
}

//! Orders to the runner. Derived from the state: asking twice gives the same ones.

use std::time::Duration;

use crate::definition::model::ActionKind;
use crate::engine::RunState;
use crate::engine::case::Case;
use crate::engine::limits;
use crate::engine::part::Part;
use crate::engine::part::Role;
use crate::engine::progress::Progress;
use crate::engine::rollback;
use crate::engine::rollback::Undoing;
use crate::engine::standing;
use crate::engine::standing::BlockOutcome;
use crate::engine::standing::Readiness;
use crate::engine::state::BlockState;
use crate::engine::state::Phase;
use crate::engine::state::UnitState;
use crate::engine::state::WaitState;
use crate::engine::unit::Block;
use crate::engine::unit::UnitId;
use crate::plan::Plan;
use crate::time::Timestamp;

/// Something that the runner is to do, and to report with a command.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Evaluate `when` and the list of a `for_each` block.
    Open(Block),
    /// Read the target and `read.*`; evaluate `when`, captures, `check` and preconditions; render the request.
    /// While a precondition is unmet this is repeated until `due` has passed and one confirmed reading was made after it.
    Prepare(UnitId),
    /// Carry out the prepared request.
    Act {
        /// Which unit.
        unit: UnitId,
        /// Which attempt.
        attempt: u32,
    },
    /// The run stops: cancel the child workflow that this attempt started. The attempt still ends by its own report.
    StopChild {
        /// Which unit.
        unit: UnitId,
        /// Which attempt.
        attempt: u32,
    },
    /// Look at the world: did this attempt, whose result is unknown, take effect?
    Observe {
        /// Which unit.
        unit: UnitId,
        /// Which attempt.
        attempt: u32,
    },
    /// Evaluate the durations of the wait.
    Arm(UnitId),
    /// Evaluate the wait at each change of its targets, at a slow beat, and when its deadline has come.
    Watch(UnitId),
    /// Evaluate the outputs.
    Conclude(UnitId),
    /// Watch a guard; report when it does not hold.
    Guard(u16),
    /// Evaluate `covers` over the items of a block that are over.
    Cover(Block),
    /// Evaluate the outputs of the workflow.
    Summarize,
}

/// What is to be done at `now`, in a fixed order. An effect stays pending until its report is in: the runner keeps the set
/// of those that it has begun, and stops those that are not asked for any more.
pub fn pending_effects(plan: &Plan, run: &RunState, now: Timestamp) -> Vec<Effect> {
    let case = Case { plan, run, now };
    let mut effects = vec![];
    if run.finished.is_some() {
        return effects;
    }
    for (unit, state) in run.open() {
        let Some(part) = Part::of(plan, &unit.block) else { continue };
        of_unit(case, part, unit, state, &mut effects);
    }
    match case.progress() {
        Progress::Forward if !run.is_stopping() => {
            if case.may_start() {
                forward(case, &mut effects);
            }
            guards(case, &mut effects);
        }
        Progress::Undoing(Undoing::Run(block)) if case.may_start() => starts(case, &block, &mut effects),
        Progress::Finally(step) if case.may_start() => {
            starts(case, &Block::forward(step.name.clone()), &mut effects);
        }
        Progress::Summarizing => effects.push(Effect::Summarize),
        Progress::Queued
        | Progress::Forward
        | Progress::Halting
        | Progress::Undoing(_)
        | Progress::Finally(_)
        | Progress::Over => {}
    }
    effects
}

/// True if the run waits for the report of `effect`.
pub(super) fn is_pending(case: Case<'_>, effect: &Effect) -> bool {
    // The report of every step passes here, so the usual case does without asking for all effects.
    if let Effect::Prepare(unit) = effect
        && unit.item.is_none()
        && unit.block.undo.is_none()
        && let Some(step) = standing::step(case.plan, &unit.block.step)
        && step.for_each.is_none()
        && standing::begun(case.run, &step.name).is_none()
    {
        let forward = !case.run.is_stopping() && case.may_start() && !case.run.is_rollback_only();
        return forward && standing::readiness(case.plan, case.run, step) == Readiness::Ready;
    }
    pending_effects(case.plan, case.run, case.now).contains(effect)
}

/// When to look at the run again if nothing happens before: a tick is due then, or an effect becomes pending. A
/// moment in the past means a tick at once. To be called with the `now` of the last `pending_effects`.
pub fn next_deadline(plan: &Plan, run: &RunState, now: Timestamp) -> Option<Timestamp> {
    if run.finished.is_some() {
        return None;
    }
    let of_run = match run.granted {
        None if !run.is_stopping() => run.created.lock_deadline,
        Some((_, deadline)) if !run.is_stopping() && run.stopped_at.is_none() => {
            let forward = matches!(Case { plan, run, now }.progress(), Progress::Forward);
            deadline.filter(|_| forward)
        }
        None | Some(_) => None,
    };
    let asks = run.asks.iter().filter_map(|ask| ask.expires);
    let units = run.open().filter_map(|(unit, state)| {
        let part = Part::of(plan, &unit.block)?;
        unit_deadline(part, state, run.paused_at.is_some(), now)
    });
    of_run.into_iter().chain(asks).chain(units).min()
}

/// When a wait is to be evaluated again at the latest, besides the slow beat: its deadline, a stall, or a verdict that
/// has been stable for long enough by then.
pub fn watch_again(wait: &WaitState, now: Timestamp) -> Option<Timestamp> {
    let ms = |ms: u64| Duration::from_millis(ms);
    let stall = wait.limits.stall_after_ms.map(|after| wait.progress_at + ms(after));
    let stable = wait.applies.as_ref().and_then(|applies| {
        let stable_for = wait.limits.stable_for_ms.get(usize::from(applies.verdict?))?;
        stable_for.map(|needed| applies.since + ms(needed))
    });
    [Some(wait.deadline), stall, stable].into_iter().flatten().filter(|at| *at > now).min()
}

fn unit_deadline(part: Part<'_>, state: &UnitState, paused: bool, now: Timestamp) -> Option<Timestamp> {
    let later = |at: Timestamp| (at > now).then_some(at);
    let step = state.step_deadline.filter(|_| !paused);
    match &state.phase {
        Phase::Pending { deadline, .. } => later(*deadline),
        Phase::Acting { deadline, .. } => (!part.is_internal()).then(|| *deadline + limits::REPORT_GRACE),
        Phase::Observing { settle, .. } => later(*settle),
        Phase::Backoff { due } => later(*due).into_iter().chain(step).min(),
        Phase::Sleeping { due } => Some(step.map_or(*due, |step| step.min(*due))),
        Phase::Preparing => step,
        Phase::Waiting(wait) => watch_again(wait, now),
        Phase::Inherited
        | Phase::Failing
        | Phase::Acted
        | Phase::Asking { .. }
        | Phase::Concluding
        | Phase::Done(_) => None,
    }
}

/// What a unit that has begun needs.
fn of_unit(case: Case<'_>, part: Part<'_>, unit: UnitId, state: &UnitState, effects: &mut Vec<Effect>) {
    let attempt = state.attempt;
    if let Phase::Backoff { due: later } | Phase::Observing { settle: later, .. } = &state.phase
        && *later > case.now
    {
        return;
    }
    if state.phase.is_before_attempt() && !case.may_start() {
        return;
    }
    match &state.phase {
        Phase::Preparing | Phase::Backoff { .. } => match rollback::before_retry(case, part, &unit, state) {
            Some(block) => starts(case, &block, effects),
            None if is_opening(case, part, &unit) => effects.push(Effect::Open(unit.block)),
            None => effects.push(Effect::Prepare(unit)),
        },
        Phase::Pending { .. } => effects.push(Effect::Prepare(unit)),
        Phase::Acting { .. } if !part.is_internal() => {
            let child = part.step.action.uses == ActionKind::Workflow;
            if child && case.is_halting(part) {
                effects.push(Effect::StopChild { unit: unit.clone(), attempt });
            }
            effects.push(Effect::Act { unit, attempt });
        }
        Phase::Observing { .. } => effects.push(Effect::Observe { unit, attempt }),
        Phase::Acted if part.wait().is_some() => effects.push(Effect::Arm(unit)),
        Phase::Acted | Phase::Concluding => effects.push(Effect::Conclude(unit)),
        Phase::Waiting(_) => effects.push(Effect::Watch(unit)),
        Phase::Inherited
        | Phase::Acting { .. }
        | Phase::Failing
        | Phase::Sleeping { .. }
        | Phase::Asking { .. }
        | Phase::Done(_) => {}
    }
}

/// True if the unit stands for the opening of a `for_each` that has to be tried again.
fn is_opening(case: Case<'_>, part: Part<'_>, unit: &UnitId) -> bool {
    let opened = case.run.block(&unit.block).is_some_and(|block| block.items.is_some());
    unit.item.is_none() && part.for_each().is_some() && !opened
}

fn forward(case: Case<'_>, effects: &mut Vec<Effect>) {
    for step in case.frontier() {
        let part = Part { step, role: Role::Forward };
        match standing::begun(case.run, &step.name) {
            Some(state) => items(part, &Block::forward(step.name.clone()), state, effects),
            None if standing::readiness(case.plan, case.run, step) == Readiness::Ready => {
                effects.push(first(part, Block::forward(step.name.clone())));
            }
            None => {}
        }
    }
}

/// What a block that is not over needs to begin, or to begin with further items.
fn starts(case: Case<'_>, block: &Block, effects: &mut Vec<Effect>) {
    let Some(part) = Part::of(case.plan, block) else { return };
    match case.run.block(block) {
        None => effects.push(first(part, block.clone())),
        // What the units that run need was said with them.
        Some(state) => items(part, block, state, effects),
    }
}

fn first(part: Part<'_>, block: Block) -> Effect {
    match part.for_each() {
        Some(_) => Effect::Open(block),
        None => Effect::Prepare(block.unit(None)),
    }
}

/// Items that may begin beside those that run, none once it is certain that the block fails.
fn items(part: Part<'_>, block: &Block, state: &BlockState, effects: &mut Vec<Effect>) {
    let (Some(for_each), Some(items)) = (part.for_each(), &state.items) else { return };
    if standing::has_failed(part, state) {
        return;
    }
    if standing::wants_cover(part, state) {
        effects.push(Effect::Cover(block.clone()));
    }
    let free = for_each.max_parallel.max(1).saturating_sub(state.open);
    let waiting = items
        .iter()
        .skip(state.next)
        .filter(|item| !state.units.get(&item.key).is_some_and(UnitState::has_begun_here));
    let chosen = waiting.take(usize::try_from(free).unwrap_or(usize::MAX));
    effects.extend(chosen.map(|item| Effect::Prepare(block.clone().unit(Some(item.key.clone())))));
}

/// Guards hold from the success of one step until another starts (L2).
fn guards(case: Case<'_>, effects: &mut Vec<Effect>) {
    for guard in &case.plan.workflow.guards {
        let broken = case.run.broken_guards.iter().any(|broken| broken.what == guard.index);
        let ended = standing::begun(case.run, &guard.to).is_some();
        let from = || standing::step_outcome(case.plan, case.run, &guard.from);
        if !broken && !ended && from() == Some(BlockOutcome::Succeeded) {
            effects.push(Effect::Guard(guard.index));
        }
    }
}

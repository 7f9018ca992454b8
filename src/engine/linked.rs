//! `retry` and `rollback` of a run that is over: what the new run takes over (E11).

use crate::definition::model::ActionKind;
use crate::engine::RunState;
use crate::engine::decide::Rejection;
use crate::engine::event::Footprint;
use crate::engine::event::Inherited;
use crate::engine::event::InheritedUnit;
use crate::engine::event::RunOutcome;
use crate::engine::part::Part;
use crate::engine::part::Role;
use crate::engine::state::UnitOutcome;
use crate::engine::unit::UnitId;
use crate::plan::Plan;

/// What the new run is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Go on where the earlier run failed.
    Retry,
    /// Undo what the earlier run left.
    Rollback,
}

/// What a new run takes over from `run`. What was undone is forgotten: it is done anew, from the world as it is. What
/// succeeded and stands counts as done. What was begun and stands keeps what it remembered of the world before, so
/// that its undo leads back to the state before the first of the runs. If nothing that was changed stands, a retry
/// begins afresh: what was only read is read again.
///
/// # Errors
/// The run is not over, or there is nothing to do.
pub fn inherited(plan: &Plan, run: &RunState, kind: Kind) -> Result<Inherited, Rejection> {
    let Some((_, finished)) = &run.finished else { return Err(Rejection::NotOver) };
    if kind == Kind::Retry && finished.outcome == RunOutcome::Succeeded {
        return Err(Rejection::NothingToRetry);
    }
    let in_flight = run.open().map(|(unit, _)| unit).filter(|unit| unit.block.undo.is_none());
    let units = run.completed.iter().cloned().chain(in_flight);
    let units: Vec<_> = units.filter_map(|unit| inherit(plan, run, unit, kind)).collect();
    let stands = |least| units.iter().any(|unit| unit.footprint >= least);
    let (rollback_only, units) = match kind {
        Kind::Rollback if !stands(Footprint::Tried) => return Err(Rejection::NothingToUndo),
        Kind::Rollback => (true, units),
        Kind::Retry if !stands(Footprint::Changed) => (false, vec![]),
        Kind::Retry => (false, units),
    };
    Ok(Inherited { from: run.id, rollback_only, units })
}

fn inherit(plan: &Plan, run: &RunState, unit: UnitId, kind: Kind) -> Option<InheritedUnit> {
    let part = Part::of(plan, &unit.block).filter(|part| part.role == Role::Forward)?;
    let state = run.unit(&unit)?;
    let undone = run.rollback.as_ref().and_then(|rollback| rollback.undone.get(&unit));
    let footprint = state.left();
    if undone == Some(&None) || (undone.is_none() && run.rollback.is_some() && footprint == Footprint::Tried)
    {
        return None;
    }
    // An approval binds one run: the next one asks again.
    let asks_again = part.step.action.uses == ActionKind::Approval && kind == Kind::Retry;
    let succeeded = state.outcome() == Some(UnitOutcome::Succeeded);
    if asks_again || (!succeeded && footprint == Footprint::None) {
        return None;
    }
    let key = unit.item.as_deref();
    let value = key.and_then(|key| run.block(&unit.block)?.item(key)).map(|item| item.value.clone());
    Some(InheritedUnit {
        value,
        facts: state.facts.clone(),
        end: state.end.clone(),
        attempted: state.attempted,
        footprint,
        verdict: state.verdict.clone(),
        outputs: succeeded.then(|| state.outputs.clone().unwrap_or_default()),
        unit,
    })
}

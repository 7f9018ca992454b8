//! A new process takes over.

use std::collections::BTreeMap;

use crate::engine::Event;
use crate::engine::case::Case;
use crate::engine::event::AttemptEffect;
use crate::engine::event::AttemptEnd;
use crate::engine::event::Sight;
use crate::engine::event::WaitNote;
use crate::engine::part::Part;
use crate::engine::state::Phase;
use crate::engine::state::UnitState;
use crate::engine::unit::UnitId;
use crate::time::Timestamp;

/// Attempts without a result are to be observed once the former process's writes can no longer arrive; nobody saw
/// the targets of waits while nothing ran.
pub(super) fn recover(case: Case<'_>, settle: &BTreeMap<UnitId, Timestamp>) -> Vec<Event> {
    if case.run.finished.is_some() {
        return vec![];
    }
    case.run.open().filter_map(|(unit, state)| recover_unit(case, settle, unit, state)).collect()
}

fn recover_unit(
    case: Case<'_>,
    settle: &BTreeMap<UnitId, Timestamp>,
    unit: UnitId,
    state: &UnitState,
) -> Option<Event> {
    let attempt = state.attempt;
    match &state.phase {
        Phase::Acting { .. } if Part::of(case.plan, &unit.block).is_some_and(Part::is_internal) => {
            let end = AttemptEnd::of(AttemptEffect::NotDone);
            Some(Event::AttemptFinished { unit, attempt, end })
        }
        Phase::Acting { deadline, .. } => {
            let settle = settle.get(&unit).copied().unwrap_or(*deadline);
            Some(Event::Interrupted { unit, attempt, settle })
        }
        Phase::Waiting(_) => {
            let sight = Some(Sight::Lost(case.run.updated_at));
            Some(Event::WaitNoted { unit, note: WaitNote { sight, ..WaitNote::default() } })
        }
        Phase::Inherited
        | Phase::Pending { .. }
        | Phase::Preparing
        | Phase::Observing { .. }
        | Phase::Failing
        | Phase::Backoff { .. }
        | Phase::Sleeping { .. }
        | Phase::Acted
        | Phase::Asking { .. }
        | Phase::Concluding
        | Phase::Done(_) => None,
    }
}

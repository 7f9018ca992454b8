//! A run's line in the index.

use crate::engine::RunState;
use crate::engine::effect::next_deadline;
use crate::engine::event::Trigger;
use crate::journal::store::Summary;
use crate::plan::Plan;
use crate::time::Timestamp;

/// The line as the run is now. `idle_at`: when the run was found to have nothing to do before its next deadline, which
/// is then part of the line. Such a run need not be read again when a process starts.
pub(super) fn line(plan: &Plan, run: &RunState, idle_at: Option<Timestamp>) -> Summary {
    let (held_reason, held_reason_zh) =
        run.held_reason().map_or((None, None), |held| (Some(held.en), held.zh));
    Summary {
        run: run.id,
        workflow: run.created.workflow.clone(),
        status: run.status(),
        held_reason,
        held_reason_zh,
        overlay: run.overlay(),
        created_at: run.created_at,
        finished_at: run.finished.as_ref().map(|(at, _)| *at),
        due: idle_at.and_then(|now| next_deadline(plan, run, now)),
        root: match &run.created.trigger {
            Trigger::Parent { root, .. } => Some(*root),
            Trigger::Manual | Trigger::Retry(_) | Trigger::Rollback(_) => None,
        },
        key: run.created.key.clone(),
        locks: run.created.locks.clone(),
        debts: u32::try_from(run.debts.len()).unwrap_or(u32::MAX),
    }
}

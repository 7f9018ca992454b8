//! What a run comes down to, for lists and for its last event.

use crate::engine::event::Footprint;
use crate::engine::event::RolledBack;
use crate::engine::event::RunOutcome;
use crate::engine::event::VerdictReached;
use crate::engine::part::Part;
use crate::engine::part::Role;
use crate::engine::state::Phase;
use crate::engine::state::RunState;
use crate::engine::state::RunStatus;
use crate::engine::unit::UnitId;
use crate::failure::Failure;
use crate::plan::Plan;

impl RunState {
    /// The run's state in one word (design.md section 2).
    pub fn status(&self) -> RunStatus {
        if let Some((_, finished)) = &self.finished {
            return match finished.outcome {
                RunOutcome::Succeeded => RunStatus::Succeeded,
                RunOutcome::Failed => RunStatus::Failed,
                RunOutcome::RolledBack => RunStatus::RolledBack,
                RunOutcome::Cancelled(_) => RunStatus::Cancelled,
            };
        }
        if self.granted.is_none() {
            return RunStatus::Queued;
        }
        if !self.asks.is_empty() {
            return RunStatus::Held;
        }
        if self.rollback.is_some() {
            return RunStatus::RollingBack;
        }
        let mut open = self.open().map(|(_, unit)| &unit.phase).peekable();
        let waits = |phase: &Phase| {
            matches!(
                phase,
                Phase::Pending { .. } | Phase::Waiting(_) | Phase::Sleeping { .. } | Phase::Backoff { .. }
            )
        };
        if open.peek().is_some() && open.all(waits) { RunStatus::Waiting } else { RunStatus::Running }
    }

    /// Why it is Held: its questions, oldest first.
    pub fn held_reason(&self) -> Option<String> {
        let texts: Vec<_> = self.asks.iter().map(|ask| ask.message.en.as_str()).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// The verdict of the run: the worst of the step that the workflow names, by severity, then in the order of the
    /// list (L6).
    pub fn verdict(&self, plan: &Plan) -> Option<&VerdictReached> {
        let name = plan.workflow.verdict_of.as_ref()?;
        let order = |verdict: &VerdictReached| {
            let wait = plan.workflow.step(name).and_then(|step| step.wait.as_ref());
            let verdicts = wait.map(|wait| wait.verdicts.as_slice()).unwrap_or_default();
            verdicts.iter().position(|listed| listed.name == verdict.name).unwrap_or(usize::MAX)
        };
        let verdicts = self.steps.get(name)?.units.values().filter_map(|unit| unit.verdict.as_ref());
        verdicts.max_by_key(|verdict| (verdict.severity, std::cmp::Reverse(order(verdict))))
    }
}

/// Why the run failed, as far as it has.
pub fn failure(run: &RunState) -> Option<&Failure> {
    if let Some((_, finished)) = &run.finished {
        return finished.failure.as_ref();
    }
    run.rollback.as_ref().and_then(|rollback| rollback.failure.as_ref())
}

/// How the run ends if it ends now, and what it leaves.
pub fn result(plan: &Plan, run: &RunState) -> (RunOutcome, Vec<String>) {
    let Some(rollback) = &run.rollback else { return (RunOutcome::Succeeded, vec![]) };
    let left = left(plan, run);
    let compensated = rollback.undone.values().any(Option::is_none);
    let outcome = match (&rollback.failure, compensated, left.is_empty()) {
        (Some(_), true, true) => RunOutcome::RolledBack,
        (Some(_), _, _) => RunOutcome::Failed,
        (None, _, true) if run.is_rollback_only() => RunOutcome::RolledBack,
        (None, _, false) if run.is_rollback_only() => RunOutcome::Failed,
        (None, _, true) => RunOutcome::Cancelled(RolledBack::Yes),
        (None, true, false) => RunOutcome::Cancelled(RolledBack::Partly),
        (None, false, false) => RunOutcome::Cancelled(RolledBack::No),
    };
    (outcome, left)
}

/// What was changed and is not undone, each with the reason if there is one.
pub fn left(plan: &Plan, run: &RunState) -> Vec<String> {
    let is_step = |unit: &UnitId| Part::of(plan, &unit.block).is_some_and(|part| part.role == Role::Forward);
    let undone = run.rollback.as_ref().map(|rollback| &rollback.undone);
    let changed = run.completed.iter().filter(|unit| {
        let changed = run.unit(unit).is_some_and(|state| state.left() == Footprint::Changed);
        is_step(unit) && (changed || undone.is_some_and(|undone| undone.contains_key(unit)))
    });
    let left = changed.filter_map(|unit| match undone.and_then(|undone| undone.get(unit)) {
        Some(None) => None,
        Some(Some(reason)) => Some(format!("{unit}: {}", reason.en)),
        None => Some(unit.to_string()),
    });
    let in_flight =
        run.open().filter(|(unit, state)| unit.block.undo.is_none() && state.left() == Footprint::Changed);
    left.chain(in_flight.map(|(unit, _)| format!("{unit}: it was in flight"))).collect()
}

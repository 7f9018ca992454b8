//! What a run comes down to, for lists and for its last event.

use crate::engine::event::Footprint;
use crate::engine::event::HeldChild;
use crate::engine::event::RolledBack;
use crate::engine::event::RunOutcome;
use crate::engine::event::VerdictReached;
use crate::engine::part::Part;
use crate::engine::part::Role;
use crate::engine::state::Overlay;
use crate::engine::state::Phase;
use crate::engine::state::RunState;
use crate::engine::state::RunStatus;
use crate::engine::unit::UnitId;
use crate::failure::Bilingual;
use crate::failure::Failure;
use crate::id::StepName;
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
        if !self.asks.is_empty() || self.held_children().next().is_some() {
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

    /// What lies over its state.
    pub fn overlay(&self) -> Option<Overlay> {
        match (&self.finished, &self.cancel, self.paused_at) {
            (Some(_), _, _) | (None, None, None) => None,
            (None, Some(_), _) => Some(Overlay::Cancelling),
            (None, None, Some(_)) => Some(Overlay::Paused),
        }
    }

    /// Why it is Held: its questions, oldest first, then those of its children.
    pub fn held_reason(&self) -> Option<Bilingual> {
        let own = self.asks.iter().map(|ask| ask.message.clone());
        let children = self.held_children().map(|(unit, child)| {
            let HeldChild { run, reason } = child;
            let en = format!("run {run}, which {unit} has started, asks: {}", reason.en);
            Bilingual::new(en, format!("{unit} 启动的运行 {run} 等待人工处理：{}", reason.in_chinese()))
        });
        own.chain(children).reduce(|all, next| {
            let zh = format!("{}；{}", all.in_chinese(), next.in_chinese());
            Bilingual::new(format!("{}; {}", all.en, next.en), zh)
        })
    }

    /// The verdict of the run, and whose it is: the worst of the steps that the workflow names, by severity, then in
    /// the order of the lists (L6).
    pub fn verdict<'a>(&'a self, plan: &'a Plan) -> Option<(&'a StepName, &'a VerdictReached)> {
        let order = |name: &StepName, verdict: &VerdictReached| {
            let wait = plan.workflow.step(name).and_then(|step| step.wait.as_ref());
            let verdicts = wait.map(|wait| wait.verdicts.as_slice()).unwrap_or_default();
            verdicts.iter().position(|listed| listed.name == verdict.name).unwrap_or(usize::MAX)
        };
        let named = plan.workflow.verdict_of.iter().enumerate();
        let verdicts = named.flat_map(|(place, name)| {
            let units = self.steps.get(name).into_iter().flat_map(|block| block.units.values());
            units.filter_map(move |unit| Some((place, name, unit.verdict.as_ref()?)))
        });
        let worst = verdicts.max_by_key(|(place, name, verdict)| {
            (verdict.severity, std::cmp::Reverse((*place, order(name, verdict))))
        });
        worst.map(|(_, name, verdict)| (name, verdict))
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

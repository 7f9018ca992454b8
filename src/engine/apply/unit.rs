//! Events of one unit.

use std::sync::Arc;

use serde_json::Value;

use crate::definition::model::Outcome;
use crate::engine::ask::Ask;
use crate::engine::ask::AskReason;
use crate::engine::event::AttemptEffect;
use crate::engine::event::AttemptEnd;
use crate::engine::event::Event;
use crate::engine::event::Footprint;
use crate::engine::event::Item;
use crate::engine::event::ProcessMark;
use crate::engine::event::SkipReason;
use crate::engine::event::VerdictReached;
use crate::engine::state::Phase;
use crate::engine::state::RunState;
use crate::engine::state::UnitOutcome;
use crate::engine::state::UnitState;
use crate::engine::state::WaitState;
use crate::engine::unit::Block;
use crate::engine::unit::UnitId;
use crate::failure::Failure;
use crate::time::Timestamp;

impl RunState {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the caller names every event")]
    pub(super) fn fold_unit(&mut self, at: Timestamp, unit: &UnitId, event: &Event) {
        match event {
            Event::Succeeded { outputs, .. } => {
                self.begin(at, unit).outputs = Some(outputs.clone());
                self.end(at, unit, UnitOutcome::Succeeded);
            }
            Event::Failed { failure, .. } => {
                self.begin(at, unit).failure = Some(failure.clone());
                self.end(at, unit, UnitOutcome::Failed);
            }
            Event::Cancelled { .. } => self.end(at, unit, UnitOutcome::Cancelled),
            Event::AttemptStarted { .. } => {
                // The undo that ran between two attempts belongs to the earlier one.
                if unit.block.undo.is_none() && !self.undos.is_empty() {
                    self.undos.retain(|block, _| !undoes(block, unit));
                }
                self.begin(at, unit).fold(at, event);
            }
            _ => self.begin(at, unit).fold(at, event),
        }
    }

    /// The unit, begun now if it has not before.
    pub(super) fn begin(&mut self, at: Timestamp, unit: &UnitId) -> &mut UnitState {
        let block = match &unit.block.undo {
            None => self.steps.entry(unit.block.step.clone()).or_default(),
            Some(_) => self.undos.entry(unit.block.clone()).or_default(),
        };
        let key = unit.item.as_deref().unwrap_or("");
        if !block.units.get(key).is_some_and(UnitState::has_begun_here) {
            block.open += 1;
            self.open_units += 1;
            if let Some(inherited) = block.units.get_mut(key) {
                inherited.phase = Phase::Preparing;
                super::forget_completion(&mut self.completed, unit);
            } else {
                let key = unit.item.clone().unwrap_or_else(|| "".into());
                block.units.insert(key, UnitState::new(at));
            }
            block.skip_begun();
        }
        block.units.get_mut(key).expect("it was there or has just been inserted")
    }

    /// Ends a unit.
    pub(super) fn end(&mut self, at: Timestamp, unit: &UnitId, outcome: UnitOutcome) {
        let Some(block) = self.block_mut(&unit.block) else { return };
        let Some(state) = block.units.get_mut(unit.item.as_deref().unwrap_or("")) else { return };
        state.phase = Phase::Done(outcome);
        state.finished_at = Some(at);
        block.open -= 1;
        block.failed += u32::from(matches!(outcome, UnitOutcome::Failed | UnitOutcome::Cancelled));
        self.open_units -= 1;
        if unit.block.undo.is_none() {
            self.completed.push(unit.clone());
        }
        if !self.asks.is_empty() {
            self.asks.retain(|ask| ask.unit.as_ref() != Some(unit));
        }
    }

    pub(super) fn fold_opened(&mut self, block: &Block, items: &[Item]) {
        let state = match &block.undo {
            None => self.steps.entry(block.step.clone()).or_default(),
            Some(_) => self.undos.entry(block.clone()).or_default(),
        };
        // The unit that stood for the opening while it was tried again.
        if state.units.remove("").is_some() {
            state.open -= 1;
            self.open_units -= 1;
        }
        state.items = Some(items.to_vec());
        state.skip_begun();
    }

    pub(super) fn fold_skipped(&mut self, at: Timestamp, block: &Block, reason: SkipReason) {
        match &block.undo {
            None => self.steps.entry(block.step.clone()).or_default().skipped = Some(reason),
            Some(_) => self.undos.entry(block.clone()).or_default().skipped = Some(reason),
        }
        let waiting = self.unit(&block.clone().unit(None)).is_some_and(UnitState::is_open);
        if waiting {
            self.end(at, &block.clone().unit(None), UnitOutcome::Skipped);
        }
    }

    pub(super) fn fold_ask(&mut self, at: Timestamp, unit: &UnitId, ask: &Ask) {
        if ask.reason == AskReason::Unattributed {
            return;
        }
        let since = self.paused_at.unwrap_or(at);
        let state = self.begin(at, unit);
        state.held_child = None;
        if matches!(ask.reason, AskReason::Approval(_)) {
            state.end = Some(AttemptEnd::unchanged());
        }
        let wait = if let Phase::Waiting(wait) = std::mem::replace(&mut state.phase, Phase::Preparing) {
            Some(wait)
        } else {
            None
        };
        state.phase = Phase::Asking { since, wait };
    }
}

impl UnitState {
    /// A unit about which nothing is known yet.
    pub(super) const fn new(at: Timestamp) -> Self {
        Self {
            phase: Phase::Preparing,
            attempt: 0,
            retries: 0,
            started_at: at,
            finished_at: None,
            step_deadline: None,
            facts: None,
            object: None,
            request: None,
            retry: None,
            attempted: false,
            footprint: Footprint::None,
            end: None,
            held_child: None,
            verdict: None,
            outputs: None,
            failure: None,
            failing_since: None,
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the callers name every event")]
    fn fold(&mut self, at: Timestamp, event: &Event) {
        match event {
            Event::PreconditionPending { deadline, step_deadline, message, .. } => {
                self.keep_deadline(*step_deadline);
                self.phase = Phase::Pending { deadline: *deadline, message: message.clone() };
            }
            Event::Unchanged { facts, step_deadline, .. } => {
                self.keep_deadline(*step_deadline);
                self.facts.get_or_insert_with(|| facts.clone());
                self.phase = Phase::Acted;
            }
            Event::AttemptStarted {
                attempt, facts, object, request, deadline, step_deadline, retry, ..
            } => {
                self.keep_deadline(*step_deadline);
                if self.facts.is_none() {
                    self.facts.clone_from(facts);
                }
                self.attempt = *attempt;
                self.object.clone_from(object);
                self.request = Some(request.clone());
                self.retry = *retry;
                self.attempted = true;
                self.end = None;
                self.phase = Phase::Acting { deadline: *deadline, process: None };
            }
            Event::ProcessStarted { process: mark, .. } => {
                if let Phase::Acting { process, .. } = &mut self.phase {
                    *process = Some(mark.clone());
                }
            }
            Event::Interrupted { settle, .. } => {
                let process = self.process();
                self.phase = Phase::Observing { settle: *settle, process };
            }
            Event::ChildNoted { held, .. } => self.held_child = held.clone().map(Box::new),
            Event::AttemptFinished { end, .. } => self.fold_end(at, end),
            Event::RetryScheduled { due, failure, .. } => {
                self.retries += 1;
                self.note_failure(at, failure);
                self.phase = Phase::Backoff { due: *due };
            }
            Event::SleepStarted { due, .. } => {
                self.end = Some(AttemptEnd::unchanged());
                self.phase = Phase::Sleeping { due: *due };
            }
            Event::WaitStarted { deadline, limits, .. } => {
                self.phase = Phase::Waiting(Box::new(WaitState::new(at, *deadline, limits.clone())));
            }
            Event::WaitNoted { note, .. } => {
                if let Phase::Waiting(wait) = &mut self.phase {
                    wait.fold(at, note);
                }
            }
            Event::VerdictReached { verdict, .. } => self.fold_verdict(verdict),
            _ => {}
        }
    }

    /// The first event of a unit says its deadline; later ones repeat it, if they know it.
    fn keep_deadline(&mut self, deadline: Option<Timestamp>) {
        if self.step_deadline.is_none() {
            self.step_deadline = deadline;
        }
    }

    fn note_failure(&mut self, at: Timestamp, failure: &Failure) {
        if self.failure.as_ref().is_none_or(|before| before.code != failure.code) {
            self.failing_since = Some(at);
        }
        self.failure = Some(failure.clone());
    }

    fn fold_end(&mut self, at: Timestamp, end: &AttemptEnd) {
        let observed = matches!(self.phase, Phase::Observing { .. });
        let (phase, failure) = match &end.effect {
            AttemptEffect::Changed | AttemptEffect::Unchanged | AttemptEffect::Unattributed => {
                (Phase::Acted, None)
            }
            AttemptEffect::NotDone => (Phase::Preparing, None),
            AttemptEffect::Failed(failure) | AttemptEffect::FailedHalfway(failure) => {
                (Phase::Failing, Some(failure))
            }
            // Observed, and still unknown: nobody will ever know.
            AttemptEffect::Unknown(failure) if observed => (Phase::Failing, Some(failure)),
            AttemptEffect::Unknown(failure) => {
                let settle = if let Phase::Acting { deadline, .. } = &self.phase { *deadline } else { at };
                (Phase::Observing { settle, process: self.process() }, Some(failure))
            }
        };
        if let Some(failure) = failure {
            self.note_failure(at, failure);
        }
        // What is still to be observed leaves its mark when that is done.
        if !matches!(phase, Phase::Observing { .. }) {
            self.footprint = self.footprint.max(end.effect.footprint());
        }
        if let Some(verdict) = &end.verdict {
            self.verdict = Some(verdict.as_ref().clone());
        }
        self.held_child = None;
        self.end = Some(end.clone());
        self.phase = phase;
    }

    fn fold_verdict(&mut self, verdict: &VerdictReached) {
        self.verdict = Some(verdict.clone());
        match verdict.outcome {
            Outcome::Succeed => self.phase = Phase::Concluding,
            Outcome::Fail | Outcome::Retry => {
                self.failure.clone_from(&verdict.failure);
                self.phase = Phase::Failing;
            }
            // A question follows.
            Outcome::Ask | Outcome::Wait => {}
        }
    }

    fn process(&self) -> Option<ProcessMark> {
        if let Phase::Acting { process, .. } | Phase::Observing { process, .. } = &self.phase {
            process.clone()
        } else {
            None
        }
    }
}

/// True if `block` is a rollback entry of the step's item `unit`.
fn undoes(block: &Block, unit: &UnitId) -> bool {
    block.step == unit.block.step && block.undo.as_ref().is_some_and(|undo| undo.item == unit.item)
}

/// Outputs of a unit that has none.
pub(super) fn no_outputs() -> Arc<Value> {
    Arc::new(Value::Null)
}

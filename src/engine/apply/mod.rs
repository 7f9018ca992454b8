//! Folds an event into the state: the same function live and on replay. It needs no plan; what an event leads to is
//! the business of [`crate::engine::decide`]. An event that is not legal changes nothing.

mod answer;
mod table;
mod unit;
mod wait;

pub(in crate::engine) use wait::rises;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::ask::AskReason;
use crate::engine::event::Actor;
use crate::engine::event::Created;
use crate::engine::event::Event;
use crate::engine::event::Inherited;
use crate::engine::event::InheritedUnit;
use crate::engine::event::Item;
use crate::engine::state::Broken;
use crate::engine::state::CancelRequest;
use crate::engine::state::Phase;
use crate::engine::state::RollbackState;
use crate::engine::state::RunState;
use crate::engine::state::UnitOutcome;
use crate::engine::state::UnitState;
use crate::engine::unit::Block;
use crate::engine::unit::ItemKey;
use crate::engine::unit::UnitId;
use crate::failure::Bilingual;
use crate::id::RunId;
use crate::id::Seq;
use crate::id::StepName;
use crate::time::Timestamp;

/// An event that cannot have happened in the run's state. Read from a journal it is damage; made by `decide` a bug.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("event {seq} ({event}) is not legal: {why}")]
pub struct IllegalEvent {
    /// Its position.
    pub seq: Seq,
    /// The event.
    pub event: String,
    /// The state that forbids it.
    pub why: String,
}

impl RunState {
    /// A run from its first event.
    pub fn create(id: RunId, at: Timestamp, created: &Created) -> Self {
        let deadline = created.timeout_ms.map(|ms| at + Duration::from_millis(ms));
        let mut run = Self {
            id,
            seq: Seq(1),
            updated_at: at,
            created: created.clone(),
            created_at: at,
            granted: created.locks.is_empty().then_some((at, deadline)),
            steps: BTreeMap::new(),
            undos: BTreeMap::new(),
            open_units: 0,
            rollback: None,
            cancel: None,
            abandoned: None,
            paused_at: None,
            stopped_at: None,
            asks: vec![],
            asks_total: 0,
            answers: vec![],
            debts: vec![],
            debts_total: 0,
            warnings: vec![],
            notes: vec![],
            evidence: vec![],
            broken_guards: vec![],
            broken_locks: vec![],
            finished: None,
            completed: vec![],
            over: 0,
        };
        if let Some(inherited) = &created.inherited {
            run.inherit(at, inherited);
        }
        run
    }

    /// A run from its whole journal.
    ///
    /// # Errors
    /// The first event that is not legal, or a journal that does not begin with `Created`.
    pub fn replay<'e>(
        id: RunId,
        journal: impl IntoIterator<Item = (Seq, Timestamp, &'e Event)>,
    ) -> Result<Self, IllegalEvent> {
        let mut journal = journal.into_iter();
        let mut run = match journal.next() {
            Some((Seq(1), at, Event::Created(created))) => Self::create(id, at, created),
            Some((seq, _, event)) => return Err(illegal(seq, event, "a journal begins with `created`")),
            None => {
                let (event, why) = ("none".to_owned(), "the journal is empty".to_owned());
                return Err(IllegalEvent { seq: Seq(0), event, why });
            }
        };
        for (seq, at, event) in journal {
            run.apply(seq, at, event)?;
        }
        Ok(run)
    }

    /// Folds one event.
    ///
    /// # Errors
    /// The event is not the next one, or not legal in this state; the state is as before then.
    pub fn apply(&mut self, seq: Seq, at: Timestamp, event: &Event) -> Result<(), IllegalEvent> {
        if seq != self.seq.next() {
            return Err(illegal(seq, event, format_args!("the run is at event {}", self.seq)));
        }
        table::check(self, event).map_err(|why| illegal(seq, event, why))?;
        self.fold(at, event);
        self.seq = seq;
        self.updated_at = at;
        self.sync_clock(at, matches!(event, Event::ChildNoted { .. }));
        Ok(())
    }

    /// Whatever `table::check` let pass.
    fn fold(&mut self, at: Timestamp, event: &Event) {
        match event {
            Event::LocksGranted { deadline } => self.granted = Some((at, *deadline)),
            Event::LockBroken { key, by, reason } => self.broken_locks.push(lock_taken(key, by, reason)),
            Event::GuardBroken { guard, message } => {
                self.broken_guards.push(broken(*guard, message.clone()));
            }
            Event::Compensated { step, item } => self.set_undone(step, item.as_ref(), None),
            Event::NotCompensated { step, item, reason } => {
                self.set_undone(step, item.as_ref(), Some(reason.clone()));
            }
            Event::AskAnswered { id, choice, by, reason } => {
                self.fold_answer(at, *id, *choice, by.as_ref(), reason.as_deref());
            }
            Event::AskOpened(ask) => {
                self.asks_total = ask.id;
                self.mark_handled(&ask.reason);
                if let Some(unit) = &ask.unit {
                    self.fold_ask(at, unit, ask);
                }
                self.asks.push(ask.as_ref().clone());
            }
            Event::CancelRequested { by, reason } => {
                self.cancel = Some(CancelRequest { by: by.clone(), reason: reason.clone() });
            }
            Event::RollbackStarted { failure } => {
                let (failure, undone) = (failure.clone(), BTreeMap::new());
                self.rollback = Some(RollbackState { since: at, failure, undone });
                self.asks.retain(|ask| ask.unit.is_some());
            }
            Event::Paused { .. } => self.paused_at = Some(at),
            Event::Unpaused { shift_ms, .. } => {
                self.paused_at = None;
                self.shift(Duration::from_millis(*shift_ms));
            }
            Event::DebtOpened(debt) => {
                self.debts_total = debt.id;
                self.debts.push(debt.as_ref().clone());
            }
            Event::DebtClosed { id, .. } => self.debts.retain(|debt| debt.id != *id),
            Event::Noted { by, text } => self.notes.push((at, by.name.clone(), text.clone())),
            Event::Warned { step, failure } => self.warnings.push((step.clone(), failure.clone())),
            Event::EvidenceKept(evidence) => self.evidence.push((at, evidence.as_ref().clone())),
            Event::Finished(finished) => {
                self.finished = Some((at, finished.as_ref().clone()));
                self.asks.clear();
            }
            Event::Opened { block, items } => self.fold_opened(block, items),
            Event::Covered { block, failure } => {
                if let Some(state) = self.block_mut(block) {
                    state.covered = Some(failure.clone().map_or(Ok(()), |failure| Err(Box::new(failure))));
                }
            }
            Event::Skipped { block, reason } => self.fold_skipped(at, block, *reason),
            Event::Created(_) => {}
            Event::PreconditionPending { unit, .. }
            | Event::Unchanged { unit, .. }
            | Event::AttemptStarted { unit, .. }
            | Event::ProcessStarted { unit, .. }
            | Event::Interrupted { unit, .. }
            | Event::ChildNoted { unit, .. }
            | Event::AttemptFinished { unit, .. }
            | Event::RetryScheduled { unit, .. }
            | Event::SleepStarted { unit, .. }
            | Event::WaitStarted { unit, .. }
            | Event::WaitNoted { unit, .. }
            | Event::VerdictReached { unit, .. }
            | Event::Succeeded { unit, .. }
            | Event::Failed { unit, .. }
            | Event::Cancelled { unit } => self.fold_unit(at, unit, event),
        }
    }

    fn set_undone(&mut self, step: &StepName, item: Option<&ItemKey>, left: Option<Bilingual>) {
        let unit = Block::forward(step.clone()).unit(item.cloned());
        if let Some(rollback) = &mut self.rollback {
            rollback.undone.insert(unit, left);
        }
    }

    fn mark_handled(&mut self, reason: &AskReason) {
        match reason {
            AskReason::GuardBroken => self.broken_guards.iter_mut().for_each(|guard| guard.handled = true),
            AskReason::LockBroken => self.broken_locks.iter_mut().for_each(|lock| lock.handled = true),
            AskReason::CannotTell
            | AskReason::Verdict
            | AskReason::Stalled
            | AskReason::Unobserved
            | AskReason::FailedUndo
            | AskReason::Unattributed
            | AskReason::ChangedByOthers
            | AskReason::LostRecord
            | AskReason::Approval(_) => {}
        }
    }

    /// Moves the run's own deadline by the time in which it was paused or asked, itself or a child of it (E7).
    fn sync_clock(&mut self, at: Timestamp, child_noted: bool) {
        let child_asks = (child_noted || self.stopped_at.is_some()) && self.held_children().next().is_some();
        let stopped = self.paused_at.is_some() || !self.asks.is_empty() || child_asks;
        match (stopped, self.stopped_at) {
            (true, None) => self.stopped_at = Some(at),
            (false, Some(since)) => {
                if let Some((_, Some(deadline))) = &mut self.granted {
                    *deadline = *deadline + at.since(since);
                }
                self.stopped_at = None;
            }
            (true, Some(_)) | (false, None) => {}
        }
    }

    /// Moves the deadlines of all units that do not ask; those that ask are moved by the answer.
    fn shift(&mut self, by: Duration) {
        let blocks = self.steps.values_mut().chain(self.undos.values_mut()).filter(|block| block.open > 0);
        for unit in blocks.flat_map(|block| block.units.values_mut()) {
            match &mut unit.phase {
                Phase::Asking { .. } | Phase::Done(_) | Phase::Inherited => continue,
                Phase::Pending { deadline, .. } => *deadline = *deadline + by,
                Phase::Waiting(wait) => wait.shift(by),
                Phase::Preparing
                | Phase::Acting { .. }
                | Phase::Observing { .. }
                | Phase::Failing
                | Phase::Backoff { .. }
                | Phase::Sleeping { .. }
                | Phase::Acted
                | Phase::Concluding => {}
            }
            unit.step_deadline = unit.step_deadline.map(|deadline| deadline + by);
        }
    }

    /// Takes over what an earlier run did (E11): what succeeded counts as done, the rest is remembered.
    fn inherit(&mut self, at: Timestamp, inherited: &Inherited) {
        for old in &inherited.units {
            let block = self.steps.entry(old.unit.block.step.clone()).or_default();
            if let (Some(key), Some(value)) = (&old.unit.item, &old.value) {
                block.inherited.push(Item { key: key.clone(), value: value.clone() });
            }
            let unit = inherited_unit(at, old);
            block.units.insert(old.unit.item.clone().unwrap_or_else(|| "".into()), unit);
            self.completed.push(old.unit.clone());
        }
    }
}

fn inherited_unit(at: Timestamp, old: &InheritedUnit) -> UnitState {
    let succeeded = old.outputs.is_some();
    UnitState {
        phase: if succeeded { Phase::Done(UnitOutcome::Succeeded) } else { Phase::Inherited },
        finished_at: succeeded.then_some(at),
        facts: old.facts.clone(),
        attempted: old.attempted,
        footprint: old.footprint,
        end: old.end.clone(),
        verdict: old.verdict.clone(),
        outputs: old.outputs.clone(),
        ..UnitState::new(at)
    }
}

const fn broken<T>(what: T, message: Bilingual) -> Broken<T> {
    Broken { what, message, handled: false }
}

fn lock_taken(key: &Arc<str>, by: &Actor, reason: &str) -> Broken<Arc<str>> {
    let message = Bilingual::new(
        format!("{} took the lock {key} away: {reason}", by.name),
        format!("{} 收回了锁 {key}：{reason}", by.name),
    );
    broken(key.clone(), message)
}

fn illegal(seq: Seq, event: &Event, why: impl std::fmt::Display) -> IllegalEvent {
    IllegalEvent { seq, event: event.name().to_owned(), why: why.to_string() }
}

/// A unit that is taken up again has not ended.
fn forget_completion(completed: &mut Vec<UnitId>, unit: &UnitId) {
    completed.retain(|other| other != unit);
}

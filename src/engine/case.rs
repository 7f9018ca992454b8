//! What a decision is made from, and the few events that many decisions share.

use std::time::Duration;

use crate::definition::model::Outcome;
use crate::definition::model::Severity;
use crate::engine::ask::Ask;
use crate::engine::ask::AskReason;
use crate::engine::ask::Choice;
use crate::engine::codes;
use crate::engine::command::DebtDraft;
use crate::engine::event::Debt;
use crate::engine::event::Event;
use crate::engine::event::VerdictReached;
use crate::engine::limits;
use crate::engine::part::Part;
use crate::engine::part::Role;
use crate::engine::state::Phase;
use crate::engine::state::RunState;
use crate::engine::unit::UnitId;
use crate::failure::Bilingual;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::time::Timestamp;

/// Plan, state and time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case<'a> {
    pub(super) plan: &'a Plan,
    pub(super) run: &'a RunState,
    pub(super) now: Timestamp,
}

impl Case<'_> {
    /// True if something may start that has not yet.
    pub(super) fn may_start(self) -> bool {
        self.run.granted.is_some() && self.run.paused_at.is_none() && !self.run.asks_as_a_whole()
    }

    /// True if units of that part are to end as soon as they can.
    pub(super) fn is_halting(self, part: Part<'_>) -> bool {
        part.role == Role::Forward && self.run.is_stopping()
    }

    /// The end of a unit that cannot succeed: a failure, or for an undo a question (E5).
    pub(super) fn fail(self, part: Part<'_>, unit: &UnitId, failure: Failure) -> Event {
        if !part.is_undo() || part.continues_on_error() {
            return Event::Failed { unit: unit.clone(), failure };
        }
        let by_others = failure.code == codes::CHANGED_BY_OTHERS;
        let reason = if by_others { AskReason::ChangedByOthers } else { AskReason::FailedUndo };
        let en = format!("the undo {unit} failed: {} ({})", failure.message, failure.code);
        let zh = Some(format!("撤销步骤 {unit} 失败:{}({})", failure.text().in_chinese(), failure.code));
        self.ask(part, Some(unit), reason, Bilingual { en, zh })
    }

    /// A question without expiry, with the answers that its reason and place allow.
    pub(super) fn ask(
        self,
        part: Part<'_>,
        unit: Option<&UnitId>,
        reason: AskReason,
        message: Bilingual,
    ) -> Event {
        let choices = choices(part.role, &reason, self.has_wait(unit));
        self.ask_with(unit, reason, message, choices, None)
    }

    /// A question of the run as a whole.
    pub(super) fn ask_as_a_whole(self, reason: AskReason, message: Bilingual) -> Event {
        let mut choices = vec![Choice::Skip, Choice::Fail];
        if !self.run.is_stopping() {
            choices.insert(0, Choice::Rollback);
        }
        self.ask_with(None, reason, message, choices, None)
    }

    /// Any question.
    pub(super) fn ask_with(
        self,
        unit: Option<&UnitId>,
        reason: AskReason,
        message: Bilingual,
        choices: Vec<Choice>,
        expires: Option<Duration>,
    ) -> Event {
        let expires = expires.map(|after| self.now + after);
        let (id, unit) = (self.run.asks_total + 1, unit.cloned());
        Event::AskOpened(Box::new(Ask { id, unit, reason, message, choices, expires }))
    }

    /// What must be seen of a verdict by which the run goes on although not all is well.
    pub(super) fn warning(self, unit: &UnitId, verdict: &VerdictReached) -> Option<Event> {
        let marred = verdict.outcome == Outcome::Succeed && verdict.severity > Severity::Ok;
        let failure = || Failure::permanent(codes::MARRED, verdict.message.clone());
        marred.then(|| Event::Warned { step: Some(unit.block.step.clone()), failure: failure() })
    }

    /// The debt, unless the step has it already.
    pub(super) fn debt(self, unit: &UnitId, draft: DebtDraft) -> Option<Event> {
        let step = &unit.block.step;
        let known = self.run.debts.iter().any(|debt| debt.step == *step && debt.what == draft.what);
        let DebtDraft { what, objects, gone_when } = draft;
        let (id, step) = (self.run.debts_total + 1, step.clone());
        (!known).then(|| Event::DebtOpened(Box::new(Debt { id, step, what, objects, gone_when })))
    }

    fn has_wait(self, unit: Option<&UnitId>) -> bool {
        let state = unit.and_then(|unit| self.run.unit(unit));
        state.is_some_and(|state| matches!(state.phase, Phase::Waiting(_)))
    }
}

/// The answers to a unit's question, the default first.
fn choices(role: Role, reason: &AskReason, has_wait: bool) -> Vec<Choice> {
    let mut choices = match reason {
        AskReason::Unattributed => return vec![Choice::Skip, Choice::Rollback, Choice::Fail],
        AskReason::Approval(_) => return vec![Choice::Reject, Choice::Approve],
        AskReason::Verdict | AskReason::Stalled | AskReason::Unobserved if has_wait => {
            vec![Choice::Wait(limits::WAIT_AGAIN), Choice::Done, Choice::Retry, Choice::Skip]
        }
        AskReason::Unobserved => vec![Choice::Retry, Choice::Skip],
        AskReason::CannotTell
        | AskReason::FailedUndo
        | AskReason::ChangedByOthers
        | AskReason::Verdict
        | AskReason::Stalled
        | AskReason::GuardBroken
        | AskReason::LockBroken
        | AskReason::LostRecord => vec![Choice::Retry, Choice::Done, Choice::Skip],
    };
    match role {
        Role::Forward => choices.extend([Choice::Rollback, Choice::Fail]),
        Role::Undo | Role::ChildUndo => choices.push(Choice::Fail),
        Role::Finally => {}
    }
    choices
}

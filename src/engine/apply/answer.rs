//! An answer, folded: it alone decides where the unit goes on, so that a crash right after it loses nothing.

use std::time::Duration;

use crate::engine::apply::unit::no_outputs;
use crate::engine::ask::Approval;
use crate::engine::ask::Ask;
use crate::engine::ask::AskReason;
use crate::engine::ask::Choice;
use crate::engine::codes;
use crate::engine::event::Actor;
use crate::engine::event::AttemptEffect;
use crate::engine::event::AttemptEnd;
use crate::engine::event::Footprint;
use crate::engine::event::SkipReason;
use crate::engine::state::Abandoned;
use crate::engine::state::Answered;
use crate::engine::state::Phase;
use crate::engine::state::RunState;
use crate::engine::state::UnitOutcome;
use crate::engine::state::WaitState;
use crate::engine::unit::UnitId;
use crate::failure::Bilingual;
use crate::failure::Failure;
use crate::time::Timestamp;

impl RunState {
    pub(super) fn fold_answer(
        &mut self,
        at: Timestamp,
        id: u32,
        choice: Choice,
        by: Option<&Actor>,
        reason: Option<&str>,
    ) {
        let Some(position) = self.asks.iter().position(|ask| ask.id == id) else { return };
        let ask = self.asks.remove(position);
        let failure = self.failure_behind(&ask, by, reason);
        if let Choice::Rollback | Choice::Fail = choice
            && ask.reason != AskReason::Unattributed
        {
            let leave = choice == Choice::Fail;
            self.abandoned = Some(Abandoned { failure: failure.clone(), leave });
        }
        let asking = ask.unit.as_ref().filter(|_| ask.reason != AskReason::Unattributed).cloned();
        let (unit, reason) = (ask.unit.clone(), ask.reason.clone());
        self.answers.push(Answered { id, unit, reason, choice, by: by.cloned(), at });
        match asking {
            Some(unit) => self.go_on(at, &unit, &ask, (choice, by), failure),
            None if ask.reason == AskReason::Unattributed && choice == Choice::Fail => {
                self.abandoned = Some(Abandoned { failure, leave: true });
            }
            None => {}
        }
    }

    /// `failure` is what comes of it if the answer is a "no".
    fn go_on(
        &mut self,
        at: Timestamp,
        unit: &UnitId,
        ask: &Ask,
        (choice, by): (Choice, Option<&Actor>),
        failure: Failure,
    ) {
        let stood_still = self.paused_at.unwrap_or(at).min(at);
        let state = self.begin(at, unit);
        let Phase::Asking { since, wait } = std::mem::replace(&mut state.phase, Phase::Preparing) else {
            return;
        };
        let asked_for = stood_still.since(since);
        state.step_deadline = state.step_deadline.map(|deadline| deadline + asked_for);
        match choice {
            Choice::Retry => {
                state.retries = 0;
                if ask.reason == AskReason::CannotTell {
                    state.footprint = Footprint::Changed;
                }
            }
            Choice::Approve => state.phase = Phase::Acted,
            Choice::Wait(longer) => {
                if let Some(mut wait) = wait {
                    wait.go_on(at, asked_for, longer, ask.reason == AskReason::Verdict);
                    state.step_deadline = state.step_deadline.map(|deadline| deadline.max(wait.deadline));
                    state.phase = Phase::Waiting(wait);
                }
            }
            Choice::Done if wait.is_some() => state.phase = Phase::Concluding,
            Choice::Done if ask.reason == AskReason::CannotTell => {
                let effect = AttemptEffect::Unattributed;
                state.end = Some(AttemptEnd::of(effect));
                state.footprint = Footprint::Changed;
                state.phase = Phase::Acted;
            }
            Choice::Done => {
                state.outputs = Some(no_outputs());
                self.end(at, unit, UnitOutcome::Succeeded);
            }
            Choice::Skip => self.end(at, unit, UnitOutcome::Skipped),
            Choice::Rollback | Choice::Fail => self.fail(at, unit, failure),
            Choice::Reject => match &ask.reason {
                AskReason::Approval(approval) if declines(approval, by) => {
                    self.end(at, unit, UnitOutcome::Skipped);
                    if let Some(block) = self.steps.get_mut(&unit.block.step) {
                        block.skipped = Some(SkipReason::Declined);
                    }
                }
                AskReason::Approval(_)
                | AskReason::CannotTell
                | AskReason::Verdict
                | AskReason::Stalled
                | AskReason::Unobserved
                | AskReason::FailedUndo
                | AskReason::Unattributed
                | AskReason::ChangedByOthers
                | AskReason::GuardBroken
                | AskReason::LockBroken
                | AskReason::LostRecord => self.fail(at, unit, failure),
            },
        }
    }

    fn fail(&mut self, at: Timestamp, unit: &UnitId, failure: Failure) {
        self.begin(at, unit).failure = Some(failure);
        self.end(at, unit, UnitOutcome::Failed);
    }

    /// The failure that the question was about, or one made of the question.
    fn failure_behind(&self, ask: &Ask, by: Option<&Actor>, reason: Option<&str>) -> Failure {
        let known = ask.unit.as_ref().and_then(|unit| self.unit(unit)).and_then(|unit| unit.failure.clone());
        if let Some(known) = known {
            return known;
        }
        let code = match &ask.reason {
            AskReason::CannotTell => codes::CANNOT_TELL,
            AskReason::Verdict => codes::VERDICT,
            AskReason::Stalled => codes::WAIT_STALLED,
            AskReason::Unobserved => codes::UNOBSERVED,
            AskReason::FailedUndo | AskReason::Unattributed => codes::UNDO_FAILED,
            AskReason::ChangedByOthers => codes::CHANGED_BY_OTHERS,
            AskReason::GuardBroken => codes::GUARD_BROKEN,
            AskReason::LockBroken => codes::LOCK_BROKEN,
            AskReason::LostRecord => codes::LOST_RECORD,
            AskReason::Approval(_) if by.is_none() => codes::APPROVAL_EXPIRED,
            AskReason::Approval(_) => codes::APPROVAL_REJECTED,
        };
        Failure::permanent(code, refusal(ask, by, reason))
    }
}

impl WaitState {
    fn go_on(&mut self, at: Timestamp, asked_for: Duration, longer: Duration, quiet: bool) {
        self.deadline = (self.deadline + asked_for).max(at + longer);
        self.progress_at = at;
        self.lost_at = None;
        self.applies = None;
        self.quiet = quiet;
    }
}

/// The question, with who said no to it and why.
fn refusal(ask: &Ask, by: Option<&Actor>, reason: Option<&str>) -> Bilingual {
    let (en, zh) = match (&ask.reason, by) {
        (_, None) => ("nobody answered in time".to_owned(), "无人在时限内答复".to_owned()),
        (AskReason::Approval(_), Some(by)) => {
            (format!("refused by {}", by.name), format!("被 {} 拒绝", by.name))
        }
        (_, Some(by)) => (format!("decided by {}", by.name), format!("由 {} 决定", by.name)),
    };
    let why = |colon| reason.map_or_else(String::new, |reason| format!("{colon}{reason}"));
    Bilingual::new(
        format!("{} ({en}{})", ask.message.en, why(": ")),
        format!("{}（{zh}{}）", ask.message.in_chinese(), why("：")),
    )
}

/// True if this "no" skips what depends on the approval; false if it fails the step.
const fn declines(approval: &Approval, by: Option<&Actor>) -> bool {
    match by {
        None => approval.expiry_declines,
        Some(_) => approval.rejection_declines,
    }
}

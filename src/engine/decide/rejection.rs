//! Why a run does not take a command.

use crate::engine::ask::Choice;
use crate::engine::event::RunOutcome;
use crate::engine::unit::UnitId;
use crate::time::Timestamp;

/// A refusal, in words for the one who asked. Nothing has happened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say what each one means")]
pub enum Rejection {
    #[error("the run ended at {at}: {outcome}")]
    Finished { at: Timestamp, outcome: RunOutcome },
    #[error("the run does not wait for this report any more: {what}")]
    Stale { what: String },
    #[error("the run has its locks")]
    HasLocks,
    #[error("the run asks nothing")]
    AsksNothing,
    #[error("the run asks nothing about `{unit}`; it asks about {open}")]
    AsksSomethingElse { unit: UnitId, open: String },
    #[error("the run asks more than one question: name the step ({open})")]
    Ambiguous { open: String },
    #[error("already answered at {at} by {by}: {choice}")]
    AlreadyAnswered { by: String, at: Timestamp, choice: Choice },
    #[error("`{choice}` is not an answer to this question; these are: {offered}")]
    NotOffered { choice: Choice, offered: String },
    #[error("{requester} started the run and may not approve it")]
    RequesterMayNotApprove { requester: String },
    #[error("the run is being cancelled already")]
    CancelledAlready,
    #[error("the run rolls back, which cannot be cancelled; `windrow terminate` ends it without undo")]
    RollingBack,
    #[error("every step of the run is done, it only finishes")]
    Finishing,
    #[error("the run is paused already")]
    PausedAlready,
    #[error("the run is not paused")]
    NotPaused,
    #[error("the run does not hold the lock `{key}`")]
    NoSuchLock { key: String },
    #[error("the run has no open debt number {id}")]
    NoSuchDebt { id: u32 },
    #[error("the text is longer than {max} bytes")]
    TextTooLong { max: usize },
    #[error("the run has {max} remarks already")]
    TooManyNotes { max: usize },
    #[error("the run is not over yet")]
    NotOver,
    #[error("the run succeeded: there is nothing to retry")]
    NothingToRetry,
    #[error("the run left nothing that could be undone")]
    NothingToUndo,
}

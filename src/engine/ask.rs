//! Questions to people: asks, approvals, and the answers that exist.

use serde::{Deserialize, Serialize};

use crate::engine::unit::UnitId;
use crate::failure::Bilingual;
use crate::time::Timestamp;

/// A question that keeps a run Held until a person answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Number of the question within its run, from 1.
    pub id: u32,
    /// The unit that asks; none if the run as a whole does.
    pub unit: Option<UnitId>,
    /// Why.
    pub reason: AskReason,
    /// What is known, for a person.
    pub message: Bilingual,
    /// The answers that are taken, the default first.
    pub choices: Vec<Choice>,
    /// When the default is taken if nobody answers.
    pub expires: Option<Timestamp>,
}

impl Ask {
    /// True if `choice` is one of its answers; any duration will do for "wait".
    pub fn offers(&self, choice: Choice) -> bool {
        self.choices.iter().any(|offered| match (offered, choice) {
            (Choice::Wait(_), Choice::Wait(_)) => true,
            (offered, choice) => *offered == choice,
        })
    }
}

/// Why a run asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskReason {
    /// It cannot be told whether an interrupted attempt took effect (E3).
    CannotTell,
    /// A verdict with outcome `ask`, or `at_timeout = "ask"`.
    Verdict,
    /// A wait without progress.
    Stalled,
    /// The API was unreachable at a deadline (E7).
    Unobserved,
    /// An undo failed.
    FailedUndo,
    /// A step whose effect is there, but not provably ours, is to be undone.
    Unattributed,
    /// `k8s.restore` found another value than the one that this run wrote.
    ChangedByOthers,
    /// A guard is broken.
    GuardBroken,
    /// Somebody broke one of the run's locks.
    LockBroken,
    /// The journal has a bad record.
    LostRecord,
    /// An `approval` step.
    Approval(Box<Approval>),
}

/// What an approver approves (E12).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// The rendered list of what is concerned.
    pub subject: Vec<String>,
    /// SHA-256 over workflow digest, inputs and subject: what the answer is bound to.
    pub binds: String,
    /// The requester may approve.
    pub self_approve: bool,
    /// Expiry is a decline (true) or a failure (false).
    pub expiry_declines: bool,
    /// A rejection is a decline (true) or a failure (false).
    pub rejection_declines: bool,
}

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// Take the step's effect as done.
    Done,
    /// Run the action again.
    Retry,
    /// Go on waiting, for so long.
    Wait(#[serde(with = "millis")] std::time::Duration),
    /// Go on without the step; in a rollback, leave it as it is.
    Skip,
    /// Fail the step; the run rolls back.
    Rollback,
    /// Fail the run without undoing anything.
    Fail,
    /// An approval is given.
    Approve,
    /// An approval is refused.
    Reject,
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Retry => f.write_str("retry"),
            Self::Wait(duration) => write!(f, "wait {}s", duration.as_secs()),
            Self::Skip => f.write_str("skip"),
            Self::Rollback => f.write_str("rollback"),
            Self::Fail => f.write_str("fail"),
            Self::Approve => f.write_str("approve"),
            Self::Reject => f.write_str("reject"),
        }
    }
}

/// Durations as whole milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

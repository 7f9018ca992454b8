//! What may be asked of a run, and what its effects report.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::engine::ask::Approval;
use crate::engine::ask::Choice;
use crate::engine::event::Actor;
use crate::engine::event::AttemptEnd;
use crate::engine::event::Blob;
use crate::engine::event::Evidence;
use crate::engine::event::Facts;
use crate::engine::event::HeldChild;
use crate::engine::event::Item;
use crate::engine::event::ObjectVersion;
use crate::engine::event::ProcessMark;
use crate::engine::unit::Block;
use crate::engine::unit::UnitId;
use crate::failure::Bilingual;
use crate::failure::Explanation;
use crate::failure::Failure;
use crate::time::Timestamp;

/// A request to a run. Reports of effects that the run does not wait for any more are refused, not applied.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "each variant has its comment; the fields repeat names defined elsewhere")]
pub enum Command {
    /// The first command that a new process gives to a run: attempts without a result are Interrupted.
    Recover {
        /// When writes of the former process can no longer arrive, where that is known better than by the
        /// attempt's deadline: a process is found again by its mark, an action inside this process died with it.
        settle: BTreeMap<UnitId, Timestamp>,
    },
    /// The run's turn for all its locks has come.
    GrantLocks,
    /// Time has passed: do what is due.
    Tick,

    /// Report of [`crate::engine::Effect::Open`].
    Opened { block: Block, result: Result<Opening, Failure> },
    /// Report of [`crate::engine::Effect::Prepare`].
    Prepared { unit: UnitId, result: Preparation },
    /// The gate process of an attempt exists.
    ProcessStarted { unit: UnitId, attempt: u32, process: ProcessMark },
    /// The workflow that an attempt called waits for a person, or does not any more.
    ChildNoted { unit: UnitId, attempt: u32, held: Option<HeldChild> },
    /// Report of [`crate::engine::Effect::Act`].
    Acted { unit: UnitId, attempt: u32, end: AttemptEnd },
    /// Report of [`crate::engine::Effect::Observe`].
    Observed { unit: UnitId, attempt: u32, finding: Finding },
    /// Report of [`crate::engine::Effect::Arm`].
    Armed { unit: UnitId, result: Result<Arming, Failure> },
    /// Report of [`crate::engine::Effect::Watch`].
    Judged { unit: UnitId, report: Box<WaitReport> },
    /// Report of [`crate::engine::Effect::Conclude`].
    Concluded { unit: UnitId, result: Result<Arc<Value>, Failure> },
    /// Report of [`crate::engine::Effect::Cover`].
    Covered { block: Block, result: Result<(), Failure> },
    /// Report of [`crate::engine::Effect::Guard`]: the guard does not hold.
    GuardBroken { guard: u16, message: Bilingual },
    /// Report of [`crate::engine::Effect::Summarize`].
    Summarized { result: Result<Arc<Value>, Failure> },

    /// Stop, in order, and undo.
    Cancel { by: Actor, reason: Option<String> },
    /// End at once, undo nothing.
    Terminate { by: Actor, reason: String },
    /// Start nothing new.
    Pause { by: Actor },
    /// Go on.
    Unpause { by: Actor },
    /// Answer a question: that of `unit`, or the only one.
    Answer { unit: Option<UnitId>, choice: Choice, by: Actor, reason: Option<String> },
    /// A remark.
    Note { by: Actor, text: String },
    /// What the world looks like is kept in a side file; beyond a limit it is forgotten again.
    KeepEvidence(Evidence),
    /// Take a lock away.
    BreakLock { key: Arc<str>, by: Actor, reason: String },
    /// A debt is gone, or `by` says so.
    CloseDebt { id: u32, by: Option<Actor>, reason: String },
}

/// What opening a `for_each` block found.
#[derive(Debug, Clone)]
pub enum Opening {
    /// `when` is false.
    Skip {
        /// `else_debt` of a rollback entry.
        debt: Option<DebtDraft>,
    },
    /// The items, keys unique.
    Items(Vec<Item>),
}

/// A debt that is not numbered yet.
#[derive(Debug, Clone, PartialEq)]
pub struct DebtDraft {
    /// What is left.
    pub what: Bilingual,
    /// Which objects.
    pub objects: Vec<String>,
    /// CEL that becomes true when it is gone, with what it reads, as written in the workflow.
    pub gone_when: Option<Arc<Value>>,
}

/// What preparing a unit found (E2, 1 to 3).
#[derive(Debug, Clone)]
pub enum Preparation {
    /// `when` is false.
    Skip {
        /// `else_debt` of a rollback entry.
        debt: Option<DebtDraft>,
    },
    /// `check` is true before the first attempt.
    Unchanged {
        /// What is remembered.
        facts: Facts,
        /// `timeout` of the step.
        step_timeout: Option<Duration>,
    },
    /// A precondition is not met.
    Unmet {
        /// Which, for people.
        message: Bilingual,
        /// How long it may be waited for, from the first time that it was found unmet.
        wait: Option<Duration>,
        /// `timeout` of the step.
        step_timeout: Option<Duration>,
    },
    /// The action may start.
    Ready(Box<Ready>),
    /// The reads, an expression or the rendering failed.
    Failed(Failure),
}

/// All that is needed to start an attempt.
#[derive(Debug, Clone)]
pub struct Ready {
    /// While the unit has none; facts that it has are never replaced.
    pub facts: Option<Facts>,
    /// The target as read.
    pub object: Option<ObjectVersion>,
    /// SHA-256 of the rendered request.
    pub request: Arc<str>,
    /// Limit of the action.
    pub attempt_timeout: Duration,
    /// `timeout` of the step.
    pub step_timeout: Option<Duration>,
    /// `retry.delay` and `retry.max_delay`.
    pub retry_delays: (Duration, Duration),
    /// What starts.
    pub go: Go,
}

/// What starts with an attempt.
#[derive(Debug, Clone)]
pub enum Go {
    /// The action, by the executor.
    Act,
    /// Nothing to execute: the attempt has ended already (`assert`, `k8s.wait`).
    Done(AttemptEnd),
    /// `debt`.
    Debt(DebtDraft),
    /// `sleep`.
    Sleep(Duration),
    /// `approval`.
    Ask {
        /// What is approved.
        approval: Approval,
        /// For people.
        message: Bilingual,
        /// How long it stays open.
        expires: Option<Duration>,
    },
}

/// What looking at the world said about an attempt without a result (E3).
#[derive(Debug, Clone)]
pub enum Finding {
    /// The effect is there.
    Done {
        /// It is provably this attempt's.
        ours: bool,
        /// The object as it is.
        object: Option<ObjectVersion>,
        /// What the action would have given back, where that can be read.
        result: Option<Blob>,
        /// What it changed, path by path, where that can be told.
        changes: Option<Blob>,
    },
    /// It is not there: the action may run again.
    NotDone,
    /// The action ended while it was observed (a process, a child workflow).
    Ended(AttemptEnd),
    /// It cannot be told.
    CannotTell(Failure),
}

/// The durations of a wait, evaluated.
#[derive(Debug, Clone)]
pub struct Arming {
    /// The limit.
    pub timeout: Duration,
    /// See `stall_after`.
    pub stall_after: Option<Duration>,
    /// For each verdict in order.
    pub stable_for: Vec<Option<Duration>>,
}

/// What one evaluation of a wait found.
#[derive(Debug, Clone, Default)]
pub struct WaitReport {
    /// Every target was read live, without an error.
    pub confirmed: bool,
    /// The first verdict that applies: its position, message and what was read.
    pub applies: Option<(u16, Bilingual, Option<Blob>)>,
    /// `track.*`; a track without a value is missing.
    pub tracks: BTreeMap<String, Arc<Value>>,
    /// `progress`, in order.
    pub progress: Vec<Option<f64>>,
    /// uid of each object that was there, by name.
    pub seen: BTreeMap<String, Arc<str>>,
    /// Why nothing applies, for people: each false or failed term.
    pub reason: Bilingual,
    /// The evidence matches a known failure that is permanent (L5).
    pub known: Option<Failure>,
    /// What the evidence is known to mean where that alone does not end the wait: told with whatever does.
    pub hint: Option<Explanation>,
    /// Why the targets could not be read.
    pub unreadable: Option<Failure>,
    /// An expression of a `fail_if` that cannot be evaluated: a warning at once (L7).
    pub warning: Option<Failure>,
}

impl WaitReport {
    /// The report of targets that could not be read.
    pub fn blind(failure: Failure) -> Self {
        Self { reason: failure.text(), unreadable: Some(failure), ..Self::default() }
    }
}

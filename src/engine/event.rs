//! Facts. Each event is past; its comment is its transition.

mod wait;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::definition::model::Outcome;
use crate::definition::model::Severity;
use crate::engine::ask::Ask;
use crate::engine::ask::Choice;
use crate::engine::unit::Block;
use crate::engine::unit::ItemKey;
use crate::engine::unit::UnitId;
use crate::failure::Bilingual;
use crate::failure::Failure;
use crate::id::RunId;
use crate::id::StepName;
use crate::id::WorkflowName;
use crate::plan::WorkflowDigest;
use crate::time::Timestamp;

pub use wait::Applies;
pub use wait::Sight;
pub use wait::WaitLimits;
pub use wait::WaitNote;

/// A JSON value of any size: small ones stand in the event, others in a side file (S5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blob {
    /// The value itself.
    Inline(Arc<Value>),
    /// SHA-256 of the side file that holds it.
    Side(Arc<str>),
}

/// Who did something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The OS user, later a token's or chat identity.
    pub name: Arc<str>,
}

/// Why a run began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// Somebody started it.
    Manual,
    /// A step of another run did.
    Parent {
        /// That run.
        run: RunId,
        /// The root of the tree: the owner of its locks.
        root: RunId,
        /// That step.
        unit: UnitId,
        /// Nesting depth of the new run; a root has 0.
        depth: u8,
    },
    /// `windrow retry`.
    Retry(RunId),
    /// `windrow rollback`, or the rollback of a parent.
    Rollback(RunId),
}

/// How a run begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Created {
    /// The workflow.
    pub workflow: WorkflowName,
    /// What it is pinned to.
    pub digest: WorkflowDigest,
    /// uid of the namespace kube-system, if the workflow touches a cluster (E10).
    pub cluster: Option<Arc<str>>,
    /// All inputs, defaults filled in; secrets are references.
    pub inputs: Arc<Value>,
    /// The keyed hash of each secret input: two runs with the same secret have the same one (L11).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, Arc<str>>,
    /// Why.
    pub trigger: Trigger,
    /// Who.
    pub by: Actor,
    /// The caller's idempotency key.
    pub key: Option<Arc<str>>,
    /// Rendered lock keys, sorted.
    pub locks: Vec<Arc<str>>,
    /// When queueing for the locks ends in failure.
    pub lock_deadline: Option<Timestamp>,
    /// `timeout` of the workflow, in milliseconds; it counts from lock acquisition.
    pub timeout_ms: Option<u64>,
    /// What is taken over from an earlier run (E11).
    pub inherited: Option<Box<Inherited>>,
}

/// What a linked run takes over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inherited {
    /// The earlier run.
    pub from: RunId,
    /// Undo only, nothing forward.
    pub rollback_only: bool,
    /// The units of the earlier run with what they remembered, in the order in which they ended.
    pub units: Vec<InheritedUnit>,
}

/// One unit of an earlier run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InheritedUnit {
    /// Which.
    pub unit: UnitId,
    /// The item's value.
    pub value: Option<Arc<Value>>,
    /// What it remembered of the world.
    pub facts: Option<Facts>,
    /// How its last attempt ended; none if it started and nothing is known.
    pub end: Option<AttemptEnd>,
    /// True if an attempt was started: what a commit point asks.
    pub attempted: bool,
    /// What its attempts left in the world: what an undo asks.
    pub footprint: Footprint,
    /// How its wait ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<VerdictReached>,
    /// Its outputs, if it succeeded.
    pub outputs: Option<Arc<Value>>,
}

/// What is remembered of the world before a step's first attempt (E2). Never replaced.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Facts {
    /// The target as it was, if an undo needs it; `Some(Inline(null))` is an object that did not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Blob>,
    /// `capture.*`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub captured: BTreeMap<String, Blob>,
}

/// An item of a `for_each`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Unique in its list.
    pub key: ItemKey,
    /// What `item` is.
    pub value: Arc<Value>,
}

/// Which version of which object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectVersion {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Arc<str>,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptEnd {
    /// Its effect.
    pub effect: AttemptEffect,
    /// The object that was written, as answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectVersion>,
    /// What the action gave back, bound as `result`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Blob>,
    /// For `k8s.restore`: each path that was written with the value before and after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Blob>,
    /// What an `assert`, or the workflow that the attempt called, says about the world (L6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Box<VerdictReached>>,
}

impl AttemptEnd {
    /// The end of an attempt that had nothing to do.
    pub const fn unchanged() -> Self {
        Self::of(AttemptEffect::Unchanged)
    }

    /// The end of an attempt that failed without effect.
    pub const fn failed(failure: Failure) -> Self {
        Self::of(AttemptEffect::Failed(failure))
    }

    /// The end of an attempt of which nothing but the effect is known.
    pub const fn of(effect: AttemptEffect) -> Self {
        Self { effect, object: None, result: None, changes: None, verdict: None }
    }
}

/// What an attempt did to the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptEffect {
    /// It changed something.
    Changed,
    /// Everything was as wanted already.
    Unchanged,
    /// The wanted state is there, but it cannot be proven that this attempt made it (E3).
    Unattributed,
    /// It failed without effect.
    Failed(Failure),
    /// It failed, and a part of its effect stays: a child workflow behind its commit point.
    FailedHalfway(Failure),
    /// A crash interrupted it, and observation shows that it had no effect: it is repeated outside of the policy.
    NotDone,
    /// It cannot be told.
    Unknown(Failure),
}

/// What the attempts of a unit left in the world, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Footprint {
    /// Nothing: there was no attempt, or all ended as "unchanged".
    #[default]
    None,
    /// Nothing that is known of: an attempt failed without effect. Undo has a look all the same (E5).
    Tried,
    /// An attempt changed something, or may have.
    Changed,
}

impl AttemptEffect {
    /// Why it failed, or why it cannot be told.
    pub const fn failure_mut(&mut self) -> Option<&mut Failure> {
        match self {
            Self::Failed(failure) | Self::FailedHalfway(failure) | Self::Unknown(failure) => Some(failure),
            Self::Changed | Self::Unchanged | Self::Unattributed | Self::NotDone => None,
        }
    }

    /// What an attempt that ended so left.
    pub const fn footprint(&self) -> Footprint {
        match self {
            Self::Unchanged | Self::NotDone => Footprint::None,
            Self::Failed(_) => Footprint::Tried,
            Self::Changed | Self::Unattributed | Self::FailedHalfway(_) | Self::Unknown(_) => {
                Footprint::Changed
            }
        }
    }
}

/// Delays of a retry policy, evaluated, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryDelays {
    /// Before the second attempt.
    pub delay_ms: u64,
    /// The longest.
    pub max_ms: u64,
}

impl RetryDelays {
    /// The two durations.
    pub fn new(delay: Duration, max: Duration) -> Self {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self { delay_ms: ms(delay), max_ms: ms(max) }
    }
}

/// A child workflow that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldChild {
    /// Its run.
    pub run: RunId,
    /// What it asks.
    pub reason: Bilingual,
}

/// The verdict that ended a wait, or an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerdictReached {
    /// Its name, that of its step for an `assert`; `timeout` and `known_failure` are the engine's own.
    pub name: String,
    /// What follows.
    pub outcome: Outcome,
    /// How bad.
    pub severity: Severity,
    /// For people.
    pub message: Bilingual,
    /// What was read when it was confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Blob>,
    /// Why the attempt failed, for the outcomes `fail` and `retry`; its class says whether it may be repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// A value that a wait tracks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Track {
    /// The value now.
    pub value: Arc<Value>,
    /// Since when.
    pub since: Timestamp,
    /// How often it changed.
    pub changes: u32,
}

/// Why a block was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Its `when` is false.
    When,
    /// An approval before it was declined.
    Declined,
    /// A person said so.
    Decided,
    /// A step before it was cancelled or failed.
    Unreachable,
    /// It succeeded in the run that this one retries.
    Inherited,
}

/// Something that is left to be done after the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Debt {
    /// Number within the run, from 1.
    pub id: u32,
    /// The step that left it.
    pub step: StepName,
    /// What is left.
    pub what: Bilingual,
    /// Which objects.
    pub objects: Vec<String>,
    /// CEL that becomes true when it is gone, with what it reads, as written in the workflow.
    pub gone_when: Option<Arc<Value>>,
}

/// What was kept of the world in a moment of trouble.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The unit in trouble; none for a guard, or for the run as a whole.
    pub unit: Option<UnitId>,
    /// What the trouble was.
    pub trouble: Trouble,
    /// SHA-256 of the side file that holds it.
    pub file: Arc<str>,
}

/// A moment of which evidence is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// A unit failed for good.
    Failed,
    /// A wait, or an action, ended in a verdict of severity `bad` and the run went on.
    BadVerdict,
    /// A person is asked, for instance because of a stall.
    Asked,
    /// A guard does not hold.
    GuardBroken,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// Every step did what it should.
    Succeeded,
    /// It failed, and what it changed is still there.
    Failed,
    /// It failed, and everything is as before.
    RolledBack,
    /// Somebody cancelled it.
    Cancelled(RolledBack),
}

impl std::fmt::Display for RunOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::RolledBack => "failed and rolled back",
            Self::Cancelled(RolledBack::Yes) => "cancelled, all undone",
            Self::Cancelled(RolledBack::Partly) => "cancelled, partly undone",
            Self::Cancelled(RolledBack::No) => "cancelled, nothing undone",
        })
    }
}

/// How much of a cancelled run was undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolledBack {
    /// Everything, or there was nothing.
    Yes,
    /// Some of it.
    Partly,
    /// Nothing.
    No,
}

/// A process that an attempt started, precise enough to find it again and never to confuse it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMark {
    /// Process id, which is also that of its group.
    pub pid: u32,
    /// Field 22 of /proc/PID/stat: clock ticks since boot when it started.
    pub start_ticks: u64,
    /// /proc/sys/kernel/random/boot_id.
    pub boot_id: Arc<str>,
}

/// What happened to a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant has its comment; the fields repeat names defined elsewhere")]
pub enum Event {
    /// The run exists; Queued if it has locks.
    Created(Box<Created>),
    /// It holds all its locks; Running. `deadline` is the run's.
    LocksGranted { deadline: Option<Timestamp> },
    /// Somebody took a lock away; a question follows.
    LockBroken { key: Arc<str>, by: Actor, reason: String },

    /// A `for_each` block knows its items; each is Pending.
    Opened { block: Block, items: Vec<Item> },
    /// All items of a block are over and were looked at as a whole (`covers`); with a failure, the block is Failed.
    Covered { block: Block, failure: Option<Failure> },
    /// The block is Skipped.
    Skipped { block: Block, reason: SkipReason },
    /// A precondition is not met yet; the unit is Waiting until `deadline`.
    PreconditionPending {
        unit: UnitId,
        deadline: Timestamp,
        step_deadline: Option<Timestamp>,
        message: Bilingual,
    },
    /// `check` was true before the first attempt: no action, nothing to undo; on to the wait.
    Unchanged { unit: UnitId, facts: Facts, step_deadline: Option<Timestamp> },
    /// The intent: from now on the action may have been carried out. Running (or Compensating).
    AttemptStarted {
        unit: UnitId,
        attempt: u32,
        /// With the first attempt only.
        facts: Option<Facts>,
        object: Option<ObjectVersion>,
        /// SHA-256 of the rendered request.
        request: Arc<str>,
        /// When an unanswered attempt is given up and observed.
        deadline: Timestamp,
        step_deadline: Option<Timestamp>,
        /// Set if the policy allows more than one attempt.
        retry: Option<RetryDelays>,
    },
    /// The process behind an attempt exists and waits at its gate.
    ProcessStarted { unit: UnitId, attempt: u32, process: ProcessMark },
    /// A new process found this attempt without a result; it will be observed after `settle`.
    Interrupted { unit: UnitId, attempt: u32, settle: Timestamp },
    /// The workflow that an attempt called waits for a person, so the run is Held; or it does not any more.
    ChildNoted { unit: UnitId, attempt: u32, held: Option<HeldChild> },
    /// The result.
    AttemptFinished { unit: UnitId, attempt: u32, end: AttemptEnd },
    /// Backoff until `due`.
    RetryScheduled { unit: UnitId, attempt: u32, due: Timestamp, failure: Failure },
    /// A `sleep` step sleeps until `due`.
    SleepStarted { unit: UnitId, due: Timestamp },
    /// The wait is armed; Waiting.
    WaitStarted { unit: UnitId, deadline: Timestamp, limits: WaitLimits },
    /// Something that a wait remembers has changed.
    WaitNoted { unit: UnitId, note: WaitNote },
    /// The wait is over.
    VerdictReached { unit: UnitId, verdict: VerdictReached },
    /// Done, with its outputs (null if it has none).
    Succeeded { unit: UnitId, outputs: Arc<Value> },
    /// It failed for good.
    Failed { unit: UnitId, failure: Failure },
    /// It was stopped before an end of its own.
    Cancelled { unit: UnitId },
    /// Every undo entry of a step's item has run, or there was nothing to undo.
    Compensated { step: StepName, item: Option<ItemKey> },
    /// The step's item is left as it is.
    NotCompensated { step: StepName, item: Option<ItemKey>, reason: Bilingual },

    /// A question; the run is Held.
    AskOpened(Box<Ask>),
    /// The answer; the first one wins. `by` is none when the default was taken at expiry.
    AskAnswered { id: u32, choice: Choice, by: Option<Actor>, reason: Option<String> },
    /// A guard does not hold.
    GuardBroken { guard: u16, message: Bilingual },

    /// No further step starts; what is in flight ends.
    CancelRequested { by: Actor, reason: Option<String> },
    /// The run failed; what is in flight ends, then undo begins.
    RollbackStarted { failure: Option<Failure> },
    /// Nothing new starts until `Unpaused`.
    Paused { by: Actor },
    /// Deadlines of steps and waits move by `shift_ms`.
    Unpaused { by: Actor, shift_ms: u64 },

    /// Something is left.
    DebtOpened(Box<Debt>),
    /// It is gone, or somebody said so (`by`).
    DebtClosed { id: u32, by: Option<Actor>, reason: String },
    /// A remark.
    Noted { by: Actor, text: String },
    /// Something that does not change the outcome but must be seen.
    Warned { step: Option<StepName>, failure: Failure },
    /// What the world looked like in a moment of trouble is kept; also told by a run that is over.
    EvidenceKept(Box<Evidence>),

    /// The end, for ever. The locks are free.
    Finished(Box<Finished>),
}

impl Event {
    /// Its name, as in the journal.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Created(_) => "created",
            Self::LocksGranted { .. } => "locks_granted",
            Self::LockBroken { .. } => "lock_broken",
            Self::Opened { .. } => "opened",
            Self::Covered { .. } => "covered",
            Self::Skipped { .. } => "skipped",
            Self::PreconditionPending { .. } => "precondition_pending",
            Self::Unchanged { .. } => "unchanged",
            Self::AttemptStarted { .. } => "attempt_started",
            Self::ProcessStarted { .. } => "process_started",
            Self::Interrupted { .. } => "interrupted",
            Self::ChildNoted { .. } => "child_noted",
            Self::AttemptFinished { .. } => "attempt_finished",
            Self::RetryScheduled { .. } => "retry_scheduled",
            Self::SleepStarted { .. } => "sleep_started",
            Self::WaitStarted { .. } => "wait_started",
            Self::WaitNoted { .. } => "wait_noted",
            Self::VerdictReached { .. } => "verdict_reached",
            Self::Succeeded { .. } => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Cancelled { .. } => "cancelled",
            Self::Compensated { .. } => "compensated",
            Self::NotCompensated { .. } => "not_compensated",
            Self::AskOpened(_) => "ask_opened",
            Self::AskAnswered { .. } => "ask_answered",
            Self::GuardBroken { .. } => "guard_broken",
            Self::CancelRequested { .. } => "cancel_requested",
            Self::RollbackStarted { .. } => "rollback_started",
            Self::Paused { .. } => "paused",
            Self::Unpaused { .. } => "unpaused",
            Self::DebtOpened(_) => "debt_opened",
            Self::DebtClosed { .. } => "debt_closed",
            Self::Noted { .. } => "noted",
            Self::Warned { .. } => "warned",
            Self::EvidenceKept(_) => "evidence_kept",
            Self::Finished(_) => "finished",
        }
    }
}

/// The last event of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// How.
    pub outcome: RunOutcome,
    /// What failed.
    pub failure: Option<Failure>,
    /// The workflow's outputs; null unless it succeeded.
    pub outputs: Arc<Value>,
    /// What was changed and not undone.
    pub left: Vec<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_failure_of_an_earlier_program_has_no_chinese() {
        let old = json!({ "class": "permanent", "code": "precondition", "message": "not so" });
        let failure: Failure = serde_json::from_value(old.clone()).expect("it is a failure");
        assert_eq!(failure, Failure::permanent("precondition", "not so"));
        assert_eq!(serde_json::to_value(failure).expect("it is data"), old, "and it is written as before");
    }
}

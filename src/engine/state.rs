//! A run as the fold of its events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::engine::ask::Ask;
use crate::engine::event::Applies;
use crate::engine::event::AttemptEnd;
use crate::engine::event::Created;
use crate::engine::event::Debt;
use crate::engine::event::Facts;
use crate::engine::event::Finished;
use crate::engine::event::Item;
use crate::engine::event::ProcessMark;
use crate::engine::event::SkipReason;
use crate::engine::event::Track;
use crate::engine::event::VerdictReached;
use crate::engine::event::WaitLimits;
use crate::engine::unit::Block;
use crate::engine::unit::UnitId;
use crate::failure::Bilingual;
use crate::failure::Failure;
use crate::id::RunId;
use crate::id::Seq;
use crate::id::StepName;
use crate::time::Timestamp;

/// Everything that a run's journal says.
#[derive(Debug, Clone)]
pub struct RunState {
    /// Which run.
    pub id: RunId,
    /// Position of its last event.
    pub seq: Seq,
    /// How it began.
    pub created: Created,
    /// When it began.
    pub created_at: Timestamp,
    /// When it got its locks, and its own deadline.
    pub granted: Option<(Timestamp, Option<Timestamp>)>,
    /// The blocks that have begun.
    pub blocks: BTreeMap<Block, BlockState>,
    /// Undo: begun when, and why; none while it goes forward.
    pub rollback: Option<RollbackState>,
    /// Somebody asked it to stop.
    pub cancel_requested: bool,
    /// Since when it is paused.
    pub paused_at: Option<Timestamp>,
    /// Open questions.
    pub asks: Vec<Ask>,
    /// Questions so far.
    pub asks_total: u32,
    /// Debts that are open.
    pub debts: Vec<Debt>,
    /// Debts so far.
    pub debts_total: u32,
    /// What must be seen although it changes nothing.
    pub warnings: Vec<(Option<StepName>, Failure)>,
    /// Remarks, with their time and author.
    pub notes: Vec<(Timestamp, Arc<str>, String)>,
    /// Guards that somebody answered for, or that broke.
    pub broken_guards: Vec<u16>,
    /// How it ended, and when.
    pub finished: Option<(Timestamp, Finished)>,
    /// Units in the order in which they ended: the reverse is the order of undo.
    pub completed: Vec<UnitId>,
}

/// A run that goes backwards.
#[derive(Debug, Clone)]
pub struct RollbackState {
    /// Since when.
    pub since: Timestamp,
    /// Why; none if somebody cancelled.
    pub failure: Option<Failure>,
    /// Step items that are done with: compensated (true) or left as they are.
    pub undone: BTreeMap<UnitId, bool>,
}

/// A block that has begun.
#[derive(Debug, Clone, Default)]
pub struct BlockState {
    /// Set if it was skipped.
    pub skipped: Option<SkipReason>,
    /// The items of a `for_each`; none for a plain block.
    pub items: Option<Vec<Item>>,
    /// The units that have begun, by item (an empty key for a plain block).
    pub units: BTreeMap<Arc<str>, UnitState>,
}

/// A unit that has begun.
#[derive(Debug, Clone)]
pub struct UnitState {
    /// Where it is in its lifecycle.
    pub phase: Phase,
    /// The attempt that runs or ran; 0 before the first.
    pub attempt: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Its `timeout`, absolute.
    pub step_deadline: Option<Timestamp>,
    /// What it remembers of the world before.
    pub facts: Facts,
    /// True from the first `AttemptStarted` on: undo must look at it.
    pub attempted: bool,
    /// How the last attempt ended.
    pub end: Option<AttemptEnd>,
    /// How the wait ended.
    pub verdict: Option<VerdictReached>,
    /// Its outputs, once it succeeded.
    pub outputs: Option<Arc<Value>>,
    /// Why it failed, or why the last attempt did.
    pub failure: Option<Failure>,
}

/// Where a unit is.
#[derive(Debug, Clone)]
pub enum Phase {
    /// A precondition is not met, until `deadline`.
    Pending {
        /// When waiting for it ends.
        deadline: Timestamp,
        /// Which, for people.
        message: Bilingual,
    },
    /// To be prepared (again).
    Preparing,
    /// The action runs.
    Acting {
        /// When it is given up.
        deadline: Timestamp,
        /// The process behind it.
        process: Option<ProcessMark>,
    },
    /// Its result is unknown; it is observed after `settle`.
    Observing {
        /// When a late write can no longer arrive.
        settle: Timestamp,
        /// The process behind it.
        process: Option<ProcessMark>,
    },
    /// The next attempt is due.
    Backoff {
        /// When.
        due: Timestamp,
    },
    /// A `sleep` step.
    Sleeping {
        /// Until when.
        due: Timestamp,
    },
    /// The durations of its wait are to be evaluated.
    Arming,
    /// It waits.
    Waiting(Box<WaitState>),
    /// A person is asked; where it goes on depends on the answer.
    Asking {
        /// The wait that was interrupted by the question, if any.
        wait: Option<Box<WaitState>>,
    },
    /// Its outputs are to be evaluated.
    Concluding,
    /// Over.
    Done(UnitOutcome),
}

/// How a unit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitOutcome {
    /// It did what it should.
    Succeeded,
    /// It failed.
    Failed,
    /// Its `when` is false, for a rollback entry or by a person's decision.
    Skipped,
    /// It was stopped.
    Cancelled,
}

/// What a wait remembers.
#[derive(Debug, Clone)]
pub struct WaitState {
    /// Since when.
    pub since: Timestamp,
    /// Until when.
    pub deadline: Timestamp,
    /// Its other limits.
    pub limits: WaitLimits,
    /// `track.*`.
    pub tracks: BTreeMap<String, Track>,
    /// The best numbers of `progress` so far.
    pub progress: Vec<Option<f64>>,
    /// When there was progress last.
    pub progress_at: Timestamp,
    /// uid of each object seen, by name.
    pub seen: BTreeMap<String, Arc<str>>,
    /// Why it is not over.
    pub reason: String,
    /// The verdict that applies but must be stable.
    pub applies: Option<Applies>,
}

/// A run's state, as people and programs see it (design.md section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "design.md section 2 defines the words")]
pub enum RunStatus {
    Queued,
    Running,
    Waiting,
    Held,
    RollingBack,
    Succeeded,
    Failed,
    RolledBack,
    Cancelled,
}

impl RunStatus {
    /// True for the four states that last for ever.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::RolledBack | Self::Cancelled)
    }
}

/// How long writes of a dead process can still arrive when nothing better is known.
pub const SETTLE_DEFAULT: Duration = Duration::from_secs(30);

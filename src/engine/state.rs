//! A run as the fold of its events. Only `apply` changes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::engine::ask::Ask;
use crate::engine::ask::AskReason;
use crate::engine::ask::Choice;
use crate::engine::event::Actor;
use crate::engine::event::Applies;
use crate::engine::event::AttemptEnd;
use crate::engine::event::Created;
use crate::engine::event::Debt;
use crate::engine::event::Evidence;
use crate::engine::event::Facts;
use crate::engine::event::Finished;
use crate::engine::event::Footprint;
use crate::engine::event::HeldChild;
use crate::engine::event::Item;
use crate::engine::event::ObjectVersion;
use crate::engine::event::ProcessMark;
use crate::engine::event::RetryDelays;
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
    /// Time of its last event.
    pub updated_at: Timestamp,
    /// How it began.
    pub created: Created,
    /// When it began.
    pub created_at: Timestamp,
    /// When it got its locks, and its own deadline.
    pub granted: Option<(Timestamp, Option<Timestamp>)>,
    /// The steps that have begun or were skipped; finally steps too.
    pub steps: BTreeMap<StepName, BlockState>,
    /// The rollback entries that have begun or were skipped.
    pub undos: BTreeMap<Block, BlockState>,
    /// Units that have begun and not ended. The run is quiet when there are none.
    pub open_units: u32,
    /// Undo: begun when, and why; none while it goes forward.
    pub rollback: Option<RollbackState>,
    /// Who asked it to stop, if anybody did.
    pub cancel: Option<CancelRequest>,
    /// A person's answer that ends the run.
    pub abandoned: Option<Abandoned>,
    /// Since when it is paused.
    pub paused_at: Option<Timestamp>,
    /// Since when its own deadline stands still, because it is paused or asks (E7).
    pub stopped_at: Option<Timestamp>,
    /// Open questions.
    pub asks: Vec<Ask>,
    /// Questions so far.
    pub asks_total: u32,
    /// Answers so far.
    pub answers: Vec<Answered>,
    /// Debts that are open.
    pub debts: Vec<Debt>,
    /// Debts so far.
    pub debts_total: u32,
    /// What must be seen although it changes nothing.
    pub warnings: Vec<(Option<StepName>, Failure)>,
    /// Remarks, with their time and author.
    pub notes: Vec<(Timestamp, Arc<str>, String)>,
    /// What was kept of the world in moments of trouble, and when.
    pub evidence: Vec<(Timestamp, Evidence)>,
    /// Guards that broke.
    pub broken_guards: Vec<Broken<u16>>,
    /// Locks that somebody took away.
    pub broken_locks: Vec<Broken<Arc<str>>>,
    /// How it ended, and when.
    pub finished: Option<(Timestamp, Finished)>,
    /// Units of steps in the order in which they ended: the reverse is the order of undo.
    pub completed: Vec<UnitId>,
    /// So many of the first steps in the plan's order are over; kept by `advance` so that nobody looks at them again.
    pub over: usize,
}

/// Somebody asked a run to stop.
#[derive(Debug, Clone)]
pub struct CancelRequest {
    /// Who.
    pub by: Actor,
    /// Why.
    pub reason: Option<String>,
}

/// A run that goes backwards.
#[derive(Debug, Clone)]
pub struct RollbackState {
    /// Since when.
    pub since: Timestamp,
    /// Why; none if somebody cancelled.
    pub failure: Option<Failure>,
    /// Step items that are done with: compensated (none), or left as they are for that reason.
    pub undone: BTreeMap<UnitId, Option<Bilingual>>,
}

/// Somebody answered that the run is to fail.
#[derive(Debug, Clone)]
pub struct Abandoned {
    /// What the question was about.
    pub failure: Failure,
    /// True if nothing (more) is to be undone.
    pub leave: bool,
}

/// A question that was answered.
#[derive(Debug, Clone)]
pub struct Answered {
    /// The question's number.
    pub id: u32,
    /// Who asked.
    pub unit: Option<UnitId>,
    /// Why.
    pub reason: AskReason,
    /// The answer.
    pub choice: Choice,
    /// Who answered; none if the default was taken at expiry.
    pub by: Option<Actor>,
    /// When.
    pub at: Timestamp,
}

/// A guard or lock that does not hold any more.
#[derive(Debug, Clone)]
pub struct Broken<T> {
    /// Which.
    pub what: T,
    /// For people.
    pub message: Bilingual,
    /// The run has drawn its consequence: a question or the rollback.
    pub handled: bool,
}

/// A block that has begun.
#[derive(Debug, Clone, Default)]
pub struct BlockState {
    /// Set if it was skipped.
    pub skipped: Option<SkipReason>,
    /// The items of a `for_each`; none for a plain block.
    pub items: Option<Vec<Item>>,
    /// Items that an earlier run began.
    pub inherited: Vec<Item>,
    /// The units that have begun, by item (an empty key for a plain block, and for the opening of a `for_each`).
    pub units: BTreeMap<Arc<str>, UnitState>,
    /// Units that have begun and not ended.
    pub open: u32,
    /// Units that failed or were cancelled.
    pub failed: u32,
    /// Position of the first item that has no unit yet.
    pub next: usize,
    /// What `covers` said of the items once all were over.
    pub covered: Option<Result<(), Box<Failure>>>,
}

/// A unit that has begun.
#[derive(Debug, Clone)]
pub struct UnitState {
    /// Where it is in its lifecycle.
    pub phase: Phase,
    /// The attempt that runs or ran; 0 before the first.
    pub attempt: u32,
    /// Tries that failed and were scheduled again: what the retry policy counts.
    pub retries: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Its `timeout`, absolute.
    pub step_deadline: Option<Timestamp>,
    /// What it remembers of the world before; none until an event says it.
    pub facts: Option<Facts>,
    /// The target as read before the last attempt.
    pub object: Option<ObjectVersion>,
    /// SHA-256 of the last attempt's rendered request.
    pub request: Option<Arc<str>>,
    /// Delays of its retry policy, if there is one.
    pub retry: Option<RetryDelays>,
    /// True from the first `AttemptStarted` on.
    pub attempted: bool,
    /// What its ended attempts left in the world.
    pub footprint: Footprint,
    /// How the last attempt ended; none while it runs.
    pub end: Option<AttemptEnd>,
    /// The workflow that the attempt called waits for a person.
    pub held_child: Option<Box<HeldChild>>,
    /// How the wait ended, or what the attempt said.
    pub verdict: Option<VerdictReached>,
    /// Its outputs, once it succeeded.
    pub outputs: Option<Arc<Value>>,
    /// Why it failed, or why the last attempt did.
    pub failure: Option<Failure>,
    /// Since when attempts have failed with that code.
    pub failing_since: Option<Timestamp>,
}

/// Where a unit is. The diagram is in [`crate::engine`].
#[derive(Debug, Clone)]
pub enum Phase {
    /// Begun by the run that this one continues, not by this one yet.
    Inherited,
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
    /// The attempt failed: whether it is repeated follows from the policy.
    Failing,
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
    /// The action is over. Its wait is to be armed or, without one, its outputs are to be evaluated.
    Acted,
    /// It waits.
    Waiting(Box<WaitState>),
    /// A person is asked; where it goes on depends on the answer.
    Asking {
        /// Since when: its deadlines stand still.
        since: Timestamp,
        /// The wait that was interrupted by the question, if any.
        wait: Option<Box<WaitState>>,
    },
    /// Its outputs are to be evaluated.
    Concluding,
    /// Over.
    Done(UnitOutcome),
}

impl Phase {
    /// True while the next attempt is being prepared.
    pub const fn is_before_attempt(&self) -> bool {
        matches!(self, Self::Pending { .. } | Self::Preparing | Self::Backoff { .. })
    }

    /// Its name, for people.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Inherited => "inherited",
            Self::Pending { .. } => "pending",
            Self::Preparing => "preparing",
            Self::Acting { .. } => "acting",
            Self::Observing { .. } => "observing",
            Self::Failing => "failing",
            Self::Backoff { .. } => "backoff",
            Self::Sleeping { .. } => "sleeping",
            Self::Acted => "acted",
            Self::Waiting(_) => "waiting",
            Self::Asking { .. } => "asking",
            Self::Concluding => "concluding",
            Self::Done(UnitOutcome::Succeeded) => "succeeded",
            Self::Done(UnitOutcome::Failed) => "failed",
            Self::Done(UnitOutcome::Skipped) => "skipped",
            Self::Done(UnitOutcome::Cancelled) => "cancelled",
        }
    }
}

/// How a unit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitOutcome {
    /// It did what it should.
    Succeeded,
    /// It failed.
    Failed,
    /// A person decided to go on without it.
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
    /// The numbers of `progress` as last noted.
    pub progress: Vec<Option<f64>>,
    /// The highest that each of them was.
    pub best: Vec<Option<f64>>,
    /// When there was progress last, time out of sight left out.
    pub progress_at: Timestamp,
    /// uid of each object seen, by name.
    pub seen: BTreeMap<String, Arc<str>>,
    /// Why it is not over.
    pub reason: Bilingual,
    /// When something was noted last.
    pub noted_at: Timestamp,
    /// The verdict that applies but must be stable.
    pub applies: Option<Applies>,
    /// Since when its targets are out of sight.
    pub lost_at: Option<Timestamp>,
    /// A person said "wait" to a verdict: verdicts ask again only when time is up.
    pub quiet: bool,
}

impl RunState {
    /// A step's or rollback entry's state, once it has begun.
    pub fn block(&self, block: &Block) -> Option<&BlockState> {
        match &block.undo {
            None => self.steps.get(&block.step),
            Some(_) => self.undos.get(block),
        }
    }

    pub(in crate::engine) fn block_mut(&mut self, block: &Block) -> Option<&mut BlockState> {
        match &block.undo {
            None => self.steps.get_mut(&block.step),
            Some(_) => self.undos.get_mut(block),
        }
    }

    /// A unit's state, once it has begun.
    pub fn unit(&self, unit: &UnitId) -> Option<&UnitState> {
        self.block(&unit.block)?.units.get(unit.item.as_deref().unwrap_or(""))
    }

    /// Each unit that has begun and not ended, steps before rollback entries.
    pub fn open(&self) -> impl Iterator<Item = (UnitId, &UnitState)> {
        let steps = self.steps.iter().filter(|(_, block)| block.open > 0);
        let steps = steps.map(|(step, block)| (Block::forward(step.clone()), block));
        let undos = self.undos.iter().filter(|(_, block)| block.open > 0);
        let undos = undos.map(|(block, state)| (block.clone(), state));
        steps.chain(undos).flat_map(|(block, state)| {
            let open = state.units.iter().filter(|(_, unit)| unit.is_open());
            open.map(move |(key, unit)| {
                let item = (!key.is_empty()).then(|| key.clone());
                (block.clone().unit(item), unit)
            })
        })
    }

    /// The children that wait for a person, each with the unit that called it.
    pub fn held_children(&self) -> impl Iterator<Item = (UnitId, &HeldChild)> {
        self.open().filter_map(|(unit, state)| Some((unit, state.held_child.as_deref()?)))
    }

    /// True once nothing new may start forward.
    pub const fn is_stopping(&self) -> bool {
        self.rollback.is_some() || self.cancel.is_some()
    }

    /// True if it is only there to undo an earlier run.
    pub fn is_rollback_only(&self) -> bool {
        self.created.inherited.as_ref().is_some_and(|inherited| inherited.rollback_only)
    }

    /// The open question of that unit.
    pub fn ask_of(&self, unit: &UnitId) -> Option<&Ask> {
        self.asks.iter().find(|ask| ask.unit.as_ref() == Some(unit))
    }

    /// True if the run as a whole asks: nothing starts until somebody answers.
    pub fn asks_as_a_whole(&self) -> bool {
        self.asks.iter().any(|ask| ask.unit.is_none())
    }
}

impl BlockState {
    /// True if something in it went wrong, whether the block fails by that or not.
    pub const fn is_marred(&self) -> bool {
        self.failed > 0 || matches!(self.covered, Some(Err(_)))
    }

    /// The value of an item, of this run or the one that it continues.
    pub fn item(&self, key: &str) -> Option<&Item> {
        let items = self.items.iter().flatten().chain(&self.inherited);
        items.into_iter().find(|item| &*item.key == key)
    }

    /// Moves `next` to the first item that has not begun.
    pub(in crate::engine) fn skip_begun(&mut self) {
        let items = self.items.as_deref().unwrap_or_default();
        while let Some(item) = items.get(self.next)
            && self.units.get(&item.key).is_some_and(UnitState::has_begun_here)
        {
            self.next += 1;
        }
    }
}

impl UnitState {
    /// True if it has ended.
    pub const fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done(_))
    }

    /// True if this run, not one that it continues, has begun it, or if it is over.
    pub const fn has_begun_here(&self) -> bool {
        !matches!(self.phase, Phase::Inherited)
    }

    /// True if it has begun and not ended.
    pub const fn is_open(&self) -> bool {
        !matches!(self.phase, Phase::Inherited | Phase::Done(_))
    }

    /// How it ended, if it has.
    pub const fn outcome(&self) -> Option<UnitOutcome> {
        match self.phase {
            Phase::Done(outcome) => Some(outcome),
            Phase::Inherited
            | Phase::Pending { .. }
            | Phase::Preparing
            | Phase::Acting { .. }
            | Phase::Observing { .. }
            | Phase::Failing
            | Phase::Backoff { .. }
            | Phase::Sleeping { .. }
            | Phase::Acted
            | Phase::Waiting(_)
            | Phase::Asking { .. }
            | Phase::Concluding => None,
        }
    }

    /// What it left in the world at most, an attempt without a result included.
    pub const fn left(&self) -> Footprint {
        let result = match &self.end {
            Some(end) => end.effect.footprint(),
            None if self.attempted => Footprint::Changed,
            None => Footprint::None,
        };
        if matches!(result, Footprint::Changed) { result } else { self.footprint }
    }
}

/// A run's state, as people and programs see it (design.md section 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
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

/// What lies over the state of a run that is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlay {
    /// It starts nothing new until somebody lets it go on.
    Paused,
    /// Somebody asked it to stop, and it is on its way.
    Cancelling,
}

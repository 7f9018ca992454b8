//! What can be asked of Windrow, by whatever surface: the vocabulary of the Unix socket, and later of the API.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Map;
use serde_json::Value;

use crate::engine::ask::Choice;
use crate::engine::state::RunStatus;
use crate::failure::Failure;
use crate::id::RunId;
use crate::id::Seq;
use crate::journal::store::Summary;

/// A request. Who asks is known to the transport, never said by the request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// Start a workflow.
    Start {
        /// Its name.
        workflow: String,
        /// Its inputs: texts as on a command line, or values.
        #[serde(default)]
        inputs: Map<String, Value>,
        /// Starting twice with the same key gives the same run.
        #[serde(default)]
        key: Option<Arc<str>>,
    },
    /// Go on with a run that an earlier process left, or that was parked.
    Resume {
        /// Which run; all that are open if none.
        run: Option<RunId>,
    },
    /// Do something to a run.
    Command {
        /// Which run.
        run: RunId,
        /// What.
        verb: Verb,
    },
    /// Lines of the index.
    Runs {
        /// Which ones.
        #[serde(default)]
        filter: Filter,
        /// Only runs older than this one.
        #[serde(default)]
        before: Option<RunId>,
        /// At most so many.
        limit: usize,
    },
    /// Everything about one run.
    Show {
        /// Which run.
        run: RunId,
        /// With its journal.
        #[serde(default)]
        events: bool,
    },
    /// One piece of the evidence that a run has kept.
    Evidence {
        /// Which run.
        run: RunId,
        /// Its SHA-256, as `show` names it.
        file: Arc<str>,
    },
    /// A new run that does again what a terminal one did (E11).
    Retry {
        /// Which run.
        run: RunId,
    },
    /// A new run that undoes what a terminal one did (E11).
    Rollback {
        /// Which run.
        run: RunId,
    },
    /// Stop, or allow again, the starting of anything new.
    PauseAll {
        /// Which of the two.
        paused: bool,
    },
    /// Who holds which lock, and who waits for it.
    Locks,
    /// What is left of runs.
    Debts,
    /// The run that was started with a key.
    Find {
        /// The key.
        key: Arc<str>,
    },
}

/// What can be done to one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "snake_case", deny_unknown_fields)]
#[expect(
    missing_docs,
    reason = "each variant has its comment; the fields repeat names of the engine's commands"
)]
pub enum Verb {
    /// Stop in order, and undo.
    Cancel { reason: Option<String> },
    /// End at once without undo.
    Terminate { reason: String },
    /// Start no further step.
    Pause,
    /// Go on.
    Unpause,
    /// Answer a question; `step` in its text form (`halt`, `halt[vm-1]`), none for the only one.
    Answer { step: Option<String>, choice: Choice, reason: Option<String> },
    /// A remark.
    Note { text: String },
    /// Take away a lock.
    BreakLock { key: Arc<str>, reason: String },
    /// A debt is settled.
    CloseDebt { id: u32, reason: String },
}

/// Which runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Only those of that workflow.
    pub workflow: Option<String>,
    /// Only those in that state.
    pub state: Option<String>,
    /// Only those that wait for a person.
    pub needs_me: bool,
    /// Only those that are not over.
    pub open: bool,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// It is done, durably.
    Done,
    /// The run that was started, or that goes on.
    Started {
        /// Which run.
        run: RunId,
    },
    /// The answer was taken, durably.
    Answered {
        /// By which run: the one that it was given to, or one that this has called.
        run: RunId,
    },
    /// Lines of the index, newest first.
    Runs {
        /// The lines.
        runs: Vec<Summary>,
        /// Another page begins before this run.
        next: Option<RunId>,
        /// Nothing new is started: somebody has paused everything.
        #[serde(default)]
        all_paused: bool,
    },
    /// A run, as `service::view` writes it.
    Run {
        /// The view.
        view: Value,
    },
    /// A piece of evidence.
    Evidence {
        /// The document.
        document: Value,
    },
    /// What is known of a key.
    Found {
        /// The run that was started with it.
        run: Option<RunId>,
        /// Its state.
        status: Option<RunStatus>,
    },
    /// Locks or debts, one object each.
    Rows {
        /// The rows.
        rows: Vec<Value>,
    },
}

/// Why something was not done. `kind` decides the exit code or HTTP status of a surface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{}", .failure.message)]
pub struct Problem {
    /// What sort.
    pub kind: ProblemKind,
    /// What, and what to do next.
    pub failure: Failure,
}

/// Sorts of [`Problem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The request makes no sense: unknown workflow, bad inputs, bad definition. Exit 2.
    Usage,
    /// The run, a lock or a rule says no. Exit 3.
    Refused,
    /// The store or the cluster cannot be used, or is another one. Exit 6.
    Unusable,
}

/// A change of a run, for whoever watches it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Position of the last event that it covers.
    pub seq: Seq,
    /// The run after it, as `service::view` writes it.
    pub view: Value,
    /// The events themselves, one JSON object each, with `seq`, `at` and `event`.
    pub events: Vec<Value>,
}

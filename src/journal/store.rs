//! What a store must do (S2). A backend is one implementation of [`Store`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::event::Event;
use crate::engine::state::RunStatus;
use crate::id::RunId;
use crate::id::Seq;
use crate::id::WorkflowName;
use crate::plan::WorkflowDigest;
use crate::time::Timestamp;

/// Events of one run that become durable together.
#[derive(Debug, Clone)]
pub struct Append {
    /// Which run.
    pub run: RunId,
    /// The position of the run's last event; anything else is a conflict.
    pub expected: Seq,
    /// When they happened.
    pub at: Timestamp,
    /// The events, at least one.
    pub events: Vec<Event>,
    /// The run's new line in the index, if it changed. In the same atomic batch.
    pub summary: Option<Summary>,
}

/// An event with its place and time.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// Its position.
    pub seq: Seq,
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

/// A run's line in the index: enough to list, filter and wake it without reading its journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Which run.
    pub run: RunId,
    /// Its workflow.
    pub workflow: WorkflowName,
    /// The state.
    pub status: RunStatus,
    /// Why it is Held.
    pub held_reason: Option<String>,
    /// When it began.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// When it is to be looked at next, if nothing happens before.
    pub due: Option<Timestamp>,
    /// The run that it is a part of.
    pub root: Option<RunId>,
    /// The caller's idempotency key.
    pub key: Option<Arc<str>>,
    /// Lock keys that it holds or queues for.
    pub locks: Vec<Arc<str>>,
    /// Debts that are open.
    pub debts: u32,
}

/// The work of a store, awaited.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Where runs are recorded.
pub trait Store: Send + Sync {
    /// Makes events durable. On return they are; on an error none of them is, or the store is no longer usable.
    fn append(&self, append: Append) -> Pending<'_, Seq>;

    /// A run's events in order.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a record is bad or missing: the events before it are given with the error.
    fn read(&self, run: RunId) -> Result<Vec<Recorded>, Error>;

    /// Lines of the index with `run < before`, newest first, at most `limit`.
    fn runs(&self, before: Option<RunId>, limit: usize) -> Result<Vec<Summary>, Error>;

    /// The lines of all runs that are not terminal.
    fn open_runs(&self) -> Result<Vec<Summary>, Error>;

    /// One line of the index.
    fn summary(&self, run: RunId) -> Result<Option<Summary>, Error>;

    /// The run that was started with an idempotency key.
    fn run_of_key(&self, key: &str) -> Result<Option<RunId>, Error>;

    /// Keeps a normalised definition under its digest, durably.
    fn put_definition(&self, digest: &WorkflowDigest, definition: &Value) -> Pending<'_, ()>;

    /// The definition with that digest.
    fn definition(&self, digest: &WorkflowDigest) -> Result<Option<Value>, Error>;

    /// A setting of the store, for instance `paused`.
    fn setting(&self, name: &str) -> Result<Option<Value>, Error>;

    /// Changes a setting durably; none removes it.
    fn put_setting(&self, name: &str, value: Option<Value>) -> Pending<'_, ()>;

    /// Keeps a large value in a side file, durably, and returns its SHA-256 (S5).
    fn put_blob(&self, bytes: &[u8]) -> Result<Arc<str>, Error>;

    /// The side file of that digest, its digest checked.
    fn blob(&self, digest: &str) -> Result<Vec<u8>, Error>;

    /// Time of the newest record, so that the clock never starts before it.
    fn newest(&self) -> Result<Option<Timestamp>, Error>;
}

/// Why a store did not do it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Somebody else appended first.
    #[error("run {run} is at event {found}, not {expected}")]
    Conflict {
        /// Which run.
        run: RunId,
        /// What the caller believed.
        expected: Seq,
        /// What is there.
        found: Seq,
    },
    /// A record is bad.
    #[error("run {run} has a bad record after event {after}: {what}")]
    Damaged {
        /// Which run.
        run: RunId,
        /// The last good event.
        after: Seq,
        /// What is wrong.
        what: String,
        /// The events up to there.
        good: Vec<Recorded>,
    },
    /// The store as a whole cannot be used.
    #[error("{0}")]
    Unusable(String),
    /// The disk is full: nothing acknowledged is lost, nothing new is taken.
    #[error("the disk is full")]
    Full,
    /// Another process has the store open.
    #[error("another process (pid {pid}) uses the store")]
    InUse {
        /// That process, 0 if it did not say.
        pid: u32,
    },
}

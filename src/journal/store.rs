//! What a store must do (S2). A backend is one implementation of [`Store`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::event::Event;
use crate::engine::state::Overlay;
use crate::engine::state::RunStatus;
use crate::id::RunId;
use crate::id::Seq;
use crate::id::WorkflowName;
use crate::journal::record::PAYLOAD_BYTES_MAX;
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
    /// The same in Chinese, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_reason_zh: Option<String>,
    /// What lies over its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlay: Option<Overlay>,
    /// When it began.
    pub created_at: Timestamp,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// When it is to be looked at next, if nothing happens before.
    pub due: Option<Timestamp>,
    /// The run that it is a part of.
    pub root: Option<RunId>,
    /// The caller's idempotency key; that of the run's first line for ever.
    pub key: Option<Arc<str>>,
    /// Lock keys that it holds or queues for.
    pub locks: Vec<Arc<str>>,
    /// Debts that are open.
    pub debts: u32,
}

/// What retention keeps. Open runs and runs with debts are always kept, and so are the parts of an open run tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Runs that ended longer ago are removed.
    pub age: Duration,
    /// Of the others, at most so many ended runs remain, the newest.
    pub runs: usize,
    /// One call removes so many at most: what is left is for the next.
    pub at_once: usize,
}

/// What one call of [`Store::retain`] removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Removed {
    /// Runs, with their journals.
    pub runs: usize,
    /// Side files that no run names any more; looked for only if runs were removed.
    pub blobs: usize,
}

/// The work of a store, awaited.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Where runs are recorded.
pub trait Store: Send + Sync {
    /// Makes events durable. On return they are; on an error none of them is, except that after [`Error::Full`] and
    /// [`Error::Unusable`] they may turn out to be: read the run again before going on with it.
    ///
    /// The first append of a run carries its summary.
    fn append<'a>(&'a self, append: &'a Append) -> Pending<'a, Seq>;

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

    /// Changes a line of the index without an event: for a run whose journal takes no more events because it is damaged.
    fn put_summary(&self, summary: Summary) -> Pending<'_, ()>;

    /// Takes away what is behind the last whole record that ends with event `after` or before, so that a damaged run can
    /// go on. Says where its journal ends now. Nothing is lost: a disk keeps what it takes away in a file beside.
    fn cut(&self, run: RunId, after: Seq) -> Pending<'_, Seq>;

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

    /// Keeps a large value in a side file, durably, and returns its SHA-256 (S5). Call it before the append that names
    /// the digest: a file that no run names is removed after a day.
    fn put_blob(&self, bytes: &[u8]) -> Result<Arc<str>, Error>;

    /// The side file of that digest, its digest checked.
    fn blob(&self, digest: &str) -> Result<Vec<u8>, Error>;

    /// Time of the newest record, so that the clock never starts before it.
    fn newest(&self) -> Result<Option<Timestamp>, Error>;

    /// Ok if new runs are taken; looks whether a full disk has room again.
    fn revive(&self) -> Pending<'_, ()>;

    /// Removes what is no longer to be kept, in small commits.
    fn retain(&self, keep: Keep, now: Timestamp) -> Pending<'_, Removed>;
}

/// Longest idempotency key and setting name, in bytes.
pub const KEY_BYTES_MAX: usize = 256;

/// Checks what can be checked of an append without looking at the run. Every backend does.
pub(in crate::journal) fn admit(append: &Append) -> Result<(), Error> {
    if append.events.is_empty() {
        return Err(Error::Misused("it has no events"));
    }
    if append.expected == Seq(0) && append.summary.is_none() {
        return Err(Error::Misused("the first append of a run carries its summary"));
    }
    let Some(summary) = &append.summary else { return Ok(()) };
    if summary.run != append.run {
        return Err(Error::Misused("its summary is another run's"));
    }
    summary.key.as_ref().map_or(Ok(()), |key| fits("an idempotency key", key.len(), KEY_BYTES_MAX))
}

/// The bytes in which a value is kept.
pub(in crate::journal) fn encode(value: &Value) -> Result<Vec<u8>, Error> {
    rmp_serde::to_vec_named(value).map_err(|_| Error::Misused("a value cannot be expressed in MessagePack"))
}

/// The same for a setting, whose size is checked: it has one row.
pub(in crate::journal) fn encode_setting(name: &str, value: &Value) -> Result<Vec<u8>, Error> {
    fits("the name of a setting", name.len(), KEY_BYTES_MAX)?;
    let bytes = encode(value)?;
    fits("a setting", bytes.len(), PAYLOAD_BYTES_MAX)?;
    Ok(bytes)
}

fn fits(what: &'static str, bytes: usize, max: usize) -> Result<(), Error> {
    if bytes > max { Err(Error::TooLarge { what, bytes, max }) } else { Ok(()) }
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
    /// Another run has this idempotency key.
    #[error("run {run} was started with the same key")]
    KeyTaken {
        /// That run.
        run: RunId,
    },
    /// It does not fit. Large values belong in side files.
    #[error("{what} is too large: {bytes} bytes of at most {max}")]
    TooLarge {
        /// What.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// What is allowed.
        max: usize,
    },
    /// The caller broke the store's contract.
    #[error("an append was refused: {0}")]
    Misused(&'static str),
    /// A side file is missing or is not what its name says.
    #[error("side file {digest} {what}")]
    Blob {
        /// Its SHA-256.
        digest: Arc<str>,
        /// What is wrong.
        what: String,
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
    /// The disk is full. Nothing acknowledged is lost. Open runs may still be taken to their end from a reserve; new
    /// runs are refused until there is room again.
    #[error("the disk is full")]
    Full,
    /// Another process has the store open.
    #[error("another process (pid {pid}) uses the store")]
    InUse {
        /// That process, 0 if it did not say.
        pid: u32,
    },
}

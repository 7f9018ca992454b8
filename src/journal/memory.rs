//! The store of a test: the same promises, kept only as long as the process lives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use serde_json::Value;

use crate::id::RunId;
use crate::id::Seq;
use crate::journal::disk;
use crate::journal::record::Body;
use crate::journal::record::Draft;
use crate::journal::retention::Retention;
use crate::journal::side;
use crate::journal::store;
use crate::journal::store::Append;
use crate::journal::store::Error;
use crate::journal::store::Keep;
use crate::journal::store::Pending;
use crate::journal::store::Recorded;
use crate::journal::store::Removed;
use crate::journal::store::Store;
use crate::journal::store::Summary;
use crate::plan::WorkflowDigest;
use crate::time::Timestamp;

/// A store in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    content: Mutex<Content>,
}

#[derive(Debug, Default)]
struct Content {
    journals: BTreeMap<RunId, Vec<Recorded>>,
    summaries: BTreeMap<RunId, Summary>,
    keys: BTreeMap<Arc<str>, RunId>,
    definitions: BTreeMap<WorkflowDigest, Value>,
    settings: BTreeMap<String, Value>,
    blobs: BTreeMap<String, Vec<u8>>,
    newest: Option<Timestamp>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    fn append(&mut self, append: &Append) -> Result<Seq, Error> {
        store::admit(append)?;
        // By way of its bytes, so that a test replays exactly what a disk would give back.
        let Body { at, events } = Draft::new(append.at, &append.events)?.reread()?;
        let (run, expected, summary) = (append.run, append.expected, append.summary.clone());
        let found = Seq(self.journals.get(&run).map_or(0, Vec::len) as u64);
        if found != expected {
            return Err(Error::Conflict { run, expected, found });
        }
        if let Some(summary) = summary {
            let key = summary.key.as_ref().filter(|_| expected == Seq(0));
            if let Some(key) = key {
                if let Some(owner) = self.keys.get(key) {
                    return Err(Error::KeyTaken { run: *owner });
                }
                self.keys.insert(Arc::clone(key), run);
            }
            self.summaries.insert(run, summary);
        }
        self.newest = self.newest.max(Some(at));
        let journal = self.journals.entry(run).or_default();
        for event in events {
            journal.push(Recorded { seq: Seq(journal.len() as u64 + 1), at, event });
        }
        Ok(Seq(journal.len() as u64))
    }

    fn remove(&mut self, run: RunId) {
        self.journals.remove(&run);
        let summary = self.summaries.remove(&run);
        let key = summary.and_then(|summary| summary.key);
        if let Some(key) = key.filter(|key| self.keys.get(key) == Some(&run)) {
            self.keys.remove(&key);
        }
    }

    fn retain(&mut self, keep: Keep, now: Timestamp) -> usize {
        let mut retention = Retention::new(keep, now);
        let is_open = |run: &RunId| self.summaries.get(run).is_some_and(|root| !root.status.is_terminal());
        let newest_first = self.summaries.values().rev();
        let removed =
            newest_first.filter(|line| retention.removes(line, line.root.as_ref().is_some_and(is_open)));
        let removed: Vec<_> = removed.map(|line| line.run).collect();
        for run in &removed {
            self.remove(*run);
        }
        removed.len()
    }
}

/// An answer that is there at once.
fn ready<T: Send + 'static>(answer: Result<T, Error>) -> Pending<'static, T> {
    Box::pin(std::future::ready(answer))
}

impl Store for MemoryStore {
    fn append<'a>(&'a self, append: &'a Append) -> Pending<'a, Seq> {
        Box::pin(async move { self.content().append(append) })
    }

    fn read(&self, run: RunId) -> Result<Vec<Recorded>, Error> {
        Ok(self.content().journals.get(&run).cloned().unwrap_or_default())
    }

    fn runs(&self, before: Option<RunId>, limit: usize) -> Result<Vec<Summary>, Error> {
        let content = self.content();
        let newest_first = content.summaries.values().rev();
        Ok(newest_first.filter(|line| before.is_none_or(|run| line.run < run)).take(limit).cloned().collect())
    }

    fn open_runs(&self) -> Result<Vec<Summary>, Error> {
        Ok(self.content().summaries.values().filter(|line| !line.status.is_terminal()).cloned().collect())
    }

    fn summary(&self, run: RunId) -> Result<Option<Summary>, Error> {
        Ok(self.content().summaries.get(&run).cloned())
    }

    fn put_summary(&self, summary: Summary) -> Pending<'_, ()> {
        let mut content = self.content();
        let known = content.summaries.contains_key(&summary.run);
        if known {
            content.summaries.insert(summary.run, summary);
        }
        ready(if known { Ok(()) } else { Err(Error::Misused("there is no such run")) })
    }

    fn cut(&self, run: RunId, after: Seq) -> Pending<'_, Seq> {
        let mut content = self.content();
        let Some(journal) = content.journals.get_mut(&run) else {
            return ready(Err(Error::Misused("there is no such run")));
        };
        journal.truncate(usize::try_from(after.0).unwrap_or(usize::MAX));
        ready(Ok(Seq(journal.len() as u64)))
    }

    fn run_of_key(&self, key: &str) -> Result<Option<RunId>, Error> {
        Ok(self.content().keys.get(key).copied())
    }

    fn put_definition(&self, digest: &WorkflowDigest, definition: &Value) -> Pending<'_, ()> {
        self.content().definitions.entry(digest.clone()).or_insert_with(|| definition.clone());
        ready(Ok(()))
    }

    fn definition(&self, digest: &WorkflowDigest) -> Result<Option<Value>, Error> {
        Ok(self.content().definitions.get(digest).cloned())
    }

    fn setting(&self, name: &str) -> Result<Option<Value>, Error> {
        Ok(self.content().settings.get(name).cloned())
    }

    fn put_setting(&self, name: &str, value: Option<Value>) -> Pending<'_, ()> {
        let checked = value.as_ref().map_or(Ok(()), |value| store::encode_setting(name, value).map(drop));
        if checked.is_ok() {
            let mut content = self.content();
            match value {
                Some(value) => content.settings.insert(name.to_owned(), value),
                None => content.settings.remove(name),
            };
        }
        ready(checked)
    }

    fn put_blob(&self, bytes: &[u8]) -> Result<Arc<str>, Error> {
        side::admit(bytes)?;
        let digest = disk::hex(&side::digest_of(bytes));
        self.content().blobs.insert(digest.clone(), bytes.to_owned());
        Ok(digest.into())
    }

    fn blob(&self, digest: &str) -> Result<Vec<u8>, Error> {
        let missing = || Error::Blob { digest: digest.into(), what: "is missing".to_owned() };
        self.content().blobs.get(digest).cloned().ok_or_else(missing)
    }

    fn newest(&self) -> Result<Option<Timestamp>, Error> {
        Ok(self.content().newest)
    }

    fn revive(&self) -> Pending<'_, ()> {
        ready(Ok(()))
    }

    fn retain(&self, keep: Keep, now: Timestamp) -> Pending<'_, Removed> {
        // Side files are young as long as this process lives.
        ready(Ok(Removed { runs: self.content().retain(keep, now), blobs: 0 }))
    }
}

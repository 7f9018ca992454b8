//! When parked runs are due.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use tokio::sync::Notify;

use crate::id::RunId;
use crate::time::SharedClock;
use crate::time::Timestamp;

/// The due times of parked runs: two numbers for each.
#[derive(Debug, Default)]
pub(super) struct Timers {
    due: Mutex<BTreeSet<(Timestamp, RunId)>>,
    changed: Arc<Notify>,
}

impl Timers {
    fn due(&self) -> MutexGuard<'_, BTreeSet<(Timestamp, RunId)>> {
        // Nothing panics while it is held; a set is whole after every call anyway.
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes `run` at `at`.
    pub(super) fn set(&self, run: RunId, at: Timestamp) {
        let first = {
            let mut due = self.due();
            due.insert((at, run));
            due.first() == Some(&(at, run))
        };
        if first {
            self.changed.notify_one();
        }
    }

    /// The runs that sleep.
    pub(super) fn runs(&self) -> Vec<RunId> {
        self.due().iter().map(|(_, run)| *run).collect()
    }

    /// Removes and returns what is due at `now`.
    fn take_due(&self, now: Timestamp) -> Vec<RunId> {
        let mut due = self.due();
        let mut taken = vec![];
        while let Some(entry) = due.first().copied().filter(|(at, _)| *at <= now) {
            due.remove(&entry);
            taken.push(entry.1);
        }
        taken
    }

    /// Waits until something is due, and returns it.
    pub(super) async fn next_due(&self, clock: &SharedClock) -> Vec<RunId> {
        loop {
            let taken = self.take_due(clock.now());
            if !taken.is_empty() {
                return taken;
            }
            let first = self.due().first().map(|(at, _)| *at);
            match first {
                Some(at) => {
                    tokio::select! {
                        () = clock.sleep_until(at) => {}
                        () = self.changed.notified() => {}
                    }
                }
                None => self.changed.notified().await,
            }
        }
    }
}

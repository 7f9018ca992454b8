//! Who watches which run.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tokio::sync::mpsc;
use tokio::sync::oneshot;

use crate::engine::state::RunStatus;
use crate::id::RunId;
use crate::runner::host::Update;
use crate::runner::host::lock;

/// Updates that a watcher may be behind; one that is slower is dropped, and reads the journal instead.
const BEHIND_MAX: usize = 1024;

/// The watchers of all runs.
#[derive(Debug, Default)]
pub(super) struct Updates {
    watchers: Mutex<BTreeMap<RunId, Vec<mpsc::Sender<Update>>>>,
    /// Those who only want to know the end: they are not woken before.
    ends: Mutex<BTreeMap<RunId, Vec<oneshot::Sender<RunStatus>>>>,
}

impl Updates {
    /// Everything that is published about `run` from now on.
    pub(super) fn subscribe(&self, run: RunId) -> mpsc::Receiver<Update> {
        let (sender, receiver) = mpsc::channel(BEHIND_MAX);
        lock(&self.watchers).entry(run).or_default().push(sender);
        receiver
    }

    /// Tells the watchers of `run`, if there are any.
    pub(super) fn publish(&self, run: RunId, update: impl FnOnce() -> Update) {
        let mut watchers = lock(&self.watchers);
        let Some(senders) = watchers.get_mut(&run) else { return };
        let update = update();
        senders.retain(|sender| sender.try_send(update.clone()).is_ok());
        if senders.is_empty() {
            watchers.remove(&run);
        }
    }

    /// The state in which `run` ends.
    pub(super) fn subscribe_end(&self, run: RunId) -> oneshot::Receiver<RunStatus> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.ends).entry(run).or_default().push(sender);
        receiver
    }

    /// Tells those who wait for the end of `run`.
    pub(super) fn publish_end(&self, run: RunId, status: RunStatus) {
        for sender in lock(&self.ends).remove(&run).into_iter().flatten() {
            // Whoever waited may have gone away.
            sender.send(status).ok();
        }
    }
}

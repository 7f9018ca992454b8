//! Who watches which run.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tokio::sync::mpsc;

use crate::id::RunId;
use crate::runner::host::Update;
use crate::runner::host::lock;

/// Updates that a watcher may be behind; one that is slower is dropped, and reads the journal instead.
const BEHIND_MAX: usize = 1024;

/// The watchers of all runs.
#[derive(Debug, Default)]
pub(super) struct Updates {
    watchers: Mutex<BTreeMap<RunId, Vec<mpsc::Sender<Update>>>>,
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
}

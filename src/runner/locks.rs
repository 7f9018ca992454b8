//! Locks between runs (E8): the table lives in memory and is made anew from the index whenever a process starts.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::engine::Command;
use crate::engine::event::Actor;
use crate::engine::locks::LockTable;
use crate::engine::locks::LockView;
use crate::engine::state::RunStatus;
use crate::id::RunId;
use crate::journal::store;
use crate::runner::Error;
use crate::runner::Host;
use crate::runner::host::Shared;
use crate::runner::host::lock;
use crate::runner::run_task::Message;

impl Host {
    /// Who holds which lock.
    pub fn locks(&self) -> Vec<LockView> {
        lock(&self.shared.locks).view()
    }

    /// Takes a lock away from a run, which then waits for a person.
    ///
    /// # Errors
    /// As [`Host::command`].
    pub async fn break_lock(
        &self,
        run: RunId,
        key: Arc<str>,
        by: Actor,
        reason: String,
    ) -> Result<(), Error> {
        self.command(run, Command::BreakLock { key: key.clone(), by, reason }).await?;
        let freed = lock(&self.shared.locks).break_lock(&key);
        for next in freed.into_iter().flat_map(|(_, runs)| runs) {
            self.shared.grant(next);
        }
        Ok(())
    }
}

impl Shared {
    /// Who holds what, from the index: locks are part of the records of the runs that hold them (E8).
    pub(super) fn rebuild_locks(&self) -> Result<(), store::Error> {
        let mut table = LockTable::default();
        let mut open = self.store.open_runs()?;
        // Those that hold come before those that wait, and those in the order in which they came.
        open.sort_by_key(|line| (line.status == RunStatus::Queued, line.run));
        for line in open.iter().filter(|line| !line.locks.is_empty()) {
            let owner = line.root.unwrap_or(line.run);
            match line.status {
                RunStatus::Queued => {
                    // It was queued before: the same table queues it again.
                    if let Err(error) = table.request(line.run, owner, &line.locks, false) {
                        tracing::error!(run = %line.run, %error, "a run cannot queue for its locks again");
                    }
                }
                _ => table.restore(line.run, owner, &line.locks),
            }
        }
        *lock(&self.locks) = table;
        Ok(())
    }

    /// True if the locks that a run has queued for are its own by now.
    pub(super) fn has_turn(&self, run: RunId) -> bool {
        lock(&self.locks).holds(run)
    }

    /// Frees what a run holds or waits for, and lets those go on that waited for it.
    pub(super) fn release_locks(self: &Arc<Self>, run: RunId) {
        let granted = lock(&self.locks).release(run);
        granted.into_iter().for_each(|next| self.grant(next));
    }

    /// Tells a run that its turn has come.
    fn grant(self: &Arc<Self>, run: RunId) {
        let (reply, _) = oneshot::channel();
        self.deliver(run, Message::Request(Command::GrantLocks, reply));
    }
}

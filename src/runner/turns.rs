//! One start at a time for each idempotency key: whoever comes second finds the run of the first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;

use tokio::sync::OwnedMutexGuard;

use crate::runner::host::lock;

/// The keys with which something is being started.
#[derive(Debug, Default)]
pub(super) struct Turns {
    taken: Mutex<BTreeMap<Arc<str>, Arc<tokio::sync::Mutex<()>>>>,
}

/// The turn to start something with a key; over when it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'t> {
    turns: &'t Turns,
    key: Arc<str>,
    gate: Arc<tokio::sync::Mutex<()>>,
    held: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits until nobody else starts something with `key`.
    pub(super) async fn take(&self, key: Arc<str>) -> Turn<'_> {
        let gate = lock(&self.taken).entry(key.clone()).or_default().clone();
        let mut turn = Turn { turns: self, key, gate, held: None };
        turn.held = Some(turn.gate.clone().lock_owned().await);
        turn
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        drop(self.held.take());
        let mut taken = lock(&self.turns.taken);
        // The table's and this one: nobody else waits, and nobody can begin to while the table is locked.
        if Arc::strong_count(&self.gate) == 2 {
            taken.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_of_one_key_come_one_after_the_other_and_leave_nothing_behind() {
        let turns = Turns::default();
        let first = turns.take("a".into()).await;
        let other = turns.take("b".into()).await;
        let second = turns.take("a".into());
        tokio::pin!(second);
        assert!(futures::poll!(second.as_mut()).is_pending());
        drop((first, other));
        let second = second.await;
        assert_eq!(lock(&turns.taken).len(), 1);
        let mut given_up = Box::pin(turns.take("a".into()));
        assert!(futures::poll!(given_up.as_mut()).is_pending());
        drop(given_up);
        drop(second);
        assert!(lock(&turns.taken).is_empty());
    }
}

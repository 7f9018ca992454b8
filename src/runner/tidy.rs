//! What is over is tidied beside the runs, a little at a time: old runs go (S4), debts that are gone are closed (E14).

use std::time::Duration;

use crate::journal::store::Keep;
use crate::runner::Host;

/// What stays: the runs of a quarter of a year, so that the maintenance of the last one can be looked up. At most so many
/// that the index is gone through in a moment. One look removes a hundred: each is a commit of its own.
const KEEP: Keep = Keep { age: Duration::from_hours(24 * 92), runs: 10_000, at_once: 100 };
/// Between two looks while there is more to remove: runs have the disk meanwhile.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two looks otherwise: what is too old, or gone, may stay for an hour more.
const REST: Duration = Duration::from_hours(1);

impl Host {
    /// Tidies from now on, until the process ends.
    pub fn tidy(&self) {
        tokio::spawn(tidy(self.clone()));
    }
}

async fn tidy(host: Host) {
    loop {
        let removed = host.shared.store.retain(KEEP, host.shared.clock.now()).await;
        if let Err(error) = &removed {
            tracing::warn!(%error, "old runs cannot be removed");
        }
        if removed.is_ok_and(|removed| removed.runs >= KEEP.at_once) {
            host.shared.clock.sleep(PAUSE).await;
            continue;
        }
        if let Err(error) = host.settle_debts().await {
            tracing::warn!(%error, "debts cannot be looked at");
        }
        host.shared.clock.sleep(REST).await;
    }
}

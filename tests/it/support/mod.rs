//! What several integration tests share.

use std::sync::Arc;

use windrow::action::secret::Secrets;
use windrow::definition::Library;
use windrow::definition::model::Rehearsal;
use windrow::journal::memory::MemoryStore;
use windrow::rehearsal::Stage;
use windrow::time::SystemClock;
use windrow::time::Timestamp;

pub(crate) mod certificates;
pub(crate) mod controlplane;

/// When the clocks of stages start.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// The cluster of a rehearsal at a fixed moment, with a service that keeps its runs in memory. Durations are `speed` times
/// shorter.
pub(crate) async fn stage(library: &Arc<Library>, case: &Rehearsal, speed: f64) -> Stage {
    let clock = Arc::new(SystemClock::starting_at(START, speed));
    let store = Arc::new(MemoryStore::new());
    Stage::set(case, library.clone(), store, Secrets::new(None), clock, 1).await.unwrap()
}

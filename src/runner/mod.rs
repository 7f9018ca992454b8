//! Runs: the only place that awaits.
//!
//! Each run that has something to do is an actor, a [`run_task`], which owns its state: it takes a command, lets the
//! engine decide, makes the events durable, and only then starts the effects that follow. A run that only waits for a
//! moment is parked: its journal and a due time are all that is left of it. [`host`] knows which is which.

mod child;
pub mod codes;
mod debts;
mod effects;
mod evidence;
mod explain;
pub mod host;
mod index;
mod locks;
mod masking;
mod observer;
pub mod preview;
mod program;
mod recover;
mod run_task;
mod secret_inputs;
pub mod start;
mod stuck;
mod tasks;
mod tidy;
mod timers;
mod turns;
mod updates;
mod values;

use std::sync::Arc;

use crate::engine::decide::Rejection;
use crate::failure::Failure;
use crate::id::RunId;
use crate::journal::store;

pub use child::called;
pub use child::child_id;
pub use host::Host;
pub use host::Update;
pub use start::Start;

/// Why a request to a run was not carried out.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The run says no.
    #[error("{0}")]
    Rejected(#[from] Rejection),
    /// The definition, the inputs or a lock say no.
    #[error("{}", .0.message)]
    Refused(Failure),
    /// The cluster does not answer, or there is none.
    #[error("{}", .0.message)]
    Cluster(Failure),
    /// This version does not accept the definition that the run is pinned to (E10).
    #[error("{}", .0.message)]
    Definition(Failure),
    /// There is no such run.
    #[error("there is no run {0}")]
    UnknownRun(RunId),
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The run belongs to another cluster (E10).
    #[error("run {run} belongs to the cluster {expected}, this process talks to {found}")]
    WrongCluster {
        /// Which run.
        run: RunId,
        /// uid of kube-system that the run is pinned to.
        expected: Arc<str>,
        /// uid of kube-system that was found.
        found: Arc<str>,
    },
}

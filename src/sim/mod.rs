//! The rehearsal cluster: a small Kubernetes API server with the controllers of a Harvester platform behind it.
//!
//! It knows nothing of Windrow. `world` is the vocabulary that the API server and the controllers share.

pub mod kinds;
pub mod world;

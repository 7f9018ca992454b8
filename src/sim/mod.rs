//! The rehearsal cluster: a small Kubernetes API server with the controllers of a Harvester platform behind it.
//!
//! It knows nothing of Windrow. `world` is the vocabulary that the API server and the controllers share.

pub mod admission;
pub mod contents;
pub mod controller;
pub mod fault;
pub mod harvester;
pub mod kinds;
pub mod object;
mod stage;
pub mod strategy;
pub mod subresource;
pub mod world;

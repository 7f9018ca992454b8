//! The rehearsal cluster: a small Kubernetes API server with the controllers of a Harvester platform behind it.
//!
//! It knows nothing of Windrow. `world` is the vocabulary that the API server and the controllers share.

pub mod admission;
pub mod audit;
mod carry;
mod cluster;
pub mod contents;
pub mod controller;
pub mod defaults;
pub mod delete;
mod drive;
pub mod equal;
pub mod events;
pub mod failure;
pub mod fault;
pub mod fields;
pub mod gc;
pub mod harvester;
mod http;
pub mod kinds;
pub mod managed;
pub mod meta;
pub mod object;
pub mod parts;
pub mod patch;
pub mod registry;
pub mod rules;
mod stage;
pub mod store;
pub mod strategy;
pub mod subresource;
pub mod trouble;
pub mod typed;
pub mod validate;
pub mod world;

pub use self::cluster::Cluster;
pub use self::cluster::Error;
pub use self::cluster::Options;
pub use self::cluster::list_faults;
pub use self::http::Service;

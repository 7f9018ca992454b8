//! The rehearsal cluster: a small Kubernetes API server with the controllers of a Harvester platform behind it.
//!
//! It knows nothing of Windrow. `world` is the vocabulary that the API server and the controllers share. Users see the
//! [`Cluster`], the faults, the makers of objects for fixtures, and the comparison of two states.

mod admission;
mod agenda;
mod audit;
mod carry;
mod cluster;
pub mod contents;
mod controller;
pub mod crew;
mod defaults;
mod delete;
mod drive;
pub mod equal;
mod events;
mod failure;
pub mod fault;
mod fields;
mod gc;
mod harvester;
mod http;
mod kinds;
mod managed;
mod meta;
mod object;
mod parts;
mod patch;
mod protobuf;
mod registry;
mod rules;
mod stage;
mod store;
mod strategy;
mod subresource;
mod trouble;
mod typed;
mod validate;
mod world;

pub use self::audit::AuditEntry;
pub use self::cluster::Cluster;
pub use self::cluster::Error;
pub use self::cluster::Options;
pub use self::cluster::list_faults;
pub use self::failure::Failure;
pub use self::http::Service;
pub use self::strategy::Strategy;
pub use self::world::Fault;
pub use self::world::Key;
pub use self::world::Platform;
pub use self::world::Resource;

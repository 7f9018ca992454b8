//! The durable record of all runs (design.md section 5).
//!
//! [`Store`] says what a store does. [`SledStore`] keeps its promises on a disk, [`MemoryStore`] in a test.
//!
//! A commit goes this way: the caller encodes its events ([`record`]), the one committer thread gives them their place,
//! puts everything that waits into one batch, makes it durable and answers. Rows are of one tree ([`keys`]) so that a
//! batch is atomic. [`head`] notices if the tree ever loses what was acknowledged.

mod committer;
mod cut;
mod disk;
pub mod export;
mod gathering;
mod group;
mod head;
mod index;
mod keys;
pub mod memory;
mod parts;
mod record;
mod reserve;
mod retention;
mod segment;
mod side;
pub mod sled;
pub mod store;
pub mod verify;
mod view;
mod walk;

pub use export::compact;
pub use export::export;
pub use export::import;
pub use memory::MemoryStore;
pub use sled::Options;
pub use sled::SledStore;
pub use store::Error;
pub use store::Store;
pub use verify::check;

//! The durable record of all runs.

pub mod store;

pub use store::Store;

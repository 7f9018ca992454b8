//! Windrow: runbook automation that survives crashes and undoes only what it did.

pub mod id;
pub mod sim;
pub mod time;

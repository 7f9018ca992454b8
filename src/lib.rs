//! Windrow: runbook automation that survives crashes and undoes only what it did.

pub mod action;
pub mod agent;
pub mod cli;
pub mod definition;
pub mod diagnosis;
pub mod digest;
pub mod engine;
pub mod evaluate;
pub mod failpoint;
pub mod failure;
pub mod id;
pub mod journal;
pub mod plan;
pub mod rehearsal;
pub mod runner;
pub mod service;
pub mod sim;
pub mod time;

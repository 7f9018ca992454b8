//! The engine: what a run is, what may happen to it, and what is to be done next.
//!
//! Pure: no IO, no clock, no randomness. `decide` turns a [`Command`] into events, `apply` folds an event into the
//! state, `pending_effects` derives from the state what is to be done, and `next_deadline` says when to look again.
//! Recovery is replay followed by `pending_effects`.

#![deny(clippy::wildcard_enum_match_arm)]

pub mod ask;
pub mod command;
pub mod effect;
pub mod event;
pub mod state;
pub mod unit;

pub use command::Command;
pub use effect::Effect;
pub use event::Event;
pub use state::RunState;

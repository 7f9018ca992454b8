//! The engine: what a run is, what may happen to it, and what is to be done next.
//!
//! Pure: no IO, no clock, no randomness. `decide` turns a [`Command`] into events, `apply` folds an event into the
//! state, `pending_effects` derives from the state what is to be done, and `next_deadline` says when to look again.
//! Recovery is replay followed by `pending_effects`.

#![deny(clippy::wildcard_enum_match_arm)]

pub mod apply;
pub mod ask;
mod case;
pub mod codes;
pub mod command;
pub mod decide;
pub mod effect;
pub mod event;
pub mod invariant;
pub mod limits;
pub mod linked;
pub mod locks;
pub mod part;
mod progress;
pub mod retry;
mod rollback;
pub mod standing;
pub mod state;
pub mod summary;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod unit;
mod words;

pub use apply::IllegalEvent;
pub use command::Command;
pub use decide::Rejection;
pub use decide::advance;
pub use effect::Effect;
pub use effect::next_deadline;
pub use effect::pending_effects;
pub use event::Event;
pub use state::RunState;

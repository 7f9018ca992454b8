//! The engine: what a run is, what may happen to it, and what is to be done next.
//!
//! Pure: no IO, no clock, no randomness. It is told the time, and asked when to be told again.
//!
//! ```text
//!              decide            apply                 pending_effects
//!   Command ───────────▶ Event ─────────▶ RunState ─────────────────────▶ Effect ──▶ runner ──▶ Command
//!                          ▲                  │
//!                          └── follow_up ◀────┘   until nothing follows
//! ```
//!
//! - [`decide`] says what a [`Command`] means, and nothing more. What follows from the new state (a retry, the skip of
//!   a step, the turn to rollback, the end) is derived from the state by `follow_up`. [`advance`] is the loop of both;
//!   all its events belong into one append.
//! - [`apply`] is the only code that changes a [`RunState`]. It is the same live and on replay and needs no plan. Its
//!   `table` says which event may happen when.
//! - [`effect`] derives from state and plan what is to be done. So recovery is nothing special: replay the journal,
//!   send `Recover`, do what is pending.
//! - Nothing here evaluates an expression or reads an object: reports arrive evaluated, and what they decided is in
//!   the event, so that replay needs neither.
//!
//! A **unit** is one passage through the lifecycle of E2: a step, an item of a `for_each` step, a rollback entry or an
//! item of one, a finally step. All take the same way:
//!
//! ```text
//!            ┌─────────────── retry due, or "not done" after a crash ◀───────────────┐
//!            ▼                                                                        │
//!   (new) Preparing ──▶ Pending     Acting ──▶ Observing      Failing ──▶ Backoff ────┘
//!            │  ▲          │         │  ▲ │ result  │             ▲  └──▶ Failed
//!            │  └──────────┘         │  │ │ unknown │ failed ─────┤
//!            ├─ request ready ───────┘  │ └─────────┘             │ verdict "fail"
//!            │                          │ done                    │
//!            └─ check true ──────────▶ Acted ──▶ Waiting ─────────┘
//!                                       │ no wait   │ verdict "succeed"
//!                                       └──────▶ Concluding ──▶ Succeeded
//!
//!   Sleeping stands beside Acting for `sleep`; Asking may interrupt any of them; the answer says where it goes on.
//! ```
//!
//! The run around them goes `Queued → Forward → (Halting → Undoing) → Finally → Summarizing → Over`; see `progress`.

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

//! The store: one suite on every backend, and what only a store on a disk can suffer.

mod copies;
mod crash;
mod damage;
mod differential;
mod full;
mod power;
mod suite;
pub(crate) mod support;

//! The store: one suite on every backend, and what only a store on a disk can suffer.

mod suite;
mod support;

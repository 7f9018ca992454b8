//! Whole runs by the scripted driver of `testing`.

#![expect(clippy::needless_raw_string_hashes, reason = "expect-test writes them when it updates a snapshot")]

mod children;
mod cuts;
mod forward;
mod lists;
mod people;
mod random;
mod recovery;
mod table;
mod undo;

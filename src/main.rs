//! The `windrow` command: parses arguments, runs, and turns the outcome into an exit code.
fn main() {}

//! The `windrow` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    windrow::cli::main().into()
}

//! The command line.

mod answer;
pub mod args;
mod commands;
pub mod error;
mod explain;
mod follow;
mod lines;
mod live;
mod outline;
pub mod printer;
mod render;
mod session;
mod standing;
mod typed;

use clap::Parser;

use crate::cli::args::Args;
use crate::cli::error::CommandError;
use crate::cli::printer::Printer;
use crate::service::codes;

/// Stack of the threads that evaluate expressions: parsing a deep one takes megabytes in a debug build.
const STACK: usize = 16 << 20;
/// Threads for runs: they wait more than they compute.
const WORKERS: usize = 2;

/// Parses the arguments and runs the command. The exit code is the table of design.md section 6.
pub fn main() -> u8 {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are answers, anything else is a mistake of the caller.
            let code = if error.use_stderr() { 2 } else { 0 };
            return if error.print().is_ok() { code } else { 1 };
        }
    };
    let printer = Printer::new(args.global.output);
    log(&args, &printer);
    match run(args, printer.clone()) {
        Ok(code) => code,
        Err(error) => {
            printer.failure(&error);
            error.code()
        }
    }
}

/// Runs the command on a thread with a big stack, and what it starts on others of the same size.
fn run(args: Args, printer: Printer) -> Result<u8, CommandError> {
    let no_threads =
        |error| CommandError::unusable(codes::NO_RUNTIME, format!("cannot start threads: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_stack_size(STACK)
        .enable_all()
        .build()
        .map_err(no_threads)?;
    let command = move || runtime.block_on(commands::run(args, &printer));
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(command).map_err(no_threads)?;
    thread.join().unwrap_or_else(|_| Err(CommandError::bug()))
}

fn log(args: &Args, printer: &Printer) {
    use tracing_subscriber::EnvFilter;
    let level = if args.global.verbose { "windrow=debug" } else { "windrow=error" };
    let filter = EnvFilter::try_from_env("WINDROW_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(printer.has_colour())
        .with_writer(std::io::stderr);
    // Fails only if there is a subscriber already, which then serves as well.
    subscriber.try_init().ok();
}

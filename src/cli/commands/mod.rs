//! One function for each command, grouped by what they are about.

mod bundle;
mod definitions;
mod diagnose;
mod people;
mod rehearse;
mod runs;
mod sim;
mod store;

use clap::CommandFactory;

use crate::cli::args::Args;
use crate::cli::args::Command;
use crate::cli::error::CommandError;
use crate::cli::explain;
use crate::cli::printer::Printer;

/// Carries out a command; its exit code.
pub(super) async fn run(args: Args, printer: &Printer) -> Result<u8, CommandError> {
    let global = &args.global;
    match args.command {
        Command::Run(run) => runs::run(global, run, printer).await,
        Command::Resume { run } => runs::resume(global, run.as_deref(), printer).await,
        Command::Retry { run } => runs::link(global, &run, true, printer).await,
        Command::Rollback { run } => runs::link(global, &run, false, printer).await,
        Command::Runs(filter) => runs::list(global, filter, printer).await,
        Command::Show { run, events } => runs::show(global, &run, events, printer).await,
        Command::Bundle(what) => bundle::bundle(global, what, printer).await,
        Command::Diagnose { kind, object } => diagnose::diagnose(global, &kind, &object, printer).await,
        Command::Watch { run } => runs::watch(global, &run, printer).await,
        Command::Cancel(what) => people::cancel(global, what, printer).await,
        Command::Terminate(what) => people::terminate(global, what, printer).await,
        Command::Pause(what) => people::pause(global, what, true, printer).await,
        Command::Unpause(what) => people::pause(global, what, false, printer).await,
        Command::Decide(what) => people::decide(global, what, printer).await,
        Command::Approve(what) => people::approve(global, what, true, printer).await,
        Command::Reject(what) => people::approve(global, what, false, printer).await,
        Command::Note { run, text } => people::note(global, &run, text, printer).await,
        Command::Debts(what) => people::debts(global, what, printer).await,
        Command::Locks(what) => people::locks(global, what, printer).await,
        Command::Plan(inputs) => definitions::plan(global, &inputs, printer).await,
        Command::Validate { paths } => definitions::validate(global, &paths, printer),
        Command::Graph { workflow, format } => definitions::graph(global, &workflow, format, printer),
        Command::Workflows => Ok(definitions::workflows(global, printer)),
        Command::Schema => Ok(definitions::schema(printer)),
        Command::Rehearse(what) => rehearse::rehearse(global, what, printer).await,
        Command::Sim(what) => sim::sim(what, printer).await,
        Command::Store { action } => store::store(global, action, printer),
        Command::Explain { code } => explain::explain(code.as_deref(), printer),
        Command::Completions { shell } => {
            let mut text = vec![];
            clap_complete::generate(shell, &mut Args::command(), "windrow", &mut text);
            printer.data(String::from_utf8_lossy(&text).trim_end());
            Ok(0)
        }
        Command::Version => {
            if printer.is_json() {
                printer.json(&serde_json::json!({ "version": env!("CARGO_PKG_VERSION") }));
            } else {
                printer.data(format_args!("windrow {}", env!("CARGO_PKG_VERSION")));
            }
            Ok(0)
        }
    }
}

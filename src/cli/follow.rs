//! A run in the foreground: what happens to it is printed until it is over, asks a person, or is left.

use serde_json::Value;

use crate::cli::answer;
use crate::cli::args::Global;
use crate::cli::error::CommandError;
use crate::cli::error::PARKED;
use crate::cli::error::code_of_run;
use crate::cli::lines::Lines;
use crate::cli::printer::Printer;
use crate::cli::render;
use crate::cli::session::Session;
use crate::cli::typed::Typed;
use crate::id::RunId;
use crate::service::codes;
use crate::service::operation::Operation;
use crate::service::operation::ProblemKind;

/// Follows `run` and returns its exit code. If the process that executes it goes away, this one goes on with it.
pub(super) async fn follow(
    session: &mut Session,
    global: &Global,
    run: RunId,
    printer: &Printer,
) -> Result<u8, CommandError> {
    loop {
        if let Some(code) = look_on(session, run, printer).await? {
            return Ok(code);
        }
        printer.note(printer.pick(
            "the process that executed the run has ended; this one goes on with it",
            "执行此运行的进程已结束；由本进程继续",
        ));
        *session = Session::open(global).await?;
        session.serve()?;
        match session.call(Operation::Resume { run: Some(run) }).await {
            // It was over by then: that is shown.
            Err(error) if error.kind != ProblemKind::Refused => return Err(error),
            _ => {}
        }
    }
}

/// Follows `run` as long as somebody executes it; its exit code, none if that process went away.
pub(super) async fn look_on(
    session: &Session,
    run: RunId,
    printer: &Printer,
) -> Result<Option<u8>, CommandError> {
    let mut changes = session.watch(run).await?;
    let mut lines = Lines::new(printer);
    let mut stop = Stop::new()?;
    let mut typed: Option<Typed> = None;
    let mut last = Value::Null;
    loop {
        tokio::select! {
            change = changes.recv() => {
                let Some(change) = change else { break };
                lines.show(&change.view);
                last = change.view;
                if last["state"] == "Held" {
                    // A script must not wait for ever; a person at the terminal answers here or from another window.
                    if !printer.is_interactive() {
                        break;
                    }
                    typed.get_or_insert_with(Typed::start);
                }
            }
            line = typed_line(&mut typed) => {
                if let Err(error) = say(session, run, &line, &last).await {
                    lines.pause(|| printer.failure(&error));
                }
            }
            _ = stop.recv() => {
                lines.end();
                leave(session, run, printer);
                return Ok(Some(PARKED));
            }
        }
    }
    lines.end();
    if last["finished_at"].is_null() && last["state"] != "Held" {
        return Ok(None);
    }
    if printer.is_json() {
        printer.json(&last);
    } else {
        render::ending(&last, printer);
    }
    Ok(Some(code_of_run(&last)))
}

/// Gives an answer that somebody typed.
async fn say(session: &Session, run: RunId, line: &str, view: &Value) -> Result<(), CommandError> {
    if line.trim().is_empty() {
        return Ok(());
    }
    let verb = answer::typed(line, view)?;
    session.call(Operation::Command { run, verb }).await.map(drop)
}

async fn typed_line(typed: &mut Option<Typed>) -> String {
    match typed {
        Some(typed) => typed.line().await,
        None => std::future::pending().await,
    }
}

/// Ends a command that may have executed runs. Those of others are parked, with a line each; whoever follows one of
/// them goes on with it.
pub(super) async fn close(session: &Session, own: &[RunId], printer: &Printer) {
    for line in session.park().await.into_iter().filter(|line| !own.contains(&line.run)) {
        printer.note(format_args!(
            "{} windrow resume {}  ({})",
            printer.pick("also executed here, now parked; go on with:", "同在此处执行，现已挂起；继续执行："),
            line.run,
            line.workflow
        ));
    }
}

/// Waits for Ctrl-C or for a service manager that wants the process to end, and returns the code to end with.
pub(super) async fn stopped() -> u8 {
    match Stop::new() {
        Ok(mut stop) => stop.recv().await,
        Err(_) => std::future::pending().await,
    }
}

/// Ctrl-C: the run stays as it is and goes on when it is resumed.
fn leave(session: &Session, run: RunId, printer: &Printer) {
    if session.is_local() {
        let text = printer.pick("parked; go on with:", "已挂起；继续执行：");
        printer.note(format_args!("{text} windrow resume {run}"));
    } else {
        let text = printer.pick(
            "the run goes on in the process that owns the store; follow it with:",
            "运行在持有存储的进程中继续；查看：",
        );
        printer.note(format_args!("{text} windrow watch {run}"));
    }
}

/// Ctrl-C and the request of a service manager to end.
struct Stop {
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> Result<Self, CommandError> {
        let kind = tokio::signal::unix::SignalKind::terminate();
        let terminate = tokio::signal::unix::signal(kind).map_err(|error| {
            CommandError::unusable(codes::NO_SIGNALS, format!("cannot listen to signals: {error}"))
        })?;
        Ok(Self { terminate })
    }

    /// The code that a process ends with when this stops it.
    async fn recv(&mut self) -> u8 {
        tokio::select! {
            pressed = tokio::signal::ctrl_c() => match pressed {
                Ok(()) => PARKED,
                // No Ctrl-C will ever come.
                Err(_) => std::future::pending().await,
            },
            _ = self.terminate.recv() => 0,
        }
    }
}

//! A run in the foreground: what happens to it is printed until it is over, asks a person, or is left.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::sync::mpsc;

use crate::cli::error::CommandError;
use crate::cli::error::PARKED;
use crate::cli::error::code_of_run;
use crate::cli::live::Live;
use crate::cli::printer::Printer;
use crate::cli::render;
use crate::cli::session::Session;
use crate::id::RunId;
use crate::service::operation::Change;

/// Follows `run` and returns its exit code.
pub(super) async fn follow(session: &Session, run: RunId, printer: &Printer) -> Result<u8, CommandError> {
    let mut changes = session.watch(run).await?;
    let mut lines = Lines::new(printer);
    let mut stop = Stop::new()?;
    let mut last = Value::Null;
    loop {
        tokio::select! {
            change = changes.recv() => {
                let Some(change) = change else { break };
                lines.show(&change.view);
                last = change.view;
                // A person at the terminal may answer from another window; a script must not wait for ever.
                if last["state"] == "Held" && !printer.is_interactive() {
                    break;
                }
            }
            _ = stop.recv() => {
                lines.end();
                return Ok(leave(session, run, printer).await);
            }
        }
    }
    lines.end();
    if last["state"] == "Held" {
        session.park().await;
    }
    if printer.is_json() {
        printer.json(&last);
    } else {
        render::ending(&last, printer);
    }
    Ok(code_of_run(&last))
}

/// Shows changes until the run is over or asks a person; how it is then.
pub(super) async fn follow_changes(mut changes: mpsc::Receiver<Change>, printer: &Printer) -> Value {
    let mut lines = Lines::new(printer);
    let mut last = Value::Null;
    while let Some(change) = changes.recv().await {
        lines.show(&change.view);
        last = change.view;
        if last["state"] == "Held" {
            break;
        }
    }
    lines.end();
    last
}

/// Waits for Ctrl-C or for a service manager that wants the process to end, and returns the code to end with.
pub(super) async fn stopped() -> u8 {
    match Stop::new() {
        Ok(mut stop) => stop.recv().await,
        Err(_) => std::future::pending().await,
    }
}

/// Ctrl-C: the run stays as it is and goes on when it is resumed.
async fn leave(session: &Session, run: RunId, printer: &Printer) -> u8 {
    if session.is_local() {
        session.park().await;
        printer.note(format_args!(
            "{} windrow resume {run}",
            printer.pick("parked; go on with:", "已挂起；继续执行：")
        ));
    } else {
        let text = printer.pick(
            "the run goes on in the process that owns the store; follow it with:",
            "运行在后台继续；查看：",
        );
        printer.note(format_args!("{text} windrow watch {run}"));
    }
    PARKED
}

/// Ctrl-C and the request of a service manager to end.
struct Stop {
    terminate: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> Result<Self, CommandError> {
        let kind = tokio::signal::unix::SignalKind::terminate();
        let terminate = tokio::signal::unix::signal(kind).map_err(|error| {
            CommandError::unusable("no-signals", format!("cannot listen to signals: {error}"))
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

/// Prints a run as it changes: moving lines on a terminal, one line for each change elsewhere.
struct Lines<'p> {
    printer: &'p Printer,
    live: Option<Live>,
    state: String,
    steps: BTreeMap<String, String>,
    asked: u64,
}

impl<'p> Lines<'p> {
    fn new(printer: &'p Printer) -> Self {
        let live = (printer.has_colour() && !printer.is_json()).then(Live::new);
        Self { printer, live, state: String::new(), steps: BTreeMap::new(), asked: 0 }
    }

    fn show(&mut self, view: &Value) {
        if self.printer.is_json() {
            return;
        }
        if self.state.is_empty() {
            self.say(&render::heading(view, self.printer));
        }
        if let Some(live) = &mut self.live {
            live.show(view, self.printer);
        } else {
            for (name, line) in render::steps(view, self.printer) {
                if self.steps.get(&name) != Some(&line) {
                    self.printer.note(&line);
                    self.steps.insert(name, line);
                }
            }
        }
        let state = view["state"].as_str().unwrap_or_default();
        if state != self.state && state == "RollingBack" {
            self.say(self.printer.pick("rolling back", "正在回滚"));
        }
        state.clone_into(&mut self.state);
        let asks = view["asks"].as_array().map(Vec::as_slice).unwrap_or_default();
        let newest = asks.iter().filter_map(|ask| ask["id"].as_u64()).max().unwrap_or(0);
        if newest > self.asked {
            self.asked = newest;
            for line in render::asks(view, self.printer) {
                self.say(&line);
            }
        }
    }

    fn say(&self, line: &str) {
        match &self.live {
            Some(live) => live.say(line),
            None => self.printer.note(line),
        }
    }

    fn end(&mut self) {
        if let Some(live) = &mut self.live {
            live.end();
        }
    }
}

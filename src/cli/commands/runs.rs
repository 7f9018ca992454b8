//! Starting, going on, looking.

use std::io::Write;

use serde_json::Value;

use crate::cli::args::Global;
use crate::cli::args::Run;
use crate::cli::args::Runs;
use crate::cli::error::CommandError;
use crate::cli::error::PARKED;
use crate::cli::follow::close;
use crate::cli::follow::follow;
use crate::cli::follow::look_on;
use crate::cli::printer::Printer;
use crate::cli::render;
use crate::cli::session::Session;
use crate::cli::session::library;
use crate::engine::state::RunStatus;
use crate::failure::Bilingual;
use crate::id::RunId;
use crate::journal::store::Summary;
use crate::service::codes;
use crate::service::operation::Filter;
use crate::service::operation::Operation;
use crate::service::operation::Reply;

/// The most runs that one `windrow resume` goes on with: they are followed one after the other.
const RESUMED_MAX: usize = 1000;

pub(super) async fn run(global: &Global, run: Run, printer: &Printer) -> Result<u8, CommandError> {
    let library = library(global);
    let name = run.what.workflow.as_str();
    let workflow = library.get(name).ok_or_else(|| super::definitions::unknown(&library, name))?;
    let inputs = workflow
        .parse_inputs(run.what.inputs.iter().map(String::as_str))
        .map_err(|error| CommandError::usage(codes::BAD_INPUTS, error.to_string()))?;
    if workflow.confirm && !run.yes {
        super::definitions::print_plan(global, &library, name, &inputs, printer).await?;
        confirm(printer)?;
    }
    let Value::Object(inputs) = inputs else { return Err(CommandError::bug()) };
    if workflow.has_literal_secret(&inputs) {
        printer.note(printer.pick(
            "warning: every user of this machine can read what is on a command line: name the secret with env: or file:",
            "警告：本机所有用户都能看到命令行内容：请用 env: 或 file: 引用机密",
        ));
    }
    let session = Session::open(global).await?;
    let key = run.key.map(Into::into);
    start(session, global, Operation::Start { workflow: name.to_owned(), inputs, key }, printer).await
}

/// Asks whoever sits there; a script has to say `--yes`.
fn confirm(printer: &Printer) -> Result<(), CommandError> {
    let refused = |text: &str| CommandError {
        kind: crate::service::operation::ProblemKind::Refused,
        failure: crate::failure::Failure::permanent(codes::NOT_CONFIRMED, text),
    };
    if !printer.is_interactive() {
        return Err(refused("the workflow wants to be confirmed: look at `windrow plan`, then add --yes"));
    }
    write!(std::io::stderr(), "{} ", printer.pick("go on? [y/N]", "继续？[y/N]")).ok();
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).ok();
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(refused("not confirmed, nothing was started")),
    }
}

/// Starts a run and follows it to its end.
async fn start(
    mut session: Session,
    global: &Global,
    operation: Operation,
    printer: &Printer,
) -> Result<u8, CommandError> {
    session.serve()?;
    let Reply::Started { run } = session.call(operation).await? else { return Err(CommandError::bug()) };
    let code = follow(&mut session, global, run, printer).await;
    close(&session, &[run], printer).await;
    code
}

pub(super) async fn resume(
    global: &Global,
    run: Option<&str>,
    printer: &Printer,
) -> Result<u8, CommandError> {
    let mut session = Session::open(global).await?;
    session.serve()?;
    let (going, mut worst) = match run {
        Some(text) => {
            let run = session.run(text).await?;
            session.call(Operation::Resume { run: Some(run) }).await?;
            (vec![run], 0)
        }
        None => resume_all(&session, printer).await?,
    };
    let mut followed = 0;
    for run in &going {
        worst = worst.max(follow(&mut session, global, *run, printer).await?);
        followed += 1;
        if worst == PARKED {
            break;
        }
    }
    close(&session, &going[..followed], printer).await;
    Ok(worst)
}

/// Goes on with every open run, the oldest first. One that cannot go on keeps none of the others from it: its exit code
/// is returned.
async fn resume_all(session: &Session, printer: &Printer) -> Result<(Vec<RunId>, u8), CommandError> {
    let filter = Filter { open: true, ..Filter::default() };
    let asked = Operation::Runs { filter, before: None, limit: RESUMED_MAX };
    let Reply::Runs { runs, .. } = session.call(asked).await? else { return Err(CommandError::bug()) };
    let mut going = vec![];
    let mut worst = 0;
    for line in runs.iter().rev() {
        match session.call(Operation::Resume { run: Some(line.run) }).await {
            Ok(_) => going.push(line.run),
            Err(error) => {
                printer.failure(&error);
                worst = worst.max(error.code());
            }
        }
    }
    if runs.is_empty() {
        printer.note(printer.pick("no run is open", "没有未结束的运行"));
    }
    Ok((going, worst))
}

pub(super) async fn link(
    global: &Global,
    run: &str,
    retry: bool,
    printer: &Printer,
) -> Result<u8, CommandError> {
    let session = Session::existing(global).await?;
    let run = session.run(run).await?;
    let operation = if retry { Operation::Retry { run } } else { Operation::Rollback { run } };
    start(session, global, operation, printer).await
}

pub(super) async fn list(global: &Global, what: Runs, printer: &Printer) -> Result<u8, CommandError> {
    let session = Session::existing(global).await?;
    let filter =
        Filter { workflow: what.workflow, state: what.state_is, needs_me: what.needs_me, open: what.open };
    let asked = Operation::Runs { filter, before: None, limit: what.limit };
    let Reply::Runs { runs, next, all_paused } = session.call(asked).await? else {
        return Err(CommandError::bug());
    };
    if printer.is_json() {
        printer.json(&runs);
        return Ok(0);
    }
    for line in &runs {
        let (en, zh) = (line.held_reason.clone().unwrap_or_default(), line.held_reason_zh.clone());
        let held = Bilingual { en, zh };
        let held = printer.text(&held);
        let debts = if line.debts > 0 {
            format!("  {}: {}", printer.pick("debts", "遗留"), line.debts)
        } else {
            String::new()
        };
        let created = line.created_at.to_string();
        let overlay = render::overlay(line.overlay, printer);
        printer.data(format_args!(
            "{}  {:<19}  {:<18} {:<12} {held}{debts}",
            line.run,
            created.get(..19).unwrap_or(&created),
            line.workflow,
            format!("{}{overlay}", line.status.word())
        ));
    }
    let goes_on = |line: &Summary| !line.status.is_terminal() && line.status != RunStatus::Held;
    if session.is_local() && runs.iter().any(goes_on) {
        printer.note(printer.pick(
            "nobody executes the open runs; go on with: windrow resume [RUN]",
            "没有进程在执行未结束的运行；继续执行：windrow resume [RUN]",
        ));
    }
    if all_paused {
        printer.note(printer.pick(
            "nothing new is started; allow it again with: windrow unpause --all",
            "不启动新的运行；恢复：windrow unpause --all",
        ));
    }
    if next.is_some() {
        printer.note(printer.pick("there are more: --limit", "还有更多：--limit"));
    }
    Ok(0)
}

pub(super) async fn show(
    global: &Global,
    run: &str,
    events: bool,
    printer: &Printer,
) -> Result<u8, CommandError> {
    let session = Session::existing(global).await?;
    let run = session.run(run).await?;
    let Reply::Run { view } = session.call(Operation::Show { run, events }).await? else {
        return Err(CommandError::bug());
    };
    if printer.is_json() {
        printer.json(&view);
    } else {
        render::run(&view, !session.is_local(), printer);
    }
    Ok(0)
}

pub(super) async fn watch(global: &Global, run: &str, printer: &Printer) -> Result<u8, CommandError> {
    let session = Session::existing(global).await?;
    let run = session.run(run).await?;
    if session.is_local() {
        printer.note(printer.pick(
            "no process executes this run; `windrow resume` goes on with it",
            "没有进程在执行此运行；用 `windrow resume` 继续",
        ));
        return show(global, &run.to_string(), false, printer).await;
    }
    if let Some(code) = look_on(&session, run, printer).await? {
        return Ok(code);
    }
    let text =
        format!("the process that executed run {run} has ended; `windrow resume {run}` goes on with it");
    Err(CommandError::unusable(codes::AGENT_GONE, text))
}

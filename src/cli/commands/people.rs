//! What people say to runs.

use crate::cli::answer;
use crate::cli::args::DebtAction;
use crate::cli::args::Debts;
use crate::cli::args::Decide;
use crate::cli::args::Global;
use crate::cli::args::LockAction;
use crate::cli::args::Locks;
use crate::cli::args::Pause;
use crate::cli::args::Reasoned;
use crate::cli::error::CommandError;
use crate::cli::follow::close;
use crate::cli::follow::follow;
use crate::cli::printer::Printer;
use crate::cli::render::text;
use crate::cli::session::Session;
use crate::engine::ask::Choice;
use crate::id::RunId;
use crate::service::codes;
use crate::service::operation::Operation;
use crate::service::operation::Reply;
use crate::service::operation::Verb;

pub(super) async fn cancel(global: &Global, what: Reasoned, printer: &Printer) -> Result<u8, CommandError> {
    say_and_follow(global, &what.run, Verb::Cancel { reason: what.reason }, printer).await
}

pub(super) async fn terminate(
    global: &Global,
    what: Reasoned,
    printer: &Printer,
) -> Result<u8, CommandError> {
    let reason = what.reason.ok_or_else(|| {
        CommandError::usage(codes::NO_REASON, "terminate leaves things as they are: say why with --reason")
    })?;
    say_and_follow(global, &what.run, Verb::Terminate { reason }, printer).await
}

pub(super) async fn pause(
    global: &Global,
    what: Pause,
    paused: bool,
    printer: &Printer,
) -> Result<u8, CommandError> {
    let Some(run) = what.run else {
        // Also before anything was ever run there.
        let session = Session::open(global).await?;
        session.call(Operation::PauseAll { paused }).await?;
        printer.note(if paused {
            printer.pick("nothing new is started from now on", "从现在起不再启动新的运行")
        } else {
            printer.pick("runs are started again", "恢复启动运行")
        });
        return Ok(0);
    };
    let session = Session::existing(global).await?;
    let run = session.run(&run).await?;
    let verb = if paused { Verb::Pause } else { Verb::Unpause };
    session.call(Operation::Command { run, verb }).await?;
    let said = match paused {
        true => printer.pick("paused; go on with:", "已暂停；继续："),
        false => printer.pick("not paused any more:", "已解除暂停："),
    };
    let command = if paused { "windrow unpause " } else { "" };
    printer.note(format_args!("{said} {command}{run}"));
    Ok(0)
}

pub(super) async fn decide(global: &Global, what: Decide, printer: &Printer) -> Result<u8, CommandError> {
    let words: Vec<&str> = what.answer.iter().map(String::as_str).collect();
    let (step, choice) = answer::parse(&words)?;
    say_and_follow(global, &what.run, Verb::Answer { step, choice, reason: what.reason }, printer).await
}

pub(super) async fn approve(
    global: &Global,
    what: Reasoned,
    yes: bool,
    printer: &Printer,
) -> Result<u8, CommandError> {
    let choice = if yes { Choice::Approve } else { Choice::Reject };
    say_and_follow(global, &what.run, Verb::Answer { step: None, choice, reason: what.reason }, printer).await
}

pub(super) async fn note(
    global: &Global,
    run: &str,
    remark: String,
    printer: &Printer,
) -> Result<u8, CommandError> {
    let session = Session::existing(global).await?;
    let run = session.run(run).await?;
    session.call(Operation::Command { run, verb: Verb::Note { text: remark } }).await?;
    printer.note(printer.pick("noted", "已记录"));
    Ok(0)
}

pub(super) async fn debts(global: &Global, what: Debts, printer: &Printer) -> Result<u8, CommandError> {
    let session = Session::existing(global).await?;
    if let Some(DebtAction::Close { debt, reason }) = what.action {
        let wrong = || {
            CommandError::usage(
                codes::BAD_DEBT,
                format!("`{debt}` is not RUN/NUMBER as `windrow debts` lists it"),
            )
        };
        let (run, id) = debt.split_once('/').ok_or_else(wrong)?;
        let id = id.parse().map_err(|_| wrong())?;
        let run = session.run(run).await?;
        session.call(Operation::Command { run, verb: Verb::CloseDebt { id, reason } }).await?;
        return Ok(0);
    }
    let Reply::Rows { rows } = session.call(Operation::Debts).await? else { return Err(CommandError::bug()) };
    if printer.is_json() {
        printer.json(&rows);
        return Ok(0);
    }
    for row in &rows {
        let what = printer.json_text(&row["debt"]["what"]);
        printer.data(format_args!(
            "{}/{}  {:<18} {what}",
            text(&row["run"]),
            row["debt"]["id"],
            text(&row["workflow"])
        ));
    }
    Ok(0)
}

pub(super) async fn locks(global: &Global, what: Locks, printer: &Printer) -> Result<u8, CommandError> {
    let session = Session::existing(global).await?;
    let Reply::Rows { rows } = session.call(Operation::Locks).await? else { return Err(CommandError::bug()) };
    if let Some(LockAction::Break { key, reason }) = what.action {
        let holder =
            rows.iter().find(|row| row["key"] == key.as_str()).and_then(|row| row["holder"].as_str());
        let run: RunId = holder.and_then(|run| run.parse().ok()).ok_or_else(|| {
            CommandError::usage(codes::NO_SUCH_LOCK, format!("nobody holds the lock `{key}`"))
        })?;
        session.call(Operation::Command { run, verb: Verb::BreakLock { key: key.into(), reason } }).await?;
        return Ok(0);
    }
    if printer.is_json() {
        printer.json(&rows);
        return Ok(0);
    }
    for row in &rows {
        let waiting: Vec<String> = row["queue"].as_array().into_iter().flatten().map(text).collect();
        let waiting = if waiting.is_empty() {
            String::new()
        } else {
            format!("  {} {}", printer.pick("wanted by", "排队："), waiting.join(", "))
        };
        printer.data(format_args!("{:<40} {}{waiting}", text(&row["key"]), text(&row["holder"])));
    }
    Ok(0)
}

/// Says something to a run that lets it go on; without another process that executes it, this one does.
async fn say_and_follow(
    global: &Global,
    run: &str,
    verb: Verb,
    printer: &Printer,
) -> Result<u8, CommandError> {
    let mut session = Session::existing(global).await?;
    session.serve()?;
    let run = session.run(run).await?;
    if let Reply::Answered { run: by } = session.call(Operation::Command { run, verb }).await?
        && by != run
    {
        printer.note(format_args!("{} {by}", printer.pick("the run that asked:", "提问的运行：")));
    }
    if !session.is_local() {
        return Ok(0);
    }
    let code = follow(&mut session, global, run, printer).await;
    close(&session, &[run], printer).await;
    code
}

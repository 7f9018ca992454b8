//! A run in lines for people.

use std::fmt::Display;

use serde_json::Value;

use crate::cli::answer;
use crate::cli::printer::Printer;
use crate::engine::state::Overlay;
use crate::failure::Failure;

/// The marks of states, in front of a step.
const MARKS: &[(&str, &str)] = &[
    ("Pending", "·"),
    ("Preparing", "…"),
    ("Running", "▸"),
    ("Backoff", "↻"),
    ("Waiting", "◷"),
    ("Asking", "?"),
    ("Succeeded", "✓"),
    ("Failed", "✗"),
    ("Skipped", "-"),
    ("Cancelled", "■"),
    ("Compensating", "↶"),
    ("Compensated", "↺"),
    ("NotCompensated", "!"),
];
/// Columns of the words in front of what is known of a run.
const LABEL_COLUMNS: usize = 9;
/// States in which something goes on.
const MOVING: [&str; 5] = ["…", "▸", "↻", "◷", "↶"];

/// The first line: which run of what.
pub(super) fn heading(view: &Value, printer: &Printer) -> String {
    let title = printer.json_text(&view["title"]);
    format!("{} {} ({})", printer.pick("run", "运行"), text(&view["id"]), title)
}

/// A line for each step, with a name that stays the same.
pub(super) fn steps(view: &Value, printer: &Printer) -> Vec<(String, String)> {
    let rows = view["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    rows.iter().enumerate().map(|(i, row)| (format!("{i:05}"), step(row, printer))).collect()
}

/// True for a line of a step in which something goes on.
pub(super) fn is_moving(line: &str) -> bool {
    MOVING.iter().any(|mark| line.starts_with(mark))
}

fn step(row: &Value, printer: &Printer) -> String {
    let state = row["rollback"]["state"].as_str().or_else(|| row["state"].as_str()).unwrap_or_default();
    let mark = MARKS.iter().find(|(word, _)| *word == state).map_or(" ", |(_, mark)| mark);
    let name = match row["item"].as_str() {
        Some(item) => format!("{}[{item}]", text(&row["name"])),
        None => text(&row["name"]),
    };
    let mut line = format!("{mark} {name:<18} {state:<14}");
    line.push_str(&detail(row, printer));
    if row["attempts"].as_u64().unwrap_or(0) > 1 {
        let again = format!(" ({} {})", printer.pick("attempt", "第几次："), row["attempts"]);
        line.push_str(&again);
    }
    line.trim_end().to_owned()
}

/// The most telling thing about a step: why it failed, what it waits for, what it found; else what it is there for.
fn detail(row: &Value, printer: &Printer) -> String {
    let title = printer.json_text(&row["title"]);
    match row["rollback"]["state"].as_str() {
        Some("Compensating") => return format!("{} {title}", printer.pick("is being undone:", "正在撤销：")),
        Some("Compensated") => return format!("{} {title}", printer.pick("undone:", "已撤销：")),
        Some("NotCompensated") => return format!("{} {title}", printer.pick("left as it is:", "未撤销：")),
        _ => {}
    }
    // What an earlier attempt failed of says nothing about one that goes on.
    let failed = matches!(row["state"].as_str(), Some("Backoff" | "Asking" | "Failed" | "Cancelled"));
    let failure = printer.json_pair(&row["failure"], "message");
    if failed && !failure.is_empty() {
        return failure.to_owned();
    }
    let waiting = &row["waiting"];
    if !waiting.is_null() {
        let reason = printer.json_text(&waiting["for"]);
        let what = if reason.is_empty() { title } else { reason };
        return match waiting["until"].as_str() {
            Some(until) => {
                let until = until.get(11..19).unwrap_or(until);
                format!("{what} ({} {until} UTC)", printer.pick("until", "最迟"))
            }
            None => what.to_owned(),
        };
    }
    let found = [printer.json_text(&row["verdict"]["message"]), printer.json_text(&row["reason"])];
    found.into_iter().find(|text| !text.is_empty()).unwrap_or(title).to_owned()
}

/// How a run ended, or why it stands still, in a sentence.
pub(super) fn outcome(view: &Value, printer: &Printer) -> String {
    let state = view["state"].as_str().unwrap_or_default();
    let has = |key: &str| view[key].as_array().is_some_and(|list| !list.is_empty());
    let found = printer.json_text(&view["verdict"]["message"]);
    let sentence = match state {
        "Succeeded" if !found.is_empty() => found,
        "Succeeded" => printer.pick("every step is done", "所有步骤均已完成"),
        "Failed" if has("left") => {
            printer.pick("it failed; this is left as it is:", "失败；以下内容保持现状：")
        }
        "Failed" if !found.is_empty() => found,
        "Failed" => printer.pick("it failed, and there is nothing to undo", "失败，没有需要撤销的改动"),
        "RolledBack" => printer.pick("it failed, and what it had done is undone", "失败，已做的改动均已撤销"),
        "Cancelled" => return format!("{state}: {}", cancelled(view, printer)),
        "Held" => printer.pick("it waits for a person", "等待人工处理"),
        _ => printer.pick("it is not over yet", "尚未结束"),
    };
    let verdict = view["verdict"]["name"].as_str();
    let verdict =
        verdict.map_or_else(String::new, |name| format!(" ({} {name})", printer.pick("verdict", "结论")));
    format!("{state}: {sentence}{verdict}")
}

/// Who stopped a run, why, and how much of it was undone.
fn cancelled(view: &Value, printer: &Printer) -> String {
    let how_much = match view["rolled_back"].as_str() {
        Some("yes") => printer.pick("nothing that it did is left", "没有留下任何改动"),
        Some("partly") => printer.pick("what it had done is partly undone", "已做的改动只撤销了一部分"),
        _ => printer.pick("what it had done is not undone", "已做的改动没有撤销"),
    };
    let comma = printer.pick("; ", "；");
    format!("{}{comma}{how_much}", asked_to_stop(view, printer))
}

/// Who asked a run to stop, and why.
pub(super) fn asked_to_stop(view: &Value, printer: &Printer) -> String {
    let Some(by) = view["cancelled_by"]["by"].as_str() else {
        return printer.pick("ended at once", "已强制结束").to_owned();
    };
    let reason = view["cancelled_by"]["reason"].as_str();
    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    format!("{} {by}{reason}", printer.pick("cancelled by", "取消者："))
}

/// What lies over the state of a run, in brackets behind it; nothing, as a rule.
pub(super) fn overlay(overlay: Option<Overlay>, printer: &Printer) -> &str {
    match overlay {
        Some(Overlay::Paused) => printer.pick(" (paused)", "（已暂停）"),
        Some(Overlay::Cancelling) => printer.pick(" (cancelling)", "（正在取消）"),
        None => "",
    }
}

fn overlay_of(view: &Value) -> Option<Overlay> {
    match (view["paused"] == true, view["cancelling"] == true) {
        (true, _) => Some(Overlay::Paused),
        (_, true) => Some(Overlay::Cancelling),
        _ => None,
    }
}

/// The last lines: how it ended, why, what is left.
pub(super) fn ending(view: &Value, printer: &Printer) {
    printer.note(outcome(view, printer));
    reasons(view, printer).iter().for_each(|line| printer.note(line));
    printer.note(format_args!("  windrow show {}", text(&view["id"])));
    if let Some(command) = evidence(view) {
        printer.note(format_args!("  {command}"));
    }
}

/// Why a run ended so, or is about to, and what is left of it.
pub(super) fn reasons(view: &Value, printer: &Printer) -> Vec<String> {
    let line = |what: &str, text: &str| format!("  {what}: {text}");
    let mut lines = vec![];
    let list = |key: &str| view[key].as_array().into_iter().flatten();
    let failure = serde_json::from_value::<Failure>(view["failure"].clone()).ok();
    if let Some(failure) = failure {
        lines.push(line(printer.pick("because", "因为"), printer.text(&failure.text())));
        lines.extend(printer.explanation(&failure));
    }
    lines.extend(list("left").map(|left| line(printer.pick("left as it is", "未撤销"), &text(left))));
    lines.extend(list("warnings").map(|warning| {
        line(printer.pick("warning", "警告"), printer.json_pair(&warning["failure"], "message"))
    }));
    lines.extend(
        list("debts").map(|debt| line(printer.pick("debt", "遗留"), printer.json_text(&debt["what"]))),
    );
    lines
}

/// The command that writes the evidence of a run, if it has kept any, or may have called a run that has.
fn evidence(view: &Value) -> Option<String> {
    let has = |key: &str| view[key].as_array().is_some_and(|list| !list.is_empty());
    let run = text(&view["id"]);
    let kept = has("evidence") || has("called") && view["state"] != "Succeeded";
    kept.then(|| format!("windrow bundle {run} -o {run}.yaml"))
}

/// A whole run; `executed` if some process goes on with it.
pub(super) fn run(view: &Value, executed: bool, printer: &Printer) {
    printer.data(heading(view, printer));
    let say = |(en, zh), value: &dyn Display| {
        printer.data(format_args!("  {} {value}", label(printer.pick(en, zh))));
    };
    say(("state", "状态"), &format!("{}{}", text(&view["state"]), overlay(overlay_of(view), printer)));
    if !executed && view["finished_at"].is_null() && view["state"] != "Held" {
        let nobody = printer.pick("by nobody; go on with:", "没有进程执行；继续执行：");
        say(("executed", "执行"), &format!("{nobody} windrow resume {}", text(&view["id"])));
    }
    let rows = [
        ("created", "创建", "created_at"),
        ("finished", "结束", "finished_at"),
        ("by", "发起人", "by"),
        ("cluster", "集群", "cluster"),
        ("held", "等待原因", "held_reason"),
        ("inputs", "参数", "inputs"),
        ("outputs", "输出", "outputs"),
    ];
    for (en, zh, key) in rows {
        if !view[key].is_null() {
            let value = match printer.json_pair(view, key) {
                "" => view[key].to_string(),
                value => value.to_owned(),
            };
            say((en, zh), &value);
        }
    }
    if let Some(trigger) = trigger(&view["trigger"]) {
        say(("trigger", "触发"), &trigger);
    }
    for (_, line) in steps(view, printer) {
        printer.data(line);
    }
    if view["finished_at"].is_string() {
        printer.data(outcome(view, printer));
    } else if view["cancelling"] == true {
        printer.data(asked_to_stop(view, printer));
    }
    reasons(view, printer).iter().for_each(|line| printer.data(line));
    let called: Vec<String> = view["called"].as_array().into_iter().flatten().map(text).collect();
    if !called.is_empty() {
        say(("called", "调用"), &called.join(" "));
    }
    for line in answer::lines(view, printer) {
        printer.data(line);
    }
    if let Some(command) = evidence(view) {
        say(("evidence", "现场证据"), &command);
    }
    for note in view["notes"].as_array().into_iter().flatten() {
        printer.data(format_args!("  {} {}: {}", text(&note["at"]), text(&note["by"]), text(&note["text"])));
    }
    for event in view["events"].as_array().into_iter().flatten() {
        printer.data(format_args!("{:>5} {} {}", text(&event["seq"]), text(&event["at"]), event["event"]));
    }
}

/// Padded to the width of a label; a Chinese character is two columns wide.
fn label(text: &str) -> String {
    let width: usize = text.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum();
    format!("{text}{}", " ".repeat(LABEL_COLUMNS.saturating_sub(width)))
}

/// Why a run began, unless somebody simply started it.
fn trigger(trigger: &Value) -> Option<String> {
    let kind = trigger["kind"].as_str().filter(|kind| *kind != "manual")?;
    let step = trigger["step"].as_str().map_or_else(String::new, |step| format!(" {step}"));
    Some(format!("{kind} {}{step}", text(&trigger["run"])))
}

/// A value as text, a text without quotes.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

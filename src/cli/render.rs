//! A run in lines for people.

use serde_json::Value;

use crate::cli::answer;
use crate::cli::printer::Printer;
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
    if let Some(message) = row["failure"]["message"].as_str().filter(|_| row["state"] != "Succeeded") {
        return message.to_owned();
    }
    let waiting = &row["waiting"];
    if let Some(until) = waiting["until"].as_str() {
        let until = until.get(11..19).unwrap_or(until);
        let reason = printer.json_text(&waiting["for"]);
        let what = if reason.is_empty() { title } else { reason };
        return format!("{what} ({} {until} UTC)", printer.pick("until", "最迟"));
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
        "Cancelled" => printer.pick("somebody cancelled it", "已被取消"),
        "Held" => printer.pick("it waits for a person", "等待人工处理"),
        _ => printer.pick("it is not over yet", "尚未结束"),
    };
    let verdict = view["verdict"]["name"].as_str();
    let verdict =
        verdict.map_or_else(String::new, |name| format!(" ({} {name})", printer.pick("verdict", "结论")));
    format!("{state}: {sentence}{verdict}")
}

/// The last lines: how it ended, why, what is left.
pub(super) fn ending(view: &Value, printer: &Printer) {
    printer.note(outcome(view, printer));
    if let Ok(failure) = serde_json::from_value::<Failure>(view["failure"].clone()) {
        printer.note(format_args!("  {}: {}", printer.pick("because", "因为"), failure.message));
        printer.explain(&failure);
    }
    for left in view["left"].as_array().into_iter().flatten() {
        printer.note(format_args!("  {}: {}", printer.pick("left as it is", "未撤销"), text(left)));
    }
    for warning in view["warnings"].as_array().into_iter().flatten() {
        printer.note(format_args!(
            "  {}: {}",
            printer.pick("warning", "警告"),
            text(&warning["failure"]["message"])
        ));
    }
    for debt in view["debts"].as_array().into_iter().flatten() {
        printer.note(format_args!(
            "  {}: {}",
            printer.pick("debt", "遗留"),
            printer.json_text(&debt["what"])
        ));
    }
    printer.note(format_args!("  windrow show {}", text(&view["id"])));
    if let Some(command) = evidence(view) {
        printer.note(format_args!("  {command}"));
    }
}

/// The command that writes the evidence of a run, if it has kept any, or may have called a run that has.
fn evidence(view: &Value) -> Option<String> {
    let has = |key: &str| view[key].as_array().is_some_and(|list| !list.is_empty());
    let run = text(&view["id"]);
    let kept = has("evidence") || has("called") && view["state"] != "Succeeded";
    kept.then(|| format!("windrow bundle {run} -o {run}.yaml"))
}

/// A whole run.
pub(super) fn run(view: &Value, printer: &Printer) {
    printer.data(heading(view, printer));
    let rows = [
        ("state", "状态", "state"),
        ("created", "创建", "created_at"),
        ("finished", "结束", "finished_at"),
        ("by", "发起人", "by"),
        ("held", "等待原因", "held_reason"),
        ("inputs", "参数", "inputs"),
        ("outputs", "输出", "outputs"),
    ];
    for (en, zh, key) in rows {
        if !view[key].is_null() {
            printer.data(format_args!("  {:<9} {}", printer.pick(en, zh), text(&view[key])));
        }
    }
    for (_, line) in steps(view, printer) {
        printer.data(line);
    }
    for line in answer::lines(view, printer) {
        printer.data(line);
    }
    if let Some(command) = evidence(view) {
        printer.data(format_args!("  {:<9} {command}", printer.pick("evidence", "现场证据")));
    }
    for note in view["notes"].as_array().into_iter().flatten() {
        printer.data(format_args!("  {} {}: {}", text(&note["at"]), text(&note["by"]), text(&note["text"])));
    }
    for event in view["events"].as_array().into_iter().flatten() {
        printer.data(format_args!("{:>5} {} {}", text(&event["seq"]), text(&event["at"]), event["event"]));
    }
}

/// A value as text, a text without quotes.
pub(super) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

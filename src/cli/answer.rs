//! Questions of runs: how they are shown, and how an answer is read from a command line or from a terminal.

use serde_json::Value;

use crate::cli::error::CommandError;
use crate::cli::printer::Printer;
use crate::definition::duration;
use crate::engine::ask::Ask;
use crate::engine::ask::AskReason;
use crate::engine::ask::Choice;
use crate::service::codes;
use crate::service::operation::Verb;

/// The questions that a run and those that it has called ask now, each with the run that asks.
pub(super) fn open(view: &Value) -> Vec<(String, Ask)> {
    let asks = view["asks"].as_array().into_iter().flatten();
    let run = |ask: &Value| ask["run"].as_str().unwrap_or_default().to_owned();
    asks.filter_map(|ask| Some((run(ask), serde_json::from_value(ask.clone()).ok()?))).collect()
}

/// Each question with its answers, numbered, and the commands that give them.
pub(super) fn lines(view: &Value, printer: &Printer) -> Vec<String> {
    let mut lines = vec![];
    let mut number = 0;
    for (run, ask) in open(view) {
        let needed = printer.pick("a person is needed:", "需要人工处理：");
        lines.push(format!("{needed} {}", printer.text(&ask.message)));
        if let AskReason::Approval(approval) = &ask.reason {
            lines.extend(approval.subject.iter().map(|subject| format!("  - {subject}")));
        }
        let commands: Vec<String> = ask.choices.iter().map(|choice| command(&run, &ask, *choice)).collect();
        let width = commands.iter().map(String::len).max().unwrap_or(0);
        for (i, (choice, command)) in ask.choices.iter().zip(commands).enumerate() {
            number += 1;
            let default = if i == 0 { printer.pick(" (default)", "（默认）") } else { "" };
            lines
                .push(format!("  {number}) {command:<width$}  {}{default}", meaning(*choice, &ask, printer)));
        }
        if let Some(at) = ask.expires {
            lines.push(format!("  {} {at}", printer.pick("the default is taken at", "默认选项生效时间")));
        }
    }
    lines
}

/// The command that gives an answer.
fn command(run: &str, ask: &Ask, choice: Choice) -> String {
    let unit = ask.unit.as_ref().map_or_else(String::new, |unit| format!("{unit} "));
    match choice {
        Choice::Approve | Choice::Reject => format!("windrow {choice} {run}"),
        Choice::Wait(time) => format!("windrow decide {run} {unit}wait {}", duration::format(time)),
        _ => format!("windrow decide {run} {unit}{choice}"),
    }
}

/// What an answer does.
fn meaning<'p>(choice: Choice, ask: &Ask, printer: &'p Printer) -> &'p str {
    let undo = ask.unit.as_ref().is_some_and(|unit| unit.block.undo.is_some());
    let declines = matches!(&ask.reason, AskReason::Approval(approval) if approval.rejection_declines);
    match choice {
        Choice::Done => printer.pick("count it as done", "视为已完成"),
        Choice::Retry => printer.pick("do it again", "再做一次"),
        Choice::Wait(_) => printer.pick("go on waiting, for so long", "继续等待这么久"),
        Choice::Skip if undo => {
            printer.pick("leave it as it is, undo the rest", "保持现状，继续撤销其余步骤")
        }
        Choice::Skip if ask.unit.is_none() => printer.pick("go on all the same", "照常继续"),
        Choice::Skip => printer.pick("go on without the step", "跳过该步骤并继续"),
        Choice::Rollback if ask.unit.is_none() => printer.pick("undo what was done", "撤销已做的改动"),
        Choice::Rollback => {
            printer.pick("fail the step and undo what was done", "判定步骤失败并撤销已做的改动")
        }
        Choice::Fail => printer.pick("end the run, undo nothing", "结束运行，不撤销任何改动"),
        Choice::Approve => printer.pick("allow it", "批准"),
        Choice::Reject if declines => {
            printer.pick("go on without what was asked for", "不做所请求的事，继续运行")
        }
        Choice::Reject => printer.pick("refuse it: the run fails and is undone", "拒绝：运行失败并回滚"),
    }
}

/// `[STEP] ANSWER`, where `wait` takes a duration.
pub(super) fn parse(words: &[&str]) -> Result<(Option<String>, Choice), CommandError> {
    let (step, words) = match words {
        [step, rest @ ..] if choice(words).is_none() => (Some((*step).to_owned()), rest),
        all => (None, all),
    };
    let wrong = || {
        CommandError::usage(
            codes::BAD_CHOICE,
            "an answer is done, retry, wait DURATION, skip, rollback or fail, after the step if several ask",
        )
    };
    Ok((step, choice(words).ok_or_else(wrong)?))
}

fn choice(words: &[&str]) -> Option<Choice> {
    match words {
        ["done"] => Some(Choice::Done),
        ["retry"] => Some(Choice::Retry),
        ["skip"] => Some(Choice::Skip),
        ["rollback"] => Some(Choice::Rollback),
        ["fail"] => Some(Choice::Fail),
        ["approve"] => Some(Choice::Approve),
        ["reject"] => Some(Choice::Reject),
        ["wait", time] => duration::parse(time).ok().map(Choice::Wait),
        _ => None,
    }
}

/// What somebody typed under [`lines`]: a number, or an answer in words.
pub(super) fn typed(line: &str, view: &Value) -> Result<Verb, CommandError> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (step, choice) = match words.as_slice() {
        [number] if number.bytes().all(|b| b.is_ascii_digit()) => numbered(number, view)?,
        words => parse(words)?,
    };
    Ok(Verb::Answer { step, choice, reason: None })
}

fn numbered(number: &str, view: &Value) -> Result<(Option<String>, Choice), CommandError> {
    let offered = open(view).into_iter().flat_map(|(_, ask)| {
        let unit = ask.unit.as_ref().map(ToString::to_string);
        ask.choices.into_iter().map(move |choice| (unit.clone(), choice))
    });
    let index: Option<usize> = number.parse().ok();
    let found = index.and_then(|index| offered.into_iter().nth(index.checked_sub(1)?));
    found.ok_or_else(|| CommandError::usage(codes::BAD_CHOICE, format!("there is no answer number {number}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(words: &[&str]) -> Option<(Option<String>, Choice)> {
        parse(words).ok()
    }

    #[test]
    fn an_answer_may_name_its_step() {
        assert_eq!(read(&["retry"]), Some((None, Choice::Retry)));
        assert_eq!(read(&["halt", "skip"]), Some((Some("halt".into()), Choice::Skip)));
        let minutes = std::time::Duration::from_mins(5);
        assert_eq!(read(&["wait", "5m"]), Some((None, Choice::Wait(minutes))));
        assert_eq!(read(&["halt", "wait", "5m"]), Some((Some("halt".into()), Choice::Wait(minutes))));
        assert_eq!(read(&["halt", "maybe"]), None);
        assert_eq!(read(&["wait", "long"]), None);
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn what_is_typed_is_a_number_of_the_list_or_words() {
        let ask = |id: u32, step: &str, choices: &[Choice]| {
            let unit = crate::engine::unit::Block::forward(step.parse().expect("a name")).unit(None);
            let message = crate::failure::Bilingual { en: "what now?".into(), zh: None };
            let (reason, expires) = (AskReason::Verdict, None);
            json!(Ask { id, unit: Some(unit), reason, message, choices: choices.to_vec(), expires })
        };
        let view =
            json!({ "asks": [ask(1, "a", &[Choice::Fail, Choice::Retry]), ask(2, "b", &[Choice::Skip])] });
        let answer = |line: &str| match typed(line, &view) {
            Ok(Verb::Answer { step, choice, .. }) => Some((step, choice)),
            _ => None,
        };
        assert_eq!(answer("2"), Some((Some("a".into()), Choice::Retry)));
        assert_eq!(answer(" 3 "), Some((Some("b".into()), Choice::Skip)));
        assert_eq!(answer("b skip"), Some((Some("b".into()), Choice::Skip)));
        for bad in ["0", "4", "99999999999999999999", "", "perhaps"] {
            assert_eq!(answer(bad), None, "{bad}");
        }
    }
}

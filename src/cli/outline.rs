//! A plan in lines for people.

use crate::cli::printer::Printer;
use crate::plan::explain::Explained;
use crate::plan::explain::ExplainedCondition;
use crate::plan::explain::ExplainedStep;
use crate::plan::explain::Write;

/// What a run would do, in order; `depth` indents the workflows that steps call.
pub(super) fn print(plan: &Explained, depth: usize, printer: &Printer) {
    let pad = "    ".repeat(depth);
    printer.data(format_args!("{pad}{} ({})", plan.workflow, printer.text(&plan.title)));
    if !plan.locks.is_empty() {
        printer.data(format_args!("{pad}  {}: {}", printer.pick("locks", "锁"), plan.locks.join(", ")));
    }
    for (number, group) in plan.groups.iter().enumerate() {
        let beside = if group.len() > 1 { printer.pick(" (side by side)", "（并行）") } else { "" };
        let names: Vec<_> = group.iter().map(ToString::to_string).collect();
        printer.data(format_args!("{pad}  {}. {}{beside}", number + 1, names.join(", ")));
        for step in plan.steps.iter().filter(|step| group.contains(&step.name)) {
            print_step(step, depth, printer);
        }
    }
    for step in &plan.finally {
        printer.data(format_args!("{pad}  {} {}", printer.pick("finally", "收尾"), step.name));
        print_step(step, depth, printer);
    }
    for guard in &plan.guards {
        let text = printer.pick("guard", "守护条件");
        printer.data(format_args!("{pad}  {text} {} .. {}: {}", guard.from, guard.to, guard.that));
    }
}

fn print_step(step: &ExplainedStep, depth: usize, printer: &Printer) {
    let pad = "    ".repeat(depth + 1);
    let say = |what: &str, text: &str| printer.data(format_args!("{pad}  {what}: {text}"));
    printer.data(format_args!("{pad}{} [{}]", printer.text(&step.title), step.uses));
    if let Some(when) = &step.when {
        say(printer.pick("only if", "条件"), when);
    }
    if let Some(list) = &step.for_each {
        say(printer.pick("for each of", "遍历"), list);
    }
    for condition in &step.preconditions {
        let (mark, what) = standing(condition, printer);
        printer.data(format_args!("{pad}  {mark} {}: {what}", printer.pick("needs", "前提")));
    }
    for write in &step.writes {
        say(printer.pick("writes", "写入"), &words(write));
    }
    if let Some(limit) = &step.wait {
        say(printer.pick("waits at most", "最长等待"), limit);
    }
    if let Some(commit) = step.commit {
        say(printer.pick("no undo from here on", "此后不再回滚"), commit);
    }
    for undo in &step.rollback {
        let writes: Vec<_> = undo.writes.iter().map(words).collect();
        let when = undo
            .when
            .as_ref()
            .map_or_else(String::new, |when| format!(" {} {when}", printer.pick("if", "若")));
        let text = if writes.is_empty() { printer.text(&undo.title).to_owned() } else { writes.join(", ") };
        say(printer.pick("undo", "撤销"), &format!("{text}{when}"));
    }
    if let Some(child) = &step.child {
        print(child, depth + 1, printer);
    }
}

/// The mark of a precondition as in a run, and the condition with what is wrong with it.
fn standing(condition: &ExplainedCondition, printer: &Printer) -> (&'static str, String) {
    let why = condition.why.as_ref().map(|why| printer.text(why));
    match (condition.holds, why) {
        (Some(true), _) => ("✓", condition.that.clone()),
        (Some(false), why) => {
            let text = printer.pick("does not hold now", "目前不满足");
            ("✗", format!("{}  ← {text}: {}", condition.that, why.unwrap_or_default()))
        }
        (None, Some(why)) => {
            ("?", format!("{}  ← {}: {why}", condition.that, printer.pick("not known", "未知")))
        }
        (None, None) => ("·", condition.that.clone()),
    }
}

fn words(write: &Write) -> String {
    let kind = write.kind.as_deref().unwrap_or_default();
    let place = write.namespace.as_ref().map_or_else(String::new, |namespace| format!("{namespace}/"));
    let below = write.subresource.as_ref().map_or_else(String::new, |below| format!("/{below}"));
    format!("{} {kind} {place}{}{below}", write.verb, write.name)
}

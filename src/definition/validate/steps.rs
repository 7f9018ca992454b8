//! Rules for one step or rollback entry: its target, its check, keys that need each other.

use crate::definition::actions;
use crate::definition::actions::ActionDoc;
use crate::definition::actions::Targets;
use crate::definition::codes;
use crate::definition::diagnostic::Diagnostic;
use crate::definition::model::ActionKind;
use crate::definition::model::Step;
use crate::definition::model::Workflow;
use crate::definition::node::Kind;
use crate::definition::read::Draft;
use crate::definition::read::Owner;
use crate::definition::read::Phase;
use crate::definition::report::Report;
use crate::definition::template::Template;
use crate::definition::validate::Part;
use crate::definition::validate::key_place;
use crate::definition::validate::parts;
use crate::definition::validate::place;
use crate::definition::validate::variables::Available;

/// Keys that say nothing without `for_each`.
const FOR_EACH_KEYS: [&str; 5] = ["item_key", "max_parallel", "max_failures", "allow_empty", "covers"];

pub(super) fn check(report: &mut Report, draft: &Draft<'_>) {
    if draft.workflow.steps.is_empty()
        && draft.steps.is_empty()
        && draft.root.get("steps").is_some_and(|t| t.entries().is_empty())
    {
        report.error(&codes::MISSING_KEY, place(draft.root, "steps"), "the workflow has no steps");
    }
    for part in parts(draft) {
        let action = actions::of(part.step.action.uses);
        target(report, &part, action);
        can_tell(report, &draft.workflow, &part, action);
        keys(report, &part);
        retry(report, &part, action);
        rollback(report, &part, action);
        if part.node.get("title").is_some() && part.node.get("title_zh").is_none() {
            let place = place(part.node, "title");
            report.push(Diagnostic::warning(&codes::NO_CHINESE, place, "the step has no `title_zh`"));
        }
    }
}

fn target(report: &mut Report, part: &Part<'_>, action: &ActionDoc) {
    let Some(target) = &part.step.target else {
        if matches!(action.target, Targets::One | Targets::Any) && part.node.get("target").is_none() {
            let reads = action.kind == ActionKind::K8sWait && !part.step.reads.is_empty();
            if !reads {
                let message = format!("`{}` needs a `target`", action.name);
                report.error(&codes::NO_TARGET, place(part.node, "uses"), message);
            }
        }
        return;
    };
    if action.target == Targets::One && !target.select.is_single() {
        let message = format!("`{}` takes a target with `name`: one object", action.name);
        report.error(&codes::TOGETHER, place(part.node, "target"), message);
    }
}

/// E3 and L1: after a crash it must be possible to tell whether a write took effect.
fn can_tell(report: &mut Report, workflow: &Workflow, part: &Part<'_>, action: &ActionDoc) {
    if let Some(check) = &part.step.check {
        let available = Available::of(workflow, part.owner, Phase::Check);
        let world = |name: &str| !["inputs", "run", "item", "captured", "before"].contains(&name);
        let uses = available.expanded(check);
        if check.constant().is_some() || !uses.iter().any(|found| world(&found.used.name)) {
            let message = format!("`{}` says nothing about the world", check.source());
            let hint =
                "compare `object` or something under `read` with what the action brings about".to_owned();
            report.error_with(&codes::CONSTANT_CHECK, place(part.node, "check"), message, hint);
        }
        return;
    }
    let undo = matches!(part.owner, Owner::Undo(..));
    let decided = part.node.get("idempotent").is_some();
    if action.writes
        && !action.proves_itself
        && !reads_only(part.step)
        && !undo
        && !decided
        && part.node.get("check").is_none()
    {
        let message = format!("after a crash nobody could tell whether `{}` took effect", action.name);
        let hint =
            "write a `check`, `idempotent = true` if it may be repeated, or `idempotent = false` to be asked";
        report.error_with(&codes::NO_CHECK, place(part.node, "uses"), message, hint.to_owned());
    }
}

/// A request that asks only.
fn reads_only(step: &Step) -> bool {
    let method = step.action.args.get("method").and_then(Template::plain).and_then(serde_json::Value::as_str);
    match step.action.uses {
        ActionKind::Http | ActionKind::K8sRaw => matches!(method, None | Some("GET" | "HEAD")),
        ActionKind::K8sSubresource => method == Some("GET"),
        _ => false,
    }
}

fn keys(report: &mut Report, part: &Part<'_>) {
    let node = part.node;
    if node.get("for_each").is_none() {
        for key in FOR_EACH_KEYS.into_iter().filter(|key| node.get(key).is_some()) {
            report.error(
                &codes::NO_EFFECT,
                key_place(node, key),
                format!("`{key}` has no effect without `for_each`"),
            );
        }
    }
    let ways = actions::one_of(part.step.action.uses);
    let used: Vec<_> = ways.iter().filter(|way| node.get(way).is_some()).copied().collect();
    if !ways.is_empty() && used.len() != 1 {
        let list: Vec<_> = ways.iter().map(|way| format!("`{way}`")).collect();
        let place = used.last().map_or(place(node, "uses"), |way| key_place(node, way));
        report.error(&codes::TOGETHER, place, format!("exactly one of {} is needed", list.join(", ")));
    }
    if part.step.action.uses == ActionKind::K8sWait && node.get("wait").is_some() {
        let message = "`k8s.wait` takes the keys of `wait` itself";
        report.error(&codes::TOGETHER, key_place(node, "wait"), message);
    }
    if let Some(undone) = node.get("else_debt").filter(|_| node.get("when").is_none()) {
        report.error(&codes::NO_EFFECT, &undone.place, "`else_debt` has no effect without `when`");
    }
    let empty = node
        .get("command")
        .is_some_and(|command| matches!(&command.kind, Kind::List(items) if items.is_empty()));
    if empty {
        report.error(&codes::WRONG_VALUE, place(node, "command"), "the list must begin with a program");
    }
}

fn retry(report: &mut Report, part: &Part<'_>, action: &ActionDoc) {
    let retry = &part.step.retry;
    let Some(node) = part.node.get("retry") else { return };
    if retry.undo && !retry.wait {
        report.error(
            &codes::NO_EFFECT,
            key_place(node, "undo"),
            "`undo` has no effect without `wait = true`",
        );
    }
    if retry.wait && part.step.wait.is_none() {
        report.error(
            &codes::NO_EFFECT,
            key_place(node, "wait"),
            "`wait` has no effect: the step waits for nothing",
        );
    }
    if retry.undo && part.step.rollback.is_empty() {
        let message = "`undo` has no effect: the step has no rollback";
        report.error(&codes::NO_EFFECT, key_place(node, "undo"), message);
    }
    if retry.wait && !retry.undo && action.writes && part.step.wait.is_some() {
        let mut named = false;
        for template in part.step.action.args.values() {
            template.each_expr(&mut |expr| named |= expr.calls("name"));
        }
        if !named {
            let message = "a failed wait would repeat an action that succeeded";
            let hint =
                "add `undo = true`, or give what is made a new name each time with `name()`".to_owned();
            report.error_with(&codes::RETRY_WAIT, key_place(node, "wait"), message, hint);
        }
    }
}

fn rollback(report: &mut Report, part: &Part<'_>, action: &ActionDoc) {
    if action.kind != ActionKind::K8sRestore {
        return;
    }
    let place = place(part.node, "uses");
    match part.forward {
        None => report.error(&codes::ROLLBACK, place, "`k8s.restore` only works in a rollback list"),
        Some(forward) if !matches!(forward.action.uses, ActionKind::K8sPatch | ActionKind::K8sApply) => {
            let message =
                format!("`k8s.restore` has nothing to put back: `{}` writes no paths", forward.action.uses);
            let hint = "only `k8s.patch` and `k8s.apply` can be restored".to_owned();
            report.error_with(&codes::ROLLBACK, place, message, hint);
        }
        Some(_) => {}
    }
}

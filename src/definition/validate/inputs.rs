//! Inputs, locks and rehearsals.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::definition::codes;
use crate::definition::inputs::literal_secret;
use crate::definition::model::ActionKind;
use crate::definition::model::Input;
use crate::definition::model::InputKind;
use crate::definition::model::Workflow;
use crate::definition::node::Entry;
use crate::definition::node::Kind;
use crate::definition::node::Node;
use crate::definition::read::Draft;
use crate::definition::report::Report;
use crate::definition::suggest::did_you_mean;
use crate::definition::validate::elements;
use crate::definition::validate::key_place;
use crate::definition::validate::place;

/// Verdicts that the engine gives itself.
const ENGINE_VERDICTS: [&str; 4] = ["until", "fail_if", "timeout", "known_failure"];

pub(super) fn check(report: &mut Report, draft: &Draft<'_>) {
    let workflow = &draft.workflow;
    for entry in draft.root.get("inputs").map_or(&[][..], Node::entries) {
        if let Some(input) = workflow.inputs.get(&entry.key) {
            input_keys(report, entry, input);
            default(report, entry, input);
        }
    }
    if workflow.lock_wait.is_some() && workflow.locks.is_empty() {
        report.error(
            &codes::NO_EFFECT,
            key_place(draft.root, "lock_wait"),
            "`lock_wait` has no effect without `lock`",
        );
    }
    if draft.root.get("title").is_some() && draft.root.get("title_zh").is_none() {
        let diagnostic = crate::definition::diagnostic::Diagnostic::warning(
            &codes::NO_CHINESE,
            place(draft.root, "title"),
            "the workflow has no `title_zh`",
        );
        report.push(diagnostic);
    }
    rehearsals(report, draft);
}

/// Keys that belong to another type of input.
fn input_keys(report: &mut Report, entry: &Entry, input: &Input) {
    let takes: &[&str] = match &input.kind {
        InputKind::String { .. } | InputKind::List { .. } => &["pattern"],
        InputKind::Int { .. } => &["min", "max"],
        InputKind::Enum(_) => &["values"],
        InputKind::Bool | InputKind::Duration | InputKind::Secret => &[],
    };
    for key in ["pattern", "values", "min", "max"] {
        if entry.node.get(key).is_some() && !takes.contains(&key) {
            let message = format!("`{key}` has no meaning for an input of this type");
            report.error(&codes::BAD_INPUT, key_place(&entry.node, key), message);
        }
    }
    match &input.kind {
        InputKind::Enum(values) if values.is_empty() => {
            report.error(&codes::BAD_INPUT, &entry.key_place, "an enum needs `values`");
        }
        InputKind::Int { min: Some(min), max: Some(max) } if min > max => {
            report.error(
                &codes::BAD_INPUT,
                place(&entry.node, "max"),
                format!("{max} is less than `min`, {min}"),
            );
        }
        _ => {}
    }
}

fn default(report: &mut Report, entry: &Entry, input: &Input) {
    let Some(default) = &input.default else { return };
    if let Err(reason) = input.coerce(default) {
        report.error(&codes::BAD_INPUT, place(&entry.node, "default"), format!("the default {reason}"));
    }
    let literal = default.as_str().and_then(literal_secret);
    if matches!(input.kind, InputKind::Secret) && literal.is_some() {
        let message = "a secret must not stand in a file: name it with `env:`, `file:` or `k8s:`";
        report.error(&codes::BAD_INPUT, place(&entry.node, "default"), message);
    }
}

fn rehearsals(report: &mut Report, draft: &Draft<'_>) {
    let workflow = &draft.workflow;
    let mut names = BTreeSet::new();
    // Many rehearsals share a fixture: what is known to be YAML is not parsed again.
    let mut good = BTreeSet::new();
    for (rehearsal, node) in workflow.rehearsals.iter().zip(elements(draft.root, "rehearsals")) {
        if !names.insert(rehearsal.name.as_str()) {
            report.error(
                &codes::TWICE,
                place(node, "name"),
                format!("there are two rehearsals `{}`", rehearsal.name),
            );
        }
        given(report, workflow, node);
        if let Some(verdict) = &rehearsal.expect.verdict {
            expected_verdict(report, workflow, node, verdict);
        }
        let Some(fixture) = rehearsal.fixture.as_deref().filter(|fixture| !good.contains(fixture)) else {
            continue;
        };
        match serde_saphyr::from_multiple::<Value>(fixture) {
            Ok(_) => drop(good.insert(fixture)),
            Err(error) => {
                let text = error.to_string();
                let message = format!("the fixture is not YAML: {}", text.lines().next().unwrap_or_default());
                report.error(&codes::BAD_REHEARSAL, place(node, "fixture"), message);
            }
        }
    }
}

/// The inputs of a rehearsal are those of a run.
fn given(report: &mut Report, workflow: &Workflow, node: &Node) {
    let entries = node.get("inputs").map_or(&[][..], Node::entries);
    for entry in entries {
        match workflow.inputs.get(&entry.key) {
            None => {
                let hint = did_you_mean(&entry.key, workflow.inputs.keys().map(String::as_str));
                let message = format!("there is no input `{}`", entry.key);
                report.error_with(&codes::UNKNOWN_INPUT, &entry.key_place, message, hint);
            }
            Some(input) => {
                if let Err(reason) = input.coerce(&entry.node.to_json()) {
                    let message = format!("input `{}` {reason}", entry.key);
                    report.error(&codes::BAD_REHEARSAL, &entry.node.place, message);
                }
            }
        }
    }
    let missing = |(name, input): &(&String, &Input)| {
        input.default.is_none() && !entries.iter().any(|entry| entry.key == **name)
    };
    for (name, _) in workflow.inputs.iter().filter(missing) {
        let message = format!("the rehearsal gives no input `{name}`");
        report.error(&codes::BAD_REHEARSAL, place(node, "name"), message);
    }
}

fn expected_verdict(report: &mut Report, workflow: &Workflow, node: &Node, verdict: &str) {
    let of = &workflow.verdict_of;
    let steps = workflow.steps.iter().filter(|step| of.is_empty() || of.contains(&step.name));
    if steps.clone().any(|step| step.action.uses == ActionKind::Workflow) {
        // The verdict may be that of the child, which is validated by itself.
        return;
    }
    // The verdict of an `assert` bears the name of its step.
    let asserted = steps.clone().filter(|step| step.action.uses == ActionKind::Assert);
    let waited = steps.flat_map(|step| step.wait.iter()).flat_map(|wait| &wait.verdicts);
    let names: Vec<&str> =
        asserted.map(|step| step.name.as_str()).chain(waited.map(|verdict| verdict.name.as_str())).collect();
    if !names.contains(&verdict) && !ENGINE_VERDICTS.contains(&verdict) {
        let place = node.get("expect").map_or(&node.place, |expect| place(expect, "verdict"));
        let message = format!("no verdict of the run is called `{verdict}`");
        report.error_with(&codes::BAD_REHEARSAL, place, message, did_you_mean(verdict, names));
    }
}

/// True for a value without expressions in it.
pub(super) fn is_plain(node: &Node) -> bool {
    match &node.kind {
        Kind::Text(text) => !text.value.contains("{{"),
        Kind::List(items) => items.iter().all(is_plain),
        Kind::Table(entries) => entries.iter().all(|entry| is_plain(&entry.node)),
        _ => true,
    }
}

//! Workflows that call each other.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::definition::codes;
use crate::definition::model::CHILD_DEPTH_MAX;
use crate::definition::model::GATE;
use crate::definition::model::Workflow;
use crate::definition::node::Node;
use crate::definition::node::Place;
use crate::definition::read;
use crate::definition::read::Draft;
use crate::definition::report::Report;
use crate::definition::suggest::did_you_mean;
use crate::definition::validate::inputs::is_plain;
use crate::definition::validate::parts;
use crate::definition::validate::place;
use crate::id::WorkflowName;

const DEPTH_MAX: usize = CHILD_DEPTH_MAX as usize;

/// A step that calls a workflow.
struct Call<'d> {
    child: WorkflowName,
    place: &'d Place,
    node: Option<&'d Node>,
}

/// Checks every call, and says of each draft whether it and all that it calls may be run.
pub(super) fn check(report: &mut Report, drafts: &[Draft<'_>]) -> Vec<bool> {
    let known: BTreeMap<&WorkflowName, usize> =
        drafts.iter().enumerate().map(|(i, draft)| (&draft.workflow.name, i)).collect();
    let calls: Vec<Vec<Call<'_>>> = drafts.iter().map(|draft| calls_of(draft)).collect();
    for call in calls.iter().flatten() {
        if let Some(child) = known.get(&call.child) {
            inputs(report, call, &drafts[*child].workflow);
        } else {
            let hint = did_you_mean(call.child.as_str(), known.keys().map(|name| name.as_str()));
            let message = format!("there is no workflow `{}`", call.child);
            report.error_with(&codes::UNKNOWN_WORKFLOW, call.place, message, hint);
        }
    }
    for draft in drafts {
        verdicts(report, draft, |child| known.get(child).map(|i| &drafts[*i].workflow));
    }
    for (i, draft) in drafts.iter().enumerate() {
        too_deep(report, &calls, &known, &draft.workflow.name, i, &mut vec![], &mut BTreeSet::new());
    }
    usable(report, drafts, &calls, &known)
}

/// The verdict of a step that calls a workflow is that of the workflow, which must have one.
fn verdicts<'d>(
    report: &mut Report,
    draft: &Draft<'_>,
    workflow: impl Fn(&WorkflowName) -> Option<&'d Workflow>,
) {
    let places = draft.root.get("verdict_of").map_or(&[][..], read::one_or_more);
    for (name, node) in draft.workflow.verdict_of.iter().zip(places) {
        let step = draft.workflow.steps.iter().find(|step| step.name == *name && step.wait.is_none());
        let child = step.and_then(|step| step.action.child());
        if let Some(child) = child.filter(|child| workflow(child).is_some_and(|w| w.verdict_of.is_empty())) {
            let message = format!("`{name}` calls `{child}`, which has no `verdict_of` and so no verdict");
            report.error(&codes::NO_END, &node.place, message);
        }
    }
}

fn calls_of<'d>(draft: &'d Draft<'_>) -> Vec<Call<'d>> {
    let mut calls = vec![];
    for part in parts(draft) {
        if let Some(child) = part.step.action.child() {
            calls.push(Call { child, place: place(part.node, "name"), node: Some(part.node) });
        }
    }
    if draft.workflow.destructive
        && draft.workflow.name.as_str() != GATE
        && let Ok(child) = GATE.parse()
    {
        calls.push(Call { child, place: place(draft.root, "destructive"), node: None });
    }
    calls
}

fn inputs(report: &mut Report, call: &Call<'_>, child: &Workflow) {
    let given = call.node.and_then(|node| node.get("inputs")).map_or(&[][..], Node::entries);
    for entry in given {
        match child.inputs.get(&entry.key) {
            None => {
                let hint = did_you_mean(&entry.key, child.inputs.keys().map(String::as_str));
                let message = format!("`{}` has no input `{}`", child.name, entry.key);
                report.error_with(&codes::CHILD_INPUTS, &entry.key_place, message, hint);
            }
            Some(input) if is_plain(&entry.node) => {
                if let Err(reason) = input.coerce(&entry.node.to_json()) {
                    let message = format!("input `{}` of `{}` {reason}", entry.key, child.name);
                    report.error(&codes::CHILD_INPUTS, &entry.node.place, message);
                }
            }
            Some(_) => {}
        }
    }
    for (name, input) in &child.inputs {
        if input.default.is_none() && !given.iter().any(|entry| entry.key == *name) {
            let message = format!("`{}` needs the input `{name}`", child.name);
            report.error(&codes::CHILD_INPUTS, call.place, message);
        }
    }
}

/// Follows the calls from workflow `i`, which `path` leads to from `root`; each workflow below it once. Who is too deep
/// below `root` may be called by others, so that this is a mistake of `root` alone.
fn too_deep<'d>(
    report: &mut Report,
    calls: &'d [Vec<Call<'d>>],
    known: &BTreeMap<&WorkflowName, usize>,
    root: &WorkflowName,
    i: usize,
    path: &mut Vec<&'d Call<'d>>,
    seen: &mut BTreeSet<(usize, usize)>,
) {
    // Calls below are reported where their own workflow is the first of a path.
    let mut reported = BTreeSet::new();
    for call in &calls[i] {
        let Some(child) = known.get(&call.child) else { continue };
        let circle = call.child == *root;
        if circle || path.len() >= DEPTH_MAX {
            if !reported.insert(&call.child) {
                continue;
            }
            let called = path.iter().chain([&call]).map(|call| call.child.as_str());
            let names: Vec<_> = [root.as_str()].into_iter().chain(called).collect();
            let how = if circle { "in a circle".to_owned() } else { format!("more than {DEPTH_MAX} deep") };
            let message = format!("workflows call each other {how}: {}", names.join(" → "));
            let place = path.first().filter(|_| !circle).map_or(call.place, |first| first.place);
            report.error(&codes::CHILD_DEPTH, place, message);
        } else if path.iter().all(|earlier| earlier.child != call.child) && seen.insert((*child, path.len()))
        {
            path.push(call);
            too_deep(report, calls, known, root, *child, path, seen);
            path.pop();
        }
    }
}

/// A workflow is usable if it has no errors and calls only usable ones.
fn usable(
    report: &mut Report,
    drafts: &[Draft<'_>],
    calls: &[Vec<Call<'_>>],
    known: &BTreeMap<&WorkflowName, usize>,
) -> Vec<bool> {
    let mut good: Vec<bool> = drafts.iter().map(|draft| !report.has_error_in(&draft.files)).collect();
    loop {
        let mut changed = false;
        for (i, calls) in calls.iter().enumerate() {
            let bad = |call: &&Call<'_>| known.get(&call.child).is_none_or(|child| !good[*child]);
            if let Some(call) = calls.iter().find(bad).filter(|_| good[i]) {
                let message = format!("the workflow `{}`, which is called here, has errors", call.child);
                report.error(&codes::UNKNOWN_WORKFLOW, call.place, message);
                good[i] = false;
                changed = true;
            }
        }
        if !changed {
            return good;
        }
    }
}

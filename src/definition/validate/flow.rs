//! The graph: edges, circles, commit points, guards.

use std::collections::BTreeSet;

use crate::definition::codes;
use crate::definition::diagnostic::Diagnostic;
use crate::definition::graph::Graph;
use crate::definition::graph::cycles;
use crate::definition::model::ActionKind;
use crate::definition::model::Commit;
use crate::definition::model::Step;
use crate::definition::node::Kind;
use crate::definition::node::Node;
use crate::definition::node::Place;
use crate::definition::read;
use crate::definition::read::Draft;
use crate::definition::report::Report;
use crate::definition::suggest::did_you_mean;
use crate::definition::validate::Graphs;
use crate::definition::validate::elements;
use crate::definition::validate::place;
use crate::id::StepName;

/// Checks the edges; without circles, the graph.
pub(super) fn graph(report: &mut Report, draft: &Draft<'_>) -> Graphs {
    let workflow = &draft.workflow;
    edges(report, &workflow.steps, &draft.steps, "step");
    edges(report, &workflow.finally, &draft.finally, "finally step");
    for step in
        workflow.finally.iter().filter(|step| workflow.steps.iter().any(|other| other.name == step.name))
    {
        let place = draft
            .root
            .get("finally")
            .map_or(&draft.root.place, |table| super::key_place(table, step.name.as_str()));
        report.error(&codes::TWICE, place, format!("there is also a step called `{}`", step.name));
    }
    verdict_of(report, draft);
    let (steps, finally) = (Graph::new(&workflow.steps), Graph::new(&workflow.finally));
    let ordered = steps.is_ok() && finally.is_ok();
    Graphs {
        steps: steps.unwrap_or_else(|_| Graph::without_order(&workflow.steps)),
        finally: finally.unwrap_or_else(|_| Graph::without_order(&workflow.finally)),
        ordered,
    }
}

fn edges(report: &mut Report, steps: &[Step], nodes: &[&Node], what: &str) {
    let names: BTreeSet<&StepName> = steps.iter().map(|step| &step.name).collect();
    for (step, node) in steps.iter().zip(nodes) {
        for after in &step.after {
            let place = edge_place(node, &after.step);
            if after.step == step.name {
                report.error(
                    &codes::SELF_EDGE,
                    place,
                    format!("the {what} `{}` waits for itself", step.name),
                );
            } else if !names.contains(&after.step) {
                unknown_step(report, steps, &after.step, place);
            }
        }
    }
    for cycle in cycles(steps) {
        let names: Vec<_> = cycle.iter().chain(cycle.first()).map(|i| steps[*i].name.as_str()).collect();
        let (Some(first), Some(last)) = (cycle.first(), cycle.last()) else { continue };
        let message = format!("steps wait for each other in a circle: {}", names.join(" → "));
        let mut diagnostic =
            Diagnostic::error(&codes::CYCLE, edge_place(nodes[*first], &steps[*last].name), message);
        for pair in cycle.windows(2) {
            let place = edge_place(nodes[pair[1]], &steps[pair[0]].name);
            diagnostic = diagnostic.related(place, format!("`{}` waits for it here", steps[pair[1]].name));
        }
        report.push(diagnostic);
    }
}

fn verdict_of(report: &mut Report, draft: &Draft<'_>) {
    let steps = &draft.workflow.steps;
    let places = draft.root.get("verdict_of").map_or(&[][..], read::one_or_more);
    for (name, node) in draft.workflow.verdict_of.iter().zip(places) {
        match steps.iter().find(|step| step.name == *name) {
            None => unknown_step(report, steps, name, &node.place),
            Some(step) if !has_verdict(step) => {
                let message = format!("`{name}` has no wait and so no verdict");
                report.error(&codes::NO_END, &node.place, message);
            }
            Some(_) => {}
        }
    }
}

/// True for a step that ends with a verdict: its own, that of an assertion, or that of a child.
fn has_verdict(step: &Step) -> bool {
    step.wait.is_some() || matches!(step.action.uses, ActionKind::Assert | ActionKind::Workflow)
}

/// Where a step says that it is after `earlier`.
fn edge_place<'n>(node: &'n Node, earlier: &StepName) -> &'n Place {
    let names = |item: &&Node| match &item.kind {
        Kind::Text(text) => text.value == earlier.as_str(),
        _ => {
            matches!(item.get("step").map(|step| &step.kind), Some(Kind::Text(t)) if t.value == earlier.as_str())
        }
    };
    elements(node, "after").iter().find(names).map_or(&node.place, |item| &item.place)
}

pub(super) fn unknown_step(report: &mut Report, steps: &[Step], name: &StepName, place: &Place) {
    let hint = did_you_mean(name.as_str(), steps.iter().map(|step| step.name.as_str()));
    report.error_with(&codes::UNKNOWN_STEP, place, format!("there is no step `{name}`"), hint);
}

/// E6 and E12: every step is before or after a commit step; a point of no return is after every approval.
pub(super) fn commits(report: &mut Report, draft: &Draft<'_>, graphs: &Graphs) {
    let graph = &graphs.steps;
    let steps = || draft.workflow.steps.iter().zip(&draft.steps);
    let approvals: Vec<_> =
        draft.workflow.steps.iter().filter(|step| step.action.uses == ActionKind::Approval).collect();
    for (commit, node) in steps().filter(|(step, _)| step.commit.is_some()) {
        for (step, _) in steps().filter(|(step, _)| step.name != commit.name) {
            if !graph.is_before(&step.name, &commit.name) && !graph.is_before(&commit.name, &step.name) {
                let message =
                    format!("`{}` is neither before nor after the commit step `{}`", step.name, commit.name);
                let hint =
                    format!("add `{}` to the `after` of the other, or the other way round", commit.name);
                report.error_with(&codes::PARALLEL_COMMIT, place(node, "commit"), message, hint);
            }
        }
        for approval in approvals.iter().filter(|_| commit.commit == Some(Commit::OnStart)) {
            if !graph.is_before(&approval.name, &commit.name) {
                let message = format!(
                    "the point of no return `{}` is not after the approval `{}`",
                    commit.name, approval.name
                );
                let hint = format!("add `{}` to `after`", approval.name);
                report.error_with(&codes::COMMIT_APPROVAL, place(node, "commit"), message, hint);
            }
        }
        if commit.commit == Some(Commit::OnStart) && !commit.rollback.is_empty() {
            let message = format!(
                "the rollback of `{}` never runs: nothing is undone once it has started",
                commit.name
            );
            report.error(&codes::NO_EFFECT, place(node, "rollback"), message);
        }
    }
    for (step, node) in draft.workflow.finally.iter().zip(&draft.finally) {
        for key in ["commit", "rollback"].into_iter().filter(|key| node.get(key).is_some()) {
            let message =
                format!("`{key}` has no meaning for the finally step `{}`: it is never undone", step.name);
            report.error(&codes::ROLLBACK, super::key_place(node, key), message);
        }
    }
}

/// A guard begins with one step and ends with a later one.
pub(super) fn guards(report: &mut Report, draft: &Draft<'_>, graphs: &Graphs) {
    for (guard, node) in draft.workflow.guards.iter().zip(elements(draft.root, "guards")) {
        let mut known = true;
        for (key, name) in [("from", &guard.from), ("to", &guard.to)] {
            if !draft.workflow.steps.iter().any(|step| step.name == *name) {
                unknown_step(report, &draft.workflow.steps, name, place(node, key));
                known = false;
            }
        }
        if known && !graphs.steps.is_before(&guard.from, &guard.to) {
            let message = format!("`{}` is not before `{}`, so the guard never ends", guard.from, guard.to);
            report.error(&codes::GUARD_ORDER, place(node, "to"), message);
        }
    }
}

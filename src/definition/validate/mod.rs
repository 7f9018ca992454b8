//! What a workflow must fulfil beyond its shape. Every rule reports all that breaks it.

mod children;
mod flow;
mod inputs;
mod names;
mod scope;
mod steps;
mod variables;
mod waits;

use std::collections::BTreeSet;

use crate::definition::codes;
use crate::definition::graph::Graph;
use crate::definition::model::Step;
use crate::definition::node::Kind;
use crate::definition::node::Node;
use crate::definition::node::Place;
use crate::definition::read::Draft;
use crate::definition::read::Owner;
use crate::definition::report::Report;

/// The name must be that of the file.
pub(super) fn file_name(report: &mut Report, draft: &Draft<'_>, stem: &str) {
    if draft.workflow.name.as_str() != stem {
        let message = format!("the workflow is called `{}` but its file `{stem}.toml`", draft.workflow.name);
        report.error(&codes::FILE_NAME, place(draft.root, "name"), message);
    }
}

/// Validates each workflow, and what they say about each other. Says for each whether it may be run. `known` are the names of
/// the entries of the knowledge files, where they are at hand.
pub(super) fn all(report: &mut Report, drafts: &[Draft<'_>], known: Option<&BTreeSet<&str>>) -> Vec<bool> {
    for draft in drafts {
        let graph = flow::graph(report, draft);
        inputs::check(report, draft);
        names::check(report, draft);
        steps::check(report, draft);
        waits::check(report, draft, known);
        scope::check(report, draft, &graph);
        // What is said of an order makes no sense where there is none.
        if graph.ordered {
            flow::commits(report, draft, &graph);
            flow::guards(report, draft, &graph);
        }
    }
    children::check(report, drafts)
}

/// The value of a key, or the whole table where there is none.
fn place<'n>(node: &'n Node, key: &str) -> &'n Place {
    node.get(key).map_or(&node.place, |value| &value.place)
}

/// The name of a key, or the whole table where there is none.
fn key_place<'n>(node: &'n Node, key: &str) -> &'n Place {
    node.entries().iter().find(|entry| entry.key == key).map_or(&node.place, |entry| &entry.key_place)
}

/// The elements of a list.
fn elements<'n>(node: &'n Node, key: &str) -> &'n [Node] {
    match node.get(key).map(|node| &node.kind) {
        Some(Kind::List(items)) => items,
        _ => &[],
    }
}

/// A step or an entry of a rollback list, with its table.
#[derive(Clone, Copy)]
struct Part<'d> {
    owner: Owner,
    step: &'d Step,
    /// The step that a rollback entry belongs to.
    forward: Option<&'d Step>,
    node: &'d Node,
}

/// All steps, their rollback entries, and the `finally` steps.
fn parts<'d>(draft: &'d Draft<'_>) -> Vec<Part<'d>> {
    let mut parts = vec![];
    for (i, (step, node)) in draft.workflow.steps.iter().zip(&draft.steps).enumerate() {
        parts.push(Part { owner: Owner::Step(i), step, forward: None, node });
        for (j, (entry, node)) in step.rollback.iter().zip(elements(node, "rollback")).enumerate() {
            parts.push(Part { owner: Owner::Undo(i, j), step: entry, forward: Some(step), node });
        }
    }
    for (i, (step, node)) in draft.workflow.finally.iter().zip(&draft.finally).enumerate() {
        parts.push(Part { owner: Owner::Finally(i), step, forward: None, node });
    }
    parts
}

/// Order and reachability of the steps and of the `finally` steps.
struct Graphs {
    steps: Graph,
    finally: Graph,
    /// False if steps wait for each other in a circle.
    ordered: bool,
}

//! A workflow ready to run: its graph, its digest and the plans of its children.

pub mod draw;
pub mod explain;
pub mod graph;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::definition::Library;
use crate::definition::Workflow;
use crate::definition::diagnostic::Diagnostic;
use crate::definition::normal;
use crate::id::WorkflowName;
use crate::plan::graph::Graph;

/// SHA-256 of a workflow's normalised definition, its children's included. What a run is pinned to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkflowDigest(Arc<str>);

impl WorkflowDigest {
    /// Wraps the hexadecimal text of a digest.
    pub fn from_hex(hex: &str) -> Self {
        Self(hex.into())
    }

    /// The hexadecimal text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkflowDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for WorkflowDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A validated workflow with its graph. Immutable; a run keeps one for its whole life.
#[derive(Debug)]
pub struct Plan {
    /// The definition.
    pub workflow: Workflow,
    /// What a run is pinned to.
    pub digest: WorkflowDigest,
    /// Order and reachability of the steps.
    pub graph: Graph,
    /// The plans of the workflows that steps call, by name, transitively.
    pub children: BTreeMap<WorkflowName, Arc<Plan>>,
    document: Arc<Value>,
}

impl Plan {
    /// True if the workflow or one that it calls works on a cluster.
    pub fn needs_cluster(&self) -> bool {
        self.workflow.needs_cluster() || self.children.values().any(|child| child.workflow.needs_cluster())
    }

    /// The document that it was made from; [`from_normalised`] makes the same plan of it.
    pub fn normalised(&self) -> Arc<Value> {
        self.document.clone()
    }
}

/// The plan of a workflow of `library`; none if there is no such workflow without errors.
pub fn from_library(library: &Library, name: &WorkflowName) -> Option<Arc<Plan>> {
    // The library has read and validated the same document, so reading it again succeeds.
    unvalidated(&library.normalised(name)?).ok()
}

/// The plan that a run is pinned to.
///
/// # Errors
/// What this version of the language does not understand, or refuses.
pub fn from_normalised(document: &Value) -> Result<Arc<Plan>, Vec<Diagnostic>> {
    from_document(document, false)
}

/// The same of a document that was validated, or that is only to be looked at.
///
/// # Errors
/// What this version of the language does not understand.
pub fn unvalidated(document: &Value) -> Result<Arc<Plan>, Vec<Diagnostic>> {
    from_document(document, true)
}

fn from_document(document: &Value, trusted: bool) -> Result<Arc<Plan>, Vec<Diagnostic>> {
    let (root, workflows) = normal::workflows(document, trusted)?;
    let mut plans = BTreeMap::new();
    build(&root, document, &workflows, &mut plans);
    plans
        .remove(&root)
        .ok_or_else(|| vec![normal::unusable("workflows call each other in a circle or do not exist")])
}

/// Builds the plan of `name` after those of its children. Nothing is built where there is a circle.
fn build(
    name: &WorkflowName,
    document: &Value,
    workflows: &BTreeMap<WorkflowName, Workflow>,
    plans: &mut BTreeMap<WorkflowName, Arc<Plan>>,
) {
    let mut open = vec![name.clone()];
    let mut started = vec![];
    while let Some(name) = open.last().cloned() {
        let Some(workflow) = workflows.get(&name) else { return };
        let missing: Vec<_> =
            workflow.children().into_iter().filter(|child| !plans.contains_key(child)).collect();
        if missing.is_empty() {
            open.pop();
            if let Some(plan) = one(workflow, document, plans) {
                plans.insert(name, Arc::new(plan));
            }
        } else if started.contains(&name) {
            return;
        } else {
            started.push(name);
            open.extend(missing);
        }
    }
}

fn one(workflow: &Workflow, document: &Value, plans: &BTreeMap<WorkflowName, Arc<Plan>>) -> Option<Plan> {
    let mut children = BTreeMap::new();
    for child in workflow.children() {
        let plan = plans.get(&child)?.clone();
        children.extend(plan.children.iter().map(|(name, plan)| (name.clone(), plan.clone())));
        children.insert(child, plan);
    }
    let needed: Vec<_> = children.keys().cloned().collect();
    let document = normal::part(document, &workflow.name, &needed);
    Some(Plan {
        graph: Graph::new(&workflow.steps).ok()?,
        digest: WorkflowDigest::from_hex(&normal::digest(&document)),
        workflow: workflow.clone(),
        children,
        document: Arc::new(document),
    })
}

//! A workflow ready to run: its graph, its digest and the plans of its children.

pub mod graph;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::definition::Workflow;
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
}

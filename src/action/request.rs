//! What an executor is asked, and what it answers.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::definition::model::ActionKind;
use crate::failure::Failure;

/// A target with everything rendered.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectRef {
    /// `v1`, `kubevirt.io/v1`, …
    pub api: String,
    /// The kind in CamelCase.
    pub kind: String,
    /// The namespace; none for a cluster-scoped kind or for all namespaces.
    pub namespace: Option<String>,
    /// Which ones.
    pub select: Selector,
    /// A kind that the server does not know counts as "no such object".
    pub optional: bool,
}

/// Which objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selector {
    /// One.
    Name(String),
    /// Several; missing ones are left out.
    Names(Vec<String>),
    /// By label and field selector; at least one is set and not empty.
    Match {
        /// Label selector.
        labels: Option<String>,
        /// Field selector.
        fields: Option<String>,
    },
    /// All.
    All,
}

/// A rendered action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Which action.
    pub uses: ActionKind,
    /// The object, for actions that have a target.
    pub target: Option<ObjectRef>,
    /// The target as it was read, for `optimistic` and for merging.
    pub object: Option<Arc<Value>>,
    /// The action's own keys, rendered.
    pub args: Value,
}

/// Who acts, for field manager, annotations and object names (C2, C3, C4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The run's id as text.
    pub run: String,
    /// Workflow name.
    pub workflow: String,
    /// Step path with item, for instance `halt[vm-1]/undo.0`.
    pub unit: String,
    /// The attempt.
    pub attempt: u32,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It was carried out.
    Done {
        /// False if everything was as wanted already.
        changed: bool,
        /// uid and resourceVersion of the written object.
        object: Option<(Arc<str>, Arc<str>)>,
        /// What the action gives back, bound as `result`.
        result: Value,
        /// Paths that were written, for `k8s.restore`: `[{path, before, after}]`.
        changes: Option<Value>,
    },
    /// It failed; the class says whether it may have had an effect.
    Failed(Failure),
}

/// The longest time between asking and answering when a step sets no `attempt_timeout`.
pub const ATTEMPT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

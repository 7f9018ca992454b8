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
    /// The namespace; without one, the cluster's default namespace if the kind is namespaced.
    pub namespace: Option<String>,
    /// Every namespace, for selectors that bind a list.
    #[serde(default)]
    pub all_namespaces: bool,
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

impl ObjectRef {
    /// The target that a manifest describes; `None` without apiVersion, kind or name.
    pub fn of_manifest(manifest: &Value) -> Option<Self> {
        let text = |pointer: &str| manifest.pointer(pointer)?.as_str().map(str::to_owned);
        Some(Self {
            api: text("/apiVersion")?,
            kind: text("/kind")?,
            namespace: text("/metadata/namespace"),
            all_namespaces: false,
            select: Selector::Name(text("/metadata/name")?),
            optional: false,
        })
    }

    /// For messages: `VirtualMachine default/web`.
    pub fn describe(&self) -> String {
        let place = match (&self.namespace, self.all_namespaces) {
            (_, true) => "*/".to_owned(),
            (Some(namespace), false) => format!("{namespace}/"),
            (None, false) => String::new(),
        };
        let which = match &self.select {
            Selector::Name(name) => name.clone(),
            Selector::Names(names) => names.join(","),
            Selector::Match { labels, fields } => {
                [labels, fields].into_iter().flatten().cloned().collect::<Vec<_>>().join(",")
            }
            Selector::All => "*".to_owned(),
        };
        format!("{} {place}{which}", self.kind)
    }
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
    /// The action's own keys, rendered: one of the types of [`crate::action::args`].
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
        /// Paths that were written, for `k8s.restore`: `[{path, before, after}]`, where a missing `before` or
        /// `after` is a path that was not there.
        changes: Option<Value>,
    },
    /// It failed; the class says whether it may have had an effect.
    Failed(Failure),
}

impl Answer {
    /// Carried out, without an object.
    pub fn done(changed: bool, result: Value) -> Self {
        Self::Done { changed, object: None, result, changes: None }
    }
}

impl From<Result<Self, Failure>> for Answer {
    fn from(result: Result<Self, Failure>) -> Self {
        result.unwrap_or_else(Self::Failed)
    }
}

/// The longest time between asking and answering when a step sets no `attempt_timeout`. Longer than the 10 s that
/// KubeVirt's webhooks may take, and no longer than needed: after a crash an unanswered request is given so long to
/// take effect before the world is looked at (E3).
pub const ATTEMPT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(15);

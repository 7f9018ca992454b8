//! What a step does.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::definition::expr::Expr;
use crate::definition::template::Template;
use crate::id::WorkflowName;

/// What a step does: one of the actions of L10 with its arguments.
#[derive(Debug, Clone)]
pub struct Action {
    /// Which action.
    pub uses: ActionKind,
    /// Its own keys (`merge`, `path`, `manifest`, …); see `definition::actions` for the table.
    pub args: BTreeMap<String, Template>,
    /// `assert`: what must hold. Other actions have none.
    pub that: Option<Expr>,
}

impl Action {
    /// The workflow that it calls, if it is `workflow`.
    pub fn child(&self) -> Option<WorkflowName> {
        let name = self.args.get("name").filter(|_| self.uses == ActionKind::Workflow)?;
        name.plain()?.as_str()?.parse().ok()
    }
}

/// The actions of L10.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "definition::actions describes each one")]
pub enum ActionKind {
    #[serde(rename = "k8s.get")]
    K8sGet,
    #[serde(rename = "k8s.list")]
    K8sList,
    #[serde(rename = "k8s.apply")]
    K8sApply,
    #[serde(rename = "k8s.create")]
    K8sCreate,
    #[serde(rename = "k8s.patch")]
    K8sPatch,
    #[serde(rename = "k8s.delete")]
    K8sDelete,
    #[serde(rename = "k8s.restore")]
    K8sRestore,
    #[serde(rename = "k8s.subresource")]
    K8sSubresource,
    #[serde(rename = "k8s.evict")]
    K8sEvict,
    #[serde(rename = "k8s.dry_run")]
    K8sDryRun,
    #[serde(rename = "k8s.logs")]
    K8sLogs,
    #[serde(rename = "k8s.events")]
    K8sEvents,
    #[serde(rename = "k8s.raw")]
    K8sRaw,
    #[serde(rename = "k8s.wait")]
    K8sWait,
    #[serde(rename = "http")]
    Http,
    #[serde(rename = "tcp")]
    Tcp,
    #[serde(rename = "process")]
    Process,
    #[serde(rename = "sleep")]
    Sleep,
    #[serde(rename = "approval")]
    Approval,
    #[serde(rename = "assert")]
    Assert,
    #[serde(rename = "debt")]
    Debt,
    #[serde(rename = "workflow")]
    Workflow,
    /// An action that a program using this library registered under a name of its own: `ext.NAME`.
    #[serde(rename = "ext")]
    Extension,
}

impl ActionKind {
    /// True for an action of the Kubernetes API.
    pub const fn needs_cluster(self) -> bool {
        match self {
            Self::K8sGet
            | Self::K8sList
            | Self::K8sApply
            | Self::K8sCreate
            | Self::K8sPatch
            | Self::K8sDelete
            | Self::K8sRestore
            | Self::K8sSubresource
            | Self::K8sEvict
            | Self::K8sDryRun
            | Self::K8sLogs
            | Self::K8sEvents
            | Self::K8sRaw
            | Self::K8sWait => true,
            Self::Http
            | Self::Tcp
            | Self::Process
            | Self::Sleep
            | Self::Approval
            | Self::Assert
            | Self::Debt
            | Self::Workflow
            | Self::Extension => false,
        }
    }
}

impl fmt::Display for ActionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl FromStr for ActionKind {
    type Err = serde::de::value::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::deserialize(serde::de::value::StrDeserializer::new(text))
    }
}

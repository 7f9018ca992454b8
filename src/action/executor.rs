//! Carries out what a step asks for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

use crate::action::codes;
use crate::action::k8s;
use crate::action::k8s::client::Cluster;
use crate::action::request::Answer;
use crate::action::request::Origin;
use crate::action::request::Request;
use crate::definition::model::ActionKind;
use crate::failure::Failure;

/// An action that a program using this library adds. It is called on the runner's task: what blocks does not belong
/// here.
pub trait Extension: Send + Sync {
    /// Carries it out.
    fn call(&self, origin: &Origin, args: &Value) -> BoxFuture<'static, Answer>;
}

/// Everything through which steps reach the outside. Clones share it.
#[derive(Clone, Default)]
pub struct Executor {
    cluster: Option<Cluster>,
    extensions: BTreeMap<String, Arc<dyn Extension>>,
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Executor {
    /// An executor that reaches no cluster and knows no extension.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a cluster.
    #[must_use]
    pub fn with_cluster(mut self, cluster: Cluster) -> Self {
        self.cluster = Some(cluster);
        self
    }

    /// With one more action, `ext` with that `name`.
    #[must_use]
    pub fn with_extension(mut self, name: &str, extension: Arc<dyn Extension>) -> Self {
        self.extensions.insert(name.to_owned(), extension);
        self
    }

    /// The cluster, or that there is none.
    pub fn cluster(&self) -> Result<&Cluster, Failure> {
        self.cluster.as_ref().ok_or_else(|| Failure::permanent(codes::NO_CLUSTER, "no cluster is configured"))
    }

    /// Carries out a request. Cancelling is not dropping: an answer may be on its way.
    pub async fn execute(&self, origin: &Origin, request: &Request, limit: Duration) -> Answer {
        self.carry_out(origin, request, limit).await.into()
    }

    async fn carry_out(
        &self,
        origin: &Origin,
        request: &Request,
        limit: Duration,
    ) -> Result<Answer, Failure> {
        match request.uses {
            ActionKind::Extension => Ok(self.extension(&request.args)?.call(origin, &request.args).await),
            _ => k8s::execute(self.cluster()?, origin, request, limit).await,
        }
    }

    /// The extension that the key `name` asks for.
    fn extension(&self, args: &Value) -> Result<&Arc<dyn Extension>, Failure> {
        let name = args.get("name").and_then(Value::as_str).unwrap_or_default();
        let unknown = || Failure::permanent(codes::EXTENSION, format!("no action `{name}` is registered"));
        self.extensions.get(name).ok_or_else(unknown)
    }
}

//! Carries out what a step asks for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::Notify;

use crate::action::codes;
use crate::action::evidence;
use crate::action::evidence::Baseline;
use crate::action::k8s;
use crate::action::k8s::client::Cluster;
use crate::action::k8s::read;
use crate::action::k8s::watch::Subscription;
use crate::action::k8s::watch::Watches;
use crate::action::request::Answer;
use crate::action::request::ObjectRef;
use crate::action::request::Origin;
use crate::action::request::Request;
use crate::action::secret;
use crate::action::secret::Secrets;
use crate::definition::model::ActionKind;
use crate::failure::Failure;

/// An action that a program using this library adds. It is called on the runner's task: what blocks does not belong
/// here.
pub trait Extension: Send + Sync {
    /// Carries it out.
    fn call(&self, origin: &Origin, args: &Value) -> BoxFuture<'static, Answer>;

    /// Whether an attempt of a process that is gone took effect (E3); none if that cannot be told.
    fn observe(&self, _origin: &Origin, _args: &Value) -> BoxFuture<'static, Option<bool>> {
        Box::pin(std::future::ready(None))
    }
}

/// Everything through which steps reach the outside, and through which the world is read. Nothing that it returns
/// contains a secret in the clear.
#[derive(Default)]
pub struct Executor {
    cluster: Option<Cluster>,
    watches: Watches,
    secrets: Secrets,
    extensions: BTreeMap<String, Arc<dyn Extension>>,
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Executor {
    /// An executor that reaches no cluster and knows no extension.
    pub fn new(secrets: Secrets) -> Self {
        Self { secrets, ..Self::default() }
    }

    /// With a cluster.
    #[must_use]
    pub fn with_cluster(mut self, cluster: Cluster) -> Self {
        self.cluster = Some(cluster);
        self
    }

    /// With one more action, written `ext.NAME`.
    #[must_use]
    pub fn with_extension(mut self, name: &str, extension: Arc<dyn Extension>) -> Self {
        self.extensions.insert(name.to_owned(), extension);
        self
    }

    /// The cluster, or that there is none.
    pub fn cluster(&self) -> Result<&Cluster, Failure> {
        self.cluster.as_ref().ok_or_else(|| Failure::permanent(codes::NO_CLUSTER, "no cluster is configured"))
    }

    /// What resolves and masks secrets.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Reads a target live: an object or null, or a list (L4). Its secret leaves are sealed.
    pub fn read<'a>(
        &'a self,
        target: &'a ObjectRef,
        with_managers: bool,
    ) -> BoxFuture<'a, Result<Value, Failure>> {
        // Boxed, here and below: the compiler cannot show that the bare future may change threads.
        Box::pin(async move {
            let cluster = self.cluster()?;
            let found = if with_managers {
                read::read_with_managers(cluster, target).await
            } else {
                read::read(cluster, target).await
            };
            let mut value = found?.into_value();
            self.secrets.hide(&mut value);
            Ok(value)
        })
    }

    /// Rings `bell` whenever the target may have changed (C5). Without a cluster it never rings.
    pub fn subscribe(&self, target: &ObjectRef, bell: Arc<Notify>) -> Subscription {
        match &self.cluster {
            Some(cluster) => self.watches.subscribe(cluster, target, bell),
            None => self.watches.silent(),
        }
    }

    /// What the cluster says about objects that do not get on; see [`evidence::look`].
    pub fn evidence<'a>(
        &'a self,
        objects: &'a [&'a Value],
        baseline: &'a mut Baseline,
    ) -> BoxFuture<'a, Result<Vec<String>, Failure>> {
        Box::pin(async move {
            let mut texts = evidence::look(self.cluster()?, objects, baseline).await;
            for text in &mut texts {
                *text = self.secrets.masker().mask(text).into_owned();
            }
            Ok(texts)
        })
    }

    /// Carries out a request. Dropping the future does not take back what was sent.
    pub fn execute<'a>(
        &'a self,
        origin: &'a Origin,
        request: &'a Request,
        limit: Duration,
    ) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let answer = match self.resolved(request).await {
                Ok(Some(clear)) => self.carry_out(origin, &clear, limit).await,
                Ok(None) => self.carry_out(origin, request, limit).await,
                Err(failure) => Err(failure),
            };
            self.safe(request, answer.into())
        })
    }

    /// Whether an earlier process's attempt took effect, if the extension can tell.
    pub async fn observe(&self, origin: &Origin, request: &Request) -> Option<bool> {
        let args = request.args.get("args").unwrap_or(&Value::Null);
        self.extension(&request.args).ok()?.observe(origin, args).await
    }

    /// The request with its secrets, if it has any.
    async fn resolved(&self, request: &Request) -> Result<Option<Request>, Failure> {
        let object = request.object.as_deref();
        if !secret::holds_secret(&request.args) && !object.is_some_and(secret::holds_secret) {
            return Ok(None);
        }
        let cluster = self.cluster.as_ref();
        let args = self.secrets.resolve(&request.args, cluster).await?;
        let object = match object {
            Some(object) => Some(Arc::new(self.secrets.resolve(object, cluster).await?)),
            None => None,
        };
        Ok(Some(Request { object, args, ..request.clone() }))
    }

    async fn carry_out(
        &self,
        origin: &Origin,
        request: &Request,
        limit: Duration,
    ) -> Result<Answer, Failure> {
        match request.uses {
            ActionKind::Extension => {
                let args = request.args.get("args").unwrap_or(&Value::Null);
                Ok(self.extension(&request.args)?.call(origin, args).await)
            }
            _ => k8s::execute(self.cluster()?, origin, request, limit).await,
        }
    }

    /// The extension that the key `name` asks for.
    fn extension(&self, args: &Value) -> Result<&Arc<dyn Extension>, Failure> {
        let name = args.get("name").and_then(Value::as_str).unwrap_or_default();
        let unknown =
            || Failure::permanent(codes::EXTENSION, format!("no action `ext.{name}` is registered"));
        self.extensions.get(name).ok_or_else(unknown)
    }

    /// An answer that may be kept and shown.
    fn safe(&self, request: &Request, mut answer: Answer) -> Answer {
        let masker = self.secrets.masker();
        match &mut answer {
            Answer::Failed(failure) => failure.message = masker.mask(&failure.message).into_owned(),
            Answer::Done { result, changes, .. } => {
                self.secrets.hide(result);
                masker.mask_value(result);
                if let Some(changes) = changes {
                    self.secrets.hide_changes(kind_of(request), changes);
                    masker.mask_value(changes);
                }
            }
        }
        answer
    }
}

/// The kind of the object that a request writes.
fn kind_of(request: &Request) -> &str {
    let of_manifest = || request.args.pointer("/manifest/kind")?.as_str();
    request.target.as_ref().map(|target| target.kind.as_str()).or_else(of_manifest).unwrap_or_default()
}

//! Carries out what a step asks for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::sync::Notify;

use crate::action::args;
use crate::action::codes;
use crate::action::evidence;
use crate::action::evidence::Baseline;
use crate::action::k8s;
use crate::action::k8s::client::Cluster;
use crate::action::k8s::read;
use crate::action::k8s::watch::Subscription;
use crate::action::k8s::watch::Watches;
use crate::action::net;
use crate::action::process::Gated;
use crate::action::process::Mark;
use crate::action::process::Processes;
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
    /// Why there is none.
    no_cluster: Option<Failure>,
    watches: Watches,
    secrets: Secrets,
    processes: Option<Processes>,
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

    /// Without a cluster, and with the reason.
    #[must_use]
    pub fn without_cluster(mut self, why: Failure) -> Self {
        self.no_cluster = Some(why);
        self
    }

    /// With one more action, written `ext.NAME`.
    #[must_use]
    pub fn with_extension(mut self, name: &str, extension: Arc<dyn Extension>) -> Self {
        self.extensions.insert(name.to_owned(), extension);
        self
    }

    /// With a place for the files of programs; without one, `process` is refused.
    #[must_use]
    pub fn with_processes(mut self, processes: Processes) -> Self {
        self.processes = Some(processes);
        self
    }

    /// The cluster, or that there is none.
    pub fn cluster(&self) -> Result<&Cluster, Failure> {
        let none = || Failure::permanent(codes::NO_CLUSTER, "no cluster is configured");
        self.cluster.as_ref().ok_or_else(|| self.no_cluster.clone().unwrap_or_else(none))
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

    /// What objects say about themselves: conditions and messages of containers.
    pub fn said(&self, objects: &[&Value]) -> Vec<String> {
        self.masked(evidence::of_objects(objects))
    }

    fn masked(&self, texts: Vec<String>) -> Vec<String> {
        texts.into_iter().map(|text| self.secrets.masker().mask(&text).into_owned()).collect()
    }

    /// What events say about objects that do not get on; see [`evidence::look`].
    pub fn happened<'a>(
        &'a self,
        objects: &'a [&'a Value],
        baseline: &'a mut Baseline,
    ) -> BoxFuture<'a, Result<Vec<String>, Failure>> {
        Box::pin(async move { Ok(self.masked(evidence::look(self.cluster()?, objects, baseline).await)) })
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

    /// Starts a program behind its gate. It runs when it is released, which must not be before its mark is durable.
    pub async fn start_process(&self, origin: &Origin, request: &Request) -> Result<Gated, Failure> {
        let started = self.processes()?.start(origin, &request.args, self.cluster.as_ref()).await;
        started.map_err(|failure| self.safe_failure(failure))
    }

    /// Lets a program run and waits for its end; see [`Gated::release`].
    pub async fn release_process(&self, gated: Gated, limit: Duration) -> Answer {
        gated.release(limit, self.cluster.as_ref()).await
    }

    /// Waits for a program that an earlier process of the agent has released, or finds out that it has not; see
    /// [`Processes::adopt`].
    pub async fn adopt_process(&self, origin: &Origin, mark: &Mark, limit: Duration) -> Answer {
        match self.processes() {
            Ok(processes) => processes.adopt(origin, mark, limit, self.cluster.as_ref()).await,
            Err(failure) => Answer::Failed(failure),
        }
    }

    /// Removes what programs of a run have left in the state directory; for runs that have ended.
    pub fn forget_processes(&self, run: &str) {
        if let Some(Err(error)) = self.processes.as_ref().map(|processes| processes.forget(run)) {
            tracing::warn!(run, %error, "files of a program are left");
        }
    }

    fn processes(&self) -> Result<&Processes, Failure> {
        let missing =
            || Failure::permanent(codes::PROCESS_START, "programs have no place for their files here");
        self.processes.as_ref().ok_or_else(missing)
    }

    /// The request with its secrets, if it has any.
    async fn resolved(&self, request: &Request) -> Result<Option<Request>, Failure> {
        // A delete names the object and sends nothing of it.
        let object = request.object.as_deref().filter(|_| request.uses != ActionKind::K8sDelete);
        if !secret::holds_secret(&request.args) && !object.is_some_and(secret::holds_secret) {
            return Ok(None);
        }
        let cluster = self.cluster.as_ref();
        let args = self.secrets.resolve(&request.args, cluster).await?;
        let object = match object {
            Some(object) => Some(Arc::new(self.secrets.resolve(object, cluster).await?)),
            None => request.object.clone(),
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
            ActionKind::Http => net::http(&args::read(&request.args)?, limit).await,
            ActionKind::Tcp => net::tcp(&args::read(&request.args)?, limit).await,
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

    fn safe_failure(&self, mut failure: Failure) -> Failure {
        let masker = self.secrets.masker();
        failure.texts_mut().for_each(|text| *text = masker.mask(text).into_owned());
        failure
    }

    /// An answer that may be kept and shown.
    fn safe(&self, request: &Request, mut answer: Answer) -> Answer {
        let masker = self.secrets.masker();
        match &mut answer {
            Answer::Failed(failure) => *failure = self.safe_failure(failure.clone()),
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::FutureExt;
    use serde_json::json;

    use super::*;
    use crate::action::k8s::script::Script;
    use crate::action::k8s::script::origin;
    use crate::action::k8s::script::status;
    use crate::action::k8s::script::vm;
    use crate::action::request::ATTEMPT_TIMEOUT_DEFAULT;
    use crate::action::secret::MASK;
    use crate::action::secret::Sealer;
    use crate::action::secret::placeholder;

    fn secret(data: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Secret", "data": {"k": data},
               "metadata": {"name": "s", "uid": "u", "resourceVersion": "1", "annotations": {}}})
    }

    fn target() -> ObjectRef {
        ObjectRef { api: "v1".into(), kind: "Secret".into(), ..vm("s") }
    }

    fn executor(script: &Script, folder: &tempfile::TempDir) -> Executor {
        let sealer = Sealer::open_or_create(&folder.path().join("seal.key")).expect("a key");
        Executor::new(Secrets::new(Some(sealer))).with_cluster(script.cluster.clone())
    }

    fn patch(args: Value, object: Option<Value>) -> Request {
        Request { uses: ActionKind::K8sPatch, target: Some(target()), object: object.map(Arc::new), args }
    }

    #[tokio::test]
    async fn a_secret_is_read_sealed_written_in_the_clear_and_undone_with_what_was_recorded() {
        let folder = tempfile::tempdir().expect("a folder");
        let (old, new) = ("b2xkLW9sZA==", "bmV3LW5ldw==");
        let script = Script::new(vec![
            Ok((200, secret(old))),
            Ok((200, secret(new))),
            Ok((200, secret(new))),
            Ok((200, secret(old))),
        ]);
        let executor = executor(&script, &folder);
        let object = executor.read(&target(), false).await.expect("read");
        assert!(!object.to_string().contains(old), "{object}");

        let reference = executor.secrets().seal_literal(new).expect("a key");
        let merge = json!({"merge": {"data": {"k": placeholder(&reference)}}});
        let answer = executor.execute(&origin(), &patch(merge, Some(object)), ATTEMPT_TIMEOUT_DEFAULT).await;
        let Answer::Done { changed: true, result, changes: Some(changes), .. } = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(script.asked()[1].2["data"]["k"], new, "the server gets the value");
        let kept = format!("{result}{changes}");
        assert!(!kept.contains(old) && !kept.contains(new), "{kept}");

        let restore = Request { uses: ActionKind::K8sRestore, ..patch(json!({"changes": changes}), None) };
        let answer = executor.execute(&origin(), &restore, ATTEMPT_TIMEOUT_DEFAULT).await;
        assert!(matches!(answer, Answer::Done { changed: true, .. }), "{answer:?}");
        assert_eq!(script.asked()[3].2[0], json!({"op": "replace", "path": "/data/k", "value": old}));
    }

    #[tokio::test]
    async fn a_mask_is_never_sent_and_a_refusal_never_shows_a_value() {
        let folder = tempfile::tempdir().expect("a folder");
        let script =
            Script::new(vec![Ok((422, status(422, "Invalid", "Invalid value: \"hunter2-hunter2\"")))]);
        let executor = executor(&script, &folder);
        let masked = patch(json!({"merge": {"data": {"k": MASK}}}), Some(secret("x")));
        let Answer::Failed(failure) = executor.execute(&origin(), &masked, ATTEMPT_TIMEOUT_DEFAULT).await
        else {
            panic!("sent")
        };
        assert_eq!((failure.code.as_str(), script.asked().len()), (codes::MASKED, 0));

        let reference = executor.secrets().seal_literal("hunter2-hunter2").expect("a key");
        let merge = json!({"merge": {"data": {"k": placeholder(&reference)}}});
        let request = patch(merge, Some(secret("x")));
        let Answer::Failed(failure) = executor.execute(&origin(), &request, ATTEMPT_TIMEOUT_DEFAULT).await
        else {
            panic!("accepted")
        };
        assert!(
            failure.message.contains(MASK) && !failure.message.contains("hunter2"),
            "{}",
            failure.message
        );
    }

    #[derive(Default)]
    struct Append(Mutex<Vec<String>>);

    impl Extension for Append {
        fn call(&self, origin: &Origin, args: &Value) -> BoxFuture<'static, Answer> {
            self.0.lock().expect("unpoisoned").push(format!("{} {args}", origin.unit));
            futures::future::ready(Answer::done(true, Value::Null)).boxed()
        }
    }

    #[test]
    fn an_extension_is_found_by_name_and_answers_at_once() {
        let append = Arc::new(Append::default());
        let executor = Executor::new(Secrets::default()).with_extension("append", append.clone());
        let request = |name: &str| Request {
            uses: ActionKind::Extension,
            target: None,
            object: None,
            args: json!({"name": name, "args": {"line": 1}}),
        };
        let call = |name| executor.execute(&origin(), &request(name), ATTEMPT_TIMEOUT_DEFAULT).now_or_never();
        assert_eq!(call("append"), Some(Answer::done(true, Value::Null)));
        assert_eq!(*append.0.lock().expect("unpoisoned"), [r#"halt {"line":1}"#]);
        let Some(Answer::Failed(failure)) = call("other") else { panic!("known") };
        assert_eq!(failure.code, codes::EXTENSION);
    }

    #[tokio::test]
    async fn without_a_cluster_or_a_state_directory_actions_fail_by_name() {
        let executor = Executor::new(Secrets::default());
        assert_eq!(executor.read(&target(), false).await.expect_err("none").code, codes::NO_CLUSTER);
        let Answer::Failed(failure) =
            executor.execute(&origin(), &patch(json!({}), None), ATTEMPT_TIMEOUT_DEFAULT).await
        else {
            panic!("done")
        };
        assert_eq!(failure.code, codes::NO_CLUSTER);
        let process = Request { uses: ActionKind::Process, ..patch(json!({"command": ["true"]}), None) };
        let failure = executor.start_process(&origin(), &process).await.err().expect("refused");
        assert_eq!(failure.code, codes::PROCESS_START);
    }

    /// The runner spawns these futures.
    #[test]
    fn what_the_executor_does_can_be_spawned() {
        fn is_send<T: Send>(_: T) {}
        let executor = Executor::new(Secrets::default());
        let (origin, target, request) = (origin(), target(), patch(json!({}), None));
        is_send(executor.execute(&origin, &request, ATTEMPT_TIMEOUT_DEFAULT));
        is_send(executor.read(&target, true));
        is_send(executor.start_process(&origin, &request));
        is_send(executor.happened(&[], &mut Baseline::default()));
    }
}

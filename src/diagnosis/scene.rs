//! What there is to see of an object and of those that belong to it. All of it is bounded, in objects, bytes and time:
//! whoever asks wants to know what is wrong, not to wait.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use serde_json::json;

use crate::action::Executor;
use crate::action::request::Answer;
use crate::action::request::ObjectRef;
use crate::action::request::Origin;
use crate::action::request::Request;
use crate::definition::expr::Scope;
use crate::definition::knowledge::Knowledge;
use crate::definition::knowledge::Relation;
use crate::definition::model::ActionKind;
use crate::evaluate::objects_in;
use crate::failure::Failure;

/// Objects that are looked at: a VM with a dozen disks and all that is behind them.
const OBJECTS_MAX: usize = 100;
/// Events kept of each object, the latest: an object in trouble repeats itself.
const EVENTS_MAX: usize = 50;
/// Lines kept of each log: the end is what matters.
const LOG_LINES: u32 = 50;
/// Characters kept of each log, from its end: a progress bar is one line of megabytes.
const LOG_CHARS_MAX: usize = 32 << 10;
/// Logs that are read: each is a request, and a node that is away answers slowly.
const LOGS_MAX: usize = 12;

/// What a look may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Then whatever was seen by then is all.
    pub time: Duration,
    /// How long one answer may take.
    pub answer: Duration,
}

/// What was seen.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Scene {
    /// The objects, those that were asked for first, the nearest next.
    pub objects: Vec<Seen>,
    /// What could not be seen, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// There was no time to see more.
    #[serde(skip)]
    pub is_cut_short: bool,
}

/// An object with what the cluster says about it.
#[derive(Debug, Clone, Serialize)]
pub struct Seen {
    /// `Kind namespace/name`.
    pub name: String,
    /// The object itself, without managedFields.
    pub object: Arc<Value>,
    /// The events about it, the latest last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Value>,
    /// The ends of the logs of its containers, for pods.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<Log>,
    /// Its logs tell something.
    #[serde(skip)]
    pub(super) tells_logs: bool,
}

/// The end of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Log {
    /// Whose.
    pub container: String,
    /// That of the container's former run.
    pub previous: bool,
    /// Its last lines.
    pub text: String,
}

impl Seen {
    /// An object of which nothing else is known yet.
    pub fn of(object: Arc<Value>) -> Self {
        Self { name: name_of(&object), object, events: vec![], logs: vec![], tells_logs: false }
    }
}

/// Looks at `roots`, objects as they were read, and at all that belong to them. Whatever fails is noted, not returned:
/// half a look is better than none.
pub async fn look(
    executor: &Executor,
    knowledge: &Knowledge,
    origin: &Origin,
    roots: Vec<Arc<Value>>,
    limits: Limits,
) -> Scene {
    let mut scene = Scene::default();
    let mut look = Look { executor, knowledge, origin, limits, lists: BTreeMap::new(), scene: &mut scene };
    let whole = tokio::time::timeout(limits.time, look.all(roots)).await;
    scene.is_cut_short = whole.is_err();
    if scene.is_cut_short {
        scene.missing.push(format!("there was no more time: {} s is the limit", limits.time.as_secs()));
    }
    scene
}

struct Look<'a> {
    executor: &'a Executor,
    knowledge: &'a Knowledge,
    origin: &'a Origin,
    limits: Limits,
    /// What was read: many relations lead to the pods of one namespace.
    lists: BTreeMap<ObjectRef, Vec<Arc<Value>>>,
    scene: &'a mut Scene,
}

impl Look<'_> {
    async fn all(&mut self, roots: Vec<Arc<Value>>) {
        // The objects before their events, and those before logs: what tells most for the least comes first.
        self.find(roots).await;
        self.events().await;
        self.logs().await;
    }

    /// The roots, and what belongs to them, nearest first.
    async fn find(&mut self, roots: Vec<Arc<Value>>) {
        let mut known = BTreeSet::new();
        let mut open: VecDeque<(Arc<Value>, bool)> = roots.into_iter().map(|root| (root, true)).collect();
        while let Some((object, tells_logs)) = open.pop_front() {
            if uid_of(&object).is_none_or(|uid| !known.insert(uid.to_owned())) {
                continue;
            }
            if self.scene.objects.len() == OBJECTS_MAX {
                self.scene.missing.push(format!("more than {OBJECTS_MAX} objects belong to it"));
                return;
            }
            self.scene.objects.push(Seen { tells_logs, ..Seen::of(object.clone()) });
            let (api, kind) = (text(&object, "/apiVersion"), text(&object, "/kind"));
            let knowledge = self.knowledge;
            for relation in knowledge.relations().iter().filter(|relation| relation.is_about(api, kind)) {
                match self.related(&object, relation).await {
                    Ok(found) => open.extend(found.into_iter().map(|found| (found, relation.logs))),
                    Err(failure) => self.scene.missing.push(failure.message),
                }
            }
        }
    }

    /// The objects to which a relation leads.
    async fn related(
        &mut self,
        object: &Arc<Value>,
        relation: &Relation,
    ) -> Result<Vec<Arc<Value>>, Failure> {
        let mut scope = Scope::default();
        scope.bind("object", object.clone());
        let Some(target) = crate::evaluate::object_ref(&relation.target, &scope)? else { return Ok(vec![]) };
        let found = if let Some(found) = self.lists.get(&target) {
            found.clone()
        } else {
            let value = self.executor.read(&target, false).await;
            // Once is enough to say that it cannot be read.
            let found: Vec<_> = value.iter().flat_map(objects_in).cloned().map(Arc::new).collect();
            self.lists.insert(target, found.clone());
            value.map(|_| found)?
        };
        let Some(filter) = &relation.filter else { return Ok(found) };
        Ok(found
            .into_iter()
            .filter(|other| {
                scope.bind("other", other.clone());
                filter.eval_bool(&scope).unwrap_or(false)
            })
            .collect())
    }

    async fn events(&mut self) {
        for at in 0..self.scene.objects.len() {
            let object = self.scene.objects[at].object.clone();
            match self.ask(ActionKind::K8sEvents, &object, json!({})).await {
                Ok(Value::Array(mut events)) => {
                    events.drain(..events.len().saturating_sub(EVENTS_MAX));
                    events.iter_mut().for_each(strip);
                    self.scene.objects[at].events = events;
                }
                Ok(_) => {}
                Err(failure) => {
                    self.scene.missing.push(failure.message);
                    // Who may not read events of one object may not read those of another.
                    return;
                }
            }
        }
    }

    async fn logs(&mut self) {
        let mut left = LOGS_MAX;
        for at in 0..self.scene.objects.len() {
            if !self.scene.objects[at].tells_logs {
                continue;
            }
            let pod = self.scene.objects[at].object.clone();
            for (container, previous) in containers_of(&pod) {
                if left == 0 {
                    self.scene.missing.push(format!("more than {LOGS_MAX} logs"));
                    return;
                }
                left -= 1;
                let args = json!({ "container": container, "previous": previous, "tail": LOG_LINES });
                match self.ask(ActionKind::K8sLogs, &pod, args).await {
                    Ok(text) => {
                        let text = end_of(text.as_str().unwrap_or_default());
                        self.scene.objects[at].logs.push(Log { container, previous, text });
                    }
                    Err(failure) => self.scene.missing.push(failure.message),
                }
            }
        }
    }

    /// Asks about an object. The action masks what it answers.
    async fn ask(&self, uses: ActionKind, object: &Value, args: Value) -> Result<Value, Failure> {
        let request = Request { uses, target: ObjectRef::of_manifest(object), object: None, args };
        match self.executor.execute(self.origin, &request, self.limits.answer).await {
            Answer::Done { result, .. } => Ok(result),
            Answer::Failed(failure) => Err(failure),
        }
    }
}

/// The containers of a pod that have run, each with its former run if there was one.
fn containers_of(pod: &Value) -> Vec<(String, bool)> {
    if text(pod, "/kind") != "Pod" {
        return vec![];
    }
    let list = |pointer: &str| pod.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let mut found = vec![];
    for status in list("/status/initContainerStatuses").chain(list("/status/containerStatuses")) {
        let name = text(status, "/name").to_owned();
        if status.pointer("/lastState/terminated").is_some() {
            found.push((name.clone(), true));
        }
        if status.pointer("/state/waiting").is_none() || status.pointer("/lastState/terminated").is_some() {
            found.push((name, false));
        }
    }
    found
}

/// An event stands below its object and need not name it again; its own metadata say nothing to people.
fn strip(event: &mut Value) {
    const SAID: [&str; 5] = ["apiVersion", "kind", "metadata", "involvedObject", "reportingInstance"];
    if let Some(fields) = event.as_object_mut() {
        fields.retain(|key, value| !value.is_null() && !SAID.contains(&key.as_str()));
    }
}

fn end_of(text: &str) -> String {
    let chars = text.chars().count();
    text.chars().skip(chars.saturating_sub(LOG_CHARS_MAX)).collect()
}

fn uid_of(object: &Value) -> Option<&str> {
    object.pointer("/metadata/uid").and_then(Value::as_str)
}

/// `Kind namespace/name`.
pub fn name_of(object: &Value) -> String {
    let namespace = Some(text(object, "/metadata/namespace")).filter(|namespace| !namespace.is_empty());
    let place = namespace.map_or_else(String::new, |namespace| format!("{namespace}/"));
    format!("{} {place}{}", text(object, "/kind"), text(object, "/metadata/name"))
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::k8s::client::Cluster;
    use crate::action::k8s::script::origin;
    use crate::action::secret::Secrets;
    use crate::definition::Library;
    use crate::time::Clock as _;
    use crate::time::SystemClock;

    const LIMITS: Limits = Limits { time: Duration::from_secs(5), answer: Duration::from_secs(3) };

    async fn scene_of(service: kube::Client) -> Scene {
        let cluster = Cluster::of_client(service, Arc::new(SystemClock::new()));
        let executor = Executor::new(Secrets::default()).with_cluster(cluster);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "n", "name": "p", "uid": "u"}});
        look(&executor, &Library::built_in().knowledge(), &origin(), vec![Arc::new(pod)], LIMITS).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_does_not_answer_costs_the_limit_and_what_was_read_stays() {
        type Never = Result<http::Response<kube::client::Body>, tower::BoxError>;
        let silent =
            tower::service_fn(|_: http::Request<kube::client::Body>| std::future::pending::<Never>());
        let clock = SystemClock::new();
        let before = clock.now();
        let scene = scene_of(kube::Client::new(silent, "default")).await;
        assert_eq!(clock.now().since(before).as_secs(), LIMITS.time.as_secs());
        let names: Vec<_> = scene.objects.iter().map(|seen| seen.name.as_str()).collect();
        assert_eq!(names, ["Pod n/p"], "{:?}", scene.missing);
        assert!(scene.is_cut_short, "{:?}", scene.missing);
    }

    #[tokio::test]
    async fn what_is_forbidden_is_named_and_hides_nothing_else() {
        let script = crate::action::k8s::script::Script::new(vec![]);
        let executor = Executor::new(Secrets::default()).with_cluster(script.cluster.clone());
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "n", "name": "p", "uid": "u"}});
        let scene = look(&executor, &Knowledge::default(), &origin(), vec![Arc::new(pod)], LIMITS).await;
        assert_eq!(scene.objects.len(), 1);
        assert_eq!(scene.missing.len(), 1, "it is asked for events once: {:?}", scene.missing);
    }

    #[test]
    fn a_container_that_never_ran_has_no_log() {
        let pod = json!({"kind": "Pod", "status": {
            "initContainerStatuses": [{"name": "init", "state": {"terminated": {}}}],
            "containerStatuses": [
                {"name": "fresh", "state": {"waiting": {"reason": "ContainerCreating"}}},
                {"name": "again", "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                 "lastState": {"terminated": {"exitCode": 1}}},
                {"name": "runs", "state": {"running": {}}}]}});
        let expected = [("init", false), ("again", true), ("again", false), ("runs", false)];
        let found = containers_of(&pod);
        assert_eq!(found, expected.map(|(name, previous)| (name.to_owned(), previous)));
        assert!(containers_of(&json!({"kind": "Node"})).is_empty());
    }

    #[test]
    fn of_a_long_log_the_end_is_kept() {
        let text = format!("{}é", "x".repeat(LOG_CHARS_MAX));
        assert_eq!(end_of(&text).chars().count(), LOG_CHARS_MAX);
        assert!(end_of(&text).ends_with("xé"));
        assert_eq!(end_of("short"), "short");
    }
}

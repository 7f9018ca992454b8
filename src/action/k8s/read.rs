//! Reading objects. `None` means one thing only: the server knows the kind and says that there is no such object (L4).

use std::sync::Arc;

use futures::StreamExt;
use futures::TryStreamExt;
use kube::api::ListParams;
use kube::core::Request;
use serde_json::Value;

use crate::action::codes;
use crate::action::k8s::client::Ask;
use crate::action::k8s::client::Cluster;
use crate::action::k8s::client::Kind;
use crate::action::k8s::client::bad_request;
use crate::action::k8s::client::get;
use crate::action::k8s::client::is_url_part;
use crate::action::request::ObjectRef;
use crate::action::request::Selector;
use crate::failure::Failure;

/// Objects in one page of a list: what kubectl asks for.
const PAGE: u32 = 500;
/// The most objects that one target binds (E13). A list beyond it is a selector that was not meant.
pub const OBJECTS_MAX: usize = 10_000;
/// Objects of a `names` target that are read at the same time.
const PARALLEL_READS: usize = 8;

/// What a target binds.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// By name: the object, or that there is none.
    One(Option<Arc<Value>>),
    /// By anything else: all that there are, ordered by namespace and name.
    Many(Vec<Arc<Value>>),
}

impl Found {
    /// The objects that there are.
    pub fn into_objects(self) -> Vec<Arc<Value>> {
        match self {
            Self::One(object) => object.into_iter().collect(),
            Self::Many(objects) => objects,
        }
    }

    /// As one value: the object or null, or a list.
    pub fn into_value(self) -> Value {
        match self {
            Self::One(object) => object.map_or(Value::Null, Arc::unwrap_or_clone),
            Self::Many(objects) => objects.into_iter().map(Arc::unwrap_or_clone).collect(),
        }
    }
}

/// Reads a target live. managedFields are left out.
pub async fn read(cluster: &Cluster, target: &ObjectRef) -> Result<Found, Failure> {
    let mut found = read_with_managers(cluster, target).await?;
    match &mut found {
        Found::One(object) => object.iter_mut().for_each(strip),
        Found::Many(objects) => objects.iter_mut().for_each(strip),
    }
    Ok(found)
}

/// Reads a target live, managedFields included: they tell who has written what and when.
pub async fn read_with_managers(cluster: &Cluster, target: &ObjectRef) -> Result<Found, Failure> {
    check(target)?;
    match read_known(cluster, target).await {
        Err(failure) if target.optional && failure.code == codes::UNKNOWN_KIND => Ok(match target.select {
            Selector::Name(_) => Found::One(None),
            _ => Found::Many(vec![]),
        }),
        result => result,
    }
}

async fn read_known(cluster: &Cluster, target: &ObjectRef) -> Result<Found, Failure> {
    let kind = cluster.kind(&target.api, &target.kind).await?;
    match &target.select {
        Selector::Name(name) => Ok(Found::One(read_one(cluster, target, &kind, name).await?)),
        Selector::Names(names) => {
            // A loop, not a closure: the compiler cannot show of the latter that its futures may change threads.
            let mut reads = Vec::with_capacity(names.len());
            for name in names {
                reads.push(read_one(cluster, target, &kind, name));
            }
            let objects: Vec<_> = futures::stream::iter(reads).buffered(PARALLEL_READS).try_collect().await?;
            Ok(Found::Many(objects.into_iter().flatten().collect()))
        }
        Selector::Match { labels, fields } => {
            let params = ListParams {
                label_selector: labels.clone(),
                field_selector: fields.clone(),
                ..ListParams::default()
            };
            Ok(Found::Many(list(cluster, target, &kind, params).await?))
        }
        Selector::All => Ok(Found::Many(list(cluster, target, &kind, ListParams::default()).await?)),
    }
}

fn strip(object: &mut Arc<Value>) {
    if let Some(metadata) = Arc::make_mut(object).get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
}

/// Refuses what would ask for something else than was meant: an empty name is a list, an empty selector everything.
pub fn check(target: &ObjectRef) -> Result<(), Failure> {
    let refuse =
        |what: &str| Err(Failure::permanent(codes::BAD_REQUEST, format!("{}: {what}", target.describe())));
    if target.namespace.as_deref().is_some_and(|namespace| !is_url_part(namespace)) {
        return refuse("that is not a namespace");
    }
    let blank = |text: &Option<String>| text.as_deref().is_none_or(|text| text.trim().is_empty());
    match &target.select {
        Selector::Name(name) if !is_url_part(name) => refuse("that is not an object name"),
        Selector::Names(names) if !names.iter().all(|name| is_url_part(name)) => {
            refuse("one is not an object name")
        }
        Selector::Names(names) if names.len() > OBJECTS_MAX => refuse("these are too many names"),
        Selector::Match { labels, fields } if blank(labels) && blank(fields) => refuse("an empty selector"),
        Selector::Match { labels, fields }
            if labels.is_some() && blank(labels) || fields.is_some() && blank(fields) =>
        {
            refuse("a selector is empty")
        }
        _ => Ok(()),
    }
}

/// The namespace in which a target's objects are looked for; none for all of them, and for cluster-scoped kinds.
pub fn namespace_of(cluster: &Cluster, target: &ObjectRef, kind: &Kind) -> Option<String> {
    let default = || cluster.client().default_namespace().to_owned();
    let scoped = kind.namespaced && !target.all_namespaces;
    scoped.then(|| target.namespace.clone().unwrap_or_else(default))
}

/// The URL path of a target's objects.
pub fn path_of(cluster: &Cluster, target: &ObjectRef, kind: &Kind) -> String {
    kind.path(&kind.resource.api_version, namespace_of(cluster, target, kind).as_deref())
}

async fn read_one(
    cluster: &Cluster,
    target: &ObjectRef,
    kind: &Kind,
    name: &str,
) -> Result<Option<Arc<Value>>, Failure> {
    if target.all_namespaces && kind.namespaced {
        let message = format!("{}: a name needs a namespace", target.describe());
        return Err(Failure::permanent(codes::BAD_REQUEST, message));
    }
    let ask = Ask::read(format!("read {}", target.describe()));
    let path = format!("{}/{name}", path_of(cluster, target, kind));
    let reply = cluster.call(get(&path)?, &ask).await?;
    let Some(refusal) = reply.refusal() else {
        return serde_json::from_slice(&reply.body).map(Some).map_err(|error| ask.unreadable(&error));
    };
    if refusal.is_absence_of(name) {
        return Ok(None);
    }
    let failure = refusal.classify(ask.intent, &ask.what);
    if failure.code == codes::NOT_FOUND {
        // Not this object but the URL is unknown: what was discovered is stale, or the kind is gone.
        cluster.discover(&target.api, &target.kind).await?;
        return Err(Failure::retryable(codes::UNAVAILABLE, failure.message));
    }
    Err(failure)
}

async fn list(
    cluster: &Cluster,
    target: &ObjectRef,
    kind: &Kind,
    params: ListParams,
) -> Result<Vec<Arc<Value>>, Failure> {
    let ask = Ask::read(format!("list {}", target.describe()));
    let requests = Request::new(path_of(cluster, target, kind));
    let mut params = params.limit(PAGE);
    let mut objects: Vec<Arc<Value>> = vec![];
    let mut restarted = false;
    loop {
        let page =
            match cluster.json(requests.list(&params).map_err(|error| bad_request(&error))?, &ask).await {
                // The server has forgotten the version that the pages before are from: begin again, once.
                Err(failure) if failure.code == codes::EXPIRED && !restarted => {
                    restarted = true;
                    objects.clear();
                    params.continue_token = None;
                    continue;
                }
                Err(failure) if failure.code == codes::NOT_FOUND => {
                    cluster.discover(&target.api, &target.kind).await?;
                    return Err(Failure::retryable(codes::UNAVAILABLE, failure.message));
                }
                result => result?,
            };
        let next = page.pointer("/metadata/continue").and_then(Value::as_str).map(str::to_owned);
        objects.extend(items(page, kind, &ask)?);
        if objects.len() > OBJECTS_MAX {
            return Err(Failure::permanent(
                codes::TOO_LARGE,
                format!("{}: more than {OBJECTS_MAX}", ask.what),
            ));
        }
        match next.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => break,
        }
    }
    objects.sort_by_cached_key(|object| key_of(object));
    Ok(objects)
}

/// The objects of a page. In a list the server leaves apiVersion and kind out of each; they are put back.
fn items(mut page: Value, kind: &Kind, ask: &Ask) -> Result<Vec<Arc<Value>>, Failure> {
    let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) else {
        return Err(Failure::retryable(codes::BAD_ANSWER, format!("{}: the answer is not a list", ask.what)));
    };
    let complete = items.into_iter().map(|mut item| {
        if let Some(fields) = item.as_object_mut() {
            fields.entry("apiVersion").or_insert_with(|| kind.resource.api_version.clone().into());
            fields.entry("kind").or_insert_with(|| kind.resource.kind.clone().into());
        }
        Arc::new(item)
    });
    Ok(complete.collect())
}

fn key_of(object: &Value) -> (String, String) {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/metadata/namespace"), text("/metadata/name"))
}

/// Who wrote the object last, by its managedFields, and when: manager and RFC 3339 time of the server.
pub fn last_manager(object: &Value) -> Option<(&str, &str)> {
    let entries = object.pointer("/metadata/managedFields")?.as_array()?;
    let text = |entry: &'_ Value, key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
    let last = entries.iter().max_by_key(|entry| text(entry, "time"))?;
    Some((last.get("manager")?.as_str()?, last.get("time")?.as_str()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::action::k8s::script::Script;
    use crate::action::k8s::script::absent;
    use crate::action::k8s::script::status;
    use crate::action::k8s::script::vm;
    use crate::failure::FailureClass;

    fn selected(select: Selector) -> ObjectRef {
        ObjectRef { select, ..vm("web") }
    }

    #[tokio::test]
    async fn null_is_only_a_404_for_that_object() {
        let unknown_url = status(404, "NotFound", "the server could not find the requested resource");
        let rows = [
            (Ok((200, json!({"metadata": {"name": "web", "managedFields": []}}))), Ok(true)),
            (Ok((404, absent("virtualmachines", "web"))), Ok(false)),
            (Ok((404, unknown_url)), Err(codes::UNAVAILABLE)),
            (Ok((404, json!("404 page not found"))), Err(codes::BAD_ANSWER)),
            (Ok((401, status(401, "Unauthorized", "no"))), Err(codes::UNAUTHORIZED)),
            (Ok((403, status(403, "Forbidden", "no"))), Err(codes::FORBIDDEN)),
            (Ok((503, status(503, "ServiceUnavailable", "no"))), Err(codes::UNAVAILABLE)),
            (Ok((200, json!("<html>"))), Err(codes::BAD_ANSWER)),
            (Err(std::io::ErrorKind::ConnectionRefused), Err(codes::UNREACHABLE)),
        ];
        for (step, expected) in rows {
            let script = Script::new(vec![step]);
            let found = read(&script.cluster, &ObjectRef { optional: true, ..vm("web") }).await;
            match (found, expected) {
                (Ok(Found::One(object)), Ok(there)) => {
                    assert_eq!(object.is_some(), there);
                    assert!(object.is_none_or(|object| object.pointer("/metadata/managedFields").is_none()));
                }
                (Err(failure), Err(code)) => {
                    assert_eq!(failure.code, code);
                    assert_ne!(failure.class, FailureClass::Unknown);
                }
                (found, expected) => panic!("{found:?} instead of {expected:?}"),
            }
        }
    }

    #[tokio::test]
    async fn an_unknown_kind_is_an_error_unless_the_target_is_optional() {
        let script = Script::new(vec![]);
        let volume = ObjectRef { kind: "Volume".into(), ..vm("web") };
        let failure = read(&script.cluster, &volume).await.expect_err("unknown");
        assert_eq!(failure.code, codes::UNKNOWN_KIND);
        let optional = ObjectRef { optional: true, ..volume };
        assert_eq!(read(&script.cluster, &optional).await, Ok(Found::One(None)));
        let by_label = Selector::Match { labels: Some("a=b".into()), fields: None };
        let optional = ObjectRef { select: by_label, ..optional };
        assert_eq!(read(&script.cluster, &optional).await, Ok(Found::Many(vec![])));
    }

    #[tokio::test]
    async fn what_could_mean_everything_is_refused_before_any_request() {
        let empty = |labels: Option<&str>, fields: Option<&str>| Selector::Match {
            labels: labels.map(Into::into),
            fields: fields.map(Into::into),
        };
        let rows = [
            Selector::Name(String::new()),
            Selector::Name("a/b".into()),
            Selector::Name("..".into()),
            Selector::Names(vec!["a".into(), String::new()]),
            empty(None, None),
            empty(Some(""), None),
            empty(Some("  "), Some("a=b")),
            empty(None, Some("")),
        ];
        for select in rows {
            let script = Script::new(vec![]);
            let failure = read(&script.cluster, &selected(select.clone())).await.expect_err("refused");
            assert_eq!((failure.code.as_str(), script.asked().len()), (codes::BAD_REQUEST, 0), "{select:?}");
        }
        let script = Script::new(vec![]);
        let elsewhere = ObjectRef { namespace: Some(String::new()), ..vm("web") };
        assert!(read(&script.cluster, &elsewhere).await.is_err() && script.asked().is_empty());
    }

    #[tokio::test]
    async fn a_list_is_read_page_by_page_and_begun_again_when_it_expires() {
        let page = |name: &str, next: &str| {
            let metadata = json!({"name": name, "namespace": "default"});
            json!({"kind": "VirtualMachineList", "metadata": {"continue": next}, "items": [{"metadata": metadata}]})
        };
        let script = Script::new(vec![
            Ok((200, page("lost", "t1"))),
            Ok((410, status(410, "Expired", "too old"))),
            Ok((200, page("b", "t2"))),
            Ok((200, page("a", ""))),
        ]);
        let target = selected(Selector::Match { labels: Some("app=x,y!=z".into()), fields: None });
        let target = ObjectRef { namespace: None, all_namespaces: true, ..target };
        let Ok(Found::Many(objects)) = read(&script.cluster, &target).await else { panic!("a list") };
        let names: Vec<_> = objects.iter().map(|object| object["metadata"]["name"].as_str()).collect();
        assert_eq!(names, [Some("a"), Some("b")]);
        assert_eq!(objects[0]["kind"], "VirtualMachine");
        let urls: Vec<String> = script.asked().into_iter().map(|(_, url, _)| url).collect();
        assert!(urls[0].starts_with("/apis/kubevirt.io/v1/virtualmachines?"), "{urls:?}");
        assert!(urls[0].contains("labelSelector=app%3Dx%2Cy%21%3Dz"), "{urls:?}");
        assert!(urls[1].contains("continue=t1") && !urls[2].contains("continue"), "{urls:?}");
    }

    #[tokio::test]
    async fn several_names_leave_out_what_is_missing_only() {
        let object = |name: &str| json!({"metadata": {"name": name}});
        let names = || selected(Selector::Names(vec!["a".into(), "b".into()]));
        let script = Script::new(vec![Ok((404, absent("virtualmachines", "a"))), Ok((200, object("b")))]);
        let Ok(Found::Many(objects)) = read(&script.cluster, &names()).await else { panic!("a list") };
        assert_eq!(objects.len(), 1);
        let script = Script::new(vec![Ok((200, object("a"))), Ok((403, status(403, "Forbidden", "no")))]);
        assert!(read(&script.cluster, &names()).await.is_err());
    }

    #[test]
    fn the_last_manager_is_the_latest_by_time() {
        let object = json!({"metadata": {"managedFields": [
            {"manager": "kubectl", "time": "2026-01-02T00:00:00Z"},
            {"manager": "virt-controller", "time": "2026-01-01T00:00:00Z"}]}});
        assert_eq!(last_manager(&object), Some(("kubectl", "2026-01-02T00:00:00Z")));
    }
}

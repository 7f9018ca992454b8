//! What the cluster itself says about an object that does not get on: texts for the knowledge files (L5).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::action::k8s::client::Cluster;
use crate::action::k8s::read;
use crate::action::request::ObjectRef;
use crate::action::request::Selector;
use crate::failure::Failure;
use crate::time::Timestamp;

/// Objects whose events are asked for in one look: each is a request.
const OBJECTS_MAX: usize = 20;
/// Texts of one look at the events, and of what objects say themselves; whatever is known is among the first.
const TEXTS_MAX: usize = 200;
/// The longest text; messages of containers may be whole stack traces.
const TEXT_CHARS_MAX: usize = 2_000;
/// An object younger than this at the first look was made by what is waited for, and so were its events.
const NEW: Duration = Duration::from_mins(1);

/// The Warning events that had been there before, by uid, with their counts. Counts and not times tell what is new:
/// events bear the clocks of many machines (C6).
#[derive(Debug, Clone, Default)]
pub struct Baseline {
    /// None before the first look.
    counts: Option<BTreeMap<String, u64>>,
}

/// What events about the objects say since the first look.
pub async fn look(cluster: &Cluster, objects: &[&Value], baseline: &mut Baseline) -> Vec<String> {
    let mut known = vec![];
    let mut fresh = vec![];
    for object in objects.iter().take(OBJECTS_MAX) {
        // Evidence only explains: who may not read events goes on without.
        let Ok(events) = events_of(cluster, object).await else { continue };
        let is_old = baseline.counts.is_none() && !is_new(object, cluster.server_now());
        if is_old { known.extend(events) } else { fresh.extend(events) }
    }
    let counts = baseline.counts.get_or_insert_with(|| known.iter().filter_map(counted).collect());
    fresh.iter().filter_map(|event| of_event(event, counts)).take(TEXTS_MAX).collect()
}

/// The events about an object: by its uid, so that those of a former object of that name are not among them.
pub async fn events_of(cluster: &Cluster, object: &Value) -> Result<Vec<Value>, Failure> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let Some(uid) = text("/metadata/uid") else { return Ok(vec![]) };
    let namespace = text("/metadata/namespace");
    let target = ObjectRef {
        api: "v1".into(),
        kind: "Event".into(),
        all_namespaces: namespace.is_none(),
        namespace,
        select: Selector::Match { labels: None, fields: Some(format!("involvedObject.uid={uid}")) },
        optional: true,
    };
    let events = read::read(cluster, &target).await?.into_objects();
    Ok(events.into_iter().map(Arc::unwrap_or_clone).collect())
}

fn is_new(object: &Value, server_now: Timestamp) -> bool {
    let made = object.pointer("/metadata/creationTimestamp").and_then(Value::as_str);
    made.and_then(|text| text.parse::<Timestamp>().ok()).is_some_and(|made| server_now.since(made) < NEW)
}

fn counted(event: &Value) -> Option<(String, u64)> {
    Some((event.pointer("/metadata/uid")?.as_str()?.to_owned(), count_of(event)))
}

/// How often an event happened.
pub fn count_of(event: &Value) -> u64 {
    let count = event.pointer("/series/count").or_else(|| event.get("count")).and_then(Value::as_u64);
    count.unwrap_or(1)
}

/// A Warning event, if it happened more often than before.
fn of_event(event: &Value, before: &BTreeMap<String, u64>) -> Option<String> {
    let (uid, count) = counted(event)?;
    let is_warning = event.get("type").and_then(Value::as_str) == Some("Warning");
    let is_news = count > before.get(&uid).copied().unwrap_or(0);
    if is_warning && is_news { sentence(event) } else { None }
}

/// What objects say about themselves.
pub fn of_objects(objects: &[&Value]) -> Vec<String> {
    objects.iter().flat_map(|object| of_object(object)).take(TEXTS_MAX).collect()
}

/// What an object says about itself: its conditions, and how its containers end or why they do not start. Of one that is
/// being deleted only what keeps it: what it complained of before matters no more.
pub fn of_object(object: &Value) -> Vec<String> {
    if object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null()) {
        return held(object).into_iter().collect();
    }
    of_conditions(object).into_iter().chain(of_containers(object)).collect()
}

fn list<'o>(object: &'o Value, pointer: &str) -> impl Iterator<Item = &'o Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// What the conditions of an object say.
pub fn of_conditions(object: &Value) -> Vec<String> {
    list(object, "/status/conditions").filter_map(sentence).collect()
}

/// How the containers of a pod end, or why they do not start.
pub fn of_containers(object: &Value) -> Vec<String> {
    let containers =
        list(object, "/status/initContainerStatuses").chain(list(object, "/status/containerStatuses"));
    let states = containers.flat_map(|container| {
        ["/state/terminated", "/lastState/terminated", "/state/waiting"].map(|state| container.pointer(state))
    });
    states.flatten().filter_map(sentence).collect()
}

/// What a deletion waits for.
fn held(object: &Value) -> Option<String> {
    let finalizers = object.pointer("/metadata/finalizers")?.as_array()?;
    let names: Vec<&str> = finalizers.iter().filter_map(Value::as_str).collect();
    (!names.is_empty()).then(|| format!("Terminating: held by finalizers [{}]", names.join(", ")))
}

/// `Reason: message`, as far as there is either.
pub fn sentence(value: &Value) -> Option<String> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let message = text("message").or_else(|| text("note"));
    let sentence = match (text("reason"), message) {
        (Some(reason), Some(message)) => format!("{reason}: {message}"),
        (Some(only), None) | (None, Some(only)) => only.to_owned(),
        (None, None) => return None,
    };
    Some(sentence.chars().take(TEXT_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::action::k8s::script::Script;
    use crate::action::k8s::script::status;

    fn event(uid: &str, count: u64, message: &str) -> Value {
        json!({"metadata": {"uid": uid, "name": uid}, "type": "Warning", "reason": "FailedAttachVolume",
               "message": message, "count": count})
    }

    fn list(events: &[Value]) -> Value {
        json!({"kind": "EventList", "metadata": {}, "items": events})
    }

    fn pod(created: &str) -> Value {
        json!({"metadata": {"name": "p", "namespace": "n", "uid": "u1", "creationTimestamp": created}})
    }

    #[test]
    fn conditions_and_containers_speak_for_themselves() {
        let pod = json!({"status": {
            "conditions": [{"type": "PodScheduled", "reason": "Unschedulable", "message": "0/3 nodes"},
                           {"type": "Ready", "status": "True"}],
            "initContainerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}],
            "containerStatuses": [{"state": {"running": {}}, "lastState": {"terminated": {
                "reason": "Error", "message": "no space left"}}}]}});
        assert_eq!(of_object(&pod), ["Unschedulable: 0/3 nodes", "ImagePullBackOff", "Error: no space left"]);
        let long = json!({"status": {"conditions": [{"message": "é".repeat(TEXT_CHARS_MAX + 1)}]}});
        assert_eq!(of_object(&long)[0].chars().count(), TEXT_CHARS_MAX);
        assert!(of_object(&Value::Null).is_empty());
    }

    #[test]
    fn an_object_that_is_being_deleted_names_what_keeps_it() {
        let mut claim = json!({"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]},
                               "status": {"conditions": [{"reason": "Resizing"}]}});
        assert_eq!(of_object(&claim), ["Resizing"]);
        claim["metadata"]["deletionTimestamp"] = "2026-09-06T12:00:00Z".into();
        assert_eq!(of_object(&claim), ["Terminating: held by finalizers [kubernetes.io/pvc-protection]"]);
        claim["metadata"]["finalizers"] = json!([]);
        assert!(of_object(&claim).is_empty());
    }

    #[tokio::test]
    async fn only_what_happened_since_the_first_look_is_evidence() {
        let script = Script::new(vec![
            Ok((200, list(&[event("e1", 3, "old")]))),
            Ok((200, list(&[event("e1", 3, "old"), event("e2", 1, "new")]))),
            Ok((200, list(&[event("e1", 4, "again"), event("e2", 1, "new")]))),
        ]);
        let pod = pod("2020-01-01T00:00:00Z");
        let mut baseline = Baseline::default();
        let mut looks = vec![];
        for _ in 0..3 {
            looks.push(look(&script.cluster, &[&pod], &mut baseline).await);
        }
        let new = "FailedAttachVolume: new";
        assert_eq!(looks, [vec![], vec![new], vec!["FailedAttachVolume: again", new]]);
        let url = &script.asked()[0].1;
        assert!(url.starts_with("/api/v1/namespaces/n/events?"), "{url}");
        assert!(url.contains("fieldSelector=involvedObject.uid%3Du1"), "{url}");
    }

    #[tokio::test]
    async fn events_of_an_object_that_has_just_been_made_are_all_new() {
        let script = Script::new(vec![Ok((200, list(&[event("e1", 3, "at once")])))]);
        let now = script.cluster.server_now().to_string();
        let texts = look(&script.cluster, &[&pod(&now)], &mut Baseline::default()).await;
        assert_eq!(texts, ["FailedAttachVolume: at once"]);
    }

    #[tokio::test]
    async fn without_the_right_to_read_events_the_rest_is_still_told() {
        let script = Script::new(vec![Ok((403, status(403, "Forbidden", "no")))]);
        let mut pod = pod("2020-01-01T00:00:00Z");
        pod["status"] = json!({"conditions": [{"reason": "Unschedulable"}]});
        assert!(look(&script.cluster, &[&pod], &mut Baseline::default()).await.is_empty());
        assert_eq!(of_objects(&[&pod]), ["Unschedulable"]);
    }
}

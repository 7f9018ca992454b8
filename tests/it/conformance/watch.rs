//! Watches: what they deliver, in which order, and how they end.

use serde_json::{Value, json};

use crate::conformance::fixtures::{config_map, config_maps, virtual_machines};
use crate::conformance::server::{Server, names, text};

fn labelled(name: &str, colour: &str) -> Value {
    let mut object = config_map(name);
    object["metadata"]["labels"] = json!({"colour": colour});
    object
}

fn event(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

/// The URL of a new namespace's config maps, and the version of their empty list.
async fn empty_list(server: &Server) -> (String, String) {
    let url = config_maps(&server.namespace().await);
    // The real server has a controller that puts the cluster's root certificate into each namespace; it is not run here.
    let list = server.get(&url).await.ok(200);
    (url, text(&list, "/metadata/resourceVersion").to_owned())
}

pub(crate) async fn a_watch_goes_on_where_a_list_ended(server: &Server) {
    let (url, version) = empty_list(server).await;
    let created = server.post(&url, &config_map("a")).await.ok(201);
    let changed = server.merge(&format!("{url}/a"), &json!({"data": {"a": "2"}})).await.ok(200);
    let mut watch = server.watch(&format!("{url}?resourceVersion={version}")).await;
    assert_eq!(watch.change().await, ("ADDED".into(), created));
    assert_eq!(watch.change().await, ("MODIFIED".into(), changed.clone()));
    server.post(&url, &config_map("b")).await.ok(201);
    assert_eq!(watch.named().await, event("ADDED", "b"));
    server.delete(&format!("{url}/a")).await.ok(200);
    let (kind, last) = watch.change().await;
    assert_eq!((kind.as_str(), &last["data"]), ("DELETED", &json!({"a": "2"})));
    let versions = [&changed, &last].map(|o| text(o, "/metadata/resourceVersion").parse::<u64>().unwrap());
    assert!(versions[0] < versions[1], "a deletion has a version of its own: {versions:?}");
}

pub(crate) async fn a_watch_without_a_version_begins_with_what_is_there(server: &Server) {
    let (url, _) = empty_list(server).await;
    server.post(&url, &config_map("a")).await.ok(201);
    for query in ["", "?resourceVersion=0"] {
        let mut watch = server.watch(&format!("{url}{query}")).await;
        assert_eq!(watch.named().await, event("ADDED", "a"), "{query}");
    }
}

pub(crate) async fn a_label_selector_turns_changes_into_arrivals_and_departures(server: &Server) {
    let (url, version) = empty_list(server).await;
    let mut watch =
        server.watch(&format!("{url}?labelSelector=colour%3Dred&resourceVersion={version}")).await;
    server.post(&url, &labelled("a", "red")).await.ok(201);
    server.post(&url, &labelled("b", "blue")).await.ok(201);
    server.merge(&format!("{url}/b"), &json!({"metadata": {"labels": {"colour": "red"}}})).await.ok(200);
    let left =
        server.merge(&format!("{url}/a"), &json!({"metadata": {"labels": {"colour": "blue"}}})).await.ok(200);
    server.merge(&format!("{url}/a"), &json!({"data": {"a": "2"}})).await.ok(200);
    server.delete(&format!("{url}/b")).await.ok(200);
    assert_eq!(watch.named().await, event("ADDED", "a"));
    assert_eq!(watch.named().await, event("ADDED", "b"));
    let (kind, object) = watch.change().await;
    assert_eq!((kind.as_str(), text(&object, "/metadata/name")), ("DELETED", "a"));
    assert_eq!(object["metadata"]["labels"]["colour"], "red", "the state that still matched");
    assert_eq!(object["metadata"]["resourceVersion"], left["metadata"]["resourceVersion"]);
    assert_eq!(watch.named().await, event("DELETED", "b"));
}

pub(crate) async fn a_field_selector_watches_one_object(server: &Server) {
    let (url, version) = empty_list(server).await;
    let mut watch =
        server.watch(&format!("{url}?fieldSelector=metadata.name%3Db&resourceVersion={version}")).await;
    for name in ["a", "b", "c"] {
        server.post(&url, &config_map(name)).await.ok(201);
    }
    server.delete(&format!("{url}/b")).await.ok(200);
    assert_eq!(watch.named().await, event("ADDED", "b"));
    assert_eq!(watch.named().await, event("DELETED", "b"));
}

pub(crate) async fn an_object_that_is_being_deleted_is_modified_first(server: &Server) {
    let (url, version) = empty_list(server).await;
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/a"]);
    server.post(&url, &object).await.ok(201);
    server.delete(&format!("{url}/a")).await.ok(200);
    server.merge(&format!("{url}/a"), &json!({"metadata": {"finalizers": null}})).await.ok(200);
    let mut watch = server.watch(&format!("{url}?resourceVersion={version}")).await;
    assert_eq!(watch.named().await, event("ADDED", "a"));
    let (kind, object) = watch.change().await;
    assert_eq!((kind.as_str(), object["metadata"]["deletionTimestamp"].is_string()), ("MODIFIED", true));
    let (kind, object) = watch.change().await;
    let finalizers = &object["metadata"]["finalizers"];
    assert_eq!((kind.as_str(), finalizers), ("DELETED", &json!(["example.com/a"])), "the last stored state");
}

pub(crate) async fn an_old_version_is_gone(server: &Server) {
    // Not of config maps: the real server knows all of their history, as it began with an empty store.
    let url = virtual_machines(&server.namespace().await);
    let mut watch = server.watch(&format!("{url}?resourceVersion=1")).await;
    let error = watch.next().await.expect("an error event");
    assert_eq!(error["type"], "ERROR");
    let status = &error["object"];
    assert_eq!(
        (text(status, "/kind"), text(status, "/reason"), &status["code"]),
        ("Status", "Expired", &json!(410))
    );
    assert!(text(status, "/message").starts_with("too old resource version: 1 ("), "{status}");
    assert_eq!(watch.next().await, None, "the watch ends");
}

pub(crate) async fn bookmarks_mark_the_end_of_the_initial_events(server: &Server) {
    let (url, _) = empty_list(server).await;
    for name in ["a", "b"] {
        server.post(&url, &config_map(name)).await.ok(201);
    }
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = server.watch(&format!("{url}?{query}")).await;
    let mut first = [watch.named().await, watch.named().await];
    first.sort();
    assert_eq!(first, [event("ADDED", "a"), event("ADDED", "b")]);
    let bookmark = watch.next().await.expect("a bookmark");
    assert_eq!((text(&bookmark, "/type"), text(&bookmark, "/object/kind")), ("BOOKMARK", "ConfigMap"));
    assert_eq!(bookmark["object"]["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    let version = text(&bookmark, "/object/metadata/resourceVersion").to_owned();
    let mut next = server.watch(&format!("{url}?resourceVersion={version}&allowWatchBookmarks=true")).await;
    server.post(&url, &config_map("c")).await.ok(201);
    assert_eq!(watch.named().await, event("ADDED", "c"));
    assert_eq!(next.named().await, event("ADDED", "c"));
}

pub(crate) async fn initial_events_need_their_parameters(server: &Server) {
    let (url, _) = empty_list(server).await;
    let answer = server.get(&format!("{url}?watch=true&sendInitialEvents=true")).await;
    let message = "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires \
                   setting resourceVersionMatch to NotOlderThan";
    answer.refused(422, "Invalid", message);
}

pub(crate) async fn a_watch_can_deliver_tables(server: &Server) {
    let (url, version) = empty_list(server).await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let mut watch = server.watch_as(&format!("{url}?resourceVersion={version}"), accept).await;
    server.post(&url, &config_map("a")).await.ok(201);
    server.post(&url, &config_map("b")).await.ok(201);
    let first = watch.next().await.expect("an event");
    let columns = first["object"]["columnDefinitions"].as_array().map(Vec::len);
    assert_eq!((text(&first, "/type"), text(&first, "/object/kind"), columns), ("ADDED", "Table", Some(3)));
    assert_eq!(first["object"]["rows"][0]["cells"][0], "a");
    let second = watch.next().await.expect("an event");
    assert_eq!(second["object"]["columnDefinitions"], Value::Null, "columns are described once");
    assert_eq!(second["object"]["rows"][0]["cells"][0], "b");
}

pub(crate) async fn a_watch_ends_at_its_timeout(server: &Server) {
    let (url, version) = empty_list(server).await;
    let answer = server.get(&format!("{url}?watch=1&timeoutSeconds=1&resourceVersion={version}")).await;
    assert_eq!(answer.ok(200), json!(""));
}

pub(crate) async fn a_watch_may_cover_all_namespaces(server: &Server) {
    let (url, _) = empty_list(server).await;
    server.post(&url, &config_map("a")).await.ok(201);
    let list = server.get(&format!("{url}?fieldSelector=metadata.name%3Da")).await.ok(200);
    assert_eq!(names(&list), ["a"]);
    let version = text(&list, "/metadata/resourceVersion");
    let mut everywhere = server
        .watch(&format!("/api/v1/configmaps?resourceVersion={version}&fieldSelector=metadata.name%3Da"))
        .await;
    server.delete(&format!("{url}/a")).await.ok(200);
    let (kind, object) = everywhere.change().await;
    assert_eq!((kind.as_str(), text(&object, "/metadata/name")), ("DELETED", "a"));
}

pub(crate) async fn a_version_that_is_none_or_not_yet_is_refused(server: &Server) {
    let (url, _) = empty_list(server).await;
    let answer = server.get(&format!("{url}?resourceVersion=abc")).await;
    let message = "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \
                   \"abc\": invalid syntax";
    answer.refused(400, "BadRequest", message);
    let answer = server.get(&format!("{url}?resourceVersion=999999999")).await;
    assert_eq!((answer.status, answer.text("/reason")), (504, "Timeout"));
    assert!(answer.text("/message").starts_with("Timeout: Too large resource version: 999999999, current: "));
    let cause = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
    assert_eq!(answer.body["details"]["causes"], cause);
}

//! Finalizers, and the garbage that owners leave.

use serde_json::{Value, json};

use crate::conformance::fixtures::{config_map, config_maps, pod, pods};
use crate::conformance::server::{Server, text};

fn finalized(name: &str) -> Value {
    let mut object = config_map(name);
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    object
}

async fn release(server: &Server, url: &str) {
    server.merge(url, &json!({"metadata": {"finalizers": null}})).await.ok(200);
}

pub(crate) async fn a_finalizer_holds_the_object(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    server.post(&config_maps(&ns), &finalized("a")).await.ok(201);
    let deleting = server.delete(&url).await.ok(200);
    assert_eq!((text(&deleting, "/kind"), text(&deleting, "/metadata/name")), ("ConfigMap", "a"));
    assert!(deleting["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(deleting["metadata"]["deletionGracePeriodSeconds"], 0);
    let again = server.delete(&url).await.ok(200);
    assert_eq!(again["metadata"]["deletionTimestamp"], deleting["metadata"]["deletionTimestamp"]);
    let changed = server.merge(&url, &json!({"data": {"a": "2"}})).await.ok(200);
    assert_eq!(changed["data"]["a"], "2", "it can still be changed");
    release(server, &url).await;
    server.until_gone(&url).await;
}

pub(crate) async fn no_finalizer_is_added_to_a_dying_object(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    server.post(&config_maps(&ns), &finalized("a")).await.ok(201);
    server.delete(&url).await.ok(200);
    let patch = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/late"]}});
    let message = "ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the \
                   object is being deleted, found new finalizers []string{\"example.com/late\"}";
    server.merge(&url, &patch).await.refused(422, "Invalid", message);
    release(server, &url).await;
}

pub(crate) async fn a_finalizer_has_a_qualified_name(server: &Server) {
    let ns = server.namespace().await;
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["not/a/name"]);
    let answer = server.post(&config_maps(&ns), &object).await;
    assert_eq!((answer.status, answer.text("/reason")), (422, "Invalid"));
    assert_eq!(answer.text("/details/causes/0/field"), "metadata.finalizers");
}

/// Makes a config map `owner`, and one `child` that it owns. Returns the URL of both.
async fn family(server: &Server, blocking: bool) -> [String; 2] {
    let maps = config_maps(&server.namespace().await);
    let owner = server.post(&maps, &config_map("owner")).await.ok(201);
    let mut child = config_map("child");
    child["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocking,
    }]);
    server.post(&maps, &child).await.ok(201);
    [format!("{maps}/owner"), format!("{maps}/child")]
}

pub(crate) async fn in_the_background_the_owner_goes_first(server: &Server) {
    let [owner, child] = family(server, false).await;
    server.merge(&child, &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await.ok(200);
    server.delete_with(&owner, &json!({"propagationPolicy": "Background"})).await.ok(200);
    server.until_gone(&owner).await;
    server.until(&child, |c| c.body["metadata"]["deletionTimestamp"].is_string()).await;
    release(server, &child).await;
    server.until_gone(&child).await;
}

pub(crate) async fn in_the_foreground_the_owner_waits(server: &Server) {
    let [owner, child] = family(server, true).await;
    server.merge(&child, &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await.ok(200);
    let deleting = server.delete_with(&owner, &json!({"propagationPolicy": "Foreground"})).await.ok(200);
    assert_eq!(deleting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    server.until(&child, |c| c.body["metadata"]["deletionTimestamp"].is_string()).await;
    assert_eq!(server.get(&owner).await.status, 200, "the owner waits for its child");
    release(server, &child).await;
    server.until_gone(&child).await;
    server.until_gone(&owner).await;
}

pub(crate) async fn in_the_foreground_only_children_that_block_are_waited_for(server: &Server) {
    let [owner, child] = family(server, false).await;
    server.merge(&child, &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await.ok(200);
    server.delete_with(&owner, &json!({"propagationPolicy": "Foreground"})).await.ok(200);
    server.until_gone(&owner).await;
    server.until(&child, |c| c.body["metadata"]["deletionTimestamp"].is_string()).await;
    release(server, &child).await;
    server.until_gone(&child).await;
}

pub(crate) async fn an_orphan_loses_its_owner_only(server: &Server) {
    let [owner, child] = family(server, true).await;
    let deleting = server.delete_with(&owner, &json!({"propagationPolicy": "Orphan"})).await.ok(200);
    assert_eq!(deleting["metadata"]["finalizers"], json!(["orphan"]));
    server.until_gone(&owner).await;
    let orphan = server.until(&child, |c| c.body["metadata"].get("ownerReferences").is_none()).await;
    assert!(orphan.body["metadata"].get("deletionTimestamp").is_none());
}

pub(crate) async fn a_child_of_nobody_is_collected(server: &Server) {
    let ns = server.namespace().await;
    let mut child = config_map("child");
    child["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "00000000-0000-0000-0000-000000000000",
    }]);
    server.post(&config_maps(&ns), &child).await.ok(201);
    server.until_gone(&format!("{}/child", config_maps(&ns))).await;
}

pub(crate) async fn a_propagation_policy_has_three_values(server: &Server) {
    let [owner, _] = family(server, false).await;
    let answer = server.delete_with(&owner, &json!({"propagationPolicy": "Sideways"})).await;
    let message = "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Sideways\": \
                   supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"";
    answer.refused(422, "Invalid", message);
}

pub(crate) async fn a_pod_ends_within_its_grace(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/p", pods(&ns));
    server.post(&pods(&ns), &pod("p", "nowhere")).await.ok(201);
    let deleting = server.delete(&url).await.ok(200);
    assert_eq!(text(&deleting, "/kind"), "Pod");
    assert_eq!(deleting["metadata"]["deletionGracePeriodSeconds"], 30);
    let [created, ends] = ["creationTimestamp", "deletionTimestamp"].map(|field| {
        let at = text(&deleting["metadata"], &format!("/{field}"));
        at.parse::<jiff::Timestamp>().unwrap().as_second()
    });
    assert!((30..60).contains(&(ends - created)), "the end lies ahead: {created} {ends}");
    let forced = server.delete(&format!("{url}?gracePeriodSeconds=0")).await.ok(200);
    assert_eq!(forced["metadata"]["deletionGracePeriodSeconds"], 0);
    server.until_gone(&url).await;
}

pub(crate) async fn a_dying_namespace_takes_its_objects_along(server: &Server) {
    let ns = server.namespace().await;
    server.post(&config_maps(&ns), &finalized("a")).await.ok(201);
    let namespace = format!("/api/v1/namespaces/{ns}");
    let deleting = server.delete(&namespace).await.ok(200);
    assert_eq!(text(&deleting, "/status/phase"), "Terminating");
    let answer = server.post(&config_maps(&ns), &config_map("late")).await;
    let message = format!(
        "configmaps \"late\" is forbidden: unable to create new content in namespace {ns} because it is being terminated"
    );
    let status = answer.refused(403, "Forbidden", &message);
    assert_eq!(status["details"]["causes"][0]["reason"], "NamespaceTerminating");
    let map = format!("{}/a", config_maps(&ns));
    server.until(&map, |a| a.body["metadata"]["deletionTimestamp"].is_string()).await;
    release(server, &map).await;
    server.until_gone(&namespace).await;
}

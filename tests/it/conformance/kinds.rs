//! Every custom kind of the platform, on both servers: the real one knows them from definitions made of the list of
//! paths.

use serde_json::{Map, Value, json};

use crate::conformance::server::{Server, names, text};
use crate::conformance::simulated;
use crate::paths::LIST;
use crate::paths::definitions;
use crate::paths::kinds::{KINDS, Kind};
use crate::paths::tree::{ANY, EACH, Tree};
use crate::support::controlplane::ControlPlane;

#[test]
fn the_real_server_takes_every_kind_and_prunes_what_is_not_on_the_list() {
    // It is not the one of the other checks, which has definitions of its own for two kinds.
    let Some(plane) = ControlPlane::own() else { return };
    super::RUNTIME.block_on(async {
        let server = Server::new(plane.admin().await, plane.limited().await);
        for definition in definitions::all() {
            server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.ok(201);
        }
        for kind in KINDS.iter().filter(|kind| kind.is_custom()) {
            let url = format!("/apis/{}/{}", kind.api_version(), kind.resource.name);
            server.until(&url, |answer| answer.status == 200).await;
            unknown_fields_are_pruned(&server, kind).await;
        }
        every_kind_is_served(&server).await;
    });
}

#[test]
fn the_simulated_server_takes_every_kind() {
    super::RUNTIME.block_on(async {
        let (_cluster, client) = simulated::served(vec![]).await;
        every_kind_is_served(&Server::new(client.clone(), client)).await;
    });
}

async fn every_kind_is_served(server: &Server) {
    let namespace = server.namespace().await;
    for kind in KINDS.iter().filter(|kind| kind.is_custom()) {
        let url = kind.url(&namespace);
        let one = format!("{url}/a");
        let mut watch = server.watch(&url).await;
        a_status_is_written_where_it_belongs(server, kind, &url).await;
        let (change, seen) = watch.change().await;
        assert_eq!((change.as_str(), text(&seen, "/metadata/name")), ("ADDED", "a"), "{url}");
        patches_of_three_kinds_change_it(server, kind, &one).await;
        for (selector, expected) in [("mark%3Dmerged", vec!["a"]), ("mark%3Dother", vec![])] {
            let list = server.get(&format!("{url}?labelSelector={selector}")).await.ok(200);
            assert_eq!(names(&list), expected, "{url}");
        }
        server.delete(&one).await.ok(200);
        let held = server.get(&one).await.ok(200);
        assert!(held["metadata"]["deletionTimestamp"].is_string(), "{one}");
        server.merge(&one, &json!({"metadata": {"finalizers": null}})).await.ok(200);
        server.until_gone(&one).await;
    }
}

/// Everything on the list is kept; the status only through its subresource, where the kind has one.
async fn a_status_is_written_where_it_belongs(server: &Server, kind: &Kind, url: &str) {
    let object = object(kind);
    let created = server.post(url, &object).await.ok(201);
    let mut expected = object.clone();
    if kind.status
        && let Some(fields) = expected.as_object_mut()
    {
        fields.shift_remove("status");
    }
    assert_eq!(content(&created), content(&expected), "{url}");
    if let (true, Some(status)) = (kind.status, object.get("status")) {
        let patched = server.merge(&format!("{url}/a/status"), &json!({"status": status})).await.ok(200);
        assert_eq!(patched["status"], *status, "{url}");
    }
    if !kind.status {
        let answer = server.merge(&format!("{url}/a/status"), &json!({"status": {}})).await;
        assert_eq!(answer.status, 404, "{url}");
    }
}

async fn patches_of_three_kinds_change_it(server: &Server, kind: &Kind, one: &str) {
    let merged = server.merge(one, &json!({"metadata": {"labels": {"mark": "merged"}}})).await.ok(200);
    assert_eq!(merged["metadata"]["labels"]["mark"], "merged");
    let add = json!([{"op": "add", "path": "/metadata/annotations", "value": {"mark": "json"}}]);
    let changed = server.patch(one, "json-patch", &add).await.ok(200);
    assert_eq!(changed["metadata"]["annotations"]["mark"], "json");
    let apply = json!({
        "apiVersion": kind.api_version(), "kind": kind.resource.kind,
        "metadata": {"name": "a", "labels": {"applied": "yes"}},
    });
    let applied = server.apply(one, "me", &apply).await.ok(200);
    assert_eq!(applied["metadata"]["labels"], json!({"applied": "yes", "mark": "merged"}));
    let refused = server.patch(one, "strategic-merge-patch", &json!({"metadata": {}})).await;
    assert_eq!((refused.status, refused.text("/reason")), (415, "UnsupportedMediaType"), "{one}");
}

async fn unknown_fields_are_pruned(server: &Server, kind: &Kind) {
    let mut object = object(kind);
    object["metadata"] = json!({"name": "wrong"});
    object["spec"]["noSuchField"] = "x".into();
    let url = kind.url("default");
    let created = server.post(&url, &object).await.ok(201);
    assert_eq!(created["spec"].get("noSuchField"), None, "{url}");
    server.delete(&format!("{url}/wrong")).await.ok(200);
}

/// An object with a value at each path of its kind.
fn object(kind: &Kind) -> Value {
    let mut object = LIST.get(&kind.full_name()).map_or_else(|| json!({}), sample);
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.resource.kind.clone().into();
    object["metadata"] = json!({"name": "a", "finalizers": ["example.com/hold"]});
    object
}

fn sample(tree: &Tree) -> Value {
    if let Some(each) = tree.below.get(EACH) {
        return json!([sample(each)]);
    }
    if let Some(any) = tree.below.get(ANY) {
        return json!({"key": sample(any)});
    }
    if !tree.below.is_empty() {
        let fields = tree.below.iter().map(|(name, tree)| (name.clone(), sample(tree)));
        return Value::Object(fields.collect::<Map<_, _>>());
    }
    match tree.types.first().map(String::as_str) {
        Some("integer") => json!(1),
        Some("number") => json!(1.5),
        Some("boolean") => json!(true),
        Some("object") => json!({}),
        Some("array") => json!([]),
        _ => json!("text"),
    }
}

/// An object without its metadata, keys in order.
fn content(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.shift_remove("metadata");
    }
    object.sort_all_objects();
    object
}

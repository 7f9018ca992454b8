//! Merge, JSON and strategic-merge patches.

use http::Method;
use serde_json::{Value, json};

use crate::conformance::fixtures::{config_map, config_maps, pod, pods, virtual_machine, virtual_machines};
use crate::conformance::server::{Server, text};

const JSON: &str = "json-patch";
const STRATEGIC: &str = "strategic-merge-patch";

/// A config map with two keys and two labels in a namespace of its own; returns its URL.
async fn patched_map(server: &Server) -> String {
    let ns = server.namespace().await;
    let mut object = config_map("a");
    object["data"] = json!({"a": "1", "b": "2"});
    object["metadata"]["labels"] = json!({"x": "1", "y": "2"});
    server.post(&config_maps(&ns), &object).await.ok(201);
    format!("{}/a", config_maps(&ns))
}

pub(crate) async fn a_merge_patch_merges_and_null_removes(server: &Server) {
    let url = patched_map(server).await;
    let patch = json!({"data": {"b": null, "c": "3"}, "metadata": {"labels": {"x": null}}});
    let patched = server.merge(&url, &patch).await.ok(200);
    assert_eq!(patched["data"], json!({"a": "1", "c": "3"}));
    assert_eq!(patched["metadata"]["labels"], json!({"y": "2"}));
    let patched = server.merge(&url, &json!({"data": null})).await.ok(200);
    assert!(patched.get("data").is_none(), "{patched}");
}

pub(crate) async fn a_merge_patch_replaces_lists(server: &Server) {
    let url = patched_map(server).await;
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    server.merge(&url, &finalizers(json!(["example.com/a", "example.com/b"]))).await.ok(200);
    let patched = server.merge(&url, &finalizers(json!(["example.com/c"]))).await.ok(200);
    assert_eq!(patched["metadata"]["finalizers"], json!(["example.com/c"]));
    server.merge(&url, &finalizers(json!(null))).await.ok(200);
}

pub(crate) async fn a_patch_with_a_stale_version_conflicts(server: &Server) {
    let url = patched_map(server).await;
    let message = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
                   changes to the latest version and try again";
    let stale = json!({"metadata": {"resourceVersion": "1"}, "data": {"a": "9"}});
    for kind in ["merge-patch", STRATEGIC] {
        server.patch(&url, kind, &stale).await.refused(409, "Conflict", message);
    }
    let version = text(&server.get(&url).await.ok(200), "/metadata/resourceVersion").to_owned();
    let fresh = json!({"metadata": {"resourceVersion": version}, "data": {"a": "9"}});
    assert_eq!(server.merge(&url, &fresh).await.ok(200)["data"]["a"], "9");
}

pub(crate) async fn a_patch_cannot_rename(server: &Server) {
    let url = patched_map(server).await;
    let answer = server.merge(&url, &json!({"metadata": {"name": "b"}})).await;
    answer.refused(400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)");
}

pub(crate) async fn a_patch_to_something_invalid_is_refused(server: &Server) {
    let url = patched_map(server).await;
    let answer = server.merge(&url, &json!({"data": {"not ok": "1"}})).await;
    assert_eq!((answer.status, answer.text("/reason")), (422, "Invalid"));
    assert_eq!(answer.text("/details/causes/0/field"), "data[not ok]");
    let answer = server.merge(&url, &json!({"data": {"a": 1}})).await;
    assert_eq!((answer.status, answer.text("/reason")), (422, "Invalid"), "a number is no text");
}

pub(crate) async fn a_json_patch_applies_its_operations_in_order(server: &Server) {
    let url = patched_map(server).await;
    let patch = json!([
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "one"},
        {"op": "add", "path": "/data/c", "value": "3"},
        {"op": "copy", "from": "/data/c", "path": "/data/d"},
        {"op": "move", "from": "/data/b", "path": "/data/e"},
        {"op": "remove", "path": "/metadata/labels/x"},
    ]);
    let patched = server.patch(&url, JSON, &patch).await.ok(200);
    assert_eq!(patched["data"], json!({"a": "one", "c": "3", "d": "3", "e": "2"}));
    assert_eq!(patched["metadata"]["labels"], json!({"y": "2"}));
}

pub(crate) async fn a_json_patch_that_misses_is_invalid_and_changes_nothing(server: &Server) {
    let url = patched_map(server).await;
    let before = server.get(&url).await.ok(200);
    for operation in [
        json!({"op": "test", "path": "/data/a", "value": "2"}),
        json!({"op": "test", "path": "/data/none", "value": "2"}),
        json!({"op": "remove", "path": "/data/none"}),
        json!({"op": "add", "path": "/none/deep", "value": "2"}),
        json!({"op": "move", "from": "/data/none", "path": "/data/x"}),
        json!({"op": "multiply", "path": "/data/a"}),
    ] {
        let patch = json!([{"op": "add", "path": "/data/z", "value": "26"}, operation]);
        let answer = server.patch(&url, JSON, &patch).await;
        assert_eq!(answer.status, 422, "{operation}");
        let message = "the server rejected our request due to an error in our request";
        assert_eq!(answer.refused(422, "Invalid", message)["details"], json!({}));
    }
    assert_eq!(server.get(&url).await.ok(200), before);
}

pub(crate) async fn a_json_patch_may_replace_what_is_not_there(server: &Server) {
    // Against RFC 6902, but so it is.
    let url = patched_map(server).await;
    let patch = json!([{"op": "replace", "path": "/data/none", "value": "0"}]);
    assert_eq!(server.patch(&url, JSON, &patch).await.ok(200)["data"]["none"], "0");
}

pub(crate) async fn a_patch_of_the_wrong_shape_is_a_bad_request(server: &Server) {
    let url = patched_map(server).await;
    for (kind, patch) in
        [(JSON, json!({"data": {}})), (JSON, json!("x")), ("merge-patch", json!([])), (STRATEGIC, json!([]))]
    {
        let answer = server.patch(&url, kind, &patch).await;
        assert_eq!((answer.status, answer.text("/reason")), (400, "BadRequest"), "{kind} {patch}");
        assert!(answer.text("/message").contains("json: cannot unmarshal "), "{}", answer.body);
    }
}

pub(crate) async fn a_strategic_patch_merges_lists_by_their_key(server: &Server) {
    let ns = server.namespace().await;
    let mut object = pod("p", "nowhere");
    object["spec"]["containers"] =
        json!([{"name": "main", "image": "example/main:1"}, {"name": "side", "image": "example/side:1"}]);
    server.post(&pods(&ns), &object).await.ok(201);
    let url = format!("{}/p", pods(&ns));
    let patch = json!({"spec": {"containers": [{"name": "side", "image": "example/side:2"}]}});
    let patched = server.patch(&url, STRATEGIC, &patch).await.ok(200);
    let images: Vec<&str> =
        patched["spec"]["containers"].as_array().unwrap().iter().map(|c| text(c, "/image")).collect();
    assert_eq!(images, ["example/main:1", "example/side:2"]);
}

/// A strategic patch, which has to be accepted.
async fn strategic(server: &Server, url: &str, patch: Value) -> Value {
    server.patch(url, STRATEGIC, &patch).await.ok(200)
}

pub(crate) async fn a_strategic_patch_extends_sets_and_obeys_directives(server: &Server) {
    let url = patched_map(server).await;
    let finalizers = |object: &Value| object["metadata"]["finalizers"].clone();
    let patched = strategic(server, &url, json!({"metadata": {"finalizers": ["example.com/a"]}})).await;
    assert_eq!(finalizers(&patched), json!(["example.com/a"]));
    let patched = strategic(server, &url, json!({"metadata": {"finalizers": ["example.com/b"]}})).await;
    assert_eq!(finalizers(&patched), json!(["example.com/b", "example.com/a"]));
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}});
    assert_eq!(finalizers(&strategic(server, &url, patch).await), json!(["example.com/b"]));
    let patched =
        strategic(server, &url, json!({"metadata": {"labels": {"$patch": "replace", "z": "3"}}})).await;
    assert_eq!(patched["metadata"]["labels"], json!({"z": "3"}));
    let patched = strategic(server, &url, json!({"metadata": {"labels": null, "finalizers": null}})).await;
    assert_eq!((patched["metadata"].get("labels"), finalizers(&patched)), (None, Value::Null));
}

pub(crate) async fn a_strategic_patch_deletes_from_lists_by_key(server: &Server) {
    let ns = server.namespace().await;
    let accounts = format!("/api/v1/namespaces/{ns}/serviceaccounts");
    let object = json!({"metadata": {"name": "a"}, "secrets": [{"name": "x"}, {"name": "y"}]});
    server.post(&accounts, &object).await.ok(201);
    let url = format!("{accounts}/a");
    let patched = strategic(server, &url, json!({"secrets": [{"name": "z"}]})).await;
    assert_eq!(patched["secrets"], json!([{"name": "z"}, {"name": "x"}, {"name": "y"}]));
    let order = json!([{"name": "y"}, {"name": "z"}]);
    let patched =
        strategic(server, &url, json!({"$setElementOrder/secrets": order, "secrets": [{"name": "y"}]})).await;
    assert_eq!(patched["secrets"], json!([{"name": "x"}, {"name": "y"}, {"name": "z"}]));
    let patched = strategic(server, &url, json!({"secrets": [{"$patch": "delete", "name": "x"}]})).await;
    assert_eq!(patched["secrets"], json!([{"name": "y"}, {"name": "z"}]));
    let patched = strategic(server, &url, json!({"secrets": [{"$patch": "replace"}, {"name": "w"}]})).await;
    assert_eq!(patched["secrets"], json!([{"name": "w"}]));
}

pub(crate) async fn node_conditions_merge_by_type_and_taints_do_not(server: &Server) {
    let node = server.unique("node");
    let taint = |key: &str| json!({"key": key, "value": "1", "effect": "NoSchedule"});
    let object = json!({"metadata": {"name": node}, "spec": {"unschedulable": true, "taints": [taint("a")]}});
    server.post("/api/v1/nodes", &object).await.ok(201);
    let url = format!("/api/v1/nodes/{node}");
    let patched = strategic(server, &url, json!({"spec": {"taints": [taint("b")]}})).await;
    let keys: Vec<&str> =
        patched["spec"]["taints"].as_array().unwrap().iter().map(|t| text(t, "/key")).collect();
    assert_eq!(keys, ["b"]);

    let of_status = format!("{url}/status");
    let condition = |kind: &str, value: &str| json!({"type": kind, "status": value});
    strategic(server, &of_status, json!({"status": {"conditions": [condition("Ready", "True")]}})).await;
    let both = json!({"status": {"conditions": [condition("Other", "True"), condition("Ready", "False")]}});
    let patched = strategic(server, &of_status, both).await;
    let conditions = patched["status"]["conditions"].as_array().unwrap();
    let states: Vec<_> = conditions.iter().map(|c| (text(c, "/type"), text(c, "/status"))).collect();
    assert_eq!(states, [("Other", "True"), ("Ready", "False")]);
    server.delete(&url).await.ok(200);
}

pub(crate) async fn a_strategic_patch_of_a_custom_resource_is_an_unsupported_media_type(server: &Server) {
    let ns = server.namespace().await;
    server.post(&virtual_machines(&ns), &virtual_machine("a")).await.ok(201);
    let url = format!("{}/a", virtual_machines(&ns));
    let answer = server.patch(&url, STRATEGIC, &json!({"spec": {"runStrategy": "Manual"}})).await;
    let message = "the body of the request was in an unknown format - accepted media types include: \
                   application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    answer.refused(415, "UnsupportedMediaType", message);
    let patched = server.merge(&url, &json!({"metadata": {"labels": {"a": "b"}}})).await.ok(200);
    assert_eq!(patched["metadata"]["labels"], json!({"a": "b"}));
    let patch = json!([{"op": "remove", "path": "/metadata/labels/a"}]);
    let patched = server.patch(&url, JSON, &patch).await.ok(200);
    assert!(patched["metadata"]["labels"].get("a").is_none(), "{patched}");
}

pub(crate) async fn other_content_types_are_refused(server: &Server) {
    let url = patched_map(server).await;
    for content_type in ["application/json", "text/plain"] {
        let headers = [("content-type", content_type), ("accept", "application/json")];
        let answer = server.call(Method::PATCH, &url, &headers, b"{}".to_vec()).await;
        answer.refused(415, "UnsupportedMediaType", "415: Unsupported Media Type");
    }
    let headers = [("content-type", "text/plain"), ("accept", "application/json")];
    let answer = server.call(Method::POST, url.trim_end_matches("/a"), &headers, b"{}".to_vec()).await;
    assert_eq!((answer.status, answer.text("/reason")), (415, "UnsupportedMediaType"));
    let message =
        "the body of the request was in an unknown format - accepted media types include: application/json";
    assert!(answer.text("/message").starts_with(message), "{}", answer.body);
    let answer = server.get_as(&url, "text/plain").await;
    assert_eq!((answer.status, answer.text("/reason")), (406, "NotAcceptable"));
}

pub(crate) async fn patches_and_bodies_may_be_yaml(server: &Server) {
    let ns = server.namespace().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  a: \"1\"\n";
    let headers = [("content-type", "application/yaml"), ("accept", "application/json")];
    let created = server.call(Method::POST, &config_maps(&ns), &headers, yaml.into()).await.ok(201);
    assert_eq!(created["data"], json!({"a": "1"}));
    let headers = [("content-type", "application/apply-patch+yaml"), ("accept", "application/json")];
    let url = format!("{}/b?fieldManager=me", config_maps(&ns));
    let yaml = yaml.replace("name: a", "name: b");
    let applied = server.call(Method::PATCH, &url, &headers, yaml.into()).await.ok(201);
    assert_eq!(applied["data"], json!({"a": "1"}));
}

//! Server-side apply: ownership of fields.

use serde_json::{Value, json};

use crate::conformance::fixtures::{config_map, config_maps, pod, pods, virtual_machine, virtual_machines};
use crate::conformance::server::{Server, text};

/// A config map with this data, to be applied.
fn with_data(data: &Value) -> Value {
    let mut object = config_map("a");
    object["data"] = data.clone();
    object
}

/// The managers of an object as `manager operation subresource`, sorted.
fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let of =
        |e: &Value| format!("{} {} {}", text(e, "/manager"), text(e, "/operation"), text(e, "/subresource"));
    let mut managers: Vec<String> = entries.iter().map(|e| of(e).trim_end().to_owned()).collect();
    managers.sort();
    managers
}

/// The fields that a manager owns.
fn owned(object: &Value, manager: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let mut entries = entries.into_iter().filter(|e| e["manager"] == manager);
    entries.next().map_or(Value::Null, |mut e| e["fieldsV1"].take())
}

pub(crate) async fn an_apply_creates_and_then_updates(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    let created = server.apply(&url, "me", &with_data(&json!({"a": "1", "b": "2"}))).await.ok(201);
    assert_eq!(managers(&created), ["me Apply"]);
    assert_eq!(owned(&created, "me"), json!({"f:data": {"f:a": {}, "f:b": {}}}));
    let applied = server.apply(&url, "me", &with_data(&json!({"a": "1", "c": "3"}))).await.ok(200);
    assert_eq!(applied["data"], json!({"a": "1", "c": "3"}));
    let again = server.apply(&url, "me", &with_data(&json!({"a": "1", "c": "3"}))).await.ok(200);
    assert_eq!(again["metadata"]["resourceVersion"], applied["metadata"]["resourceVersion"]);
}

pub(crate) async fn a_field_of_another_manager_conflicts_unless_forced(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    server.apply(&url, "me", &with_data(&json!({"a": "1", "b": "2"}))).await.ok(201);
    let answer = server.apply(&url, "you", &with_data(&json!({"a": "9"}))).await;
    let status =
        answer.refused(409, "Conflict", "Apply failed with 1 conflict: conflict with \"me\": .data.a");
    let cause =
        json!({"reason": "FieldManagerConflict", "message": "conflict with \"me\"", "field": ".data.a"});
    assert_eq!(status["details"], json!({"causes": [cause]}));

    let answer = server.apply(&url, "you", &with_data(&json!({"a": "9", "b": "9"}))).await;
    let message = "Apply failed with 2 conflicts: conflicts with \"me\":\n- .data.a\n- .data.b";
    let status = answer.refused(409, "Conflict", message);
    assert_eq!(status["details"]["causes"].as_array().map(Vec::len), Some(2));

    let forced = server.apply(&url, "you&force=true", &with_data(&json!({"a": "9"}))).await.ok(200);
    assert_eq!(forced["data"], json!({"a": "9", "b": "2"}));
    assert_eq!(owned(&forced, "you"), json!({"f:data": {"f:a": {}}}));
    assert_eq!(owned(&forced, "me"), json!({"f:data": {"f:b": {}}}));
}

pub(crate) async fn the_same_value_is_shared_and_stays_until_nobody_wants_it(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    server.apply(&url, "me", &with_data(&json!({"a": "1"}))).await.ok(201);
    let shared = server.apply(&url, "you", &with_data(&json!({"a": "1"}))).await.ok(200);
    assert_eq!(managers(&shared), ["me Apply", "you Apply"]);
    let left = server.apply(&url, "me", &with_data(&json!({}))).await.ok(200);
    assert_eq!(left["data"], json!({"a": "1"}));
    let gone = server.apply(&url, "you", &with_data(&json!({}))).await.ok(200);
    assert_eq!(gone.pointer("/data/a"), None);
}

pub(crate) async fn an_update_takes_ownership(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    server.apply(&url, "me", &with_data(&json!({"a": "1"}))).await.ok(201);
    let patched =
        server.merge(&format!("{url}?fieldManager=editor"), &json!({"data": {"a": "2"}})).await.ok(200);
    assert_eq!(managers(&patched), ["editor Update"]);
    assert_eq!(owned(&patched, "editor"), json!({"f:data": {"f:a": {}}}));
    let answer = server.apply(&url, "me", &with_data(&json!({"a": "3"}))).await;
    let conflict = "Apply failed with 1 conflict: conflict with \"editor\" using v1: .data.a";
    answer.refused(409, "Conflict", conflict);
}

pub(crate) async fn an_apply_is_refused_unless_it_is_complete(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    let answer = server.apply(&url, "", &with_data(&json!({}))).await;
    let message =
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    answer.refused(422, "Invalid", message);

    let mut owned = with_data(&json!({}));
    owned["metadata"]["managedFields"] = json!([{"manager": "me"}]);
    server.apply(&url, "me", &owned).await.refused(400, "BadRequest", "metadata.managedFields must be nil");

    let mut renamed = with_data(&json!({}));
    renamed["metadata"]["name"] = json!("b");
    let message = "the name of the object (b) does not match the name on the URL (a)";
    server.apply(&url, "me", &renamed).await.refused(400, "BadRequest", message);

    let kindless = server.apply(&url, "me", &json!({"metadata": {"name": "a"}})).await;
    assert_eq!((kindless.status, kindless.text("/reason")), (400, "BadRequest"));

    let message = "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch";
    server.merge(&format!("{url}?force=true"), &json!({})).await.refused(422, "Invalid", message);
}

pub(crate) async fn an_apply_may_name_the_object_it_means(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    let mut other = with_data(&json!({}));
    other["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    let message = "Operation cannot be fulfilled on configmaps \"a\": uid mismatch: the provided object specified uid \
                   00000000-0000-0000-0000-000000000000, and no existing object was found";
    server.apply(&url, "me", &other).await.refused(409, "Conflict", message);

    server.apply(&url, "me", &with_data(&json!({}))).await.ok(201);
    let mut stale = with_data(&json!({"a": "5"}));
    stale["metadata"]["resourceVersion"] = json!("1");
    let message = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
                   changes to the latest version and try again";
    server.apply(&url, "me", &stale).await.refused(409, "Conflict", message);
}

pub(crate) async fn an_apply_merges_lists_of_core_kinds_by_key(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/p", pods(&ns));
    let created = server.apply(&url, "me", &pod("p", "nowhere")).await.ok(201);
    assert_eq!(
        owned(&created, "me"),
        json!({"f:spec": {
            "f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:image": {}, "f:name": {}}},
            "f:nodeName": {},
        }})
    );
    let mut object = config_map("p");
    object["kind"] = json!("Pod");
    object.as_object_mut().unwrap().remove("data");
    object["metadata"]["finalizers"] = json!(["example.com/a"]);
    let applied = server.apply(&url, "you", &object).await.ok(200);
    assert_eq!(owned(&applied, "you"), json!({"f:metadata": {"f:finalizers": {"v:\"example.com/a\"": {}}}}));
    object["metadata"]["finalizers"] = json!(["example.com/b"]);
    let applied = server.apply(&url, "they", &object).await.ok(200);
    assert_eq!(applied["metadata"]["finalizers"], json!(["example.com/a", "example.com/b"]));
    server.merge(&url, &json!({"metadata": {"finalizers": null}})).await.ok(200);
}

pub(crate) async fn an_apply_works_on_custom_resources(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", virtual_machines(&ns));
    let created = server.apply(&url, "me", &virtual_machine("a")).await.ok(201);
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(owned(&created, "me")["f:spec"]["f:runStrategy"], json!({}));
    let mut object = virtual_machine("a");
    object["spec"] = json!({"runStrategy": "Manual"});
    let answer = server.apply(&url, "you", &object).await;
    let message = "Apply failed with 1 conflict: conflict with \"me\": .spec.runStrategy";
    answer.refused(409, "Conflict", message);
    let mut labelled = virtual_machine("a");
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let applied = server.apply(&url, "me", &labelled).await.ok(200);
    assert_eq!(applied["metadata"]["labels"], json!({"a": "b"}));
    let applied = server.apply(&url, "me", &virtual_machine("a")).await.ok(200);
    assert_eq!(applied["metadata"].get("labels"), None);
}

pub(crate) async fn an_apply_leaves_no_map_of_a_custom_resource_empty(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", virtual_machines(&ns));
    let apply = async |manager: &'static str, guest: Value| {
        let mut object = virtual_machine("a");
        object["spec"]["template"]["spec"] = guest;
        server.apply(&url, manager, &object).await
    };
    let requests =
        |requests: Value| json!({"hostname": "x", "domain": {"resources": {"requests": requests}}});
    apply("me", requests(json!({"memory": "1Gi"}))).await.ok(201);
    let field = "spec.template.spec.domain.resources.requests";
    let why = format!("Invalid value: \"null\": {field} in body must be of type object: \"null\"");
    let message = format!("VirtualMachine.kubevirt.io \"a\" is invalid: {field}: {why}");
    let refused = apply("me", requests(json!({}))).await.refused(422, "Invalid", &message);
    let cause = json!({"reason": "FieldValueTypeInvalid", "message": why, "field": field});
    assert_eq!(refused["details"]["causes"], json!([cause]));

    apply("you", requests(json!({"cpu": "1"}))).await.ok(200);
    let left = apply("you", requests(json!({}))).await.ok(200);
    assert_eq!(
        left.pointer("/spec/template/spec/domain/resources/requests"),
        Some(&json!({"memory": "1Gi"}))
    );
    let gone = apply("me", json!({"hostname": "x"})).await;
    assert_eq!(gone.status, 422, "the other manager still wants the empty map: {gone:?}");
    apply("you", json!({"hostname": "x"})).await.ok(200);
    let gone = apply("me", json!({"hostname": "x"})).await.ok(200);
    assert_eq!(gone["spec"]["template"]["spec"], json!({"hostname": "x"}));
}

pub(crate) async fn a_status_has_managers_of_its_own(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", virtual_machines(&ns));
    server.apply(&url, "me", &virtual_machine("a")).await.ok(201);
    let status = |mark: &str| {
        let mut object = virtual_machine("a");
        object.as_object_mut().unwrap().remove("spec");
        object["status"] = json!({"mark": mark});
        object
    };
    let of_status = format!("{url}/status");
    let applied = server.apply(&of_status, "me", &status("1")).await.ok(200);
    assert_eq!(managers(&applied), ["me Apply", "me Apply status"]);
    assert_eq!(
        (&applied["status"]["mark"], &applied["spec"]["runStrategy"]),
        (&json!("1"), &json!("Halted"))
    );
    let answer = server.apply(&of_status, "you", &status("2")).await;
    let message =
        "Apply failed with 1 conflict: conflict with \"me\" with subresource \"status\": .status.mark";
    answer.refused(409, "Conflict", message);
}

pub(crate) async fn a_dry_apply_stores_nothing(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    server.apply(&url, "me&dryRun=All", &with_data(&json!({"a": "1"}))).await.ok(201);
    assert_eq!(server.get(&url).await.status, 404);
}

pub(crate) async fn managed_fields_can_be_reset(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    server.apply(&url, "me", &with_data(&json!({"a": "1"}))).await.ok(201);
    let reset = server.merge(&url, &json!({"metadata": {"managedFields": [{}]}})).await.ok(200);
    assert_eq!(reset["metadata"].get("managedFields"), None);
}

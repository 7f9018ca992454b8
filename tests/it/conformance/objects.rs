//! Creating, reading, replacing and deleting objects, and what is refused.

use serde_json::{Value, json};

use crate::conformance::fixtures::{config_map, config_maps, virtual_machine, virtual_machines};
use crate::conformance::server::{Server, names, text};

pub(crate) async fn a_created_object_gets_its_metadata(server: &Server) {
    let ns = server.namespace().await;
    let created =
        server.post(&format!("{}?fieldManager=me", config_maps(&ns)), &config_map("a")).await.ok(201);
    let metadata = &created["metadata"];
    assert_eq!((&created["kind"], &created["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    assert_eq!((&metadata["name"], &metadata["namespace"]), (&json!("a"), &json!(ns)));
    assert_eq!(text(metadata, "/uid").len(), 36);
    assert!(text(metadata, "/resourceVersion").parse::<u64>().is_ok(), "{metadata}");
    let at = text(metadata, "/creationTimestamp");
    assert!(at.len() == 20 && at.parse::<jiff::Timestamp>().is_ok(), "{at}");
    assert!(metadata.get("generation").is_none(), "a ConfigMap has no generation");
    let entry = &metadata["managedFields"][0];
    assert_eq!((&entry["manager"], &entry["operation"]), (&json!("me"), &json!("Update")));
    assert_eq!((&entry["apiVersion"], &entry["fieldsType"]), (&json!("v1"), &json!("FieldsV1")));
    assert_eq!(entry["fieldsV1"], json!({"f:data": {".": {}, "f:a": {}}}));

    let answer = server.get(&format!("{}/a", config_maps(&ns))).await;
    assert!(
        answer.headers["date"].to_str().is_ok_and(|date| date.ends_with(" GMT")),
        "the server tells its time"
    );
    assert_eq!(answer.ok(200), created);
    let default = server.post(&config_maps(&ns), &config_map("b")).await.ok(201);
    assert_ne!(default["metadata"]["managedFields"][0]["manager"], json!(""));
}

pub(crate) async fn a_generated_name_ends_in_five_characters(server: &Server) {
    let ns = server.namespace().await;
    let object = json!({"metadata": {"generateName": "made-"}});
    let name = text(&server.post(&config_maps(&ns), &object).await.ok(201), "/metadata/name").to_owned();
    assert!(name.starts_with("made-") && name.len() == 10, "{name}");
}

pub(crate) async fn a_second_create_already_exists(server: &Server) {
    let ns = server.namespace().await;
    server.post(&config_maps(&ns), &config_map("a")).await.ok(201);
    let status = server.post(&config_maps(&ns), &config_map("a")).await;
    let status = status.refused(409, "AlreadyExists", "configmaps \"a\" already exists");
    assert_eq!(status["details"], json!({"name": "a", "kind": "configmaps"}));

    server.post(&virtual_machines(&ns), &virtual_machine("a")).await.ok(201);
    let status = server.post(&virtual_machines(&ns), &virtual_machine("a")).await;
    let status = status.refused(409, "AlreadyExists", "virtualmachines.kubevirt.io \"a\" already exists");
    assert_eq!(status["details"], json!({"name": "a", "group": "kubevirt.io", "kind": "virtualmachines"}));
}

pub(crate) async fn a_missing_namespace_refuses_a_create(server: &Server) {
    let status = server.post(&config_maps("no-such-namespace"), &config_map("a")).await;
    let status = status.refused(404, "NotFound", "namespaces \"no-such-namespace\" not found");
    assert_eq!(status["details"], json!({"name": "no-such-namespace", "kind": "namespaces"}));
}

pub(crate) async fn a_bad_name_is_invalid_and_says_why(server: &Server) {
    let ns = server.namespace().await;
    let why = "Invalid value: \"Bad_Name\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
               characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', \
               regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let causes = json!([{"reason": "FieldValueInvalid", "message": why, "field": "metadata.name"}]);

    let status = server.post(&config_maps(&ns), &config_map("Bad_Name")).await;
    let message = format!("ConfigMap \"Bad_Name\" is invalid: metadata.name: {why}");
    let status = status.refused(422, "Invalid", &message);
    assert_eq!(status["details"], json!({"name": "Bad_Name", "kind": "ConfigMap", "causes": causes}));

    let status = server.post(&virtual_machines(&ns), &virtual_machine("Bad_Name")).await;
    let message = format!("VirtualMachine.kubevirt.io \"Bad_Name\" is invalid: metadata.name: {why}");
    let details = status.refused(422, "Invalid", &message)["details"].take();
    let expected =
        json!({"name": "Bad_Name", "group": "kubevirt.io", "kind": "VirtualMachine", "causes": causes});
    assert_eq!(details, expected);
}

pub(crate) async fn a_create_needs_a_name(server: &Server) {
    let ns = server.namespace().await;
    let message =
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required";
    let status = server.post(&config_maps(&ns), &json!({})).await.refused(422, "Invalid", message);
    let cause = json!([{
        "reason": "FieldValueRequired",
        "message": "Required value: name or generateName is required",
        "field": "metadata.name",
    }]);
    assert_eq!(status["details"]["causes"], cause);
}

pub(crate) async fn bad_labels_and_annotations_are_invalid(server: &Server) {
    let ns = server.namespace().await;
    let mut object = config_map("a");
    object["metadata"]["labels"] = json!({"ok": "not ok"});
    let answer = server.post(&config_maps(&ns), &object).await;
    assert_eq!((answer.status, answer.text("/reason")), (422, "Invalid"));
    assert_eq!(answer.text("/details/causes/0/field"), "metadata.labels");

    let mut object = config_map("a");
    object["metadata"]["annotations"] = json!({"a/b/c": ""});
    let answer = server.post(&config_maps(&ns), &object).await;
    assert_eq!(answer.status, 422);
    assert_eq!(answer.text("/details/causes/0/field"), "metadata.annotations");
}

pub(crate) async fn the_body_has_to_agree_with_the_url(server: &Server) {
    let ns = server.namespace().await;
    let mut elsewhere = config_map("a");
    elsewhere["metadata"]["namespace"] = json!("default");
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    server.post(&config_maps(&ns), &elsewhere).await.refused(400, "BadRequest", message);

    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    let answer = server.post(&config_maps(&ns), &secret).await;
    assert_eq!((answer.status, answer.text("/reason")), (400, "BadRequest"));
    let message = "Secret in version \"v1\" cannot be handled as a ConfigMap: ";
    assert!(answer.text("/message").starts_with(message), "{}", answer.body);

    let other_version = json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "a"}});
    let answer = server.post(&config_maps(&ns), &other_version).await;
    assert_eq!((answer.status, answer.text("/reason")), (400, "BadRequest"));
    let message = "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: ";
    assert!(answer.text("/message").starts_with(message), "{}", answer.body);

    server.post(&config_maps(&ns), &config_map("a")).await.ok(201);
    let message = "the name of the object (b) does not match the name on the URL (a)";
    server.put(&format!("{}/a", config_maps(&ns)), &config_map("b")).await.refused(
        400,
        "BadRequest",
        message,
    );
}

pub(crate) async fn a_body_that_is_no_object_is_a_bad_request(server: &Server) {
    let ns = server.namespace().await;
    for (url, body) in [(config_maps(&ns), "{"), (config_maps(&ns), "[]"), (virtual_machines(&ns), "{")] {
        let headers = [("content-type", "application/json"), ("accept", "application/json")];
        let answer = server.call(http::Method::POST, &url, &headers, body.as_bytes().to_vec()).await;
        assert_eq!((answer.status, answer.text("/reason")), (400, "BadRequest"), "{body}");
        assert!(
            answer.text("/message").starts_with("the object provided is unrecognized "),
            "{}",
            answer.body
        );
    }
    let answer = server.post(&config_maps(&ns), &json!({"metadata": {"name": "a"}, "data": {"a": 1}})).await;
    assert_eq!((answer.status, answer.text("/reason")), (400, "BadRequest"));
}

pub(crate) async fn a_new_object_has_no_resource_version(server: &Server) {
    let ns = server.namespace().await;
    let mut object = config_map("a");
    object["metadata"]["resourceVersion"] = json!("1");
    let answer = server.post(&config_maps(&ns), &object).await;
    assert_eq!(answer.text("/message"), "resourceVersion should not be set on objects to be created");
}

pub(crate) async fn unknown_fields_are_dropped_warned_about_or_refused(server: &Server) {
    let ns = server.namespace().await;
    let mut object = config_map("a");
    object["colour"] = json!("red");
    let answer = server.post(&format!("{}?fieldValidation=Strict", config_maps(&ns)), &object).await;
    let message = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \
                   \"colour\"";
    answer.refused(400, "BadRequest", message);

    let answer = server.post(&config_maps(&ns), &object).await;
    assert_eq!(answer.headers["warning"], "299 - \"unknown field \\\"colour\\\"\"");
    assert!(answer.ok(201).get("colour").is_none());

    object["metadata"]["name"] = json!("b");
    let answer = server.post(&format!("{}?fieldValidation=Ignore", config_maps(&ns)), &object).await;
    assert!(answer.headers.get("warning").is_none());
    assert!(answer.ok(201).get("colour").is_none());
}

pub(crate) async fn a_missing_object_is_not_found(server: &Server) {
    let ns = server.namespace().await;
    let missing = "configmaps \"none\" not found";
    let url = format!("{}/none", config_maps(&ns));
    for answer in [
        server.get(&url).await,
        server.delete(&url).await,
        server.put(&url, &config_map("none")).await,
        server.merge(&url, &json!({"data": {}})).await,
        server.get(&format!("{}/none", config_maps("no-such-namespace"))).await,
    ] {
        let status = answer.refused(404, "NotFound", missing);
        assert_eq!(status["details"], json!({"name": "none", "kind": "configmaps"}));
    }
    let answer = server.get(&format!("{}/none", virtual_machines(&ns))).await;
    let status = answer.refused(404, "NotFound", "virtualmachines.kubevirt.io \"none\" not found");
    assert_eq!(status["details"], json!({"name": "none", "group": "kubevirt.io", "kind": "virtualmachines"}));
    let answer = server.get("/api/v1/nodes/none").await;
    answer.refused(404, "NotFound", "nodes \"none\" not found");
}

pub(crate) async fn a_stale_replacement_conflicts(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    let old = server.post(&config_maps(&ns), &config_map("a")).await.ok(201);
    server.merge(&url, &json!({"data": {"a": "2"}})).await.ok(200);
    let message = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
                   changes to the latest version and try again";
    let status = server.put(&url, &old).await.refused(409, "Conflict", message);
    assert_eq!(status["details"], json!({"name": "a", "kind": "configmaps"}));
}

pub(crate) async fn of_two_writers_of_one_version_one_wins(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    let created = server.post(&config_maps(&ns), &config_map("a")).await.ok(201);
    let with = |value: &str| {
        let mut object = created.clone();
        object["data"]["a"] = json!(value);
        object
    };
    let (two, three) = (with("2"), with("3"));
    let (two, three) = tokio::join!(server.put(&url, &two), server.put(&url, &three));
    let mut statuses = [two.status, three.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
}

pub(crate) async fn a_replacement_without_a_version_is_unconditional_for_core_kinds_only(server: &Server) {
    let ns = server.namespace().await;
    server.post(&config_maps(&ns), &config_map("a")).await.ok(201);
    let mut next = config_map("a");
    next["data"] = json!({"b": "2"});
    let replaced = server.put(&format!("{}/a", config_maps(&ns)), &next).await.ok(200);
    assert_eq!(replaced["data"], json!({"b": "2"}));

    server.post(&virtual_machines(&ns), &virtual_machine("a")).await.ok(201);
    let status = server.put(&format!("{}/a", virtual_machines(&ns)), &virtual_machine("a")).await;
    let message = "virtualmachines.kubevirt.io \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be \
                   specified for an update";
    status.refused(422, "Invalid", message);
}

pub(crate) async fn a_replacement_of_another_uid_conflicts(server: &Server) {
    let ns = server.namespace().await;
    let uid =
        text(&server.post(&config_maps(&ns), &config_map("a")).await.ok(201), "/metadata/uid").to_owned();
    let mut other = config_map("a");
    other["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    let answer = server.put(&format!("{}/a", config_maps(&ns)), &other).await;
    assert_eq!((answer.status, answer.text("/reason")), (409, "Conflict"));
    let message = format!(
        "Precondition failed: UID in precondition: 00000000-0000-0000-0000-000000000000, UID in object meta: {uid}"
    );
    assert!(answer.text("/message").ends_with(&message), "{}", answer.body);
}

pub(crate) async fn a_write_that_changes_nothing_keeps_the_version(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    let created = server.post(&config_maps(&ns), &config_map("a")).await.ok(201);
    let replaced = server.put(&url, &created).await.ok(200);
    let patched = server.merge(&url, &json!({"data": {"a": "1"}})).await.ok(200);
    for same in [replaced, patched] {
        assert_eq!(same["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    }
}

pub(crate) async fn the_server_keeps_its_own_metadata(server: &Server) {
    let ns = server.namespace().await;
    let created = server.post(&config_maps(&ns), &config_map("a")).await.ok(201);
    let mut next = created.clone();
    next["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    next["data"] = json!({"a": "2"});
    let replaced = server.put(&format!("{}/a", config_maps(&ns)), &next).await.ok(200);
    for field in ["uid", "creationTimestamp", "name", "namespace"] {
        assert_eq!(replaced["metadata"][field], created["metadata"][field], "{field}");
    }
}

pub(crate) async fn a_dry_run_answers_and_stores_nothing(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    let dry = server.post(&format!("{}?dryRun=All", config_maps(&ns)), &config_map("a")).await.ok(201);
    assert_eq!(text(&dry, "/metadata/uid").len(), 36);
    assert!(dry["metadata"].get("resourceVersion").is_none(), "{dry}");
    assert_eq!(server.get(&url).await.status, 404);

    let created = server.post(&config_maps(&ns), &config_map("a")).await.ok(201);
    let dry = server.merge(&format!("{url}?dryRun=All"), &json!({"data": {"a": "2"}})).await.ok(200);
    assert_eq!(dry["data"]["a"], "2");
    server.delete(&format!("{url}?dryRun=All")).await.ok(200);
    server.delete_with(&url, &json!({"dryRun": ["All"]})).await.ok(200);
    assert_eq!(server.get(&url).await.ok(200), created);
    let again = server.post(&format!("{}?dryRun=All", config_maps(&ns)), &config_map("a")).await;
    again.refused(409, "AlreadyExists", "configmaps \"a\" already exists");

    let answer = server.post(&format!("{}?dryRun=Some", config_maps(&ns)), &config_map("b")).await;
    let message = "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \
                   \"All\"";
    answer.refused(422, "Invalid", message);
}

pub(crate) async fn a_delete_answers_with_what_it_deleted(server: &Server) {
    let ns = server.namespace().await;
    let created = server.post(&config_maps(&ns), &config_map("a")).await.ok(201);
    let deleted = server.delete(&format!("{}/a", config_maps(&ns))).await.ok(200);
    assert_eq!((&deleted["kind"], &deleted["status"]), (&json!("Status"), &json!("Success")));
    let details = json!({"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]});
    assert_eq!(deleted["details"], details);

    let created = server.post(&virtual_machines(&ns), &virtual_machine("a")).await.ok(201);
    let deleted = server.delete(&format!("{}/a", virtual_machines(&ns))).await.ok(200);
    let details = json!({
        "name": "a", "group": "kubevirt.io", "kind": "virtualmachines", "uid": created["metadata"]["uid"],
    });
    assert_eq!((&deleted["status"], &deleted["details"]), (&json!("Success"), &details));
}

pub(crate) async fn a_delete_may_name_what_it_means(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    let created = server.post(&config_maps(&ns), &config_map("a")).await.ok(201);
    let (uid, version) = (text(&created, "/metadata/uid"), text(&created, "/metadata/resourceVersion"));
    let other = json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}});
    let message = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition \
         (00000000-0000-0000-0000-000000000000) does not match the UID in record ({uid}). The object might have been \
         deleted and then recreated"
    );
    server.delete_with(&url, &other).await.refused(409, "Conflict", &message);
    let message = format!(
        "Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the precondition (1) does not match \
         the ResourceVersion in record ({version}). The object might have been modified"
    );
    let stale = json!({"preconditions": {"resourceVersion": "1"}});
    server.delete_with(&url, &stale).await.refused(409, "Conflict", &message);
    let right = json!({"preconditions": {"uid": uid, "resourceVersion": version}});
    server.delete_with(&url, &right).await.ok(200);
    server.until_gone(&url).await;
}

pub(crate) async fn a_collection_is_deleted_by_selector(server: &Server) {
    let ns = server.namespace().await;
    for (name, colour) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"colour": colour});
        server.post(&config_maps(&ns), &object).await.ok(201);
    }
    let deleted = server.delete(&format!("{}?labelSelector=colour=red", config_maps(&ns))).await.ok(200);
    assert_eq!((text(&deleted, "/kind"), names(&deleted)), ("ConfigMapList", vec!["a", "c"]));
    let left: Value = server.get(&format!("{}?labelSelector=colour", config_maps(&ns))).await.ok(200);
    assert_eq!(names(&left), ["b"]);
}

pub(crate) async fn options_in_the_body_of_a_delete_hide_those_of_its_url(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    server.post(&config_maps(&ns), &config_map("a")).await.ok(201);
    server.delete(&format!("{url}?dryRun=All")).await.ok(200);
    server.delete_with(&url, &json!({"dryRun": ["All"]})).await.ok(200);
    server.get(&url).await.ok(200);
    server.delete_with(&format!("{url}?dryRun=All"), &json!({"gracePeriodSeconds": 0})).await.ok(200);
    server.until_gone(&url).await;
}

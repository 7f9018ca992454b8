//! Status subresources, and what raises a generation.

use serde_json::{Value, json};

use crate::conformance::fixtures::{pod, pods, virtual_machine, virtual_machines};
use crate::conformance::server::Server;

fn generation(object: &Value) -> Option<i64> {
    object["metadata"]["generation"].as_i64()
}

pub(crate) async fn the_status_of_a_vm_is_written_through_its_subresource_only(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", virtual_machines(&ns));
    let mut object = virtual_machine("a");
    object["status"] = json!({"mark": "created"});
    let created = server.post(&virtual_machines(&ns), &object).await.ok(201);
    assert_ne!(created["status"]["mark"], "created");
    let patched = server.merge(&url, &json!({"status": {"mark": "main"}})).await.ok(200);
    assert_ne!(patched["status"]["mark"], "main");

    let both = json!({"spec": {"runStrategy": "Manual"}, "metadata": {"labels": {"a": "b"}}, "status": {"mark": "set"}});
    let patched = server.merge(&format!("{url}/status"), &both).await.ok(200);
    assert_eq!(patched["status"]["mark"], "set");
    assert_eq!(patched["spec"]["runStrategy"], "Halted");
    assert_eq!(patched["metadata"].get("labels"), None);
    let mut stale = created;
    stale["status"] = json!({"mark": "stale"});
    let answer = server.put(&format!("{url}/status"), &stale).await;
    assert_eq!((answer.status, answer.text("/reason")), (409, "Conflict"));
    let read = server.get(&format!("{url}/status")).await.ok(200);
    assert_eq!(read["status"]["mark"], "set");
}

pub(crate) async fn the_status_of_a_pod_is_written_through_its_subresource_only(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/p", pods(&ns));
    let created = server.post(&pods(&ns), &pod("p", "nowhere")).await.ok(201);
    assert_eq!(created["status"]["phase"], "Pending");
    let patched = server.merge(&url, &json!({"status": {"message": "main"}})).await.ok(200);
    assert_eq!(patched["status"].get("message"), None);
    let patch = json!({"status": {"message": "set"}, "metadata": {"labels": {"a": "b"}}});
    let patched = server.merge(&format!("{url}/status"), &patch).await.ok(200);
    assert_eq!(patched["status"]["message"], "set");
}

pub(crate) async fn a_generation_counts_changes_of_the_spec(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", virtual_machines(&ns));
    let mut object = virtual_machine("a");
    object["metadata"]["generation"] = json!(7);
    object["metadata"]["finalizers"] = json!(["example.com/a"]);
    let created = server.post(&virtual_machines(&ns), &object).await.ok(201);
    assert_eq!(generation(&created), Some(1));
    let labelled = server.merge(&url, &json!({"metadata": {"labels": {"a": "b"}}})).await.ok(200);
    assert_eq!(generation(&labelled), Some(1), "labels");
    let status = server.merge(&format!("{url}/status"), &json!({"status": {"mark": "x"}})).await.ok(200);
    assert_eq!(generation(&status), Some(1), "status");
    let forged = server.merge(&url, &json!({"metadata": {"generation": 9}})).await.ok(200);
    assert_eq!(generation(&forged), Some(1), "a client cannot set it");
    let spec = json!({"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}});
    let changed = server.merge(&url, &spec).await.ok(200);
    assert_eq!(generation(&changed), Some(2), "spec");
    let deleting = server.delete(&url).await.ok(200);
    assert_eq!(generation(&deleting), Some(3), "a delete that waits");
    server.merge(&url, &json!({"metadata": {"finalizers": null}})).await.ok(200);
}

//! Events.

use serde_json::{Value, json};

use crate::conformance::server::{Server, names, text};

fn event(namespace: &str, name: &str, about: &str, kind: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": about, "uid": format!("uid-of-{about}")},
        "type": kind, "reason": "Tested", "message": "a test says so", "source": {"component": "conformance"},
        "count": 1, "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z",
    })
}

pub(crate) async fn events_are_selected_by_what_they_are_about(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("/api/v1/namespaces/{ns}/events");
    server.post(&url, &event(&ns, "e1", "one", "Warning")).await.ok(201);
    server.post(&url, &event(&ns, "e2", "two", "Normal")).await.ok(201);
    for (selector, expected) in [
        ("involvedObject.name=one", &["e1"][..]),
        ("involvedObject.uid=uid-of-two", &["e2"]),
        ("involvedObject.kind=Pod,type=Warning", &["e1"]),
        ("reason=Tested,involvedObject.name!=one", &["e2"]),
        ("involvedObject.namespace=elsewhere", &[]),
    ] {
        let encoded = selector.replace('=', "%3D").replace('!', "%21");
        let list = server.get(&format!("{url}?fieldSelector={encoded}")).await.ok(200);
        assert_eq!(names(&list), expected, "{selector}");
    }
    let read = server.get(&format!("{url}/e1")).await.ok(200);
    assert_eq!((text(&read, "/source/component"), &read["count"]), ("conformance", &json!(1)));
    let patched =
        server.patch(&format!("{url}/e1"), "strategic-merge-patch", &json!({"count": 2})).await.ok(200);
    assert_eq!(patched["count"], 2);
}

pub(crate) async fn an_event_lives_in_the_namespace_of_its_object(server: &Server) {
    let ns = server.namespace().await;
    let answer = server
        .post(&format!("/api/v1/namespaces/{ns}/events"), &event("default", "e", "one", "Normal"))
        .await;
    let message = "Event \"e\" is invalid: involvedObject.namespace: Invalid value: \"default\": does not match \
                   event.namespace";
    answer.refused(422, "Invalid", message);
}

pub(crate) async fn events_are_served_in_their_own_group_too(server: &Server) {
    let ns = server.namespace().await;
    server
        .post(&format!("/api/v1/namespaces/{ns}/events"), &event(&ns, "e1", "one", "Warning"))
        .await
        .ok(201);
    let read = server.get(&format!("/apis/events.k8s.io/v1/namespaces/{ns}/events/e1")).await.ok(200);
    assert_eq!((text(&read, "/regarding/name"), text(&read, "/note")), ("one", "a test says so"));
    assert_eq!(
        (&read["deprecatedCount"], text(&read, "/deprecatedSource/component")),
        (&json!(1), "conformance")
    );
}

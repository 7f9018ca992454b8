//! What the server fills in, and what it no longer lets be changed, for the kinds of a platform.

use serde_json::json;

use crate::conformance::fixtures::{pod, pods};
use crate::conformance::server::{Server, text};

pub(crate) async fn a_pod_is_completed(server: &Server) {
    let ns = server.namespace().await;
    let created = server.post(&pods(&ns), &pod("p", "nowhere")).await.ok(201);
    let spec = &created["spec"];
    for (field, expected) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("enableServiceLinks", json!(true)),
        ("securityContext", json!({})),
    ] {
        assert_eq!(spec[field], expected, "{field}");
    }
    let container = &spec["containers"][0];
    assert_eq!(text(container, "/imagePullPolicy"), "IfNotPresent");
    assert_eq!(text(container, "/terminationMessagePath"), "/dev/termination-log");
    assert_eq!(container["resources"], json!({}));
    assert_eq!(
        (&created["metadata"]["generation"], text(&created, "/status/qosClass")),
        (&json!(1), "BestEffort")
    );
    assert_eq!(text(&created, "/status/phase"), "Pending");
}

pub(crate) async fn the_spec_of_a_pod_is_fixed(server: &Server) {
    let ns = server.namespace().await;
    server.post(&pods(&ns), &pod("p", "nowhere")).await.ok(201);
    let answer = server.merge(&format!("{}/p", pods(&ns)), &json!({"spec": {"nodeName": "elsewhere"}})).await;
    assert_eq!((answer.status, answer.text("/reason")), (422, "Invalid"));
    let message = "Pod \"p\" is invalid: spec: Forbidden: pod updates may not change fields other than ";
    assert!(answer.text("/message").starts_with(message), "{}", answer.body);
    let cause = &answer.body["details"]["causes"][0];
    assert_eq!((text(cause, "/reason"), text(cause, "/field")), ("FieldValueForbidden", "spec"));
}

pub(crate) async fn a_secret_stores_texts_as_base64(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("/api/v1/namespaces/{ns}/secrets");
    let object = json!({"metadata": {"name": "s"}, "stringData": {"a": "text"}, "data": {"b": "Yg=="}});
    let created = server.post(&url, &object).await.ok(201);
    assert_eq!((text(&created, "/type"), created.get("stringData")), ("Opaque", None));
    assert_eq!(created["data"], json!({"a": "dGV4dA==", "b": "Yg=="}));
    let answer = server.post(&url, &json!({"metadata": {"name": "t"}, "data": {"a": "not base64"}})).await;
    assert_eq!((answer.status, answer.text("/reason")), (400, "BadRequest"));
    let answer = server.merge(&format!("{url}/s"), &json!({"type": "Other"})).await;
    let message = "Secret \"s\" is invalid: type: Invalid value: \"Other\": field is immutable";
    answer.refused(422, "Invalid", message);
}

pub(crate) async fn a_claim_is_completed_and_protected(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("/api/v1/namespaces/{ns}/persistentvolumeclaims");
    let object = json!({"metadata": {"name": "c"}, "spec": {
        "storageClassName": "none", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }});
    let created = server.post(&url, &object).await.ok(201);
    assert_eq!(
        (text(&created, "/spec/volumeMode"), text(&created, "/status/phase")),
        ("Filesystem", "Pending")
    );
    assert_eq!(created["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let answer =
        server.merge(&format!("{url}/c"), &json!({"spec": {"accessModes": ["ReadWriteMany"]}})).await;
    assert_eq!((answer.status, answer.text("/details/causes/0/field")), (422, "spec"));
    let message = "PersistentVolumeClaim \"c\" is invalid: spec: Forbidden: spec is immutable after creation except \
                   resources.requests and volumeAttributesClassName for bound claims";
    assert!(answer.text("/message").starts_with(message), "{}", answer.body);
    let answer = server.post(&url, &json!({"metadata": {"name": "d"}, "spec": {}})).await;
    let message = "PersistentVolumeClaim \"d\" is invalid: [spec.accessModes: Required value: at least 1 access mode is \
                   required, spec.resources[storage]: Required value]";
    answer.refused(422, "Invalid", message);
}

pub(crate) async fn a_volume_is_completed_and_protected(server: &Server) {
    let name = server.unique("pv");
    let object = json!({"metadata": {"name": name}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {"driver": "example.com", "volumeHandle": "v"},
    }});
    let created = server.post("/api/v1/persistentvolumes", &object).await.ok(201);
    assert_eq!(text(&created, "/spec/persistentVolumeReclaimPolicy"), "Retain");
    assert_eq!(
        (text(&created, "/spec/volumeMode"), text(&created, "/status/phase")),
        ("Filesystem", "Pending")
    );
    assert_eq!(created["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
}

pub(crate) async fn a_storage_class_is_completed_and_fixed(server: &Server) {
    let name = server.unique("class");
    let url = "/apis/storage.k8s.io/v1/storageclasses";
    let created =
        server.post(url, &json!({"metadata": {"name": name}, "provisioner": "example.com"})).await.ok(201);
    assert_eq!(
        (text(&created, "/reclaimPolicy"), text(&created, "/volumeBindingMode")),
        ("Delete", "Immediate")
    );
    let answer = server.merge(&format!("{url}/{name}"), &json!({"parameters": {"a": "b"}})).await;
    assert_eq!((answer.status, answer.text("/details/causes/0/field")), (422, "parameters"));
    let answer = server.merge(&format!("{url}/{name}"), &json!({"reclaimPolicy": "Retain"})).await;
    assert_eq!((answer.status, answer.text("/details/causes/0/field")), (422, "reclaimPolicy"));
    server.merge(&format!("{url}/{name}"), &json!({"allowVolumeExpansion": true})).await.ok(200);
}

pub(crate) async fn a_namespace_is_labelled_with_its_name(server: &Server) {
    let ns = server.namespace().await;
    let namespace = server.get(&format!("/api/v1/namespaces/{ns}")).await.ok(200);
    assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], json!(ns));
    assert_eq!(
        (&namespace["spec"]["finalizers"], text(&namespace, "/status/phase")),
        (&json!(["kubernetes"]), "Active")
    );
}

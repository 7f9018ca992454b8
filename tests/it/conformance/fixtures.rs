//! The objects that checks are made with.

use serde_json::{Value, json};

/// The URL of a namespace's config maps.
pub(crate) fn config_maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// The URL of a namespace's pods.
pub(crate) fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

/// The URL of a namespace's virtual machines.
pub(crate) fn virtual_machines(namespace: &str) -> String {
    format!("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines")
}

/// A config map with one key, `a: "1"`.
pub(crate) fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

/// A pod with one container, bound to a node that does not exist, so that nothing runs it.
pub(crate) fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "example/main:1"}]},
    })
}

/// A virtual machine that is off and stays off.
pub(crate) fn virtual_machine(name: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {
            "runStrategy": "Halted",
            "template": {"spec": {"domain": {"devices": {}, "resources": {"requests": {"memory": "64Mi"}}}}},
        },
    })
}

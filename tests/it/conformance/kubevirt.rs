//! The two kinds of KubeVirt as custom resources: what the real server needs to answer as a platform would.
//! Scope, names and subresources are those of KubeVirt's own definitions; VMI has no status subresource there.

use kube::Client;
use serde_json::{Value, json};

use crate::conformance::server::Server;

/// Defines the kinds and waits until they are served.
pub(crate) async fn install(client: &Client) {
    let server = Server::new(client.clone(), client.clone());
    let with_status = json!({"status": {}});
    let ready = column("Ready", ".status.conditions[?(@.type=='Ready')].status");
    let machine_columns = json!([age(), column("Status", ".status.printableStatus"), ready]);
    let instance_columns = json!([
        age(),
        column("Phase", ".status.phase"),
        column("IP", ".status.interfaces[0].ipAddress"),
        column("NodeName", ".status.nodeName"),
        ready,
    ]);
    let kinds = [
        definition("VirtualMachine", ["vm", "vms"], &with_status, &machine_columns),
        definition("VirtualMachineInstance", ["vmi", "vmis"], &json!({}), &instance_columns),
    ];
    for kind in kinds {
        server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &kind).await.ok(201);
        let plural = kind["spec"]["names"]["plural"].as_str().unwrap();
        server.until(&format!("/apis/kubevirt.io/v1/{plural}"), |answer| answer.status == 200).await;
        let published =
            |answer: &crate::conformance::server::Answer| answer.body.to_string().contains(plural);
        server.until("/openapi/v3/apis/kubevirt.io/v1", published).await;
        server.until("/openapi/v2", published).await;
    }
}

fn column(name: &str, path: &str) -> Value {
    json!({"name": name, "type": "string", "jsonPath": path})
}

fn age() -> Value {
    json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
}

fn definition(kind: &str, short: [&str; 2], subresources: &Value, columns: &Value) -> Value {
    let singular = kind.to_lowercase();
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{singular}s.kubevirt.io")},
        "spec": {
            "group": "kubevirt.io",
            "scope": "Namespaced",
            "names": {
                "kind": kind, "plural": format!("{singular}s"), "singular": singular,
                "shortNames": short, "categories": ["all"],
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": subresources, "additionalPrinterColumns": columns,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}},
            }],
        },
    })
}

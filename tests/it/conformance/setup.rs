//! What the real server needs before it answers as a platform would: KubeVirt's kinds, and a user with limits.

use http::Method;
use serde_json::{Value, json};

use crate::conformance::server::{Answer, Server, until};
use crate::support::controlplane::LIMITED_USER;

/// Defines the two kinds of KubeVirt and waits until they are served. Scope, names, columns and subresources are those
/// of its own definitions: there, a VirtualMachineInstance has no status subresource. Of the schema, it is the part that
/// the checks use.
pub(crate) async fn define_kinds(server: &Server) {
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
        let published = |answer: &Answer| answer.body.to_string().contains(plural);
        server.until("/openapi/v3/apis/kubevirt.io/v1", published).await;
        server.until("/openapi/v2", published).await;
    }
}

/// Allows the limited user of the real server everything but to write virtual machines.
pub(crate) async fn limit_user(server: &Server) {
    let roles = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "limited"}, "rules": [
        {"apiGroups": [""], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
    ]});
    server.post(&format!("{roles}/clusterroles"), &role).await.ok(201);
    let binding = json!({
        "metadata": {"name": "limited"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "limited"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": LIMITED_USER}],
    });
    server.post(&format!("{roles}/clusterrolebindings"), &binding).await.ok(201);
    // The authorizer learns of the role a moment later.
    let read = async || server.as_limited(Method::GET, "/api/v1/nodes", "application/json", &json!({})).await;
    until(read, |answer| answer.status == 200).await;
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
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let text = json!({"type": "string"});
    let resources = object(json!({"requests": {"type": "object", "additionalProperties": text}}));
    let domain = object(
        json!({"devices": anything, "resources": resources, "machine": object(json!({"type": text}))}),
    );
    let guest = object(json!({
        "domain": domain, "hostname": text, "subdomain": text, "volumes": {"type": "array", "items": anything},
        "terminationGracePeriodSeconds": {"type": "integer"},
    }));
    let template = object(json!({"metadata": anything, "spec": guest}));
    let spec = object(json!({"runStrategy": text, "running": {"type": "boolean"}, "template": template}));
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
                "schema": {"openAPIV3Schema": object(json!({"spec": spec, "status": anything}))},
            }],
        },
    })
}

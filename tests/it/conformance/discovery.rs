//! What the server says about itself and its kinds.

use serde_json::{Value, json};

use crate::conformance::server::{Server, text};

/// The `Accept` header of a client that knows aggregated discovery.
const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
const ALL_VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

pub(crate) async fn the_version_is_told(server: &Server) {
    let version = server.get("/version").await.ok(200);
    assert!(text(&version, "/gitVersion").starts_with("v1."), "{version}");
    assert_eq!(text(&version, "/major"), "1");
    for field in ["minor", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"] {
        assert!(version[field].is_string(), "{field} of {version}");
    }
}

pub(crate) async fn health_is_ok(server: &Server) {
    for path in ["/readyz", "/livez", "/healthz"] {
        assert_eq!(server.get(path).await.ok(200), json!("ok"), "{path}");
    }
}

pub(crate) async fn core_versions_are_listed(server: &Server) {
    let versions = server.get("/api").await.ok(200);
    assert_eq!((&versions["kind"], &versions["versions"]), (&json!("APIVersions"), &json!(["v1"])));
}

/// The entry of a resource in a list, without what the server may keep to itself.
fn resource(list: &Value, name: &str) -> Value {
    let all = list["resources"].as_array().unwrap();
    let mut found =
        all.iter().find(|r| r["name"] == name).unwrap_or_else(|| panic!("{name} in {list}")).clone();
    found.as_object_mut().unwrap().remove("storageVersionHash");
    found.sort_all_objects();
    if let Some(verbs) = found["verbs"].as_array_mut() {
        verbs.sort_by_key(ToString::to_string);
    }
    found
}

pub(crate) async fn core_resources_are_described(server: &Server) {
    let list = server.get("/api/v1").await.ok(200);
    assert_eq!((&list["kind"], &list["groupVersion"]), (&json!("APIResourceList"), &json!("v1")));
    let of = |name, singular, kind, namespaced| json!({"kind": kind, "name": name, "namespaced": namespaced, "singularName": singular, "verbs": ALL_VERBS});
    let with = |mut resource: Value, key: &str, value: Value| {
        resource[key] = value;
        resource.sort_all_objects();
        resource
    };
    let short = |resource, names: &[&str]| with(resource, "shortNames", json!(names));
    for expected in [
        short(of("configmaps", "configmap", "ConfigMap", true), &["cm"]),
        of("secrets", "secret", "Secret", true),
        short(of("serviceaccounts", "serviceaccount", "ServiceAccount", true), &["sa"]),
        short(of("nodes", "node", "Node", false), &["no"]),
        short(of("events", "event", "Event", true), &["ev"]),
        short(of("persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim", true), &["pvc"]),
        short(of("persistentvolumes", "persistentvolume", "PersistentVolume", false), &["pv"]),
        with(short(of("pods", "pod", "Pod", true), &["po"]), "categories", json!(["all"])),
        json!({"kind": "Pod", "name": "pods/log", "namespaced": true, "singularName": "", "verbs": ["get"]}),
        json!({"kind": "Node", "name": "nodes/status", "namespaced": false, "singularName": "", "verbs": ["get", "patch", "update"]}),
    ] {
        assert_eq!(resource(&list, text(&expected, "/name")), expected);
    }
    let namespaces = resource(&list, "namespaces");
    assert_eq!(namespaces["verbs"], json!(["create", "delete", "get", "list", "patch", "update", "watch"]));
    assert_eq!(namespaces["shortNames"], json!(["ns"]));
}

pub(crate) async fn groups_are_listed(server: &Server) {
    let groups = server.get("/apis").await.ok(200);
    assert_eq!(groups["kind"], "APIGroupList");
    let kubevirt = groups["groups"].as_array().unwrap().iter().find(|g| g["name"] == "kubevirt.io");
    let kubevirt = kubevirt.expect("kubevirt.io is a group");
    let version = json!({"groupVersion": "kubevirt.io/v1", "version": "v1"});
    assert_eq!(kubevirt["preferredVersion"], version);
    assert!(kubevirt["versions"].as_array().unwrap().contains(&version));
    let alone = server.get("/apis/kubevirt.io").await.ok(200);
    assert_eq!((&alone["kind"], &alone["preferredVersion"]), (&json!("APIGroup"), &version));
}

pub(crate) async fn custom_resources_are_described(server: &Server) {
    let list = server.get("/apis/kubevirt.io/v1").await.ok(200);
    assert_eq!(list["groupVersion"], "kubevirt.io/v1");
    let vm = resource(&list, "virtualmachines");
    let expected = json!({
        "categories": ["all"], "kind": "VirtualMachine", "name": "virtualmachines", "namespaced": true,
        "shortNames": ["vm", "vms"], "singularName": "virtualmachine", "verbs": ALL_VERBS,
    });
    assert_eq!(vm, expected);
    let status = resource(&list, "virtualmachines/status");
    assert_eq!(
        (&status["kind"], &status["verbs"]),
        (&json!("VirtualMachine"), &json!(["get", "patch", "update"]))
    );
    assert!(!list.to_string().contains("virtualmachineinstances/status"), "{list}");
}

pub(crate) async fn aggregated_discovery_is_one_request(server: &Server) {
    let answer = server.get_as("/apis", AGGREGATED).await;
    let content_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    assert_eq!(answer.headers["content-type"], content_type);
    let list = answer.ok(200);
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("APIGroupDiscoveryList"), &json!("apidiscovery.k8s.io/v2"))
    );
    let items = list["items"].as_array().unwrap();
    let kubevirt =
        items.iter().find(|g| g["metadata"]["name"] == "kubevirt.io").expect("kubevirt.io is a group");
    let version = &kubevirt["versions"][0];
    assert_eq!((&version["version"], &version["freshness"]), (&json!("v1"), &json!("Current")));
    let vm = version["resources"].as_array().unwrap().iter().find(|r| r["resource"] == "virtualmachines");
    let vm = vm.expect("virtualmachines is a resource");
    assert_eq!(
        vm["responseKind"],
        json!({"group": "kubevirt.io", "version": "v1", "kind": "VirtualMachine"})
    );
    assert_eq!((&vm["scope"], &vm["singularResource"]), (&json!("Namespaced"), &json!("virtualmachine")));
    assert_eq!((&vm["shortNames"], &vm["categories"]), (&json!(["vm", "vms"]), &json!(["all"])));
    assert_eq!(vm["subresources"][0]["subresource"], "status");

    let core = server.get_as("/api", AGGREGATED).await.ok(200);
    let version = &core["items"][0]["versions"][0];
    let node = version["resources"].as_array().unwrap().iter().find(|r| r["resource"] == "nodes");
    let node = node.expect("nodes is a resource");
    assert_eq!((&node["scope"], &node["responseKind"]["kind"]), (&json!("Cluster"), &json!("Node")));
}

pub(crate) async fn openapi_v3_describes_each_group(server: &Server) {
    let index = server.get("/openapi/v3").await.ok(200);
    for (group, kind, path) in [
        ("api/v1", "ConfigMap", "/api/v1/namespaces/{namespace}/configmaps/{name}"),
        (
            "apis/kubevirt.io/v1",
            "VirtualMachine",
            "/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}",
        ),
    ] {
        let url = text(&index["paths"][group], "/serverRelativeURL");
        assert!(url.starts_with(&format!("/openapi/v3/{group}?hash=")), "{group}: {url}");
        let document = server.get(url).await.ok(200);
        assert!(text(&document, "/openapi").starts_with("3.0"), "{group}");
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let is_kind = |s: &Value| {
            s["x-kubernetes-group-version-kind"]
                .as_array()
                .is_some_and(|g| g.iter().any(|g| g["kind"] == kind))
        };
        assert!(schemas.values().any(is_kind), "{kind} has a schema");
        let patch = &document["paths"][path]["patch"];
        assert_eq!(patch["x-kubernetes-action"], "patch", "{path}");
        let parameters = patch["parameters"].to_string();
        assert!(parameters.contains("\"fieldValidation\"") && parameters.contains("\"dryRun\""), "{path}");
    }
}

pub(crate) async fn openapi_v2_is_there(server: &Server) {
    let document = server.get("/openapi/v2").await.ok(200);
    assert_eq!(document["swagger"], "2.0");
    assert!(document["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"].is_object());
    assert!(document["definitions"].as_object().unwrap().contains_key("io.k8s.api.core.v1.ConfigMap"));
}

pub(crate) async fn an_unknown_group_is_not_found(server: &Server) {
    // What serves no group says so in plain text, unlike what serves the core group.
    for path in ["/apis/nowhere.example/v1", "/apis/kubevirt.io/v9", "/nowhere"] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.body, json!("404 page not found\n"), "{path}");
    }
}

pub(crate) async fn an_unknown_resource_is_not_found(server: &Server) {
    let ns = server.namespace().await;
    let core = format!("/api/v1/namespaces/{ns}");
    for path in [
        "/api/v9".to_owned(),
        format!("{core}/gadgets"),
        format!("{core}/gadgets/one"),
        format!("{core}/configmaps/one/status"),
    ] {
        let answer = server.get(&path).await;
        let status = answer.refused(404, "NotFound", "the server could not find the requested resource");
        assert_eq!(status["details"], json!({}), "{path}");
    }
    let custom = format!("/apis/kubevirt.io/v1/namespaces/{ns}");
    let answer = server.get(&format!("{custom}/gadgets")).await;
    assert_eq!((answer.status, answer.body), (404, json!("404 page not found\n")));
}

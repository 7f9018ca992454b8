//! Refusals that do not depend on the object: roles, methods, logs.

use http::Method;
use serde_json::json;

use crate::conformance::fixtures::{config_map, config_maps, pod, pods, virtual_machines};
use crate::conformance::server::Server;
use crate::support::controlplane::LIMITED_USER;

pub(crate) async fn a_write_that_no_role_allows_is_forbidden(server: &Server) {
    let all = virtual_machines("default");
    let one = format!("{all}/a");
    let (json, merge) = ("application/json", "application/merge-patch+json");
    let of = |resource: &str, verb: &str, name: &str| {
        format!(
            "virtualmachines.kubevirt.io{name} is forbidden: User \"{LIMITED_USER}\" cannot {verb} resource \
             \"{resource}\" in API group \"kubevirt.io\" in the namespace \"default\""
        )
    };
    for (method, url, content_type, message) in [
        (Method::POST, &all, json, of("virtualmachines", "create", "")),
        (Method::PUT, &one, json, of("virtualmachines", "update", " \"a\"")),
        (Method::PATCH, &one, merge, of("virtualmachines", "patch", " \"a\"")),
        (Method::DELETE, &one, json, of("virtualmachines", "delete", " \"a\"")),
        (Method::DELETE, &all, json, of("virtualmachines", "deletecollection", "")),
        (Method::PATCH, &format!("{one}/status"), merge, of("virtualmachines/status", "patch", " \"a\"")),
    ] {
        let answer = server.as_limited(method, url, content_type, &json!({})).await;
        let status = answer.refused(403, "Forbidden", &message);
        let mut details = json!({"group": "kubevirt.io", "kind": "virtualmachines"});
        if message.contains("\"a\"") {
            details["name"] = json!("a");
        }
        assert_eq!(status["details"], details);
    }
}

pub(crate) async fn what_a_role_allows_goes_through(server: &Server) {
    let (get, json) = (Method::GET, "application/json");
    server.as_limited(get.clone(), &virtual_machines("default"), json, &json!({})).await.ok(200);
    let name = server.unique("allowed");
    server.as_limited(Method::POST, &config_maps("default"), json, &config_map(&name)).await.ok(201);
    let url = format!("{}/{name}", config_maps("default"));
    server.as_limited(get, &url, json, &json!({})).await.ok(200);
    server.as_limited(Method::DELETE, &url, json, &json!({})).await.ok(200);
}

pub(crate) async fn a_user_can_ask_what_is_allowed(server: &Server) {
    let url = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (verb, group, resource, allowed) in [
        ("patch", "kubevirt.io", "virtualmachines", false),
        ("get", "kubevirt.io", "virtualmachines", true),
        ("delete", "", "pods", true),
    ] {
        let attributes = json!({"namespace": "default", "verb": verb, "group": group, "resource": resource});
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let answer = server.as_limited(Method::POST, url, "application/json", &review).await.ok(201);
        assert_eq!(answer["status"]["allowed"], allowed, "{verb} {resource}");
    }
}

pub(crate) async fn a_method_that_a_path_does_not_have_is_refused(server: &Server) {
    let ns = server.namespace().await;
    let message = "the server does not allow this method on the requested resource";
    let json = [("content-type", "application/json"), ("accept", "application/json")];
    let object = format!("{}/a", config_maps(&ns));
    for (method, url) in
        [(Method::POST, &object), (Method::PUT, &config_maps(&ns)), (Method::PATCH, &config_maps(&ns))]
    {
        server.call(method, url, &json, b"{}".to_vec()).await.refused(405, "MethodNotAllowed", message);
    }
}

pub(crate) async fn the_log_of_a_pod_that_never_ran_is_refused(server: &Server) {
    let ns = server.namespace().await;
    let answer = server.get(&format!("{}/none/log", pods(&ns))).await;
    answer.refused(404, "NotFound", "pods \"none\" not found");
    let mut waiting = pod("p", "nowhere");
    waiting["spec"].as_object_mut().unwrap().remove("nodeName");
    server.post(&pods(&ns), &waiting).await.ok(201);
    let answer = server.get(&format!("{}/p/log?container=other", pods(&ns))).await;
    answer.refused(400, "BadRequest", "container other is not valid for pod p");
}

//! Refusals that do not depend on the object: roles, methods, logs.

use http::Method;
use serde_json::json;

use crate::conformance::fixtures::{config_maps, pod, pods, virtual_machines};
use crate::conformance::server::Server;

pub(crate) async fn a_user_without_a_role_is_forbidden(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    let who = |verb: &str, resource: &str, group: &str| {
        format!(
            "User \"nobody\" cannot {verb} resource \"{resource}\" in API group \"{group}\" in the namespace \"{ns}\""
        )
    };
    let status = server.as_nobody(Method::GET, &url).await;
    let message = format!("configmaps \"a\" is forbidden: {}", who("get", "configmaps", ""));
    let status = status.refused(403, "Forbidden", &message);
    assert_eq!(status["details"], json!({"name": "a", "kind": "configmaps"}));

    let message = format!("configmaps is forbidden: {}", who("list", "configmaps", ""));
    let status = server.as_nobody(Method::GET, &config_maps(&ns)).await.refused(403, "Forbidden", &message);
    assert_eq!(status["details"], json!({"kind": "configmaps"}));

    let message = format!("configmaps \"a\" is forbidden: {}", who("delete", "configmaps", ""));
    server.as_nobody(Method::DELETE, &url).await.refused(403, "Forbidden", &message);

    let message = format!(
        "virtualmachines.kubevirt.io \"a\" is forbidden: {}",
        who("get", "virtualmachines", "kubevirt.io")
    );
    let status = server.as_nobody(Method::GET, &format!("{}/a", virtual_machines(&ns))).await;
    let status = status.refused(403, "Forbidden", &message);
    assert_eq!(status["details"], json!({"name": "a", "group": "kubevirt.io", "kind": "virtualmachines"}));

    let message = "nodes is forbidden: User \"nobody\" cannot list resource \"nodes\" in API group \"\" at the cluster scope";
    server.as_nobody(Method::GET, "/api/v1/nodes").await.refused(403, "Forbidden", message);
    server.as_nobody(Method::GET, "/version").await.ok(200);
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

//! Questions of a client about itself: may I, and who am I.

use axum::response::Response;
use http::Method;
use serde_json::json;

use crate::sim::cluster::Cluster;
use crate::sim::cluster::lock;
use crate::sim::failure::Failure;
use crate::sim::http::json_response;
use crate::sim::http::request::Request;
use crate::sim::http::request::Target;
use crate::sim::meta;
use crate::sim::trouble::USER;

/// Answers a review.
pub(super) fn answer(cluster: &Cluster, request: &Request) -> Result<Response, Failure> {
    let Target::Review { plural } = &request.target else { return Err(Failure::no_resource()) };
    if request.method != Method::POST {
        return Err(Failure::method_not_allowed());
    }
    let mut review = request.json()?;
    let status = match plural.as_str() {
        "selfsubjectaccessreviews" => {
            let field = |name: &str| meta::text(&review, &format!("/spec/resourceAttributes/{name}"));
            let trouble = lock(&cluster.inner().trouble);
            let denied = trouble.forbids(field("verb"), field("group"), field("resource"));
            json!({"allowed": !denied, "reason": ""})
        }
        "selfsubjectrulesreviews" => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
            "incomplete": false,
        }),
        "selfsubjectreviews" => json!({"userInfo": {"username": USER, "groups": ["system:authenticated"]}}),
        _ => return Err(Failure::no_resource()),
    };
    if !review.is_object() {
        return Err(Failure::bad_request("the body of the request is not a JSON object"));
    }
    review["status"] = status;
    Ok(json_response(201, &review))
}

//! What stands before the API server: the aggregated API of KubeVirt.

use std::sync::Arc;

use http::Method;
use http::Request;
use http::Response;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use serde_json::json;
use windrow::sim::Cluster;
use windrow::sim::Options;

use crate::reality::platform::Platform;
use crate::reality::platform::Shared;

/// The API that the platform serves.
const AGGREGATED: &str = "/apis/subresources.kubevirt.io/";

/// A client of the server with the aggregated API of the platform in front of it.
pub(crate) fn client(server: Client, platform: &Platform) -> Client {
    let shared = platform.shared();
    // What the API consists of is told by the rehearsal cluster.
    let options = Options { empty: true, ..Options::default() };
    let cluster = Cluster::start(options, shared.clock.clone()).unwrap();
    let discovery = Client::new(cluster.service(), "default");
    let service = tower::service_fn(move |request: Request<Body>| {
        let (server, discovery, shared) = (server.clone(), discovery.clone(), shared.clone());
        async move {
            match request.uri().path().starts_with(AGGREGATED) {
                false => server.send(request).await,
                true if request.method() == Method::GET => discovery.send(request).await,
                true => Ok(serve(&shared, request).await),
            }
        }
    });
    Client::new(service, "default")
}

/// Serves `…/namespaces/NAMESPACE/PLURAL/NAME/SUBRESOURCE`.
async fn serve(shared: &Arc<Shared>, request: Request<Body>) -> Response<Body> {
    let path = request.uri().path().trim_start_matches(AGGREGATED).to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let parts: Vec<&str> = path.splitn(6, '/').collect();
    let [_version, "namespaces", namespace, plural, name, subresource] = parts.as_slice() else {
        return refusal(404, "NotFound", "the server could not find the requested resource");
    };
    let now = shared.clock.now();
    let called = shared.crew().call(plural, namespace, name, subresource, &body, now);
    let requests = match called {
        Ok(requests) => requests,
        Err(refused) => return refusal(refused.code, refused.reason, &refused.message),
    };
    let is_trial = body["dryRun"].as_array().is_some_and(|list| !list.is_empty());
    for request in requests.into_iter().filter(|_| !is_trial) {
        if let Err(kube::Error::Api(status)) = shared.carry_out(request).await {
            return refusal(status.code, &status.reason, &status.message);
        }
    }
    Response::builder().status(202).body(Body::empty()).unwrap()
}

fn refusal(code: u16, reason: &str, message: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": reason, "message": message, "code": code,
    });
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(Body::from(status.to_string().into_bytes())).unwrap()
}

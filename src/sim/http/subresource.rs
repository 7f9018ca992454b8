//! The subresources that the platform serves: start, stop, restart, …

use axum::body::Body;
use axum::response::Response;
use http::Method;
use serde_json::Value;

use crate::sim::cluster::Cluster;
use crate::sim::failure::Failure;
use crate::sim::http::objects::attempt;
use crate::sim::http::request::Request;
use crate::sim::http::request::Target;
use crate::sim::kinds;
use crate::sim::registry::Caller;
use crate::sim::trouble::Attempt;
use crate::sim::world::Call;
use crate::sim::world::View as _;

/// The component of KubeVirt that serves them.
const SERVER: &str = "virt-api";

/// Answers a call.
pub(super) fn answer(cluster: &Cluster, request: &Request) -> Result<Response, Failure> {
    let Target::Platform { key, subresource } = &request.target else {
        return Err(Failure::no_resource());
    };
    if request.method != Method::PUT {
        return Err(Failure::method_not_allowed());
    }
    let kind = kinds::of(key.resource).ok_or_else(Failure::no_resource)?;
    let body = request.json()?;
    let now = cluster.inner().clock.now();
    let mut caller = request.caller(now)?;
    // The aggregated API takes the trial flag in its body (domain.md §1.7).
    caller.dry_run |= body["dryRun"].as_array().is_some_and(|list| !list.is_empty());
    let try_it = Attempt {
        kind,
        namespace: &key.namespace,
        name: &key.name,
        verb: "update",
        subresource,
        versioned: false,
    };
    attempt(cluster, &try_it, || {
        let code = cluster.inner().with(|registry| {
            let call = Call {
                view: &registry.store,
                key,
                name: subresource,
                body: &body,
                now,
                faults: &registry.faults,
            };
            let answer = (registry.platform.subresource)(&call)?;
            let server = Caller { dry_run: caller.dry_run, ..Caller::controller(SERVER, now) };
            for write in &answer.writes {
                registry.carry_out(write, &server)?;
            }
            let object = registry.store.get(key).unwrap_or_default();
            let sent = if body.is_null() { &Value::Null } else { &body };
            registry.record("put", key, subresource, &object, sent, &caller);
            Ok::<u16, Failure>(answer.code)
        })?;
        let response = Response::builder().status(code).body(Body::empty());
        response.map_err(|_| Failure::internal("the platform answered with a code that is none"))
    })
}

//! Whether the client has the right to what it asks for. Comes first: without it, not even the body is looked at.

use http::Method;

use crate::sim::cluster::Cluster;
use crate::sim::cluster::lock;
use crate::sim::failure::Failure;
use crate::sim::http::request::Request;
use crate::sim::http::request::Target;
use crate::sim::http::request::namespace_of;
use crate::sim::kinds;
use crate::sim::trouble::Attempt;

/// Refuses what the client has no right to.
pub(super) fn check(cluster: &Cluster, request: &Request) -> Result<(), Failure> {
    match attempt_of(request) {
        Some(attempt) => lock(&cluster.inner().trouble).authorize(&attempt),
        None => Ok(()),
    }
}

/// What a request is in the words of RBAC; none for what everybody may.
fn attempt_of(request: &Request) -> Option<Attempt<'_>> {
    let of_collection = matches!(request.target, Target::Collection { .. });
    let verb = match request.method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if of_collection => "deletecollection",
        Method::DELETE => "delete",
        Method::GET if of_collection && request.query.flag("watch") => "watch",
        Method::GET if of_collection => "list",
        _ => return None,
    };
    let (kind, namespace, name, subresource) = match &request.target {
        Target::Collection { kind, namespace, .. } => (*kind, namespace.as_str(), "", ""),
        Target::Object { kind, key, subresource, .. } => {
            (*kind, namespace_of(key), &*key.name, subresource.as_str())
        }
        Target::Platform { key, subresource } => {
            (kinds::of(key.resource)?, &*key.namespace, &*key.name, subresource.as_str())
        }
        Target::Plain | Target::Review { .. } | Target::NoResource { .. } => return None,
    };
    Some(Attempt { kind, namespace, name, verb, subresource, versioned: false })
}

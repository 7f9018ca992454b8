//! Lists, in one answer or in pages.

use std::sync::Arc;

use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::sim::cluster::Cluster;
use crate::sim::failure::Failure;
use crate::sim::http::json_response;
use crate::sim::http::negotiate::Encoder;
use crate::sim::http::request::Request;
use crate::sim::http::request::Target;
use crate::sim::http::selector::Selector;
use crate::sim::store::Forgotten;
use crate::sim::store::Store;
use crate::sim::world::Key;
use crate::sim::world::Resource;
use crate::sim::world::View as _;

const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// Where a page ended.
#[derive(Debug, Serialize, Deserialize)]
struct Token {
    /// The version of the whole list; zero once it is no longer consistent.
    v: u64,
    /// The namespace of the last object.
    ns: String,
    /// Its name.
    name: String,
}

impl Token {
    fn encode(&self) -> String {
        let json = serde_json::to_vec(self).expect("a number and two texts");
        URL_SAFE_NO_PAD.encode(json)
    }

    fn decode(text: &str) -> Result<Self, Failure> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        let token = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        token.ok_or_else(|| Failure::bad_request("continue key is not valid: the token cannot be read"))
    }
}

/// One page of a list.
struct Page {
    revision: u64,
    objects: Vec<Arc<Value>>,
    /// The last object, and how many follow it, if any do.
    rest: Option<(Key, usize)>,
}

/// Answers a list.
pub(super) fn answer(cluster: &Cluster, request: &Request) -> Result<Response, Failure> {
    let Target::Collection { kind, version, namespace } = &request.target else {
        return Err(Failure::no_resource());
    };
    let encoder = Encoder::new(kind, version, request)?;
    let selector = Selector::parse(kind, &request.query)?;
    let namespace = Some(namespace.as_str()).filter(|namespace| !namespace.is_empty());
    let limit = number(request, "limit")?.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let page = cluster
        .inner()
        .with(|registry| page(&registry.store, kind.stored, namespace, request, &selector, limit))?;
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if let Some((last, remaining)) = page.rest {
        let token = Token { v: page.revision, ns: last.namespace.to_string(), name: last.name.to_string() };
        metadata["continue"] = token.encode().into();
        if selector == Selector::default() {
            metadata["remainingItemCount"] = remaining.into();
        }
    }
    let objects = page.objects.iter().map(|object| &**object);
    Ok(json_response(200, &encoder.list(&metadata, objects, cluster.inner().clock.now())))
}

/// A parameter that is a number; zero counts as absent.
pub(super) fn number(request: &Request, name: &str) -> Result<Option<u64>, Failure> {
    match request.query.get(name) {
        "" | "0" => Ok(None),
        text => text.parse().map(Some).map_err(|_| {
            let what = if name == "resourceVersion" { "invalid resource version" } else { "invalid number" };
            Failure::bad_request(format!(
                "{what}: {name}: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            ))
        }),
    }
}

fn page(
    store: &Store,
    resource: Resource,
    namespace: Option<&str>,
    request: &Request,
    selector: &Selector,
    limit: usize,
) -> Result<Page, Failure> {
    let limit = if limit == 0 { usize::MAX } else { limit };
    let token = match request.query.get("continue") {
        "" => None,
        text => Some(Token::decode(text)?),
    };
    if token.is_some() && request.query.has("resourceVersionMatch") {
        let message = "resourceVersionMatch is forbidden when continue is provided";
        return Err(Failure::new(422, "Invalid", message));
    }
    let after = token.as_ref().map(|token| Key::new(resource, &token.ns, &token.name));
    let at = match &token {
        Some(token) if token.v > 0 => Some(token.v),
        Some(_) => None,
        None => exact_version(store, request)?,
    };
    let snapshot = match at.filter(|at| *at != store.revision()) {
        None => None,
        Some(at) => Some(store.scan_at(at, resource, namespace).map_err(|forgotten| match &token {
            Some(token) => too_late(token),
            None => expired(at, forgotten),
        })?),
    };
    let revision = at.unwrap_or_else(|| store.revision());
    let wanted = |(_, object): &(&Key, &Arc<Value>)| selector.matches(object);
    Ok(match &snapshot {
        Some(objects) => {
            let later = objects.iter().filter(|(key, _)| after.as_ref().is_none_or(|after| *key > after));
            cut(later.filter(wanted), limit, revision)
        }
        None => match (selector.name(), namespace) {
            (Some(name), Some(namespace)) => {
                let key = Key::new(resource, namespace, name);
                let found = store.get(&key);
                let found = found.as_ref().map(|object| (&key, object));
                cut(found.into_iter().filter(wanted), limit, revision)
            }
            _ => cut(store.scan(resource, namespace, after.as_ref()).filter(wanted), limit, revision),
        },
    })
}

fn cut<'a>(
    mut objects: impl Iterator<Item = (&'a Key, &'a Arc<Value>)>,
    limit: usize,
    revision: u64,
) -> Page {
    let mut page = Page { revision, objects: vec![], rest: None };
    let mut last = None;
    for (key, object) in objects.by_ref().take(limit) {
        page.objects.push(object.clone());
        last = Some(key.clone());
    }
    let remaining = objects.count();
    page.rest = last.filter(|_| remaining > 0).map(|key| (key, remaining));
    page
}

/// The version at which the client wants the list, if it insists.
fn exact_version(store: &Store, request: &Request) -> Result<Option<u64>, Failure> {
    let asked = number(request, "resourceVersion")?;
    match (asked, request.query.get("resourceVersionMatch")) {
        (Some(asked), _) if asked > store.revision() => Err(too_large(asked, store.revision())),
        (Some(asked), "Exact") => Ok(Some(asked)),
        (_, "" | "NotOlderThan") | (None, "Exact") => Ok(None),
        (_, other) => {
            let message = format!("resourceVersionMatch: Unsupported value: {other:?}");
            Err(Failure::new(422, "Invalid", message))
        }
    }
}

/// 504 for a version that does not exist yet.
pub(super) fn too_large(asked: u64, current: u64) -> Failure {
    let message = format!("Too large resource version: {asked}, current: {current}");
    let mut failure = Failure::new(504, "Timeout", format!("Timeout: {message}"));
    failure.details = Some(Box::new(json!({
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    })));
    failure
}

fn expired(asked: u64, forgotten: Forgotten) -> Failure {
    Failure::expired(asked, forgotten.oldest)
}

fn too_late(token: &Token) -> Failure {
    let mut failure = Failure::new(410, "Expired", EXPIRED);
    let rest = Token { v: 0, ns: token.ns.clone(), name: token.name.clone() };
    failure.remainder = Some(rest.encode());
    failure
}

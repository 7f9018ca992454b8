//! What controllers want, as requests to an API server.

use std::collections::BTreeMap;

use http::Method;
use http::Request;
use http::header::CONTENT_TYPE;
use serde_json::Value;
use serde_json::json;
use sha2::Digest as _;
use sha2::Sha256;

use super::copy::Copy;
use crate::sim::kinds;
use crate::sim::kinds::EVENTS;
use crate::sim::kinds::PODS;
use crate::sim::meta::rfc3339;
use crate::sim::object::key_of;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::world::Key;
use crate::sim::world::Resource;
use crate::sim::world::View as _;
use crate::sim::world::Write;
use crate::time::Timestamp;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// Writes requests for one manager.
pub(super) struct Writer<'a> {
    pub(super) copy: &'a Copy,
    pub(super) manager: &'a str,
    pub(super) now: Timestamp,
    /// How often each event was said.
    pub(super) said: &'a mut BTreeMap<String, u64>,
}

impl Writer<'_> {
    /// The requests that carry out a write: several, where a server takes in parts what a controller wants at once.
    pub(super) fn requests(&mut self, write: &Write) -> Vec<Request<Vec<u8>>> {
        match write {
            Write::Create(resource, object) => self.create(*resource, object),
            Write::Patch(key, patch) => self.patch(key, patch),
            Write::Status(key, status) => self.status(key, status),
            Write::Delete(key) => vec![self.request(Method::DELETE, &url(key), JSON, &json!({}))],
            Write::DeleteNow(key) => {
                vec![self.request(Method::DELETE, &url(key), JSON, &json!({"gracePeriodSeconds": 0}))]
            }
            Write::Event { about, kind, reason, message, from } => {
                self.event(about, kind, reason, message, from)
            }
        }
    }

    /// A create ignores the status where it has a subresource.
    fn create(&self, resource: Resource, object: &Value) -> Vec<Request<Vec<u8>>> {
        let key = key_of(resource, object);
        let create = self.request(Method::POST, &collection(&key), JSON, object);
        let split = kinds::of(resource).is_some_and(|kind| kind.status);
        let status = object.get("status").filter(|status| split && !status.is_null());
        [create].into_iter().chain(status.into_iter().flat_map(|status| self.status(&key, status))).collect()
    }

    /// The node of a pod is given by a binding, never by a patch.
    fn patch(&self, key: &Key, patch: &Value) -> Vec<Request<Vec<u8>>> {
        let node = text(patch, "/spec/nodeName");
        if key.resource != PODS || node.is_empty() {
            return vec![self.request(Method::PATCH, &url(key), MERGE, patch)];
        }
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": &*key.name, "namespace": &*key.namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let mut rest = patch.clone();
        if let Some(spec) = rest["spec"].as_object_mut() {
            spec.shift_remove("nodeName");
        }
        let bind = self.request(Method::POST, &format!("{}/binding", url(key)), JSON, &binding);
        vec![bind, self.request(Method::PATCH, &url(key), MERGE, &rest)]
    }

    fn status(&self, key: &Key, status: &Value) -> Vec<Request<Vec<u8>>> {
        let split = kinds::of(key.resource).is_some_and(|kind| kind.status);
        let url = if split { format!("{}/status", url(key)) } else { url(key) };
        vec![self.request(Method::PATCH, &url, MERGE, &json!({"status": status}))]
    }

    /// The same said again raises the count of the first.
    fn event(
        &mut self,
        about: &Key,
        kind: &str,
        reason: &str,
        message: &str,
        from: &str,
    ) -> Vec<Request<Vec<u8>>> {
        let object = self.copy.get(about).unwrap_or_default();
        let space = if about.namespace.is_empty() { "default" } else { &about.namespace };
        let digest = Sha256::digest(format!("{}\n{reason}\n{message}\n{from}", uid(&object)));
        let suffix = digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
        let key = Key::new(EVENTS, space, &format!("{}.{suffix:016x}", about.name));
        let count = self.said.entry(key.to_string()).or_default();
        *count += 1;
        let now = rfc3339(self.now);
        if *count > 1 {
            let again = json!({"count": *count, "lastTimestamp": now});
            return vec![self.request(Method::PATCH, &url(&key), MERGE, &again)];
        }
        let named = kinds::of(about.resource);
        let mut involved = json!({
            "kind": named.map(|kind| kind.kind),
            "name": &*about.name,
            "uid": uid(&object),
            "apiVersion": named.map(kinds::Kind::api_version),
            "resourceVersion": text(&object, "/metadata/resourceVersion"),
        });
        if !about.namespace.is_empty() {
            involved["namespace"] = (*about.namespace).into();
        }
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": &*key.name, "namespace": space},
            "involvedObject": involved,
            "reason": reason,
            "message": message,
            "source": {"component": from},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": kind,
            "reportingComponent": from,
            "reportingInstance": "",
        });
        vec![self.request(Method::POST, &collection(&key), JSON, &event)]
    }

    fn request(&self, method: Method, url: &str, content_type: &str, body: &Value) -> Request<Vec<u8>> {
        let manager = if method == Method::DELETE { "" } else { self.manager };
        let query = if manager.is_empty() { String::new() } else { format!("?fieldManager={manager}") };
        let request = Request::builder().method(method).uri(format!("{url}{query}"));
        let request = request.header(CONTENT_TYPE, content_type).body(body.to_string().into_bytes());
        request.expect("names of objects and managers are legal in a URL")
    }
}

/// The URL of the collection that an object is in.
pub(super) fn collection(key: &Key) -> String {
    let version = kinds::of(key.resource).map_or("v1", |kind| kind.versions[0]);
    let root = match key.resource.group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    };
    match &*key.namespace {
        "" => format!("{root}/{}", key.resource.plural),
        space => format!("{root}/namespaces/{space}/{}", key.resource.plural),
    }
}

/// The URL of an object.
pub(super) fn url(key: &Key) -> String {
    format!("{}/{}", collection(key), key.name)
}

//! What all writes have in common: who writes, to which URL, and how the answer becomes an [`Answer`].

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::ACCEPT;
use http::header::CONTENT_TYPE;
use serde_json::{Map, Value};

use crate::action::codes;
use crate::action::k8s::changes::Change;
use crate::action::k8s::classify::Intent;
use crate::action::k8s::client::Ask;
use crate::action::k8s::client::Cluster;
use crate::action::k8s::client::Kind;
use crate::action::k8s::client::Reply;
use crate::action::k8s::client::bad_request;
use crate::action::k8s::read;
use crate::action::k8s::read::Found;
use crate::action::naming::LAST_WRITE;
use crate::action::request::Answer;
use crate::action::request::ObjectRef;
use crate::action::request::Origin;
use crate::action::request::Selector;
use crate::failure::Failure;

/// JSON, for bodies that are no patches.
pub(crate) const JSON: &str = "application/json";
/// RFC 7386.
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";

/// One write: where, by whom, how long it may take.
#[derive(Debug, Clone)]
pub(crate) struct Site<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) origin: &'a Origin,
    pub(crate) limit: Duration,
    /// The server judges the write and forgets it.
    pub(crate) dry_run: bool,
}

/// One object and the URL where it is.
pub(crate) struct Place {
    pub(crate) target: ObjectRef,
    pub(crate) kind: Arc<Kind>,
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
}

impl Place {
    /// The URL path of the object.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    /// The URL path of the object and its siblings.
    pub(crate) fn collection(&self) -> String {
        self.kind.path(&self.kind.resource.api_version, self.namespace.as_deref())
    }

    /// Its metadata may carry [`LAST_WRITE`]: everything but a VMI, which is KubeVirt's own (C4).
    pub(crate) fn takes_mark(&self) -> bool {
        self.kind.resource.kind != "VirtualMachineInstance" || self.kind.resource.group != "kubevirt.io"
    }
}

impl Site<'_> {
    /// Finds out where a single object is.
    pub(crate) async fn place(&self, target: &ObjectRef) -> Result<Place, Failure> {
        read::check(target)?;
        let Selector::Name(name) = &target.select else {
            let message = format!("{}: this action takes one object; use for_each", target.describe());
            return Err(Failure::permanent(codes::BAD_REQUEST, message));
        };
        let kind = self.cluster.kind(&target.api, &target.kind).await?;
        let namespace = read::namespace_of(self.cluster, target, &kind);
        Ok(Place { target: target.clone(), kind, name: name.clone(), namespace })
    }

    /// The object as it is now.
    pub(crate) async fn live(&self, target: &ObjectRef) -> Result<Option<Arc<Value>>, Failure> {
        match read::read(self.cluster, target).await? {
            Found::One(object) => Ok(object),
            Found::Many(_) => Ok(None),
        }
    }

    /// The object as it was read for this step or, if it was not, as it is now; its absence is a failure.
    pub(crate) async fn existing(
        &self,
        read: Option<&Arc<Value>>,
        target: &ObjectRef,
    ) -> Result<Arc<Value>, Failure> {
        match read.filter(|object| object.is_object()) {
            Some(object) => Ok(Arc::clone(object)),
            None => self.live(target).await?.ok_or_else(|| missing(target)),
        }
    }

    pub(crate) fn ask(&self, verb: &str, target: &ObjectRef) -> Ask {
        let intent = if self.dry_run { Intent::Read } else { Intent::Write };
        Ask { intent, limit: self.limit, what: format!("{verb} {}", target.describe()) }
    }

    /// Builds a write. The field manager consists of characters that need no escape.
    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        query: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<http::Request<Vec<u8>>, Failure> {
        let dry_run = if self.dry_run { "&dryRun=All" } else { "" };
        let uri = format!("{path}?fieldManager={}{dry_run}{query}", self.origin.field_manager());
        let builder = http::Request::builder().method(method).uri(uri);
        let builder = builder.header(ACCEPT, JSON).header(CONTENT_TYPE, content_type);
        let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        builder.body(body).map_err(|error| bad_request(&error))
    }

    /// Sends a write of an object that exists, and returns the object as the server answered it.
    pub(crate) async fn write(
        &self,
        place: &Place,
        request: http::Request<Vec<u8>>,
        ask: &Ask,
    ) -> Result<Value, Failure> {
        let reply = self.cluster.call(request, ask).await?;
        self.accepted(place, &reply, ask).await?;
        object_in(&reply, ask)
    }

    /// Turns a refusal into a failure. A 404 that is not about the object itself means a kind that has gone.
    pub(crate) async fn accepted(&self, place: &Place, reply: &Reply, ask: &Ask) -> Result<(), Failure> {
        let Some(refusal) = reply.refusal() else { return Ok(()) };
        let failure = refusal.classify(ask.intent, &ask.what);
        if failure.code == codes::NOT_FOUND && !refusal.is_absence_of(&place.name) {
            self.cluster.discover(&place.target.api, &place.target.kind).await?;
            return Err(Failure::retryable(codes::UNAVAILABLE, failure.message));
        }
        Err(failure)
    }

    /// Puts [`LAST_WRITE`] into the metadata of an object or of a patch of one.
    pub(crate) fn mark(&self, place: &Place, object: &mut Value) -> Result<(), Failure> {
        if place.takes_mark() && !self.dry_run {
            map_in(map_in(object, "metadata")?, "annotations")?[LAST_WRITE] = self.origin.last_write().into();
        }
        Ok(())
    }
}

/// The map under `key`, made if there is none.
fn map_in<'a>(object: &'a mut Value, key: &str) -> Result<&'a mut Value, Failure> {
    let wrong =
        || Failure::permanent(codes::BAD_REQUEST, format!("`{key}` cannot be set: it is not in a table"));
    let map = object.as_object_mut().ok_or_else(wrong)?.entry(key).or_insert_with(|| Map::new().into());
    if map.is_object() { Ok(map) } else { Err(wrong()) }
}

/// The object in a success.
pub(crate) fn object_in(reply: &Reply, ask: &Ask) -> Result<Value, Failure> {
    let mut object: Value = serde_json::from_slice(&reply.body).map_err(|error| ask.unreadable(&error))?;
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("managedFields");
    }
    Ok(object)
}

/// The object that a step needs does not exist.
pub(crate) fn missing(target: &ObjectRef) -> Failure {
    Failure::permanent(codes::NOT_FOUND, format!("{} does not exist", target.describe()))
}

/// A write that was carried out.
pub(crate) fn written(changed: bool, object: Value, paths: Option<&[Change]>) -> Answer {
    Answer::Done {
        changed,
        object: version_of(&object),
        result: object,
        changes: paths.map(|paths| serde_json::to_value(paths).unwrap_or_default()),
    }
}

/// uid and resourceVersion.
pub(crate) fn version_of(object: &Value) -> Option<(Arc<str>, Arc<str>)> {
    let text = |key: &str| object.get("metadata")?.get(key)?.as_str().map(Arc::from);
    Some((text("uid")?, text("resourceVersion")?))
}

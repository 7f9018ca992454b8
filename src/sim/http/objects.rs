//! Creating, reading, changing and deleting objects.

use axum::response::Response;
use http::Method;
use http::header::WARNING;
use serde_json::{Value, json};

use crate::sim::cluster::Cluster;
use crate::sim::cluster::lock;
use crate::sim::delete::DeleteOptions;
use crate::sim::delete::Deleted;
use crate::sim::failure::Failure;
use crate::sim::http::cut;
use crate::sim::http::json_response;
use crate::sim::http::logs;
use crate::sim::http::negotiate::Encoder;
use crate::sim::http::request::Request;
use crate::sim::http::request::Target;
use crate::sim::http::request::namespace_of;
use crate::sim::http::selector::Selector;
use crate::sim::kinds::Kind;
use crate::sim::kinds::NAMESPACES;
use crate::sim::kinds::PODS;
use crate::sim::meta;
use crate::sim::parts::Part;
use crate::sim::patch::Patch;
use crate::sim::registry::Caller;
use crate::sim::registry::unknown_fields;
use crate::sim::trouble::Attempt;
use crate::sim::trouble::Fate;
use crate::sim::typed;
use crate::sim::validate;
use crate::sim::world::Key;

/// Answers a request about objects.
pub(super) fn answer(cluster: &Cluster, request: &Request) -> Result<Response, Failure> {
    match &request.target {
        Target::Collection { kind, version, namespace } => {
            if kind.is_view()
                || request.method == Method::DELETE && !kind.verbs().contains(&"deletecollection")
            {
                return Err(Failure::method_not_allowed());
            }
            let encoder = Encoder::new(kind, version, request)?;
            match request.method {
                Method::POST => create(cluster, request, &encoder, version, namespace),
                Method::DELETE => delete_all(cluster, request, &encoder, namespace),
                _ => Err(Failure::method_not_allowed()),
            }
        }
        Target::Object { kind, version, key, subresource } => {
            if kind.is_view() && request.method != Method::GET {
                return Err(Failure::method_not_allowed());
            }
            let encoder = Encoder::new(kind, version, request)?;
            let object = Object { cluster, request, kind, version, key, encoder };
            match subresource.as_str() {
                "" => object.answer(Part::Main),
                "status" if kind.status => object.answer(Part::Status),
                "log" if kind.resource == PODS => logs::answer(cluster, request, key),
                "finalize" if kind.resource == NAMESPACES => object.answer(Part::Main),
                _ => Err(Failure::no_resource()),
            }
        }
        _ => Err(Failure::no_resource()),
    }
}

/// Reads the object in a body, drops the fields that its kind does not have, and names them.
fn read_object(
    request: &Request,
    kind: &Kind,
    version: &str,
    namespace: &str,
    caller: &Caller,
) -> Result<(Value, Vec<String>), Failure> {
    let mut body = request.object(kind)?;
    validate::identity(kind, version, namespace, &mut body, false)?;
    let misfit = |why: &str| validate::misfit(kind, kind.kind, version, why);
    let unknown = typed::conform(kind, &mut body).map_err(|why| misfit(&why))?;
    if caller.strict && !unknown.is_empty() {
        return Err(misfit(&unknown_fields(&unknown)));
    }
    Ok((body, unknown))
}

/// Warns of fields that were dropped, unless the client does not want to know.
fn with_warnings(mut response: Response, unknown: &[String], request: &Request) -> Response {
    if request.query.get("fieldValidation") != "Ignore" {
        for field in unknown {
            let text = format!("299 - \"unknown field \\\"{field}\\\"\"");
            if let Ok(warning) = text.parse() {
                response.headers_mut().append(WARNING, warning);
            }
        }
    }
    response
}

/// Lets the faults of the API have their say, then does the work.
pub(super) fn attempt(
    cluster: &Cluster,
    attempt: &Attempt<'_>,
    work: impl FnOnce() -> Result<Response, Failure>,
) -> Result<Response, Failure> {
    let inner = cluster.inner();
    let fate = lock(&inner.trouble).meet(attempt, &*inner.clock);
    match fate {
        Fate::Pass => work(),
        Fate::Refused(failure) => Err(failure),
        Fate::LostBefore => {
            cluster.begin_outage();
            Ok(cut())
        }
        Fate::LostAfter => {
            if let Err(failure) = work() {
                tracing::debug!(%failure, "a refusal is lost with its connection");
            }
            cluster.begin_outage();
            Ok(cut())
        }
    }
}

fn create(
    cluster: &Cluster,
    request: &Request,
    encoder: &Encoder,
    version: &str,
    namespace: &str,
) -> Result<Response, Failure> {
    let kind = encoder.kind;
    if kind.namespaced && namespace.is_empty() {
        return Err(Failure::method_not_allowed());
    }
    let now = cluster.inner().clock.now();
    let caller = request.caller(now)?;
    let (body, unknown) = read_object(request, kind, version, namespace, &caller)?;
    let try_it = Attempt { kind, namespace, name: "", verb: "create", subresource: "", versioned: false };
    attempt(cluster, &try_it, || {
        let stored = cluster.inner().with(|registry| registry.create(kind, namespace, body, &caller))?;
        Ok(with_warnings(json_response(201, &encoder.object(&stored, now)), &unknown, request))
    })
}

/// Options of a delete, from the body or else from the URL.
fn delete_options(request: &Request) -> Result<DeleteOptions, Failure> {
    let body = request.json()?;
    if !body.is_null() {
        return serde_json::from_value(body)
            .map_err(|error| Failure::bad_request(format!("DeleteOptions cannot be read: {error}")));
    }
    let text = |name: &str| Some(request.query.get(name)).filter(|v| !v.is_empty()).map(str::to_owned);
    Ok(DeleteOptions {
        grace_period_seconds: text("gracePeriodSeconds").and_then(|seconds| seconds.parse().ok()),
        propagation_policy: text("propagationPolicy"),
        orphan_dependents: text("orphanDependents").map(|orphan| orphan == "true"),
        dry_run: text("dryRun").into_iter().collect(),
        ..DeleteOptions::default()
    })
}

fn delete_all(
    cluster: &Cluster,
    request: &Request,
    encoder: &Encoder,
    namespace: &str,
) -> Result<Response, Failure> {
    let kind = encoder.kind;
    let now = cluster.inner().clock.now();
    let options = delete_options(request)?;
    let mut caller = request.caller(now)?;
    caller.dry_run = !options.dry_run.is_empty();
    let selector = Selector::parse(kind, &request.query)?;
    let scope = Some(namespace).filter(|namespace| !namespace.is_empty());
    let try_it =
        Attempt { kind, namespace, name: "", verb: "deletecollection", subresource: "", versioned: false };
    attempt(cluster, &try_it, || {
        let deleted = cluster.inner().with(|registry| {
            let objects = registry.store.scan(kind.resource, scope, None);
            let keys: Vec<Key> =
                objects.filter(|(_, object)| selector.matches(object)).map(|(key, _)| key.clone()).collect();
            let delete = |key: &Key| match registry.delete(kind, key, &options, &caller)? {
                Deleted::Gone(object) | Deleted::Marked(object) => Ok(object),
            };
            keys.iter().map(delete).collect::<Result<Vec<_>, Failure>>()
        })?;
        let revision = lock(&cluster.inner().registry).store.revision();
        let metadata = json!({"resourceVersion": revision.to_string()});
        let objects = deleted.iter().map(|object| &**object);
        Ok(json_response(200, &encoder.list(&metadata, objects, now)))
    })
}

/// One object in a request.
struct Object<'a> {
    cluster: &'a Cluster,
    request: &'a Request,
    kind: &'static Kind,
    version: &'a str,
    key: &'a Key,
    encoder: Encoder,
}

impl Object<'_> {
    fn answer(&self, part: Part) -> Result<Response, Failure> {
        match self.request.method {
            Method::GET => self.get(),
            Method::PUT => self.replace(part),
            Method::PATCH => self.patch(part),
            Method::DELETE if part == Part::Main => self.delete(),
            _ => Err(Failure::method_not_allowed()),
        }
    }

    fn caller(&self) -> Result<Caller, Failure> {
        self.request.caller(self.cluster.inner().clock.now())
    }

    fn get(&self) -> Result<Response, Failure> {
        let object = lock(&self.cluster.inner().registry).get(self.kind, self.key)?;
        Ok(self.shown(200, &object))
    }

    fn shown(&self, code: u16, object: &Value) -> Response {
        json_response(code, &self.encoder.object(object, self.cluster.inner().clock.now()))
    }

    fn attempt(&self, verb: &'static str, part: Part, versioned: bool) -> Attempt<'_> {
        Attempt {
            kind: self.kind,
            namespace: namespace_of(self.key),
            name: &self.key.name,
            verb,
            subresource: part.subresource(),
            versioned,
        }
    }

    fn replace(&self, part: Part) -> Result<Response, Failure> {
        let caller = self.caller()?;
        let (body, unknown) =
            read_object(self.request, self.kind, self.version, &self.key.namespace, &caller)?;
        let try_it = self.attempt("update", part, !meta::version(&body).is_empty());
        attempt(self.cluster, &try_it, || {
            let inner = self.cluster.inner();
            let stored = inner.with(|registry| registry.replace(self.kind, self.key, part, body, &caller))?;
            Ok(with_warnings(self.shown(200, &stored), &unknown, self.request))
        })
    }

    fn patch(&self, part: Part) -> Result<Response, Failure> {
        let caller = self.caller()?;
        let patch = self.read_patch()?;
        let versioned = !meta::version(patch.body()).is_empty();
        let try_it = self.attempt("patch", part, versioned);
        attempt(self.cluster, &try_it, || {
            let inner = self.cluster.inner();
            let (stored, created) =
                inner.with(|registry| registry.patch(self.kind, self.key, part, &patch, &caller))?;
            Ok(self.shown(if created { 201 } else { 200 }, &stored))
        })
    }

    fn read_patch(&self) -> Result<Patch, Failure> {
        let force = self.request.query.flag("force");
        let media = self.request.content_type.split(';').next().unwrap_or_default().trim();
        if media != "application/apply-patch+yaml" && self.request.query.has("force") {
            let message = "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch";
            return Err(Failure::new(422, "Invalid", message));
        }
        let patch = match media {
            "application/json-patch+json" => Patch::Json(self.request.json()?),
            "application/merge-patch+json" => Patch::Merge(self.request.json()?),
            "application/strategic-merge-patch+json" if self.kind.custom => {
                return Err(unknown_patch());
            }
            "application/strategic-merge-patch+json" => Patch::Strategic(self.request.json()?),
            "application/apply-patch+yaml" => Patch::Apply { manifest: self.read_manifest()?, force },
            _ => return Err(Failure::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")),
        };
        if matches!(patch, Patch::Merge(_) | Patch::Strategic(_)) && !patch.body().is_object() {
            let message = "json: cannot unmarshal the patch into an object";
            return Err(Failure::bad_request(message));
        }
        Ok(patch)
    }

    fn read_manifest(&self) -> Result<Value, Failure> {
        if self.request.query.get("fieldManager").is_empty() {
            let message = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
            return Err(Failure::new(422, "Invalid", message));
        }
        let mut manifest = self.request.object(self.kind)?;
        validate::identity(self.kind, self.version, &self.key.namespace, &mut manifest, true)?;
        if manifest.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
            return Err(Failure::bad_request("metadata.managedFields must be nil"));
        }
        if !meta::name(&manifest).is_empty() {
            validate::same_place(self.key, &manifest)?;
        }
        Ok(manifest)
    }

    fn delete(&self) -> Result<Response, Failure> {
        let options = delete_options(self.request)?;
        let mut caller = self.caller()?;
        caller.dry_run = !options.dry_run.is_empty();
        let try_it = self.attempt("delete", Part::Main, false);
        attempt(self.cluster, &try_it, || {
            let inner = self.cluster.inner();
            let deleted = inner.with(|registry| registry.delete(self.kind, self.key, &options, &caller))?;
            Ok(match deleted {
                Deleted::Gone(object) if !self.kind.returns_deleted => self.success(&object),
                Deleted::Gone(object) | Deleted::Marked(object) => self.shown(200, &object),
            })
        })
    }

    fn success(&self, object: &Value) -> Response {
        let mut details = json!({"name": &*self.key.name});
        if !self.kind.resource.group.is_empty() {
            details["group"] = self.kind.resource.group.into();
        }
        details["kind"] = self.kind.resource.plural.into();
        details["uid"] = meta::uid(object).into();
        json_response(
            200,
            &json!({
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": details,
            }),
        )
    }
}

fn unknown_patch() -> Failure {
    let message = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    Failure::new(415, "UnsupportedMediaType", message)
}

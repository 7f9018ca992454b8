//! Refused requests, worded as kube-apiserver words them.

use serde_json::{Map, Value, json};

use crate::sim::kinds::Kind;
use crate::sim::world::Refusal;

/// Why a request was refused. It becomes a `Status` object.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// HTTP status.
    pub code: u16,
    /// One word for programs.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
    /// What it is about, as `details` of the `Status`.
    pub details: Option<Box<Value>>,
    /// A token with which an expired list may go on.
    pub remainder: Option<String>,
}

/// One thing that is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Which kind of mistake, for instance `FieldValueInvalid`.
    pub reason: &'static str,
    /// Where.
    pub field: String,
    /// What, without the place.
    pub message: String,
}

impl Cause {
    /// A value that is not allowed.
    pub fn invalid(field: &str, value: &Value, why: &str) -> Self {
        let message = format!("Invalid value: {value}: {why}");
        Self { reason: "FieldValueInvalid", field: field.to_owned(), message }
    }

    /// A value that must not change.
    pub fn immutable(field: &str, value: &Value) -> Self {
        Self::invalid(field, value, "field is immutable")
    }

    /// A null where a schema wants a type.
    pub(crate) fn of_type(field: &str, wanted: &str) -> Self {
        let message = format!("Invalid value: \"null\": {field} in body must be of type {wanted}: \"null\"");
        Self { reason: "FieldValueTypeInvalid", field: field.to_owned(), message }
    }

    /// A value that is missing.
    pub fn required(field: &str, why: &str) -> Self {
        let message = format!("Required value: {why}");
        Self { reason: "FieldValueRequired", field: field.to_owned(), message }
    }
}

impl Failure {
    /// A failure without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, remainder: None }
    }

    fn about(mut self, kind: &Kind, name: &str) -> Self {
        let mut details = Map::new();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !kind.resource.group.is_empty() {
            details.insert("group".into(), kind.resource.group.into());
        }
        details.insert("kind".into(), kind.resource.plural.into());
        self.details = Some(Box::new(Value::Object(details)));
        self
    }

    /// 404 for an object.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} {name:?} not found", kind.qualified())).about(kind, name)
    }

    /// 404 for a resource that the server does not have.
    pub fn no_resource() -> Self {
        let mut failure = Self::new(404, "NotFound", "the server could not find the requested resource");
        failure.details = Some(Box::new(json!({})));
        failure
    }

    /// 409 for a name that is taken.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} {name:?} already exists", kind.qualified()))
            .about(kind, name)
    }

    /// 409 with a reason of the caller's.
    pub fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.qualified());
        Self::new(409, "Conflict", message).about(kind, name)
    }

    /// 409 for a stale resource version.
    pub fn modified(kind: &Kind, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// 409 for a precondition of a delete that does not hold.
    pub fn precondition(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.qualified_kind());
        let mut failure = Self::new(409, "Conflict", message).about(kind, name);
        if let Some(details) = &mut failure.details {
            details["kind"] = kind.kind.into();
        }
        failure
    }

    /// 422 for an object that is wrong.
    pub fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        let texts: Vec<_> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        let all = if texts.len() == 1 { texts[0].clone() } else { format!("[{}]", texts.join(", ")) };
        let message = format!("{} {name:?} is invalid: {all}", kind.qualified_kind());
        let mut failure = Self::new(422, "Invalid", message).about(kind, name);
        if let Some(details) = &mut failure.details {
            details["kind"] = kind.kind.into();
            let causes = causes.iter();
            details["causes"] = causes
                .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
                .collect::<Value>();
        }
        failure
    }

    /// 422 for a replacement of a custom resource that does not say which version it replaces.
    pub fn unconditional(kind: &Kind, name: &str) -> Self {
        let message = format!(
            "{} {name:?} is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update",
            kind.qualified()
        );
        Self::new(422, "Invalid", message).about(kind, name)
    }

    /// 422 for a patch that makes something of the object that is not of its kind.
    pub fn bad_patch(kind: &Kind, name: &str, patch: &Value, why: &str) -> Self {
        let cause = Cause::invalid("patch", &patch.to_string().into(), why);
        Self::invalid(kind, name, &[cause])
    }

    /// 422 for a JSON patch that does not apply.
    pub fn unprocessable(kind: &Kind, name: &str) -> Self {
        let message = "the server rejected our request due to an error in our request";
        let mut failure = Self::new(422, "Invalid", message).about(kind, name);
        failure.details = Some(Box::new(json!({})));
        failure
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 403 for a user without the right. `verb` as RBAC names it; `subresource` and `name` may be empty.
    pub fn forbidden(
        kind: &Kind,
        subresource: &str,
        namespace: &str,
        name: &str,
        user: &str,
        verb: &str,
    ) -> Self {
        let scope = match namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let subject = match name {
            "" => format!("{} is forbidden", kind.qualified()),
            name => format!("{} {name:?} is forbidden", kind.qualified()),
        };
        let mut resource = kind.resource.plural.to_owned();
        if !subresource.is_empty() {
            resource = format!("{resource}/{subresource}");
        }
        let group = kind.resource.group;
        let message = format!(
            "{subject}: User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {scope}"
        );
        Self::new(403, "Forbidden", message).about(kind, name)
    }

    /// 403 for new content in a namespace that is being deleted.
    pub fn terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let message = format!(
            "{} {name:?} is forbidden: unable to create new content in namespace {namespace} because it is being terminated",
            kind.qualified()
        );
        let mut failure = Self::new(403, "Forbidden", message).about(kind, name);
        if let Some(details) = &mut failure.details {
            details["causes"] = json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace"
            }]);
        }
        failure
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut failure = Self::new(405, "MethodNotAllowed", message);
        failure.details = Some(Box::new(json!({})));
        failure
    }

    /// 410 for a watch that asks for what has been forgotten.
    pub fn expired(asked: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    /// 500.
    pub fn internal(message: impl Into<String>) -> Self {
        let message = message.into();
        let mut failure = Self::new(500, "InternalError", format!("Internal error occurred: {message}"));
        failure.details = Some(Box::new(json!({"causes": [{"message": message}]})));
        failure
    }

    /// 503.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// The `Status` object.
    pub fn status(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.remainder {
            metadata.insert("continue".into(), token.as_str().into());
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = (**details).clone();
        }
        status["code"] = self.code.into();
        status
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code, refusal.reason, refusal.message)
    }
}

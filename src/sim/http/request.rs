//! What a request asks for.

use axum::body::Bytes;
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::request::Parts;
use serde_json::Value;

use crate::sim::failure::Failure;
use crate::sim::kinds;
use crate::sim::kinds::Kind;
use crate::sim::kinds::NAMESPACES;
use crate::sim::protobuf;
use crate::sim::registry::Caller;
use crate::sim::validate;
use crate::sim::world::Key;
use crate::time::Timestamp;

/// The group in which the platform serves its subresources.
pub(super) const PLATFORM_GROUP: &str = "subresources.kubevirt.io";

/// The parameters of a URL.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let split = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name, true), decode(value, true))
        };
        Self(pairs.map(split).collect())
    }

    /// The value of a parameter; empty if it is absent.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value)
    }

    /// Whether the parameter is there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(n, _)| n == name)
    }

    /// Whether the parameter says yes.
    pub(super) fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), "1" | "true" | "True")
    }
}

/// Undoes percent-encoding; in queries a plus is a blank.
fn decode(text: &str, plus_is_blank: bool) -> String {
    let mut bytes = vec![];
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        rest = match (first, byte) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                &tail[2..]
            }
            (b'+', _) if plus_is_blank => {
                bytes.push(b' ');
                tail
            }
            _ => {
                bytes.push(*first);
                tail
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a path names.
#[derive(Debug, Clone)]
pub(super) enum Target {
    /// No resource: health, version, discovery, or nothing at all.
    Plain,
    /// All objects of a kind, in a namespace or (empty) everywhere.
    Collection {
        /// The kind.
        kind: &'static Kind,
        /// The version in the URL.
        version: String,
        /// The namespace.
        namespace: String,
    },
    /// An object or a subresource of it.
    Object {
        /// The kind.
        kind: &'static Kind,
        /// The version in the URL.
        version: String,
        /// Which.
        key: Key,
        /// `status`, `log`, … or empty.
        subresource: String,
    },
    /// A subresource that the platform serves.
    Platform {
        /// The object.
        key: Key,
        /// `start`, `stop`, …
        subresource: String,
    },
    /// A question about the client itself.
    Review {
        /// The plural.
        plural: String,
    },
    /// A resource that the server does not have.
    NoResource {
        /// Whether the group or its resources come from a CustomResourceDefinition: then it is said in plain text.
        custom: bool,
    },
}

impl Target {
    fn parse(path: &str) -> Self {
        let parts: Vec<String> = path.split('/').skip(1).map(|part| decode(part, false)).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => Self::in_group("", version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => Self::in_group(group, version, rest),
            _ => Self::Plain,
        }
    }

    fn in_group(group: &str, version: &str, rest: &[&str]) -> Self {
        // `/namespaces/x/pods` is about pods, `/namespaces/x` and `/namespaces/x/status` are about a namespace.
        let (namespace, rest) = match rest {
            ["namespaces", _, "status" | "finalize"] => ("", rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        match (group, rest) {
            (PLATFORM_GROUP, [plural, name, subresource @ ..]) if (1..=2).contains(&subresource.len()) => {
                match kinds::by_plural("kubevirt.io", "v1", plural) {
                    Some(kind) => Self::Platform {
                        key: Key::new(kind.resource, namespace, name),
                        subresource: subresource.join("/"),
                    },
                    None => Self::NoResource { custom: false },
                }
            }
            ("authorization.k8s.io" | "authentication.k8s.io", [plural]) => {
                Self::Review { plural: (*plural).to_owned() }
            }
            _ => Self::of_kind(group, version, namespace, rest),
        }
    }

    fn of_kind(group: &str, version: &str, namespace: &str, rest: &[&str]) -> Self {
        let Some(kind) = rest.first().and_then(|plural| kinds::by_plural(group, version, plural)) else {
            let served = kinds::KINDS.iter().find(|kind| kind.resource.group == group);
            return Self::NoResource { custom: served.is_none_or(|kind| kind.custom) };
        };
        let (version, namespace) = (version.to_owned(), namespace.to_owned());
        let lost = kind.namespaced && namespace.is_empty() || !kind.namespaced && !namespace.is_empty();
        match rest {
            [_] if kind.namespaced || namespace.is_empty() => Self::Collection { kind, version, namespace },
            [_, name, rest @ ..] if rest.len() < 2 && !lost => Self::Object {
                kind,
                version,
                key: Key::new(kind.stored, &namespace, name),
                subresource: rest.first().copied().unwrap_or_default().to_owned(),
            },
            _ => Self::NoResource { custom: kind.custom },
        }
    }
}

/// A request, taken apart.
#[derive(Debug)]
pub(super) struct Request {
    /// The method.
    pub(super) method: Method,
    /// The path.
    pub(super) path: String,
    /// What the path names.
    pub(super) target: Target,
    /// The parameters.
    pub(super) query: Query,
    /// Which forms of answer the client takes.
    pub(super) accept: String,
    /// The form of the body.
    pub(super) content_type: String,
    /// What the client calls itself.
    pub(super) agent: String,
    /// The body.
    pub(super) body: Bytes,
}

impl Request {
    /// Takes a request apart.
    pub(super) fn new(head: &Parts, body: Bytes) -> Result<Self, Failure> {
        let header = |name| head.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let path = head.uri.path().to_owned();
        let query = Query::parse(head.uri.query().unwrap_or_default());
        for flag in ["watch", "allowWatchBookmarks", "sendInitialEvents", "force"] {
            if !matches!(query.get(flag), "" | "0" | "1" | "true" | "false" | "True" | "False") {
                let message = format!("{flag} is neither true nor false: {}", query.get(flag));
                return Err(Failure::bad_request(message));
            }
        }
        Ok(Self {
            method: head.method.clone(),
            target: Target::parse(&path),
            path,
            query,
            accept: header(ACCEPT).to_owned(),
            content_type: header(CONTENT_TYPE).to_owned(),
            agent: header(USER_AGENT).to_owned(),
            body,
        })
    }

    /// The body as JSON, from whichever form it has; null if there is none.
    pub(super) fn json(&self) -> Result<Value, Failure> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        let media = self.content_type.split(';').next().unwrap_or_default().trim();
        match media {
            protobuf::MEDIA_TYPE => self.binary(),
            media if media.ends_with("yaml") => {
                let text = String::from_utf8_lossy(&self.body);
                serde_saphyr::from_str(&text)
                    .map_err(|error| Failure::bad_request(format!("error decoding YAML: {error}")))
            }
            media if media.is_empty() || media.ends_with("/json") || media.ends_with("+json") => {
                serde_json::from_slice(&self.body).map_err(|error| Failure::bad_request(error.to_string()))
            }
            _ => Err(unknown_format()),
        }
    }

    /// The object in a body of the binary form.
    fn binary(&self) -> Result<Value, Failure> {
        protobuf::decode(&self.body).map_err(|error| match error {
            protobuf::Error::Kind(_) => unknown_format(),
            error => Failure::bad_request(error.to_string()),
        })
    }

    /// The body as an object of a kind.
    pub(super) fn object(&self, kind: &Kind) -> Result<Value, Failure> {
        self.json().map_err(|failure| match failure.code {
            400 => validate::unrecognized(kind, &failure.message),
            _ => failure,
        })
    }

    /// Whether it is only a trial.
    pub(super) fn dry_run(&self) -> Result<bool, Failure> {
        match self.query.get("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => {
                let options = match self.method {
                    Method::POST => "CreateOptions",
                    Method::PUT => "UpdateOptions",
                    Method::DELETE => "DeleteOptions",
                    _ => "PatchOptions",
                };
                let message = format!(
                    "{options}.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [{other:?}]: supported values: \"All\""
                );
                Err(Failure::new(422, "Invalid", message))
            }
        }
    }

    /// Who asks.
    pub(super) fn caller(&self, now: Timestamp) -> Result<Caller, Failure> {
        let manager = match self.query.get("fieldManager") {
            "" => self.agent.split('/').next().filter(|name| !name.is_empty()).unwrap_or("unknown"),
            manager => manager,
        };
        Ok(Caller {
            manager: manager.to_owned(),
            agent: self.agent.clone(),
            controller: false,
            dry_run: self.dry_run()?,
            strict: self.query.get("fieldValidation") == "Strict",
            now,
        })
    }
}

fn unknown_format() -> Failure {
    let message = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml";
    Failure::new(415, "UnsupportedMediaType", message)
}

/// The namespace in which RBAC looks for the right to an object: a namespace is in itself.
pub(super) fn namespace_of(key: &Key) -> &str {
    if key.resource == NAMESPACES { &key.name } else { &key.namespace }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(path: &str) -> String {
        match Target::parse(path) {
            Target::Plain => "plain".to_owned(),
            Target::Collection { kind, namespace, .. } => format!("all {} in {namespace:?}", kind.kind),
            Target::Object { key, subresource, .. } => format!("{key} {subresource:?}"),
            Target::Platform { key, subresource } => format!("platform {key} {subresource}"),
            Target::Review { plural } => format!("review {plural}"),
            Target::NoResource { .. } => "nothing".to_owned(),
        }
    }

    #[test]
    fn paths_name_what_they_name_in_kubernetes() {
        for (path, expected) in [
            ("/version", "plain"),
            ("/apis/kubevirt.io/v1", "plain"),
            ("/api/v1/pods", "all Pod in \"\""),
            ("/api/v1/namespaces", "all Namespace in \"\""),
            ("/api/v1/namespaces/a/pods", "all Pod in \"a\""),
            ("/api/v1/namespaces/a", "namespaces. /a \"\""),
            ("/api/v1/namespaces/a/finalize", "namespaces. /a \"finalize\""),
            ("/api/v1/namespaces/a/pods/p/log", "pods. a/p \"log\""),
            ("/apis/kubevirt.io/v1/namespaces/a/virtualmachines/m", "virtualmachines.kubevirt.io a/m \"\""),
            (
                "/apis/subresources.kubevirt.io/v1/namespaces/a/virtualmachines/m/start",
                "platform virtualmachines.kubevirt.io a/m start",
            ),
            ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "review selfsubjectaccessreviews"),
            ("/api/v1/pods/p", "nothing"),
            ("/api/v1/namespaces/a/nodes", "nothing"),
            ("/apis/kubevirt.io/v9/virtualmachines", "nothing"),
        ] {
            assert_eq!(shown(path), expected, "{path}");
        }
    }

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+(d)&watch=1&empty");
        assert_eq!(query.get("labelSelector"), "a=b,c in (d)");
        assert!(query.flag("watch") && query.has("empty") && !query.has("other"));
        assert_eq!(decode("100%", false), "100%");
    }
}

//! What every object must look like, whatever its kind.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::sim::failure::Cause;
use crate::sim::failure::Failure;
use crate::sim::kinds::Kind;
use crate::sim::kinds::NAMESPACES;
use crate::sim::meta;

const SUBDOMAIN_WHY: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const DNS_LABEL_WHY: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE_WHY: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The longest name of most kinds.
const NAME_MAX: usize = 253;
/// The longest label value and DNS label.
const LABEL_MAX: usize = 63;

static SUBDOMAIN: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"));
static DNS_LABEL: LazyLock<Regex> = LazyLock::new(|| pattern(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"));
static LABEL_VALUE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"));

fn pattern(text: &str) -> Regex {
    Regex::new(&format!("^(?:{text})$")).expect("a constant pattern")
}

/// Whether `apiVersion`, `kind` and namespace of a body fit the URL. Missing ones are filled in for kinds that
/// kube-apiserver serves itself.
pub fn identity(kind: &Kind, version: &str, namespace: &str, body: &mut Value) -> Result<(), Failure> {
    if !body.is_object() {
        return Err(Failure::bad_request("the body of the request is not a JSON object"));
    }
    let expected = kind.api_version_of(version);
    for (field, expected) in [("apiVersion", expected.as_str()), ("kind", kind.kind)] {
        if meta::text(body, &format!("/{field}")).is_empty() {
            if kind.custom {
                let message = format!("Object '{}' is missing in '{body}'", capital(field));
                return Err(Failure::bad_request(message));
            }
            body[field] = expected.into();
        }
    }
    let (given, named) = (meta::text(body, "/apiVersion"), meta::text(body, "/kind"));
    if given != expected {
        let message = format!(
            "the API version in the data ({given}) does not match the expected API version ({expected})"
        );
        return Err(Failure::bad_request(message));
    }
    if named != kind.kind {
        let message = format!("{named} in version {version:?} cannot be handled as a {}", kind.kind);
        return Err(Failure::bad_request(message));
    }
    let given = meta::namespace(body);
    if !given.is_empty() && given != namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Failure::bad_request(message));
    }
    Ok(())
}

fn capital(field: &str) -> String {
    let mut letters = field.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Checks the metadata of an object that is about to be stored.
pub fn metadata(kind: &Kind, object: &Value, old: Option<&Value>) -> Result<(), Failure> {
    let mut causes = vec![];
    if old.is_none() {
        causes.extend(name(kind, meta::name(object)));
    }
    causes.extend(labels(object));
    causes.extend(owners(object));
    if let Some(old) = old {
        causes.extend(new_finalizers(old, object));
    }
    if causes.is_empty() { Ok(()) } else { Err(Failure::invalid(kind, meta::name(object), &causes)) }
}

fn name(kind: &Kind, name: &str) -> Option<Cause> {
    if name.is_empty() {
        return Some(Cause::required("metadata.name", "name or generateName is required"));
    }
    let (pattern, longest, why) = if kind.resource == NAMESPACES {
        (&DNS_LABEL, LABEL_MAX, DNS_LABEL_WHY)
    } else {
        (&SUBDOMAIN, NAME_MAX, SUBDOMAIN_WHY)
    };
    if name.len() > longest {
        let why = format!("must be no more than {longest} characters");
        return Some(Cause::invalid("metadata.name", &name.into(), &why));
    }
    (!pattern.is_match(name)).then(|| Cause::invalid("metadata.name", &name.into(), why))
}

fn labels(object: &Value) -> Vec<Cause> {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let mut causes = vec![];
    for (_, value) in labels.into_iter().flatten() {
        let text = value.as_str().unwrap_or_default();
        if text.len() > LABEL_MAX {
            let why = format!("must be no more than {LABEL_MAX} bytes");
            causes.push(Cause::invalid("metadata.labels", value, &why));
        } else if !LABEL_VALUE.is_match(text) {
            causes.push(Cause::invalid("metadata.labels", value, LABEL_VALUE_WHY));
        }
    }
    causes
}

fn owners(object: &Value) -> Vec<Cause> {
    let mut causes = vec![];
    for owner in meta::owners(object) {
        for (field, what) in [("apiVersion", "version"), ("kind", "kind"), ("name", "name"), ("uid", "uid")] {
            let value = meta::text(owner, &format!("/{field}"));
            if value.is_empty() {
                let place = format!("metadata.ownerReferences.{field}");
                causes.push(Cause::invalid(&place, &value.into(), &format!("{what} must not be empty")));
            }
        }
    }
    causes
}

fn new_finalizers(old: &Value, new: &Value) -> Option<Cause> {
    if !meta::is_deleting(old) {
        return None;
    }
    let before = meta::finalizers(old);
    let added: Vec<_> = meta::finalizers(new).into_iter().filter(|f| !before.contains(f)).collect();
    (!added.is_empty()).then(|| Cause {
        reason: "FieldValueForbidden",
        field: "metadata.finalizers".to_owned(),
        message: format!(
            "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            added.iter().map(|f| format!("{f:?}")).collect::<Vec<_>>().join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sim::kinds::CONFIG_MAPS;
    use crate::sim::kinds::of;

    fn kind() -> &'static Kind {
        of(CONFIG_MAPS).expect("a row")
    }

    #[test]
    fn bad_metadata_is_refused_with_its_causes() {
        for (object, field) in [
            (json!({"metadata": {}}), "metadata.name"),
            (json!({"metadata": {"name": "Upper"}}), "metadata.name"),
            (json!({"metadata": {"name": "a".repeat(254)}}), "metadata.name"),
            (json!({"metadata": {"name": "a", "labels": {"x": "not a label"}}}), "metadata.labels"),
            (
                json!({"metadata": {"name": "a", "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": "p"}
                ]}}),
                "metadata.ownerReferences.uid",
            ),
        ] {
            let failure = metadata(kind(), &object, None).expect_err(field);
            assert_eq!((failure.code, failure.reason), (422, "Invalid"));
            let causes = failure.details.expect("details");
            assert_eq!(causes["causes"][0]["field"], field);
        }
        metadata(kind(), &json!({"metadata": {"name": "a.b-c", "labels": {"x": ""}}}), None).expect("good");
    }

    #[test]
    fn a_body_must_be_what_the_url_says() {
        let good = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "a"}});
        identity(kind(), "v1", "a", &mut good.clone()).expect("good");
        identity(kind(), "v1", "b", &mut good.clone()).expect_err("another namespace");
        for (field, value) in [("apiVersion", "v2"), ("kind", "Secret")] {
            let mut bad = good.clone();
            bad[field] = value.into();
            assert_eq!(identity(kind(), "v1", "a", &mut bad).expect_err(value).code, 400);
        }
    }

    #[test]
    fn a_dying_object_takes_no_new_finalizer() {
        let old = json!({"metadata": {"name": "a", "finalizers": ["x"], "deletionTimestamp": "now"}});
        let mut new = old.clone();
        meta::set_finalizers(&mut new, &["x", "y"]);
        metadata(kind(), &new, Some(&old)).expect_err("a new finalizer");
        meta::set_finalizers(&mut new, &[]);
        metadata(kind(), &new, Some(&old)).expect("fewer");
    }
}

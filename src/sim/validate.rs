//! What every object must look like, whatever its kind.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::sim::failure::Cause;
use crate::sim::failure::Failure;
use crate::sim::kinds::Kind;
use crate::sim::kinds::NAMESPACES;
use crate::sim::meta;
use crate::sim::registry::Caller;
use crate::sim::rules;
use crate::sim::world::Key;

const SUBDOMAIN_WHY: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const DNS_LABEL_WHY: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_VALUE_WHY: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

const QUALIFIED_WHY: &str = "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";

/// The longest name of most kinds.
const NAME_MAX: usize = 253;
/// The longest label value and DNS label.
const LABEL_MAX: usize = 63;

static SUBDOMAIN: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"));
static DNS_LABEL: LazyLock<Regex> = LazyLock::new(|| pattern(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"));
static LABEL_VALUE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"));

static QUALIFIED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
    )
});

fn pattern(text: &str) -> Regex {
    Regex::new(&format!("^(?:{text})$")).expect("a constant pattern")
}

/// Whether `apiVersion`, `kind` and namespace of a body fit the URL. Missing ones are filled in for kinds that
/// kube-apiserver serves itself, unless the request must be complete.
pub(super) fn identity(
    kind: &Kind,
    version: &str,
    namespace: &str,
    body: &mut Value,
    complete: bool,
) -> Result<(), Failure> {
    if !body.is_object() {
        return Err(unrecognized(kind, "json: cannot unmarshal the body into an object"));
    }
    let expected = kind.api_version_of(version);
    for (field, shown, expected) in
        [("kind", "Kind", kind.kind), ("apiVersion", "apiVersion", expected.as_str())]
    {
        if meta::text(body, &format!("/{field}")).is_empty() {
            if kind.custom || complete {
                return Err(Failure::bad_request(format!("Object '{shown}' is missing in '{body}'")));
            }
            body[field] = expected.into();
        }
    }
    let (given, named) = (meta::text(body, "/apiVersion"), meta::text(body, "/kind"));
    if given != expected && kind.custom {
        let message = format!(
            "the API version in the data ({given}) does not match the expected API version ({expected})"
        );
        return Err(Failure::bad_request(message));
    }
    if given != expected || named != kind.kind {
        let why = format!("no conversion from {given} {named} is known");
        return Err(misfit(kind, named, given, &why));
    }
    let given = meta::namespace(body);
    if !given.is_empty() && given != namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Failure::bad_request(message));
    }
    Ok(())
}

/// 400 for a body that is not even an object.
pub(super) fn unrecognized(kind: &Kind, why: &str) -> Failure {
    let message = format!(
        "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {why}",
        kind.kind
    );
    Failure::bad_request(message)
}

/// 400 for a body that does not fit the kind.
pub(super) fn misfit(kind: &Kind, named: &str, api_version: &str, why: &str) -> Failure {
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let message = format!("{named} in version {version:?} cannot be handled as a {}: {why}", kind.kind);
    Failure::bad_request(message)
}

/// Whether name and namespace of a changed object are still those of the URL.
pub(super) fn same_place(key: &Key, object: &Value) -> Result<(), Failure> {
    let (name, namespace) = (meta::name(object), meta::namespace(object));
    if name != &*key.name {
        let message =
            format!("the name of the object ({name}) does not match the name on the URL ({})", key.name);
        return Err(Failure::bad_request(message));
    }
    if !namespace.is_empty() && namespace != &*key.namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Failure::bad_request(message));
    }
    Ok(())
}

/// Checks an object that is about to be stored.
pub(super) fn object(kind: &Kind, new: &Value, old: Option<&Value>, caller: &Caller) -> Result<(), Failure> {
    let mut causes = vec![];
    if old.is_none() {
        causes.extend(name(kind, meta::name(new)));
    }
    causes.extend(labels(new));
    causes.extend(qualified(new, "annotations"));
    causes.extend(owners(new));
    causes.extend(finalizers(new));
    causes.extend(old.and_then(|old| new_finalizers(old, new)));
    causes.extend(rules::causes(kind, new, old, caller));
    if causes.is_empty() { Ok(()) } else { Err(Failure::invalid(kind, meta::name(new), &causes)) }
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
    let mut causes = qualified(object, "labels");
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

/// What is wrong with the names of labels or annotations.
fn qualified(object: &Value, map: &str) -> Vec<Cause> {
    let field = format!("metadata.{map}");
    let map = object.pointer(&format!("/metadata/{map}")).and_then(Value::as_object);
    let bad = map.into_iter().flatten().map(|(name, _)| name).filter(|name| !is_qualified(name));
    bad.map(|name| Cause::invalid(&field, &name.as_str().into(), QUALIFIED_WHY)).collect()
}

fn is_qualified(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or_default();
    last.len() <= LABEL_MAX && QUALIFIED.is_match(name)
}

fn finalizers(object: &Value) -> Vec<Cause> {
    let bad = meta::finalizers(object).into_iter().filter(|name| !is_qualified(name));
    bad.map(|name| Cause::invalid("metadata.finalizers", &name.into(), QUALIFIED_WHY)).collect()
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
    use crate::time::Timestamp;

    fn caller() -> Caller {
        Caller::controller("test", Timestamp::from_millis(0))
    }

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
            let failure = super::object(kind(), &object, None, &caller()).expect_err(field);
            assert_eq!((failure.code, failure.reason), (422, "Invalid"));
            let causes = failure.details.expect("details");
            assert_eq!(causes["causes"][0]["field"], field);
        }
        let good = json!({"metadata": {"name": "a.b-c", "labels": {"x": ""}}});
        object(kind(), &good, None, &caller()).expect("good");
    }

    #[test]
    fn a_body_must_be_what_the_url_says() {
        let good = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "a"}});
        identity(kind(), "v1", "a", &mut good.clone(), false).expect("good");
        identity(kind(), "v1", "b", &mut good.clone(), false).expect_err("another namespace");
        for (field, value) in [("apiVersion", "v2"), ("kind", "Secret")] {
            let mut bad = good.clone();
            bad[field] = value.into();
            assert_eq!(identity(kind(), "v1", "a", &mut bad, false).expect_err(value).code, 400);
        }
    }

    #[test]
    fn a_dying_object_takes_no_new_finalizer() {
        let old = json!({"metadata": {"name": "a", "finalizers": ["x"], "deletionTimestamp": "now"}});
        let mut new = old.clone();
        meta::set_finalizers(&mut new, &["x", "y"]);
        object(kind(), &new, Some(&old), &caller()).expect_err("a new finalizer");
        meta::set_finalizers(&mut new, &[]);
        object(kind(), &new, Some(&old), &caller()).expect("fewer");
    }
}

//! What kube-apiserver refuses kind by kind, as far as platforms and their operators run into it.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use crate::sim::failure::Cause;
use crate::sim::kinds;
use crate::sim::kinds::Kind;
use crate::sim::meta;
use crate::sim::registry::Caller;

const KEY_WHY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const POD_WHY: &str = "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
const CLAIM_WHY: &str = "Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

static KEY: LazyLock<Regex> = LazyLock::new(|| Regex::new("^[-._a-zA-Z0-9]+$").expect("a constant pattern"));

/// What is wrong with an object of this kind, by itself and compared with the one that it replaces.
pub(super) fn causes(kind: &Kind, new: &Value, old: Option<&Value>, caller: &Caller) -> Vec<Cause> {
    match (kind.resource, old) {
        (kinds::CONFIG_MAPS, _) => keys(new),
        (kinds::SECRETS, old) => {
            let mut causes = keys(new);
            causes.extend(old.and_then(|old| kept(old, new, "type", Cause::immutable)));
            causes
        }
        (kinds::EVENTS, None) => event(new),
        (kinds::CLAIMS, None) => claim(new),
        (kinds::CLAIMS, Some(old)) => claim_update(old, new, caller),
        (kinds::PODS, Some(old)) => pod_update(old, new, caller),
        (kinds::STORAGE_CLASSES, Some(old)) => {
            let fixed = |field: &str, _: &Value| {
                forbidden(field, &format!("Forbidden: updates to {field} are forbidden."))
            };
            let fields = ["parameters", "provisioner", "reclaimPolicy"].iter();
            let mut causes: Vec<Cause> = fields.filter_map(|field| kept(old, new, field, fixed)).collect();
            causes.extend(kept(old, new, "volumeBindingMode", Cause::immutable));
            causes
        }
        _ => vec![],
    }
}

fn forbidden(field: &str, message: &str) -> Cause {
    Cause { reason: "FieldValueForbidden", field: field.to_owned(), message: message.to_owned() }
}

/// A cause if a field has changed.
fn kept(old: &Value, new: &Value, field: &str, cause: impl Fn(&str, &Value) -> Cause) -> Option<Cause> {
    let value = new.get(field).unwrap_or(&Value::Null);
    (old.get(field).unwrap_or(&Value::Null) != value).then(|| cause(field, value))
}

fn keys(object: &Value) -> Vec<Cause> {
    let data = object.get("data").and_then(Value::as_object);
    let names = data.into_iter().flatten().map(|(name, _)| name);
    let bad = names.filter(|name| !KEY.is_match(name));
    bad.map(|name| Cause::invalid(&format!("data[{name}]"), &name.as_str().into(), KEY_WHY)).collect()
}

fn event(event: &Value) -> Vec<Cause> {
    let (about, own) = (meta::text(event, "/involvedObject/namespace"), meta::namespace(event));
    // What lives in no namespace is reported in `default`.
    if about == own || about.is_empty() && own == "default" {
        return vec![];
    }
    vec![Cause::invalid("involvedObject.namespace", &about.into(), "does not match event.namespace")]
}

fn claim(claim: &Value) -> Vec<Cause> {
    let mut causes = vec![];
    let modes = claim.pointer("/spec/accessModes").and_then(Value::as_array);
    if modes.is_none_or(Vec::is_empty) {
        causes.push(Cause::required("spec.accessModes", "at least 1 access mode is required"));
    }
    if meta::text(claim, "/spec/resources/requests/storage").is_empty() {
        let message = "Required value".to_owned();
        let field = "spec.resources[storage]".to_owned();
        causes.push(Cause { reason: "FieldValueRequired", field, message });
    }
    causes
}

fn claim_update(old: &Value, new: &Value, caller: &Caller) -> Vec<Cause> {
    let fixed = |claim: &Value| {
        let mut spec = claim.get("spec").cloned().unwrap_or_default();
        if let Some(spec) = spec.as_object_mut() {
            spec.shift_remove("resources");
            spec.shift_remove("volumeAttributesClassName");
            // The volume controller binds a claim.
            if caller.controller {
                spec.shift_remove("volumeName");
            }
        }
        spec
    };
    if fixed(old) == fixed(new) { vec![] } else { vec![forbidden("spec", CLAIM_WHY)] }
}

fn pod_update(old: &Value, new: &Value, caller: &Caller) -> Vec<Cause> {
    let fixed = |pod: &Value| {
        let mut spec = pod.get("spec").cloned().unwrap_or_default();
        for list in ["containers", "initContainers"] {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                container["image"] = json!("");
            }
        }
        if let Some(spec) = spec.as_object_mut() {
            for field in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"] {
                spec.shift_remove(field);
            }
            // The scheduler binds a pod, in a real cluster through the subresource `binding`.
            if caller.controller {
                spec.shift_remove("nodeName");
            }
        }
        spec
    };
    if fixed(old) == fixed(new) { vec![] } else { vec![forbidden("spec", POD_WHY)] }
}

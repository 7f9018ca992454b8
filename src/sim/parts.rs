//! Which parts of an object a request may change, and which belong to the server.

use serde_json::Value;

use crate::sim::kinds;
use crate::sim::kinds::Kind;
use crate::sim::kinds::NAMESPACES;
use crate::sim::managed::How;
use crate::sim::meta;

/// Which part of an object a request writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All but the status (all, for a kind without a separate status).
    Main,
    /// The status only.
    Status,
}

impl Part {
    /// The last part of the URL.
    pub(super) fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
        }
    }
}

/// Takes the status from a new object, for a kind whose status has its own subresource.
pub(super) fn drop_status(kind: &Kind, object: &mut Value) {
    // A node registers itself with its status: kubelets and tests of platforms without one do.
    if kind.resource != kinds::NODES
        && let Some(object) = object.as_object_mut()
    {
        object.shift_remove("status");
    }
}

/// The part of an applied manifest that the request may write.
pub(super) fn restricted(kind: &Kind, part: Part, manifest: &Value) -> Value {
    let mut manifest = manifest.clone();
    let Some(map) = manifest.as_object_mut() else { return manifest };
    match part {
        Part::Main if kind.status => drop(map.shift_remove("status")),
        Part::Main => {}
        Part::Status => map.retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind" | "status")),
    }
    manifest
}

/// Puts the part that the request must not write back to what it was.
pub(super) fn merged(kind: &Kind, part: Part, old: &Value, new: Value, how: How) -> Value {
    match part {
        Part::Main if kind.status => {
            let mut new = new;
            set_field(&mut new, "status", old.get("status").cloned());
            new
        }
        Part::Main => new,
        Part::Status => {
            let mut kept = old.clone();
            set_field(&mut kept, "status", new.get("status").cloned());
            if how == How::Apply {
                let managers = new.pointer("/metadata/managedFields").cloned();
                meta::set(&mut kept, "managedFields", managers);
            }
            kept
        }
    }
}

fn set_field(object: &mut Value, field: &str, value: Option<Value>) {
    let Some(object) = object.as_object_mut() else { return };
    match value {
        Some(value) => drop(object.insert(field.to_owned(), value)),
        None => drop(object.shift_remove(field)),
    }
}

/// Puts back the metadata that belongs to the server.
pub(super) fn restore_metadata(old: &Value, new: &mut Value) {
    for field in ["apiVersion", "kind"] {
        new[field] = old[field].clone();
    }
    for field in [
        "name",
        "namespace",
        "generateName",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ] {
        meta::set(new, field, old["metadata"].get(field).cloned());
    }
    meta::set(new, "selfLink", None);
}

/// Whether anything outside the metadata (and outside a separate status) differs.
pub(super) fn spec_differs(kind: &Kind, old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return false };
    let counts = |field: &str| field != "metadata" && !(kind.status && field == "status");
    let fields = old.keys().chain(new.keys());
    fields.filter(|field| counts(field)).any(|field| old.get(field) != new.get(field))
}

/// Whether a deleted object has nothing left that holds it.
pub(super) fn is_done(kind: &Kind, object: &Value) -> bool {
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    meta::is_deleting(object)
        && meta::finalizers(object).is_empty()
        && grace.unwrap_or(0) == 0
        && kind.resource != NAMESPACES
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sim::kinds::INSTANCES;
    use crate::sim::kinds::VIRTUAL_MACHINES;
    use crate::sim::kinds::of;

    #[test]
    fn a_split_status_is_written_through_its_subresource_only() {
        let split = of(VIRTUAL_MACHINES).expect("a row");
        let old = json!({"metadata": {"name": "a"}, "spec": {"x": 1}, "status": {"y": 1}});
        let new = json!({"metadata": {"name": "a"}, "spec": {"x": 2}, "status": {"y": 2}});
        let main = merged(split, Part::Main, &old, new.clone(), How::Update);
        assert_eq!((&main["spec"]["x"], &main["status"]["y"]), (&json!(2), &json!(1)));
        let status = merged(split, Part::Status, &old, new.clone(), How::Update);
        assert_eq!((&status["spec"]["x"], &status["status"]["y"]), (&json!(1), &json!(2)));
        let whole = of(INSTANCES).expect("a row");
        assert_eq!(merged(whole, Part::Main, &old, new.clone(), How::Update), new);
        assert!(spec_differs(whole, &json!({"status": 1}), &json!({"status": 2})));
        assert!(!spec_differs(split, &json!({"status": 1}), &json!({"status": 2})));
    }

    #[test]
    fn the_servers_own_metadata_is_put_back() {
        let old = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "1", "generation": 3}});
        let mut new = json!({"kind": "Other", "metadata": {"name": "b", "uid": "2", "labels": {"x": "y"}}});
        restore_metadata(&old, &mut new);
        let expected = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "uid": "1", "generation": 3, "labels": {"x": "y"}},
        });
        assert_eq!(new, expected);
    }
}

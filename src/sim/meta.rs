//! Reading and writing what all objects have in common.

use serde_json::{Map, Value};

pub(super) use crate::sim::object::deleting as is_deleting;
pub(super) use crate::sim::object::label;
pub(super) use crate::sim::object::name;
pub(super) use crate::sim::object::namespace;
pub(super) use crate::sim::object::text;
pub(super) use crate::sim::object::uid;
use crate::time::Timestamp;

/// `metadata.resourceVersion`; empty if there is none.
pub(super) fn version(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion")
}

/// `metadata.generation`; zero if there is none.
pub(super) fn generation(object: &Value) -> i64 {
    object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0)
}

/// `metadata.finalizers`.
pub(super) fn finalizers(object: &Value) -> Vec<&str> {
    let list = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// `metadata.ownerReferences`.
pub(super) fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

/// The metadata, for changing it. What is not an object becomes one.
pub(super) fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let metadata = &mut object["metadata"];
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut().expect("made one above")
}

/// Sets a field of the metadata, or removes it.
pub(super) fn set(object: &mut Value, field: &str, value: Option<Value>) {
    let metadata = metadata_mut(object);
    match value {
        Some(value) => drop(metadata.insert(field.to_owned(), value)),
        None => drop(metadata.shift_remove(field)),
    }
}

/// Replaces the finalizers; an empty list removes the field.
pub(super) fn set_finalizers(object: &mut Value, finalizers: &[&str]) {
    let value = (!finalizers.is_empty()).then(|| Value::from(finalizers.to_vec()));
    set(object, "finalizers", value);
}

/// A moment as Kubernetes writes it in metadata: RFC 3339 in whole seconds.
pub(super) fn rfc3339(at: Timestamp) -> String {
    let seconds = Timestamp::from_millis(at.as_millis().div_euclid(1000) * 1000);
    seconds.to_string().replace(".000Z", "Z")
}

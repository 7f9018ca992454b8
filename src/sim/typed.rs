//! The kinds that kube-apiserver knows as types: what does not fit the type is refused, what the type does not have is
//! an unknown field. Custom kinds are open here.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, ServiceAccount,
};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::sim::kinds;
use crate::sim::kinds::Kind;
use crate::sim::world::Resource;

type RoundTrip = fn(&Value) -> Result<Value, serde_json::Error>;

const TYPES: &[(Resource, RoundTrip)] = &[
    (kinds::CONFIG_MAPS, round_trip::<ConfigMap>),
    (kinds::EVENTS, round_trip::<Event>),
    (kinds::NAMESPACES, round_trip::<Namespace>),
    (kinds::NODES, round_trip::<Node>),
    (kinds::CLAIMS, round_trip::<PersistentVolumeClaim>),
    (kinds::VOLUMES, round_trip::<PersistentVolume>),
    (kinds::PODS, round_trip::<Pod>),
    (kinds::SECRETS, round_trip::<Secret>),
    (kinds::SERVICE_ACCOUNTS, round_trip::<ServiceAccount>),
    (kinds::LEASES, round_trip::<Lease>),
    (kinds::STORAGE_CLASSES, round_trip::<StorageClass>),
    (kinds::VOLUME_ATTACHMENTS, round_trip::<VolumeAttachment>),
];

fn round_trip<T: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<T>(object.clone())?)
}

/// The maps of the built-in kinds. An empty one is as good as none; an empty struct may mean something (`emptyDir: {}`).
const MAPS: &[&str] = &[
    "allocatable",
    "annotations",
    "binaryData",
    "capacity",
    "data",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "parameters",
    "requests",
    "stringData",
];

/// Removes the fields that the kind does not have and names them; or says why the object does not fit the kind. What is
/// null or empty goes too where the type holds no such thing: everywhere in a built-in kind, in the metadata of any.
pub(super) fn conform(kind: &Kind, object: &mut Value) -> Result<Vec<String>, String> {
    match object.get_mut("metadata") {
        Some(metadata) if kind.custom => drop_empty(metadata),
        _ if kind.custom => {}
        _ => drop_empty(object),
    }
    let Some((_, round_trip)) = TYPES.iter().find(|(resource, _)| *resource == kind.resource) else {
        return Ok(vec![]);
    };
    let known = round_trip(object).map_err(|error| error.to_string())?;
    let mut unknown = vec![];
    prune("", object, &known, &mut unknown);
    Ok(unknown)
}

fn prune(path: &str, object: &mut Value, known: &Value, unknown: &mut Vec<String>) {
    match (object, known) {
        (Value::Object(object), Value::Object(known)) => {
            object.retain(|field, value| {
                let path = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
                match known.get(field) {
                    Some(known) => prune(&path, value, known, unknown),
                    // The type drops what is null or empty: the field itself may be known.
                    None if is_empty(value) => {}
                    None => unknown.push(path),
                }
                known.contains_key(field) || is_empty(value)
            });
        }
        (Value::Array(items), Value::Array(known)) => {
            for (i, (item, known)) in items.iter_mut().zip(known).enumerate() {
                prune(&format!("{path}[{i}]"), item, known, unknown);
            }
        }
        _ => {}
    }
}

fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|field, value| match value {
                Value::Null => false,
                Value::Array(items) => !items.is_empty(),
                Value::Object(inner) => !inner.is_empty() || !MAPS.contains(&field.as_str()),
                _ => true,
            });
            map.values_mut().for_each(drop_empty);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_are_named_and_removed() {
        let mut pod = json!({
            "metadata": {"name": "p", "colour": "red"},
            "spec": {"containers": [{"name": "c", "shape": "round", "env": []}], "nodeName": "n"},
        });
        let unknown = conform(kinds::of(kinds::PODS).expect("a row"), &mut pod).expect("it fits");
        assert_eq!(unknown, ["metadata.colour", "spec.containers[0].shape"]);
        assert_eq!(
            pod,
            json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}], "nodeName": "n"}})
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut map = json!({"metadata": {"name": "m"}, "data": {"a": 1}});
        conform(kinds::of(kinds::CONFIG_MAPS).expect("a row"), &mut map).expect_err("a number is no text");
    }
}

//! What kube-apiserver adds to objects of its own kinds when they are created.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::Kind;
use crate::sim::kinds::NAMESPACES;
use crate::sim::kinds::PODS;
use crate::sim::kinds::SECRETS;
use crate::sim::kinds::STORAGE_CLASSES;
use crate::sim::kinds::VOLUMES;
use crate::sim::meta;

/// Fills in the defaults of a kind. Fields that are set keep their values.
pub(super) fn fill(kind: &Kind, object: &mut Value) {
    match kind.resource {
        NAMESPACES => {
            let name = meta::name(object).to_owned();
            let labels = json!({"labels": {"kubernetes.io/metadata.name": name}});
            under(&mut object["metadata"], &labels);
            under(object, &json!({"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}));
        }
        PODS => pod(object),
        CLAIMS => {
            protect(object, "kubernetes.io/pvc-protection");
            under(object, &json!({"spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}}));
        }
        VOLUMES => {
            protect(object, "kubernetes.io/pv-protection");
            let spec = json!({"volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain"});
            under(object, &json!({"spec": spec, "status": {"phase": "Pending"}}));
        }
        STORAGE_CLASSES => {
            under(object, &json!({"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}));
        }
        SECRETS => {
            encode_string_data(object);
            under(object, &json!({"type": "Opaque"}));
        }
        _ => {}
    }
}

/// Adds the finalizer with which the admission plugin StorageObjectInUseProtection guards storage in use.
fn protect(object: &mut Value, finalizer: &str) {
    let mut finalizers = meta::finalizers(object);
    if !finalizers.contains(&finalizer) {
        finalizers.push(finalizer);
        let finalizers: Vec<String> = finalizers.into_iter().map(str::to_owned).collect();
        meta::set(object, "finalizers", Some(finalizers.into()));
    }
}

fn pod(object: &mut Value) {
    let spec = json!({
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": true,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
    });
    under(object, &json!({"spec": spec, "status": {"phase": "Pending", "qosClass": "BestEffort"}}));
    let containers = object.pointer_mut("/spec/containers").and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        under(
            container,
            &json!({
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }),
        );
    }
}

/// Moves `stringData` of a secret to `data`.
pub(super) fn encode_string_data(object: &mut Value) {
    let Some(secret) = object.as_object_mut() else { return };
    let Some(Value::Object(texts)) = secret.shift_remove("stringData") else { return };
    let data = secret.entry("data").or_insert_with(|| Value::Object(Map::new()));
    if data.is_null() {
        *data = Value::Object(Map::new());
    }
    for (field, text) in texts {
        data[field] = STANDARD.encode(text.as_str().unwrap_or_default()).into();
    }
}

/// Adds what `defaults` has and `object` has not.
fn under(object: &mut Value, defaults: &Value) {
    let (Some(object), Some(defaults)) = (object.as_object_mut(), defaults.as_object()) else { return };
    for (field, value) in defaults {
        match object.get_mut(field) {
            None | Some(Value::Null) => drop(object.insert(field.clone(), value.clone())),
            Some(present) => under(present, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::kinds::of;

    #[test]
    fn defaults_fill_gaps_and_keep_what_is_there() {
        let mut pod = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}});
        fill(of(PODS).expect("a row"), &mut pod);
        assert_eq!(pod["spec"]["restartPolicy"], "Never");
        assert_eq!(pod["spec"]["terminationGracePeriodSeconds"], 30);
        assert_eq!(pod["status"]["phase"], "Pending");
    }

    #[test]
    fn texts_of_a_secret_are_encoded() {
        let mut secret = json!({"stringData": {"a": "x"}, "data": {"b": "eA=="}});
        fill(of(SECRETS).expect("a row"), &mut secret);
        assert_eq!(secret, json!({"data": {"b": "eA==", "a": "eA=="}, "type": "Opaque"}));
    }
}

//! The launcher pod: the pod that an instance runs in.

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::sim::kinds::PODS;
use crate::sim::object::claims;
use crate::sim::object::deleting;
use crate::sim::object::items;
use crate::sim::object::label;
use crate::sim::object::name;
use crate::sim::object::namespace;
use crate::sim::object::owned_by;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::world::View;

/// The pod's label with the uid of its instance: the only safe selector (domain.md §1.5).
pub(in crate::sim) const CREATED_BY: &str = "kubevirt.io/created-by";
/// KubeVirt's grace period where nothing else is said (KVT:39).
pub(super) const GRACE_DEFAULT: i64 = 30;
/// The pod outlives the guest's grace period by this many seconds, so that the launcher can report the end.
const GRACE_MARGIN: i64 = 15;

/// The pod of an instance, if there is one; a live one before one that goes.
pub(in crate::sim) fn pod_of(view: &dyn View, instance: &Value) -> Option<Arc<Value>> {
    let pods = view.list(PODS, Some(namespace(instance))).into_iter();
    pods.filter(|pod| label(pod, CREATED_BY) == Some(uid(instance))).min_by_key(|pod| deleting(pod))
}

/// Seconds that the guest has to shut down in.
pub(super) fn grace(instance: &Value) -> i64 {
    instance.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(GRACE_DEFAULT)
}

/// The launcher pod for an instance (domain.md §1.5, KV pkg/virt-controller/services/template.go:1432,1608-1622).
pub(super) fn pod_for(instance: &Value) -> Value {
    let mut labels = instance["metadata"]["labels"].clone();
    if !labels.is_object() {
        labels = json!({});
    }
    labels["kubevirt.io"] = "virt-launcher".into();
    labels[CREATED_BY] = uid(instance).into();
    labels["vm.kubevirt.io/name"] = name(instance).into();
    let volumes: Vec<Value> = claims(instance, "/spec/volumes")
        .map(|claim| json!({ "name": claim, "persistentVolumeClaim": { "claimName": claim } }))
        .collect();
    let spec = &instance["spec"];
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(instance),
            "namespace": namespace(instance),
            "labels": labels,
            "annotations": { "kubevirt.io/domain": name(instance) },
            "ownerReferences": [owned_by(instance)],
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": grace(instance).saturating_add(GRACE_MARGIN),
            "volumes": volumes,
            "containers": [{
                "name": "compute",
                "image": "registry.suse.com/suse/sles/15.7/virt-launcher:1.7.4-150700.3.24.2",
                "command": ["/usr/bin/virt-launcher-monitor"],
            }],
        },
    });
    for field in ["nodeSelector", "affinity", "tolerations"] {
        if let Some(value) = spec.get(field).filter(|value| !value.is_null()) {
            pod["spec"][field] = value.clone();
        }
    }
    pod["spec"]["nodeSelector"]["kubevirt.io/schedulable"] = "true".into();
    pod
}

/// The name of the pod of an instance.
pub(super) fn pod_name(instance: &Value) -> String {
    format!("virt-launcher-{}-{}", name(instance), suffix(uid(instance)))
}

/// Five characters that tell the pods of two instances of one VM apart.
fn suffix(uid: &str) -> String {
    let tail: Vec<char> = uid.chars().rev().filter(char::is_ascii_alphanumeric).take(5).collect();
    tail.into_iter().rev().collect()
}

/// Why the pod's image is not there: reason and message.
pub(super) fn pull_error(pod: &Value) -> Option<(&str, &str)> {
    let waiting = items(pod, "/status/containerStatuses").first()?.pointer("/state/waiting")?;
    let reason = text(waiting, "/reason");
    ["ErrImagePull", "ImagePullBackOff"].contains(&reason).then(|| (reason, text(waiting, "/message")))
}

//! The launcher pod: the pod that an instance runs in.

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::sim::kinds::PODS;
use crate::sim::object::annotation;
use crate::sim::object::claims;
use crate::sim::object::deleting;
use crate::sim::object::is_final;
use crate::sim::object::items;
use crate::sim::object::label;
use crate::sim::object::name;
use crate::sim::object::namespace;
use crate::sim::object::owned_by;
use crate::sim::object::pairs;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::world::View;

/// The pod's label with the uid of its instance: the only safe selector (domain.md §1.5).
pub(in crate::sim) const CREATED_BY: &str = "kubevirt.io/created-by";
/// The label of a target pod with the uid of its migration, and the annotation with the name.
const MIGRATION_UID: &str = "kubevirt.io/migrationJobUID";
const MIGRATION_NAME: &str = "kubevirt.io/migrationJobName";
/// KubeVirt's grace period where nothing else is said (KVT:39).
pub(super) const GRACE_DEFAULT: i64 = 30;
/// The pod outlives the guest's grace period by this many seconds, so that the launcher can report the end.
const GRACE_MARGIN: i64 = 15;

/// The pod that an instance runs in, if there is one; a live one before one that goes. The target pod of a migration is
/// not, until the guest has arrived in it.
pub(in crate::sim) fn pod_of(view: &dyn View, instance: &Value) -> Option<Arc<Value>> {
    let home = text(instance, "/status/nodeName");
    let pods = view.list(PODS, Some(namespace(instance))).into_iter();
    let own = pods.filter(|pod| {
        let here =
            if home.is_empty() { migration_job(pod).is_none() } else { text(pod, "/spec/nodeName") == home };
        here && label(pod, CREATED_BY) == Some(uid(instance))
    });
    own.min_by_key(|pod| (deleting(pod), is_final(pod)))
}

/// The migration that a pod is the target of.
pub(super) fn migration_job(pod: &Value) -> Option<&str> {
    annotation(pod, MIGRATION_NAME)
}

/// The target pod of a migration.
pub(super) fn target_of(view: &dyn View, migration: &Value) -> Option<Arc<Value>> {
    let mut pods = view.list(PODS, Some(namespace(migration))).into_iter();
    pods.find(|pod| label(pod, MIGRATION_UID) == Some(uid(migration)))
}

/// The pod that an instance is to move into: like the one it runs in, on another node.
pub(super) fn target_pod(instance: &Value, migration: &Value) -> Value {
    let mut pod = pod_for(instance);
    pod["metadata"]["name"] = format!("virt-launcher-{}-{}", name(instance), suffix(uid(migration))).into();
    pod["metadata"]["labels"][MIGRATION_UID] = uid(migration).into();
    pod["metadata"]["annotations"][MIGRATION_NAME] = name(migration).into();
    for (key, value) in pairs(migration, "/spec/addedNodeSelector") {
        pod["spec"]["nodeSelector"][key] = value.into();
    }
    let elsewhere = json!({
        "key": "kubernetes.io/hostname",
        "operator": "NotIn",
        "values": [text(instance, "/status/nodeName")],
    });
    let terms =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    match pod.pointer_mut(terms).and_then(Value::as_array_mut) {
        Some(terms) => {
            for expressions in terms.iter_mut().filter_map(|term| term["matchExpressions"].as_array_mut()) {
                expressions.push(elsewhere.clone());
            }
        }
        None => {
            pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({ "nodeSelectorTerms": [{ "matchExpressions": [elsewhere] }] });
        }
    }
    pod
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
    let spec = &instance["spec"];
    let named = items(instance, "/spec/volumes").iter().filter_map(|volume| {
        let claim = claims(&json!({ "volumes": [volume] }), "/volumes").next()?.to_owned();
        Some(json!({ "name": volume["name"], "persistentVolumeClaim": { "claimName": claim } }))
    });
    let volumes: Vec<Value> = named.collect();
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
                "resources": { "requests": requests(spec) },
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

/// What the guest is given for sure: what its domain asks for, else its memory and a tenth of each core, which is
/// KubeVirt's cpuAllocationRatio.
fn requests(spec: &Value) -> Value {
    let asked = |pointer: &str| spec.pointer(pointer).filter(|value| !value.is_null()).cloned();
    let cores = spec.pointer("/domain/cpu/cores").and_then(Value::as_u64).unwrap_or(1);
    json!({
        "cpu": asked("/domain/resources/requests/cpu").unwrap_or_else(|| format!("{}m", cores * 100).into()),
        "memory": asked("/domain/resources/requests/memory")
            .or_else(|| asked("/domain/memory/guest"))
            .unwrap_or_else(|| "1Gi".into()),
    })
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

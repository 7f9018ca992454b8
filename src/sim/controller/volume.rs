//! Claims and volumes: a provisioner that binds after a moment, protection of claims in use, and the end of a volume.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::turn::Turn;
use crate::sim::fault::PROVISION_FAILS;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::PODS;
use crate::sim::kinds::STORAGE_CLASSES;
use crate::sim::kinds::VOLUMES;
use crate::sim::object::annotation;
use crate::sim::object::claims;
use crate::sim::object::deleting;
use crate::sim::object::has_finalizer;
use crate::sim::object::namespace;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::object::with_finalizer;
use crate::sim::object::without_finalizers;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// What is on a volume, as a word: it shows whether data survived (design.md R2).
pub(in crate::sim) const CONTENT_STAMP: &str = "sim/content-stamp";
/// The stamp of a volume that nobody has written to.
pub(in crate::sim) const BLANK: &str = "blank";
/// Keeps a claim that a pod uses.
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
/// Longhorn's CSI driver.
const DRIVER: &str = "driver.longhorn.io";
/// How often what waits for another object looks again.
const POLL: Duration = Duration::from_secs(2);

/// The claim that changed.
fn claim_of(changed: &Key) -> Option<Key> {
    (changed.resource == CLAIMS).then(|| changed.clone())
}

/// True if a pod that has not ended mounts the claim.
fn in_use(context: &Context<'_>, claim: &Key) -> bool {
    context.view.list(PODS, Some(&claim.namespace)).iter().any(|pod| {
        let ended = ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"));
        !ended && claims(pod, "/spec/volumes").any(|name| name == &*claim.name)
    })
}

/// Longhorn's CSI provisioner and the binding of claims.
pub(super) struct Provisioner;

impl Controller for Provisioner {
    fn name(&self) -> &'static str {
        "csi-provisioner"
    }

    fn lag(&self) -> Duration {
        Duration::from_millis(1_500)
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        claim_of(changed)
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "driver.longhorn.io_csi-provisioner");
        let Some(claim) = context.view.get(key) else { return turn.end() };
        let phase = text(&claim, "/status/phase");
        if deleting(&claim) || phase == "Lost" {
            return turn.end();
        }
        match text(&claim, "/spec/volumeName") {
            "" => provision(&mut turn, key, &claim),
            volume => bind(&mut turn, key, &claim, volume),
        }
        turn.end()
    }
}

/// The class of a claim: the one it names, or the default one.
fn class_of(context: &Context<'_>, claim: &Value) -> Option<Value> {
    if let Some(name) = claim["spec"]["storageClassName"].as_str() {
        return context.view.get(&Key::new(STORAGE_CLASSES, "", name)).map(|class| (*class).clone());
    }
    let is_default =
        |class: &Value| annotation(class, "storageclass.kubernetes.io/is-default-class") == Some("true");
    context
        .view
        .list(STORAGE_CLASSES, None)
        .iter()
        .find(|class| is_default(class))
        .map(|class| (**class).clone())
}

fn provision(turn: &mut Turn<'_>, key: &Key, claim: &Value) {
    turn.status(key, claim, json!({ "phase": "Pending" }));
    let Some(class) = class_of(turn.context, claim) else {
        let name = text(claim, "/spec/storageClassName");
        let message = format!("storageclass.storage.k8s.io \"{name}\" not found");
        turn.event(key, "Warning", "ProvisioningFailed", &message);
        return turn.again_after(POLL * 5);
    };
    if text(&class, "/volumeBindingMode") == "WaitForFirstConsumer" && !in_use(turn.context, key) {
        turn.event(
            key,
            "Normal",
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding",
        );
        return turn.again_after(POLL);
    }
    if turn.fault(PROVISION_FAILS) {
        let message = "failed to provision volume with StorageClass: rpc error: code = DeadlineExceeded desc = context \
                       deadline exceeded";
        turn.event(key, "Warning", "ProvisioningFailed", message);
        return turn.again_after(POLL * 5);
    }
    let name = format!("pvc-{}", uid(claim));
    turn.create(VOLUMES, volume(&name, claim, &class));
    let annotations = json!({
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
        "volume.kubernetes.io/storage-provisioner": DRIVER,
    });
    let mut patch = json!({ "metadata": { "annotations": annotations }, "spec": { "volumeName": name } });
    if claim["spec"]["storageClassName"].is_null() {
        patch["spec"]["storageClassName"] = class["metadata"]["name"].clone();
    }
    turn.patch(key, claim, patch);
    let message = format!("Successfully provisioned volume {name}");
    turn.event(key, "Normal", "ProvisioningSucceeded", &message);
}

/// A new volume for a claim.
fn volume(name: &str, claim: &Value, class: &Value) -> Value {
    let reclaim = class["reclaimPolicy"].as_str().unwrap_or("Delete");
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": name,
            "annotations": { "pv.kubernetes.io/provisioned-by": DRIVER, CONTENT_STAMP: BLANK },
        },
        "spec": {
            "accessModes": claim["spec"]["accessModes"],
            "capacity": { "storage": claim["spec"]["resources"]["requests"]["storage"] },
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace(claim),
                "name": text(claim, "/metadata/name"),
                "uid": uid(claim),
            },
            "csi": { "driver": DRIVER, "fsType": "ext4", "volumeHandle": name },
            "persistentVolumeReclaimPolicy": reclaim,
            "storageClassName": class["metadata"]["name"],
            "volumeMode": claim["spec"]["volumeMode"].as_str().unwrap_or("Filesystem"),
        },
    })
}

/// The claim names its volume: it is bound once the volume is there and is its own.
fn bind(turn: &mut Turn<'_>, key: &Key, claim: &Value, volume: &str) {
    let bound = text(claim, "/status/phase") == "Bound";
    let Some(volume) = turn.context.view.get(&Key::new(VOLUMES, "", volume)) else {
        let phase = if bound { "Lost" } else { "Pending" };
        turn.status(key, claim, json!({ "phase": phase }));
        return turn.again_after(POLL);
    };
    let owner = text(&volume, "/spec/claimRef/uid");
    if !bound && (owner.is_empty() || owner == uid(claim)) {
        let capacity = &volume["spec"]["capacity"];
        let modes = &volume["spec"]["accessModes"];
        turn.status(key, claim, json!({ "phase": "Bound", "accessModes": modes, "capacity": capacity }));
    }
}

/// Protects claims that pods use.
pub(super) struct ClaimProtection;

impl Controller for ClaimProtection {
    fn name(&self) -> &'static str {
        "kube-controller-manager"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        claim_of(changed)
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "persistentvolume-controller");
        let Some(claim) = context.view.get(key) else { return turn.end() };
        let held = has_finalizer(&claim, CLAIM_FINALIZER);
        if !deleting(&claim) && !held {
            turn.patch(key, &claim, with_finalizer(&claim, CLAIM_FINALIZER));
        } else if deleting(&claim) && held {
            if in_use(context, key) {
                turn.again_after(POLL);
            } else {
                turn.patch(key, &claim, without_finalizers(&claim, &[CLAIM_FINALIZER]));
            }
        }
        turn.end()
    }
}

/// Follows volumes: bound while their claim exists, then released and, if so reclaimed, deleted.
pub(super) struct Volumes;

impl Controller for Volumes {
    fn name(&self) -> &'static str {
        "kube-controller-manager"
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        if changed.resource == VOLUMES {
            return Some(changed.clone());
        }
        let volume = claim_of(changed).map(|_| text(object, "/spec/volumeName"))?;
        (!volume.is_empty()).then(|| Key::new(VOLUMES, "", volume))
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "persistentvolume-controller");
        let Some(volume) = context.view.get(key) else { return turn.end() };
        let owner = &volume["spec"]["claimRef"];
        let claim = Key::new(CLAIMS, text(owner, "/namespace"), text(owner, "/name"));
        let claim = context.view.get(&claim).filter(|claim| uid(claim) == text(owner, "/uid"));
        let phase = match (owner.is_object(), claim) {
            (false, _) => "Available",
            (true, Some(_)) => "Bound",
            (true, None) => "Released",
        };
        turn.status(key, &volume, json!({ "phase": phase }));
        let reclaim = text(&volume, "/spec/persistentVolumeReclaimPolicy") == "Delete";
        if phase == "Released"
            && reclaim
            && !deleting(&volume)
            && text(&volume, "/status/phase") == "Released"
        {
            turn.delete(key);
        }
        turn.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::object::items;

    #[test]
    fn a_new_volume_is_blank_and_belongs_to_its_claim() {
        let claim = json!({
            "metadata": { "namespace": "default", "name": "disk", "uid": "u1" },
            "spec": { "accessModes": ["ReadWriteMany"], "resources": { "requests": { "storage": "10Gi" } } },
        });
        let made = volume("pvc-u1", &claim, &json!({ "metadata": { "name": "harvester-longhorn" } }));
        assert_eq!(annotation(&made, CONTENT_STAMP), Some(BLANK));
        assert_eq!(text(&made, "/spec/claimRef/uid"), "u1");
        assert_eq!(text(&made, "/spec/persistentVolumeReclaimPolicy"), "Delete");
        assert_eq!(items(&made, "/spec/accessModes").len(), 1);
    }
}

//! Claims and volumes: a provisioner that binds after a moment, protection of claims in use, and the end of a volume.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::cdi::is_populated;
use crate::sim::controller::csi_snapshot;
use crate::sim::controller::longhorn;
use crate::sim::controller::longhorn::DRIVER;
use crate::sim::controller::longhorn::backing;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::PROVISION_FAILS;
use crate::sim::fault::PVC_NEVER_BINDS;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::LONGHORN_VOLUMES;
use crate::sim::kinds::PODS;
use crate::sim::kinds::STORAGE_CLASSES;
use crate::sim::kinds::VOLUME_ATTACHMENTS;
use crate::sim::kinds::VOLUMES;
use crate::sim::object::claims;
use crate::sim::object::deleting;
use crate::sim::object::has_finalizer;
use crate::sim::object::is_final;
use crate::sim::object::moment;
use crate::sim::object::name;
use crate::sim::object::namespace;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::object::with_finalizer;
use crate::sim::object::without_finalizers;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;
use crate::time::Timestamp;

/// What is on a volume, as a word: it shows whether data survived (design.md R2).
pub(in crate::sim) const CONTENT_STAMP: &str = "sim/content-stamp";
/// The stamp of a volume that nobody has written to.
pub(in crate::sim) const BLANK: &str = "blank";
/// Keeps a claim that a pod uses.
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
/// How long a volume that Longhorn itself has attached outlives its claim: the copy of a restore runs against it
/// (domain.md §3.6).
const DETACH_TAKES: Duration = Duration::from_secs(8);
/// How often a volume that is being made is looked at.
const CREATE_POLL: Duration = Duration::from_millis(500);
/// How often what waits for another object looks again.
const POLL: Duration = Duration::from_secs(2);

/// The claim that changed.
fn claim_of(changed: &Key) -> Option<Key> {
    (changed.resource == CLAIMS).then(|| changed.clone())
}

/// True if a pod that has not ended mounts the claim.
fn in_use(context: &Context<'_>, claim: &Key) -> bool {
    context.view.list(PODS, Some(&claim.namespace)).iter().any(|pod| {
        let ended = is_final(pod);
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
        if is_populated(&claim) && text(&claim, "/spec/volumeName").is_empty() {
            turn.status(key, &claim, json!({ "phase": "Pending" }));
            return turn.end();
        }
        match text(&claim, "/spec/volumeName") {
            "" => provision(&mut turn, key, &claim),
            volume => bind(&mut turn, key, &claim, volume),
        }
        turn.end()
    }
}

fn provision(turn: &mut Turn<'_>, key: &Key, claim: &Value) {
    turn.status(key, claim, json!({ "phase": "Pending" }));
    let name = text(claim, "/spec/storageClassName");
    let Some(class) = turn.context.view.get(&Key::new(STORAGE_CLASSES, "", name)) else {
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
    if turn.fault(PVC_NEVER_BINDS) {
        return turn.again_after(POLL * 5);
    }
    let name = format!("pvc-{}", uid(claim));
    let made = longhorn::volume(turn.context.view, &name);
    let content = match content(turn, claim, &class, made.as_deref()) {
        Ok(Some(content)) => content,
        Ok(None) => return turn.again_after(POLL),
        Err(why) => {
            let class = class_name(claim);
            let message = format!("failed to provision volume with StorageClass \"{class}\": {why}");
            turn.event(key, "Warning", "ProvisioningFailed", &message);
            return turn.again_after(POLL * 5);
        }
    };
    // CreateVolume returns when the volume has left `creating` (domain.md §3.5).
    match made.as_deref().map(|made| text(made, "/status/state")) {
        None => {
            let mut made = longhorn::new_volume(&name, claim, &class);
            if let Content::Copied(Some((field, source))) = &content {
                made["spec"][*field] = source.as_str().into();
            }
            turn.create(LONGHORN_VOLUMES, made);
            return turn.again_after(CREATE_POLL);
        }
        Some("" | "creating") => return turn.again_after(CREATE_POLL),
        Some(_) => {}
    }
    turn.create(VOLUMES, volume(&name, claim, &class, &content));
    let annotations = json!({
        "pv.kubernetes.io/bind-completed": "yes",
        "pv.kubernetes.io/bound-by-controller": "yes",
        "volume.kubernetes.io/storage-provisioner": DRIVER,
    });
    let patch = json!({ "metadata": { "annotations": annotations }, "spec": { "volumeName": name } });
    turn.patch(key, claim, patch);
    let message = format!("Successfully provisioned volume {name}");
    turn.event(key, "Normal", "ProvisioningSucceeded", &message);
}

fn class_name(claim: &Value) -> &str {
    text(claim, "/spec/storageClassName")
}

/// What a new volume begins with.
enum Content {
    /// It is there from the beginning, as this word.
    Given(String),
    /// It is copied later. The field of Longhorn's volume that says from where, unless the volume is there already.
    Copied(Option<(&'static str, String)>),
}

/// What a new volume of the class begins with: the data of a snapshot if the claim names one, else the file of the
/// backing image that the class names (domain.md §2.5). None while that is not there yet; an error if it cannot be used.
fn content(
    turn: &Turn<'_>,
    claim: &Value,
    class: &Value,
    made: Option<&Value>,
) -> Result<Option<Content>, String> {
    if text(claim, "/spec/dataSource/kind") == "VolumeSnapshot" {
        if made.is_some() {
            return Ok(Some(Content::Copied(None)));
        }
        let snapshot = text(claim, "/spec/dataSource/name");
        let size = longhorn::bytes(text(claim, "/spec/resources/requests/storage"));
        let source = longhorn::recovery::source(
            turn,
            &csi_snapshot::handle_of(turn, namespace(claim), snapshot)?,
            size,
        )?;
        return Ok(Some(Content::Copied(Some(source))));
    }
    let given = |stamp: &str| Ok(Some(Content::Given(stamp.to_owned())));
    let Some(key) = backing::of_class(class) else { return given(BLANK) };
    let Some(image) = turn.context.view.get(&key) else {
        return Err(format!("backingimages.longhorn.io \"{}\" not found", key.name));
    };
    if !matches!(backing::content(&image), backing::Content::Ready) {
        return Ok(None);
    }
    let size = longhorn::bytes(text(claim, "/spec/resources/requests/storage"));
    let least = image["status"]["virtualSize"].as_u64().unwrap_or(0);
    if size < least {
        return Err(format!("volume size {size} is less than the backing image size {least}"));
    }
    given(backing::stamp(&image))
}

/// A new volume for a claim.
fn volume(name: &str, claim: &Value, class: &Value, content: &Content) -> Value {
    let reclaim = class["reclaimPolicy"].as_str().unwrap_or("Delete");
    let mut annotations = json!({ "pv.kubernetes.io/provisioned-by": DRIVER });
    if let Content::Given(stamp) = content {
        annotations[CONTENT_STAMP] = stamp.as_str().into();
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": name, "annotations": annotations },
        "spec": {
            "accessModes": claim["spec"]["accessModes"],
            "capacity": { "storage": claim["spec"]["resources"]["requests"]["storage"] },
            "claimRef": claim_reference(claim),
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
    let owner = &volume["spec"]["claimRef"];
    let is_named = text(owner, "/namespace") == namespace(claim) && text(owner, "/name") == name(claim);
    let is_free = !owner.is_object() || is_named && text(owner, "/uid").is_empty();
    if !bound && is_free {
        let owner = json!({ "spec": { "claimRef": claim_reference(claim) } });
        turn.patch(&Key::new(VOLUMES, "", name(&volume)), &volume, owner);
        let done = json!({ "pv.kubernetes.io/bind-completed": "yes" });
        turn.patch(key, claim, json!({ "metadata": { "annotations": done } }));
    }
    if !bound && (is_free || text(owner, "/uid") == uid(claim)) {
        let capacity = &volume["spec"]["capacity"];
        let modes = &volume["spec"]["accessModes"];
        turn.status(key, claim, json!({ "phase": "Bound", "accessModes": modes, "capacity": capacity }));
    } else if !bound {
        // It belongs to another claim, which may let it go.
        turn.again_after(POLL);
    }
}

/// How a volume names its claim.
fn claim_reference(claim: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": namespace(claim),
        "name": name(claim),
        "uid": uid(claim),
    })
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
        // Without a uid it waits for the claim of that name.
        let phase = match (text(owner, "/uid").is_empty(), claim) {
            (true, _) => "Available",
            (false, Some(_)) => "Bound",
            (false, None) => "Released",
        };
        if text(&volume, "/status/phase") != phase {
            let now = turn.now().to_string();
            turn.status(key, &volume, json!({ "phase": phase, "lastPhaseTransitionTime": now }));
            return turn.end();
        }
        let reclaim = text(&volume, "/spec/persistentVolumeReclaimPolicy") == "Delete";
        let since = moment(&volume, "/status/lastPhaseTransitionTime").unwrap_or(turn.now());
        if phase == "Released" && reclaim && !deleting(&volume) {
            reclaim_volume(&mut turn, key, &volume, since);
        }
        turn.end()
    }
}

/// What Longhorn holds goes first, once no node has it any more.
fn reclaim_volume(turn: &mut Turn<'_>, key: &Key, volume: &Value, since: Timestamp) {
    let view = turn.context.view;
    let attached = view
        .list(VOLUME_ATTACHMENTS, None)
        .into_iter()
        .any(|attachment| text(&attachment, "/spec/source/persistentVolumeName") == &*key.name);
    let handle = text(volume, "/spec/csi/volumeHandle");
    match longhorn::volume(view, handle) {
        _ if attached => turn.again_after(POLL),
        None => turn.delete(key),
        Some(stored) => {
            let busy = ["attaching", "attached"].contains(&text(&stored, "/status/state"));
            if busy && !turn.passed(since, DETACH_TAKES) {
                return turn.again_after(POLL);
            }
            if !deleting(&stored) {
                turn.delete(&Key::new(LONGHORN_VOLUMES, longhorn::SPACE, handle));
            }
            turn.again_after(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::object::annotation;
    use crate::sim::object::items;

    #[test]
    fn a_new_volume_is_blank_and_belongs_to_its_claim() {
        let claim = json!({
            "metadata": { "namespace": "default", "name": "disk", "uid": "u1" },
            "spec": { "accessModes": ["ReadWriteMany"], "resources": { "requests": { "storage": "10Gi" } } },
        });
        let class = json!({ "metadata": { "name": "harvester-longhorn" } });
        let made = volume("pvc-u1", &claim, &class, &Content::Given(BLANK.to_owned()));
        assert_eq!(annotation(&made, CONTENT_STAMP), Some(BLANK));
        assert_eq!(text(&made, "/spec/claimRef/uid"), "u1");
        assert_eq!(text(&made, "/spec/persistentVolumeReclaimPolicy"), "Delete");
        assert_eq!(items(&made, "/spec/accessModes").len(), 1);
    }
}

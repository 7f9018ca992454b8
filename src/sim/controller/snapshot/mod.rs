//! KubeVirt's snapshots of VMs and their restores (domain.md §3.1 to §3.3): which volumes they have, and of which class.

mod content;
mod gates;
mod restore;
mod restored;
mod vmsnapshot;

use std::sync::Arc;

use serde_json::Value;

pub(in crate::sim) use gates::LOADED as LOADED_GATES;

use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::STORAGE_CLASSES;
use crate::sim::kinds::STORAGE_PROFILES;
use crate::sim::kinds::VOLUME_SNAPSHOT_CLASSES;
use crate::sim::object::annotation;
use crate::sim::object::items;
use crate::sim::object::name;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::View;

/// The API version of KubeVirt's snapshots and restores.
const API_VERSION: &str = "snapshot.kubevirt.io/v1beta1";
/// Keeps a content until its snapshot lets it go.
const CONTENT_FINALIZER: &str = "snapshot.kubevirt.io/vmsnapshotcontent-protection";
/// The mark of a class that is taken if nothing else decides.
const DEFAULT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";

/// KubeVirt's controllers of snapshots.
pub(super) fn all() -> Vec<Arc<dyn Controller>> {
    vec![
        Arc::new(gates::Gates),
        Arc::new(vmsnapshot::VirtualMachineSnapshots),
        Arc::new(content::Contents),
        Arc::new(restore::VirtualMachineRestores),
    ]
}

/// The name of what is in a snapshot (domain.md §3.2).
pub(super) fn content_name(snapshot: &Value) -> String {
    format!("vmsnapshot-content-{}", uid(snapshot))
}

/// A disk of a VM: the volume's name in the VM, and its claim.
pub(super) struct Disk<'a> {
    /// The name of the volume in the VM.
    pub(super) volume: &'a str,
    /// The claim.
    pub(super) claim: &'a str,
}

/// The disks of a VM that are on claims. A DataVolume has the name of its claim.
pub(super) fn disks(vm: &Value) -> impl Iterator<Item = Disk<'_>> {
    items(vm, "/spec/template/spec/volumes").iter().filter_map(|volume| {
        let claim = match text(volume, "/persistentVolumeClaim/claimName") {
            "" => text(volume, "/dataVolume/name"),
            claim => claim,
        };
        (!claim.is_empty()).then(|| Disk { volume: text(volume, "/name"), claim })
    })
}

/// What a content says of the volumes of which there are snapshots.
fn backups(content: &Value) -> impl Iterator<Item = &Value> {
    let all = items(content, "/spec/volumeBackups").iter();
    all.filter(|backup| !text(backup, "/volumeSnapshotName").is_empty())
}

/// The class by which snapshots of a claim are made: that of the profile, else the only one of the driver, else the
/// default one (domain.md §3.1, SNAP:723-772). None: such claims are left out of snapshots.
pub(super) fn class_for(view: &dyn View, claim: &Value) -> Result<Option<String>, String> {
    let storage = text(claim, "/spec/storageClassName");
    let Some(class) = view.get(&Key::new(STORAGE_CLASSES, "", storage)) else { return Ok(None) };
    let all = classes_of(view, text(&class, "/provisioner"));
    let profile = view.get(&Key::new(STORAGE_PROFILES, "", storage));
    let wanted = profile.as_deref().map_or("", |profile| text(profile, "/status/snapshotClass"));
    if all.iter().any(|class| name(class) == wanted) {
        return Ok(Some(wanted.to_owned()));
    }
    if let [only] = all.as_slice() {
        return Ok(Some(name(only).to_owned()));
    }
    let defaults: Vec<&Arc<Value>> = all.iter().filter(|class| is_default(class)).collect();
    match (all.len(), defaults.as_slice()) {
        (0, _) => Ok(None),
        (_, [only]) => Ok(Some(name(only).to_owned())),
        (matching, _) => Err(format!("{matching} matching VolumeSnapshotClasses for {storage}")),
    }
}

/// The snapshot classes of a driver in name order.
pub(super) fn classes_of(view: &dyn View, driver: &str) -> Vec<Arc<Value>> {
    let mut classes = view.list(VOLUME_SNAPSHOT_CLASSES, None);
    classes.retain(|class| text(class, "/driver") == driver);
    classes
}

/// True for a class that is annotated as the default one.
pub(super) fn is_default(class: &Value) -> bool {
    annotation(class, DEFAULT_CLASS) == Some("true")
}

/// The claim of a disk.
fn claim_of(view: &dyn View, space: &str, disk: &Disk<'_>) -> Option<Arc<Value>> {
    view.get(&Key::new(CLAIMS, space, disk.claim))
}

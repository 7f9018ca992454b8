//! KubeVirt's webhooks for snapshots and restores (domain.md §3.1 to §3.3; KV pkg/storage/admitters/vmsnapshot.go,
//! vmrestore.go), and what Longhorn's adds to a snapshot of a volume.

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::LOADED_GATES;
use crate::sim::controller::LONGHORN_SPACE;
use crate::sim::kinds::KUBEVIRTS;
use crate::sim::kinds::LONGHORN_VOLUMES;
use crate::sim::kinds::RESTORES;
use crate::sim::kinds::SNAPSHOTS;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::object::annotation;
use crate::sim::object::deleting;
use crate::sim::object::has_finalizer;
use crate::sim::object::items;
use crate::sim::object::name;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::world::Admission;
use crate::sim::world::Key;
use crate::sim::world::View;

/// KubeVirt's webhook for snapshots.
pub(super) const OF_SNAPSHOTS: &str = "virtualmachinesnapshot-validator.snapshot.kubevirt.io";
/// KubeVirt's webhook for restores.
pub(super) const OF_RESTORES: &str = "virtualmachinerestore-validator.snapshot.kubevirt.io";
/// What both say of a changed spec.
const IMMUTABLE: &str = "spec in immutable after creation";

/// True if virt-api knows the gate Snapshot: it reads the gates some seconds after they were changed.
fn gate_is_on(view: &dyn View) -> bool {
    view.list(KUBEVIRTS, None).iter().any(|kubevirt| match annotation(kubevirt, LOADED_GATES) {
        Some(loaded) => loaded.split(',').any(|gate| gate == "Snapshot"),
        None => items(kubevirt, "/spec/configuration/developerConfiguration/featureGates")
            .iter()
            .any(|gate| gate == "Snapshot"),
    })
}

fn changed(admission: &Admission<'_>, new: &Value) -> Option<String> {
    let old = admission.old?;
    (old["spec"] != new["spec"]).then(|| IMMUTABLE.to_owned())
}

/// What is wrong with a snapshot. Whether its VM exists is not looked at.
pub(super) fn snapshot_complaint(admission: &Admission<'_>, new: &Value) -> Option<String> {
    if deleting(new) {
        return None;
    }
    if !gate_is_on(admission.view) {
        return Some("snapshot feature gate not enabled".to_owned());
    }
    if admission.old.is_some() {
        return changed(admission, new);
    }
    let source = &new["spec"]["source"];
    match (text(source, "/apiGroup"), text(source, "/kind")) {
        ("kubevirt.io", "VirtualMachine") => None,
        ("", _) => Some("missing apigroup".to_owned()),
        ("kubevirt.io", _) => Some("invalid kind".to_owned()),
        _ => Some("invalid apiGroup".to_owned()),
    }
}

/// What is wrong with a restore; one that is complete already is none.
pub(super) fn restore_complaint(admission: &Admission<'_>, new: &Value) -> Option<String> {
    if deleting(new) || admission.old.is_none() && new["status"]["complete"] == json!(true) {
        return None;
    }
    let view = admission.view;
    if !gate_is_on(view) {
        return Some("Snapshot/Restore feature gate not enabled".to_owned());
    }
    if admission.old.is_some() {
        return changed(admission, new);
    }
    let space = &admission.key.namespace;
    let (target, wanted) = (text(new, "/spec/target/name"), text(new, "/spec/virtualMachineSnapshotName"));
    if text(new, "/spec/target/kind") != "VirtualMachine" {
        return Some("invalid kind".to_owned());
    }
    let Some(snapshot) = view.get(&Key::new(SNAPSHOTS, space, wanted)) else {
        return Some(format!("VirtualMachineSnapshot {wanted:?} does not exist"));
    };
    if text(&snapshot, "/status/phase") == "Failed" {
        return Some(format!("VirtualMachineSnapshot {wanted:?} has failed and is invalid to use"));
    }
    if snapshot["status"]["readyToUse"] != json!(true) {
        return Some(format!("VirtualMachineSnapshot {wanted:?} is not ready to use"));
    }
    let vm = view.get(&Key::new(VIRTUAL_MACHINES, space, target));
    if vm.is_some_and(|vm| uid(&vm) != text(&snapshot, "/status/sourceUID")) {
        let message = "restore source and restore target are different but restore target VirtualMachine already exists";
        return Some(message.to_owned());
    }
    let restores = view.list(RESTORES, Some(space));
    let in_progress = restores.iter().find(|other| {
        text(other, "/spec/target/name") == target && other["status"]["complete"] != json!(true)
    });
    in_progress.map(|other| format!("VirtualMachineRestore {:?} in progress", name(other)))
}

/// A snapshot of a Longhorn volume belongs to the volume, and goes with it (domain.md §3.6, LH
/// webhook/resources/snapshot/mutator.go).
pub(super) fn mutate_longhorn(admission: &Admission<'_>, new: &mut Value) {
    let volume = text(new, "/spec/volume").to_owned();
    let Some(found) = admission.view.get(&Key::new(LONGHORN_VOLUMES, LONGHORN_SPACE, &volume)) else {
        return;
    };
    new["metadata"]["labels"]["longhornvolume"] = volume.as_str().into();
    new["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "longhorn.io/v1beta2",
        "kind": "Volume",
        "name": volume,
        "uid": uid(&found),
    }]);
    if !has_finalizer(new, "longhorn.io") {
        let mut held = items(new, "/metadata/finalizers").to_vec();
        held.push("longhorn.io".into());
        new["metadata"]["finalizers"] = held.into();
    }
}

//! What a restore makes of a snapshot: claims, DataVolumes and the spec of the VM (domain.md §3.3).

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::csi_snapshot;
use crate::sim::controller::snapshot::backups;
use crate::sim::object::annotation;
use crate::sim::object::items;
use crate::sim::object::name;
use crate::sim::object::namespace;
use crate::sim::object::owned_by;
use crate::sim::object::owner;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::world::Key;

/// Names the last restore of a VM.
pub(super) const LAST: &str = "restore.kubevirt.io/lastRestoreUID";
/// Names the restore that made a claim.
const MADE_BY: &str = "restore.kubevirt.io/name";
/// A claim that was filled before, for the DataVolume of that name (domain.md §2.4).
const POPULATED_FOR: &str = "cdi.kubevirt.io/storage.populatedFor";
/// The other end of it.
const PRE_POPULATED: &str = "cdi.kubevirt.io/storage.prePopulated";

/// A volume of a snapshot and what becomes of it.
pub(super) struct Disk<'a> {
    /// The name of the volume in the VM.
    pub(super) volume: &'a str,
    /// The name of the new claim.
    pub(super) claim: String,
    /// The claim as it was.
    old: &'a Value,
    /// The snapshot of the volume.
    snapshot: &'a str,
    /// The template of its DataVolume, if it had one.
    template: Option<&'a Value>,
}

/// The volumes of a content of which there are snapshots.
pub(super) fn disks<'a>(restore: &'a Value, content: &'a Value) -> Vec<Disk<'a>> {
    let vm = &content["spec"]["source"]["virtualMachine"];
    let in_place = text(restore, "/spec/volumeRestorePolicy") == "InPlace";
    backups(content)
        .map(|backup| {
            let volume = text(backup, "/volumeName");
            let old = &backup["persistentVolumeClaim"];
            let overrides = items(restore, "/spec/volumeRestoreOverrides").iter();
            let mut named =
                overrides.filter(|of| text(of, "/volumeName") == volume).map(|of| text(of, "/restoreName"));
            let claim = match named.next_back() {
                Some(named) if !named.is_empty() => named.to_owned(),
                _ if in_place => name(old).to_owned(),
                _ => format!("restore-{}-{volume}", uid(restore)),
            };
            let template =
                items(vm, "/spec/dataVolumeTemplates").iter().find(|template| name(template) == name(old));
            Disk { volume, claim, old, snapshot: text(backup, "/volumeSnapshotName"), template }
        })
        .collect()
}

/// True if the claim was made by this restore.
pub(super) fn is_of(claim: &Value, restore: &Value) -> bool {
    annotation(claim, MADE_BY) == Some(name(restore)) && annotation(claim, LAST) == Some(uid(restore))
}

impl Disk<'_> {
    /// The entry in the status of the restore.
    pub(super) fn record(&self) -> Value {
        let mut record = json!({
            "volumeName": self.volume,
            "persistentVolumeClaim": self.claim,
            "volumeSnapshotName": self.snapshot,
        });
        if self.template.is_some() {
            record["dataVolumeName"] = self.claim.as_str().into();
        }
        record
    }

    /// The claim whose volume is made of the snapshot.
    pub(super) fn new_claim(&self, restore: &Value) -> Value {
        let spec = csi_snapshot::claim_spec(&self.old["spec"], self.snapshot);
        let mut annotations = json!({ MADE_BY: name(restore), LAST: uid(restore) });
        if self.template.is_some() {
            annotations[POPULATED_FOR] = self.claim.as_str().into();
        }
        let mut metadata = json!({
            "name": self.claim,
            "namespace": namespace(restore),
            "labels": self.old["metadata"]["labels"],
            "annotations": annotations,
        });
        let owned = text(restore, "/spec/volumeOwnershipPolicy") != "None";
        // The VM owns the new claim only if it owned the old one (RST:1025-1053).
        if let (true, Some(of_vm)) = (owned, owner(self.old, "VirtualMachine")) {
            metadata["ownerReferences"] = json!([of_vm]);
        }
        if metadata["labels"].is_null() {
            metadata["labels"] = json!({});
        }
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec })
    }

    fn new_template(&self) -> Option<Value> {
        let mut template = self.template?.clone();
        template["metadata"]["name"] = self.claim.as_str().into();
        template["metadata"]["annotations"][PRE_POPULATED] = self.claim.as_str().into();
        Some(template)
    }

    /// The DataVolume of the claim, if the old one had a template.
    pub(super) fn data_volume(&self, vm: &Value) -> Option<Value> {
        let template = self.new_template()?;
        let mut metadata = template["metadata"].clone();
        metadata["namespace"] = namespace(vm).into();
        metadata["labels"]["kubevirt.io/created-by"] = uid(vm).into();
        metadata["ownerReferences"] = json!([owned_by(vm)]);
        Some(json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1",
            "kind": "DataVolume",
            "metadata": metadata,
            "spec": template["spec"],
        }))
    }
}

/// The spec of the VM in the snapshot, with the new disks.
pub(super) fn spec(vm: &Value, disks: &[Disk<'_>]) -> Value {
    let mut spec = vm["spec"].clone();
    for disk in disks {
        let volumes = spec.pointer_mut("/template/spec/volumes").and_then(Value::as_array_mut);
        let volume =
            volumes.and_then(|all| all.iter_mut().find(|volume| text(volume, "/name") == disk.volume));
        let Some(volume) = volume else { continue };
        match (disk.new_template(), volume.get("dataVolume").is_some()) {
            (Some(_), _) => volume["dataVolume"]["name"] = disk.claim.as_str().into(),
            (None, is_data_volume) => {
                if let (true, Some(fields)) = (is_data_volume, volume.as_object_mut()) {
                    fields.remove("dataVolume");
                }
                volume["persistentVolumeClaim"]["claimName"] = disk.claim.as_str().into();
            }
        }
        let templates = spec.get_mut("dataVolumeTemplates").and_then(Value::as_array_mut);
        let old = templates.and_then(|all| all.iter_mut().find(|template| name(template) == name(disk.old)));
        if let (Some(old), Some(new)) = (old, disk.new_template()) {
            *old = new;
        }
    }
    spec
}

/// A VM of another name, with the metadata of the one in the snapshot, changed by the JSON patches of the restore.
///
/// # Errors
/// A patch that is none, or that does not fit.
pub(super) fn new_vm(source: &Value, spec: Value, key: &Key, restore: &Value) -> Result<Value, String> {
    let mut metadata = json!({ "name": &*key.name, "namespace": &*key.namespace });
    for field in ["labels", "annotations"] {
        if source["metadata"][field].is_object() {
            metadata[field] = source["metadata"][field].clone();
        }
    }
    metadata["annotations"][LAST] = uid(restore).into();
    let mut vm = json!({ "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": spec });
    for patch in items(restore, "/spec/patches").iter().filter_map(Value::as_str) {
        let operation = serde_json::from_str(patch).map_err(|error| format!("patch {patch}: {error}"))?;
        json_patch::patch(&mut vm, &[operation]).map_err(|error| format!("patch {patch}: {error}"))?;
    }
    Ok(vm)
}

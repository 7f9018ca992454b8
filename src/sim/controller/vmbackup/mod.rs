//! Harvester's own backups and snapshots of VMs (domain.md §3.8). Disks that are DataVolumes are not in them, and nobody
//! says so.

mod restore;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::HARVESTER;
use crate::sim::controller::LONGHORN_SPACE;
use crate::sim::controller::longhorn::DRIVER;
use crate::sim::controller::longhorn::recovery::Handle;
use crate::sim::controller::turn::Turn;
use crate::sim::kinds::BACKUPS;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::LONGHORN_BACKUPS;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::kinds::VOLUME_SNAPSHOT_CONTENTS;
use crate::sim::kinds::VOLUME_SNAPSHOTS;
use crate::sim::object::Conditions;
use crate::sim::object::deleting;
use crate::sim::object::items;
use crate::sim::object::name;
use crate::sim::object::namespace;
use crate::sim::object::owned_by;
use crate::sim::object::owner;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// How often what is not ready is looked at: progress is not told by events.
const POLL: Duration = Duration::from_secs(2);

/// Harvester's controllers of backups and restores.
pub(super) fn all() -> Vec<Arc<dyn Controller>> {
    vec![Arc::new(Backups), Arc::new(restore::Restores)]
}

/// The class of the volume snapshots: the setting csi-driver-config (domain.md §0).
fn snapshot_class(backup: &Value) -> &'static str {
    if is_snapshot(backup) { "longhorn-snapshot" } else { "longhorn" }
}

/// True for a backup that stays inside the volumes.
pub(in crate::sim) fn is_snapshot(backup: &Value) -> bool {
    text(backup, "/spec/type") == "snapshot"
}

/// Harvester's backup controller.
struct Backups;

impl Controller for Backups {
    fn name(&self) -> &'static str {
        HARVESTER
    }

    fn lag(&self) -> Duration {
        Duration::from_millis(400)
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        match changed.resource {
            BACKUPS => Some(changed.clone()),
            VOLUME_SNAPSHOTS => {
                let backup = owner(object, "VirtualMachineBackup")?;
                Some(Key::new(BACKUPS, &changed.namespace, text(backup, "/name")))
            }
            _ => None,
        }
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "harvester-vm-backup-controller");
        let Some(backup) = context.view.get(key).filter(|backup| !deleting(backup)) else {
            return turn.end();
        };
        let status = &backup["status"];
        if status["volumeBackups"].is_array() {
            follow(&mut turn, key, &backup);
        } else if status.is_null() {
            begin(&mut turn, key, &backup);
        }
        turn.end()
    }
}

/// Writes down the VM and its claims. Volumes of another type are skipped (HBAK:916-931). A snapshot goes with its VM
/// (domain.md §5.1).
fn begin(turn: &mut Turn<'_>, key: &Key, backup: &Value) {
    let vm = Key::new(VIRTUAL_MACHINES, &key.namespace, text(backup, "/spec/source/name"));
    let Some(vm) = turn.context.view.get(&vm) else {
        let error = format!("virtualmachines.kubevirt.io \"{}\" not found", vm.name);
        return turn.status(key, backup, json!({ "readyToUse": false, "error": { "message": error } }));
    };
    if is_snapshot(backup) && owner(backup, "VirtualMachine").is_none() {
        turn.patch(key, backup, json!({ "metadata": { "ownerReferences": [owned_by(&vm)] } }));
    }
    let mut volumes = vec![];
    for volume in items(&vm, "/spec/template/spec/volumes") {
        let claim = text(volume, "/persistentVolumeClaim/claimName");
        let Some(found) = turn.context.view.get(&Key::new(CLAIMS, &key.namespace, claim)) else { continue };
        let metadata =
            json!({ "name": claim, "namespace": &*key.namespace, "annotations": {}, "labels": {} });
        volumes.push(json!({
            "name": format!("{}-volume-{claim}", key.name),
            "volumeName": text(volume, "/name"),
            "csiDriverName": DRIVER,
            "persistentVolumeClaim": { "metadata": metadata, "spec": found["spec"] },
            "readyToUse": false,
            "progress": 0,
        }));
    }
    let mut conditions = Conditions::of(backup, turn.now());
    conditions.set("Ready", "False", "", "Not Ready");
    conditions.set("InProgress", "True", "", "Operation in progress");
    let mut source = json!({ "metadata": {}, "spec": vm["spec"] });
    for field in ["name", "namespace", "labels", "annotations"] {
        source["metadata"][field] = vm["metadata"][field].clone();
    }
    let status = json!({
        "source": source,
        "sourceUID": uid(&vm),
        "volumeBackups": volumes,
        "csiDriverVolumeSnapshotClassNames": { DRIVER: snapshot_class(backup) },
        "readyToUse": false,
        "progress": 0,
        "conditions": conditions.into_value(),
    });
    turn.status(key, backup, status);
}

/// Has the snapshots of the volumes made, and adds up how far they are.
fn follow(turn: &mut Turn<'_>, key: &Key, backup: &Value) {
    if backup["status"]["readyToUse"] == json!(true) {
        return;
    }
    let view = turn.context.view;
    let mut volumes = items(backup, "/status/volumeBackups").to_vec();
    for volume in &mut volumes {
        let wanted = Key::new(VOLUME_SNAPSHOTS, &key.namespace, name_of(volume));
        let Some(snapshot) = view.get(&wanted) else {
            turn.create(VOLUME_SNAPSHOTS, volume_snapshot(backup, volume));
            continue;
        };
        let status = &snapshot["status"];
        let ready = status["readyToUse"] == json!(true);
        volume["readyToUse"] = ready.into();
        volume["creationTime"] = status["creationTime"].clone();
        volume["error"] = status["error"].clone();
        let copy = copy_of(turn, &snapshot);
        let progress = copy.as_ref().map_or(0, |copy| copy["status"]["progress"].as_u64().unwrap_or(0));
        volume["progress"] = if ready { 100 } else { progress }.into();
        if let Some(copy) = copy {
            volume["longhornBackupName"] = name(&copy).into();
        }
        if let Some(fields) = volume.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
    }
    let ready = volumes.iter().all(|volume| volume["readyToUse"] == json!(true));
    let sum: u64 = volumes.iter().filter_map(|volume| volume["progress"].as_u64()).sum();
    let progress = sum.checked_div(volumes.len() as u64).unwrap_or(100);
    let failing = volumes.iter().find(|volume| volume["error"].is_object());
    let mut conditions = Conditions::of(backup, turn.now());
    if ready {
        conditions.set("Ready", "True", "", "Operation complete");
        conditions.set("InProgress", "False", "", "Operation complete");
        if !is_snapshot(backup) {
            conditions.set("MetadataReady", "True", "", "");
        }
    }
    let mut status = json!({
        "readyToUse": ready,
        "progress": progress,
        "error": failing.map(|volume| volume["error"].clone()),
        "conditions": conditions.into_value(),
        "volumeBackups": volumes,
    });
    if ready {
        status["creationTime"] = turn.now().to_string().into();
    } else {
        turn.again_after(POLL);
    }
    turn.status(key, backup, status);
}

fn name_of(volume: &Value) -> &str {
    text(volume, "/name")
}

fn volume_snapshot(backup: &Value, volume: &Value) -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshot",
        "metadata": {
            "name": name_of(volume),
            "namespace": namespace(backup),
            "ownerReferences": [owned_by(backup)],
        },
        "spec": {
            "source": { "persistentVolumeClaimName": text(volume, "/persistentVolumeClaim/metadata/name") },
            "volumeSnapshotClassName": snapshot_class(backup),
        },
    })
}

/// Longhorn's backup behind a volume snapshot, if there is one.
fn copy_of(turn: &Turn<'_>, snapshot: &Value) -> Option<Arc<Value>> {
    let content = text(snapshot, "/status/boundVolumeSnapshotContentName");
    let content = turn.context.view.get(&Key::new(VOLUME_SNAPSHOT_CONTENTS, "", content))?;
    let Some(Handle::Backup { backup, .. }) = Handle::parse(text(&content, "/status/snapshotHandle")) else {
        return None;
    };
    turn.context.view.get(&Key::new(LONGHORN_BACKUPS, LONGHORN_SPACE, &backup))
}

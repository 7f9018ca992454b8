//! VirtualMachineSnapshotContent: freezes the guest, has a snapshot made of each volume, and lets the guest go on
//! (domain.md §3.2, SNAP:394-470).

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::snapshot::CONTENT_FINALIZER;
use crate::sim::controller::snapshot::class_for;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::CONTROLLERS_FROZEN;
use crate::sim::fault::FREEZE_FAILS;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::SNAPSHOT_CONTENTS;
use crate::sim::kinds::SNAPSHOTS;
use crate::sim::kinds::VOLUME_SNAPSHOTS;
use crate::sim::object::deleting;
use crate::sim::object::is_true;
use crate::sim::object::items;
use crate::sim::object::owned_by;
use crate::sim::object::owner;
use crate::sim::object::text;
use crate::sim::object::without_finalizers;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// How often a guest that cannot be frozen is asked again (SNAP:410-430).
const FREEZE_AGAIN: Duration = Duration::from_secs(5);
/// What virt-handler answers then (domain-cases.md 23).
const FREEZE_ERROR: &str = "Internal error occurred: unexpected return code 400 (400 Bad Request), message: \"LibvirtError: \
                            guest agent command failed: guest-fsfreeze-freeze\"";

/// KubeVirt's controller of contents.
pub(super) struct Contents;

impl Controller for Contents {
    fn name(&self) -> &'static str {
        "virt-controller"
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        match changed.resource {
            SNAPSHOT_CONTENTS => Some(changed.clone()),
            VOLUME_SNAPSHOTS => {
                let content = owner(object, "VirtualMachineSnapshotContent")?;
                Some(Key::new(SNAPSHOT_CONTENTS, &changed.namespace, text(content, "/name")))
            }
            _ => None,
        }
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "snapshot-controller");
        let Some(content) = context.view.get(key).filter(|_| !turn.fault(CONTROLLERS_FROZEN)) else {
            return turn.end();
        };
        let snapshot =
            Key::new(SNAPSHOTS, &key.namespace, text(&content, "/spec/virtualMachineSnapshotName"));
        let snapshot = context.view.get(&snapshot);
        let going = snapshot.as_deref().is_none_or(deleting);
        let begun = !text(&content, "/status/creationTime").is_empty();
        if deleting(&content) {
            if going {
                // A snapshot that is deleted while it is being taken leaves no guest frozen (domain.md §3.2).
                if !begun {
                    thaw(&mut turn, key, &content);
                }
                turn.patch(key, &content, without_finalizers(&content, &[CONTENT_FINALIZER]));
            }
            return turn.end();
        }
        let failed = snapshot.is_some_and(|snapshot| text(&snapshot, "/status/phase") == "Failed");
        let volumes = volumes(&turn, key, &content);
        let missing = volumes.iter().any(|(_, found)| found.is_none());
        if missing && !begun && !going && !failed && !make(&mut turn, key, &content, &volumes) {
            return turn.end();
        }
        if failed {
            thaw(&mut turn, key, &content);
        }
        report(&mut turn, key, &content, &volumes);
        turn.end()
    }
}

/// Each volume snapshot of the content by name, if it is there.
type Volumes = Vec<(String, Option<Arc<Value>>)>;

fn volumes(turn: &Turn<'_>, key: &Key, content: &Value) -> Volumes {
    let names =
        items(content, "/spec/volumeBackups").iter().map(|backup| text(backup, "/volumeSnapshotName"));
    names
        .filter(|name| !name.is_empty())
        .map(|name| {
            let found = turn.context.view.get(&Key::new(VOLUME_SNAPSHOTS, &key.namespace, name));
            (name.to_owned(), found)
        })
        .collect()
}

/// The instance of the VM, by the name that the content has.
fn instance_key(key: &Key, content: &Value) -> Key {
    Key::new(INSTANCES, &key.namespace, text(content, "/spec/source/virtualMachine/metadata/name"))
}

/// Makes the snapshots of the volumes that are missing. False if the guest has to be frozen first, and cannot be.
fn make(turn: &mut Turn<'_>, key: &Key, content: &Value, volumes: &Volumes) -> bool {
    let instance_key = instance_key(key, content);
    let instance =
        turn.context.view.get(&instance_key).filter(|instance| is_true(instance, "AgentConnected"));
    if let Some(instance) = instance {
        if turn.fault(FREEZE_FAILS) {
            turn.status(
                key,
                content,
                json!({ "readyToUse": false, "error": error(turn, content, FREEZE_ERROR) }),
            );
            turn.again_after(FREEZE_AGAIN);
            return false;
        }
        turn.status(&instance_key, &instance, json!({ "fsFreezeStatus": "frozen" }));
    }
    for (backup, (name, found)) in items(content, "/spec/volumeBackups").iter().zip(volumes) {
        let claim = &backup["persistentVolumeClaim"];
        let Ok(Some(class)) = class_for(turn.context.view, claim) else { continue };
        if found.is_some() {
            continue;
        }
        let snapshot = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1",
            "kind": "VolumeSnapshot",
            "metadata": {
                "name": name,
                "namespace": &*key.namespace,
                "ownerReferences": [owned_by(content)],
            },
            "spec": {
                "source": { "persistentVolumeClaimName": text(claim, "/metadata/name") },
                "volumeSnapshotClassName": class,
            },
        });
        turn.create(VOLUME_SNAPSHOTS, snapshot);
        let message = format!("Successfully created VolumeSnapshot {name}");
        turn.event(key, "Normal", "SuccessfulVolumeSnapshotCreate", &message);
    }
    true
}

/// The guest goes on.
fn thaw(turn: &mut Turn<'_>, key: &Key, content: &Value) {
    let instance_key = instance_key(key, content);
    if let Some(instance) = turn.context.view.get(&instance_key) {
        turn.status(&instance_key, &instance, json!({ "fsFreezeStatus": null }));
    }
}

/// An error with its time, which is that of its first appearance.
fn error(turn: &Turn<'_>, content: &Value, message: &str) -> Value {
    let before = &content["status"]["error"];
    match text(before, "/message") == message {
        true => before.clone(),
        false => json!({ "message": message, "time": turn.now().to_string() }),
    }
}

fn report(turn: &mut Turn<'_>, key: &Key, content: &Value, volumes: &Volumes) {
    let begun = !text(content, "/status/creationTime").is_empty();
    let missing: Vec<&str> =
        volumes.iter().filter(|(_, found)| found.is_none()).map(|(name, _)| name.as_str()).collect();
    let statuses: Vec<Value> = volumes
        .iter()
        .filter_map(|(name, found)| {
            let of = &found.as_deref()?["status"];
            let mut status = json!({ "volumeSnapshotName": name });
            for field in ["creationTime", "readyToUse", "error"] {
                if !of[field].is_null() {
                    status[field] = of[field].clone();
                }
            }
            Some(status)
        })
        .collect();
    let all = |field: &str, wanted: fn(&Value) -> bool| {
        missing.is_empty() && statuses.iter().all(|status| wanted(&status[field]))
    };
    let created = all("creationTime", |time| !time.is_null());
    let ready = all("readyToUse", |ready| *ready == json!(true));
    let failing = statuses.iter().find(|status| !text(status, "/error/message").is_empty());
    let why = match failing {
        _ if begun && !missing.is_empty() => format!("VolumeSnapshots ({}) missing", missing.join(",")),
        // The last error of a snapshot that is ready means nothing (domain.md §3.4, kubevirt PR#4374).
        Some(failing) if !ready => {
            format!(
                "VolumeSnapshot {} error: {}",
                text(failing, "/volumeSnapshotName"),
                text(failing, "/error/message")
            )
        }
        _ => String::new(),
    };
    let mut status = json!({ "readyToUse": ready, "volumeSnapshotStatus": statuses, "error": null });
    if !why.is_empty() {
        status["error"] = error(turn, content, &why);
    }
    if created && !begun {
        status["creationTime"] = turn.now().to_string().into();
        thaw(turn, key, content);
    }
    if begun && content["status"]["readyToUse"] == json!(true) {
        for name in &missing {
            let message = format!("VolumeSnapshot {name} no longer exists");
            turn.event(key, "Warning", "VolumeSnapshotMissing", &message);
        }
    }
    turn.status(key, content, status);
}

//! The external snapshotter: snapshot-controller binds a VolumeSnapshot to its content, the sidecar csi-snapshotter has
//! Longhorn make what is in it (domain.md §3.4, §3.5).

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::longhorn::DRIVER;
use crate::sim::controller::longhorn::recovery;
use crate::sim::controller::longhorn::recovery::Handle;
use crate::sim::controller::longhorn::recovery::Made;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::CONTENT_STUCK;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::LONGHORN_BACKUPS;
use crate::sim::kinds::LONGHORN_SNAPSHOTS;
use crate::sim::kinds::VOLUME_SNAPSHOT_CLASSES;
use crate::sim::kinds::VOLUME_SNAPSHOT_CONTENTS;
use crate::sim::kinds::VOLUME_SNAPSHOTS;
use crate::sim::kinds::VOLUMES;
use crate::sim::object::annotation;
use crate::sim::object::deleting;
use crate::sim::object::has_finalizer;
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

/// Keeps a claim while a snapshot is made of it (SN pkg/utils/util.go:80-92).
const CLAIM_FINALIZER: &str = "snapshot.storage.kubernetes.io/pvc-as-source-protection";
/// Keeps a snapshot while it has a content.
const BOUND_FINALIZER: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
/// Keeps a snapshot while a claim is made of it.
const SOURCE_FINALIZER: &str = "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection";
/// Keeps a content until the driver has deleted what is in it.
const CONTENT_FINALIZER: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
/// The driver was asked and has not given its last answer: blocks the deletion of the content (domain.md §3.4).
const BEING_CREATED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-created";
/// The snapshot of the content is being deleted.
const BEING_DELETED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
/// How often what waits for others looks again.
const POLL: Duration = Duration::from_secs(1);
/// How soon the driver is asked again after an error.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// The API version of both kinds.
const API_VERSION: &str = "snapshot.storage.k8s.io/v1";

fn content_key(snapshot: &Value) -> Key {
    Key::new(VOLUME_SNAPSHOT_CONTENTS, "", &format!("snapcontent-{}", uid(snapshot)))
}

fn snapshot_key(content: &Value) -> Key {
    let of = &content["spec"]["volumeSnapshotRef"];
    Key::new(VOLUME_SNAPSHOTS, text(of, "/namespace"), text(of, "/name"))
}

/// The handle behind a snapshot from which a volume is to be made; the provisioner's words if there is none.
pub(super) fn handle_of(turn: &Turn<'_>, space: &str, snapshot: &str) -> Result<String, String> {
    let view = turn.context.view;
    let why = |reason: &str| {
        format!("error getting handle for DataSource Type VolumeSnapshot by Name {snapshot}: {reason}")
    };
    let found = view
        .get(&Key::new(VOLUME_SNAPSHOTS, space, snapshot))
        .ok_or_else(|| why(&format!("volumesnapshots.snapshot.storage.k8s.io \"{snapshot}\" not found")))?;
    let content = view.get(&content_key(&found)).filter(|_| found["status"]["readyToUse"] == json!(true));
    let content = content.ok_or_else(|| why(&format!("snapshot {snapshot} is not Ready")))?;
    Ok(text(&content, "/status/snapshotHandle").to_owned())
}

/// The spec of a claim like `old` whose volume is made of a snapshot.
pub(super) fn claim_spec(old: &Value, snapshot: &str) -> Value {
    let mut spec = old.clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("volumeName");
    }
    let source = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot });
    spec["dataSource"] = source.clone();
    spec["dataSourceRef"] = source;
    spec
}

/// snapshot-controller.
pub(super) struct VolumeSnapshots;

impl Controller for VolumeSnapshots {
    fn name(&self) -> &'static str {
        "snapshot-controller"
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        match changed.resource {
            VOLUME_SNAPSHOTS => Some(changed.clone()),
            VOLUME_SNAPSHOT_CONTENTS => Some(snapshot_key(object)),
            _ => None,
        }
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "snapshot-controller");
        let Some(snapshot) = context.view.get(key) else { return turn.end() };
        let content_key = content_key(&snapshot);
        let content = context.view.get(&content_key);
        let claim_key =
            Key::new(CLAIMS, &key.namespace, text(&snapshot, "/spec/source/persistentVolumeClaimName"));
        if deleting(&snapshot) {
            let_go(&mut turn, key, &snapshot, (&content_key, content.as_deref()));
            release_claim(&mut turn, &claim_key);
            return turn.end();
        }
        for finalizer in [SOURCE_FINALIZER, BOUND_FINALIZER] {
            if !has_finalizer(&snapshot, finalizer) {
                turn.patch(key, &snapshot, with_finalizer(&snapshot, finalizer));
                return turn.end();
            }
        }
        match content {
            Some(content) => follow(&mut turn, key, &snapshot, &content, &claim_key),
            None if !text(&snapshot, "/status/boundVolumeSnapshotContentName").is_empty() => {
                fail(&mut turn, key, &snapshot, "VolumeSnapshotContent is missing");
            }
            None => bind(&mut turn, key, &snapshot, &content_key, &claim_key),
        }
        turn.end()
    }
}

fn fail(turn: &mut Turn<'_>, key: &Key, object: &Value, message: &str) {
    if text(object, "/status/error/message") != message {
        let error = json!({ "message": message, "time": turn.now().to_string() });
        turn.status(key, object, json!({ "readyToUse": false, "error": error }));
    }
    turn.again_after(ASK_AGAIN);
}

/// Makes the content of a snapshot, once its claim is bound.
fn bind(turn: &mut Turn<'_>, key: &Key, snapshot: &Value, content_key: &Key, claim_key: &Key) {
    let view = turn.context.view;
    let class_name = text(snapshot, "/spec/volumeSnapshotClassName");
    let class = view.get(&Key::new(VOLUME_SNAPSHOT_CLASSES, "", class_name));
    let Some(class) = class else {
        let message = format!("volumesnapshotclass.snapshot.storage.k8s.io \"{class_name}\" not found");
        return fail(turn, key, snapshot, &message);
    };
    let Some(claim) = view.get(claim_key).filter(|claim| !deleting(claim)) else {
        let message = format!("persistentvolumeclaim \"{}\" not found", claim_key.name);
        return fail(turn, key, snapshot, &message);
    };
    let volume = view.get(&Key::new(VOLUMES, "", text(&claim, "/spec/volumeName")));
    let Some(volume) = volume.filter(|_| text(&claim, "/status/phase") == "Bound") else {
        let message = format!("the PVC {} is not yet bound to a PV", claim_key.name);
        return fail(turn, key, snapshot, &message);
    };
    if !has_finalizer(&claim, CLAIM_FINALIZER) {
        turn.patch(claim_key, &claim, with_finalizer(&claim, CLAIM_FINALIZER));
    }
    turn.create(
        VOLUME_SNAPSHOT_CONTENTS,
        json!({
            "apiVersion": API_VERSION,
            "kind": "VolumeSnapshotContent",
            "metadata": { "name": &*content_key.name, "finalizers": [CONTENT_FINALIZER] },
            "spec": {
                "deletionPolicy": class["deletionPolicy"],
                "driver": class["driver"],
                "source": { "volumeHandle": volume["spec"]["csi"]["volumeHandle"] },
                "sourceVolumeMode": volume["spec"]["volumeMode"],
                "volumeSnapshotClassName": class_name,
                "volumeSnapshotRef": {
                    "apiVersion": API_VERSION,
                    "kind": "VolumeSnapshot",
                    "namespace": namespace(snapshot),
                    "name": name(snapshot),
                    "uid": uid(snapshot),
                },
            },
        }),
    );
    let of = format!("{}/{}", key.namespace, key.name);
    let message = format!("Waiting for a snapshot {of} to be created by the CSI driver.");
    turn.event(key, "Normal", "CreatingSnapshot", &message);
}

/// A snapshot shows what its content says. Once ready it is never looked at again (longhorn#11267).
fn follow(turn: &mut Turn<'_>, key: &Key, snapshot: &Value, content: &Value, claim_key: &Key) {
    let of = &content["status"];
    let mut status = json!({
        "boundVolumeSnapshotContentName": name(content),
        "readyToUse": of["readyToUse"] == json!(true),
        "error": of["error"],
    });
    if let Some(nanos) = of["creationTime"].as_i64() {
        status["creationTime"] = Timestamp::from_millis(nanos / NANOS).to_string().into();
    }
    if let Some(size) = of["restoreSize"].as_u64() {
        status["restoreSize"] = quantity(size).into();
    }
    let ready = status["readyToUse"] == json!(true);
    if ready && snapshot["status"]["readyToUse"] != json!(true) {
        turn.event(
            key,
            "Normal",
            "SnapshotReady",
            &format!("Snapshot {}/{} is ready to use.", key.namespace, key.name),
        );
    }
    turn.status(key, snapshot, status);
    if ready {
        release_claim(turn, claim_key);
    }
}

/// The claim may go again, unless another snapshot is made of it.
fn release_claim(turn: &mut Turn<'_>, claim_key: &Key) {
    let view = turn.context.view;
    let Some(claim) = view.get(claim_key).filter(|claim| has_finalizer(claim, CLAIM_FINALIZER)) else {
        return;
    };
    let busy = view.list(VOLUME_SNAPSHOTS, Some(&claim_key.namespace)).iter().any(|snapshot| {
        !deleting(snapshot)
            && text(snapshot, "/spec/source/persistentVolumeClaimName") == &*claim_key.name
            && snapshot["status"]["readyToUse"] != json!(true)
            && view
                .get(&content_key(snapshot))
                .is_some_and(|content| content["status"]["readyToUse"] != json!(true))
    });
    if !busy {
        turn.patch(claim_key, &claim, without_finalizers(&claim, &[CLAIM_FINALIZER]));
    }
}

/// A deleted snapshot waits for the claims that are made of it, then for its content.
fn let_go(turn: &mut Turn<'_>, key: &Key, snapshot: &Value, content: (&Key, Option<&Value>)) {
    let claims = turn.context.view.list(CLAIMS, Some(&key.namespace));
    let wanted = claims.iter().any(|claim| {
        text(claim, "/spec/dataSource/kind") == "VolumeSnapshot"
            && text(claim, "/spec/dataSource/name") == &*key.name
            && text(claim, "/status/phase") == "Pending"
    });
    if wanted {
        return turn.again_after(POLL);
    }
    let (content_key, found) = content;
    match found {
        Some(content) if text(content, "/spec/deletionPolicy") == "Delete" => {
            let mark = json!({ "metadata": { "annotations": { BEING_DELETED: "yes" } } });
            turn.patch(content_key, content, mark);
            if !deleting(content) {
                turn.delete(content_key);
            }
        }
        _ => {
            let held = [SOURCE_FINALIZER, BOUND_FINALIZER];
            turn.patch(key, snapshot, without_finalizers(snapshot, &held));
        }
    }
}

/// Nanoseconds in a millisecond.
const NANOS: i64 = 1_000_000;

/// A size as a quantity: in whole gibibytes or mebibytes if it is that.
fn quantity(bytes: u64) -> String {
    let unit = [("Gi", 1 << 30), ("Mi", 1 << 20)].into_iter().find(|(_, unit)| bytes.is_multiple_of(*unit));
    unit.map_or_else(|| bytes.to_string(), |(name, unit)| format!("{}{name}", bytes / unit))
}

/// Longhorn's csi-snapshotter.
pub(super) struct Contents;

impl Controller for Contents {
    fn name(&self) -> &'static str {
        "csi-snapshotter"
    }

    fn lag(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        let of = |snapshot: &str| {
            let content = snapshot.strip_prefix("snapshot-")?;
            Some(Key::new(VOLUME_SNAPSHOT_CONTENTS, "", &format!("snapcontent-{content}")))
        };
        match changed.resource {
            VOLUME_SNAPSHOT_CONTENTS => Some(changed.clone()),
            LONGHORN_SNAPSHOTS => of(&changed.name),
            LONGHORN_BACKUPS => of(text(object, "/spec/snapshotName")),
            _ => None,
        }
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "csi-snapshotter");
        let Some(content) = context.view.get(key).filter(|content| text(content, "/spec/driver") == DRIVER)
        else {
            return turn.end();
        };
        let asked = annotation(&content, BEING_CREATED).is_some();
        let orphaned = context.view.get(&snapshot_key(&content)).is_none();
        let handle = Handle::parse(text(&content, "/status/snapshotHandle"));
        match handle {
            handle if deleting(&content) && !asked => {
                if orphaned || annotation(&content, BEING_DELETED).is_some() {
                    delete(&mut turn, key, &content, handle.as_ref());
                }
            }
            Some(_) if content["status"]["readyToUse"] == json!(true) => {}
            _ => create(&mut turn, key, &content),
        }
        turn.end()
    }
}

/// Asks the driver for the snapshot, again and again until it has given a last answer (SN
/// pkg/sidecar-controller/snapshot_controller.go:725-747).
fn create(turn: &mut Turn<'_>, key: &Key, content: &Value) {
    let begun = !text(content, "/status/snapshotHandle").is_empty();
    if !begun && annotation(content, BEING_CREATED).is_none() {
        let mark = json!({ "metadata": { "annotations": { BEING_CREATED: "yes" } } });
        turn.patch(key, content, mark);
    }
    let class = Key::new(VOLUME_SNAPSHOT_CLASSES, "", text(content, "/spec/volumeSnapshotClassName"));
    let class = turn.context.view.get(&class);
    let way = class.as_deref().map_or("", |class| text(class, "/parameters/type"));
    let snapshot = key.name.replacen("snapcontent-", "snapshot-", 1);
    let volume = text(content, "/spec/source/volumeHandle");
    let made = match turn.fault(CONTENT_STUCK) {
        true => Made::Later("rpc error: code = Aborted desc = snapshot is still being created".to_owned()),
        false => recovery::create(turn, volume, &snapshot, way),
    };
    match made {
        Made::Going => turn.again_after(POLL),
        Made::Later(why) => {
            let message = format!("Failed to check and update snapshot content: {why}");
            fail(turn, key, content, &message);
        }
        Made::Never(why) => {
            let message = format!("Failed to create snapshot: {why}");
            fail(turn, key, content, &message);
            turn.patch(key, content, json!({ "metadata": { "annotations": { BEING_CREATED: null } } }));
        }
        Made::Done { handle, at, size, ready } => {
            let status = json!({
                "snapshotHandle": handle.to_string(),
                "creationTime": at.as_millis() * NANOS,
                "restoreSize": size,
                "readyToUse": ready,
                "error": null,
            });
            turn.status(key, content, status);
            turn.patch(key, content, json!({ "metadata": { "annotations": { BEING_CREATED: null } } }));
        }
    }
}

fn delete(turn: &mut Turn<'_>, key: &Key, content: &Value, handle: Option<&Handle>) {
    match handle.map_or(Ok(true), |handle| recovery::delete(turn, handle)) {
        Ok(true) => turn.patch(key, content, without_finalizers(content, &[CONTENT_FINALIZER])),
        Ok(false) => turn.again_after(POLL),
        Err(why) => fail(turn, key, content, &format!("Failed to delete snapshot: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_the_largest_whole_unit() {
        for (bytes, shown) in [(10 << 30, "10Gi"), (512 << 20, "512Mi"), (1_000, "1000")] {
            assert_eq!(quantity(bytes), shown);
        }
    }
}

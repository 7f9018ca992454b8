//! Longhorn's snapshots, which live and die with their volume (domain.md §3.6), and its backups, which do not.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::CONTENT_STAMP;
use crate::sim::controller::longhorn;
use crate::sim::controller::longhorn::FINALIZER;
use crate::sim::controller::longhorn::SPACE;
use crate::sim::controller::longhorn::recovery::snapshot_key;
use crate::sim::controller::longhorn::ticket::Ticket;
use crate::sim::controller::turn::Turn;
use crate::sim::kinds::BACKUP_TARGETS;
use crate::sim::kinds::LONGHORN_BACKUPS;
use crate::sim::kinds::LONGHORN_SNAPSHOTS;
use crate::sim::object::Conditions;
use crate::sim::object::annotation;
use crate::sim::object::deleting;
use crate::sim::object::label;
use crate::sim::object::moment;
use crate::sim::object::text;
use crate::sim::object::without_finalizers;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;
use crate::time::shorten;

/// How often what waits for a volume looks again.
const POLL: Duration = Duration::from_secs(1);
/// How long a backup takes.
const BACKUP_TAKES: Duration = Duration::from_secs(20);

/// Longhorn's snapshot controller.
pub(super) struct Snapshots;

impl Controller for Snapshots {
    fn name(&self) -> &'static str {
        "longhorn-manager"
    }

    fn lag(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        (changed.resource == LONGHORN_SNAPSHOTS).then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "longhorn-snapshot-controller");
        let Some(snapshot) = context.view.get(key) else { return turn.end() };
        let volume = text(&snapshot, "/spec/volume");
        let ticket = Ticket { id: format!("snapshot-controller-{}", key.name), kind: "snapshot-controller" };
        if deleting(&snapshot) {
            ticket.give_back(&mut turn, volume);
            turn.patch(key, &snapshot, without_finalizers(&snapshot, &[FINALIZER]));
            return turn.end();
        }
        if moment(&snapshot, "/status/creationTime").is_some() {
            ticket.give_back(&mut turn, volume);
            turn.status(key, &snapshot, json!({ "readyToUse": true }));
        } else if snapshot["spec"]["createSnapshot"] == json!(true) && ticket.admits(&mut turn, volume) {
            take(&mut turn, key, &snapshot, volume);
        } else {
            turn.again_after(POLL);
        }
        turn.end()
    }
}

/// The volume is attached: its state at this moment is kept. Whether it can be used is told a little later.
fn take(turn: &mut Turn<'_>, key: &Key, snapshot: &Value, volume: &str) {
    let Some(stored) = longhorn::volume(turn.context.view, volume) else { return };
    let stamp = longhorn::stamp(turn.context.view, volume);
    turn.patch(key, snapshot, json!({ "metadata": { "annotations": { CONTENT_STAMP: stamp } } }));
    let size: u64 = text(&stored, "/spec/size").parse().unwrap_or(0);
    let status = json!({
        "creationTime": turn.now().to_string(),
        "readyToUse": false,
        "restoreSize": size,
        "size": stored["status"]["actualSize"].as_u64().unwrap_or(0),
        "userCreated": true,
        "markRemoved": false,
        "parent": "",
        "children": { "volume-head": true },
    });
    turn.status(key, snapshot, status);
}

/// Longhorn's backup controller.
pub(super) struct Backups;

impl Controller for Backups {
    fn name(&self) -> &'static str {
        "longhorn-manager"
    }

    fn lag(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        (changed.resource == LONGHORN_BACKUPS).then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "longhorn-backup-controller");
        let Some(backup) = context.view.get(key) else { return turn.end() };
        let volume = label(&backup, "backup-volume").unwrap_or_default();
        let ticket = Ticket { id: format!("backup-controller-{}", key.name), kind: "backup-controller" };
        match text(&backup, "/status/state") {
            "Completed" | "Error" => ticket.give_back(&mut turn, volume),
            "" => {
                let status = json!({ "state": "Pending", "progress": 0, "volumeName": volume });
                turn.status(key, &backup, status);
            }
            _ => copy(&mut turn, key, &backup, volume, &ticket),
        }
        turn.end()
    }
}

/// A backup that goes on while its snapshot is there.
fn copy(turn: &mut Turn<'_>, key: &Key, backup: &Value, volume: &str, ticket: &Ticket) {
    let view = turn.context.view;
    let name = text(backup, "/spec/snapshotName");
    let (Some(snapshot), Some(stored)) = (view.get(&snapshot_key(name)), longhorn::volume(view, volume))
    else {
        let error = format!("snapshot {name} of volume {volume} not found");
        return turn.status(key, backup, json!({ "state": "Error", "error": error }));
    };
    if !ticket.admits(turn, volume) {
        return turn.again_after(POLL);
    }
    let Some(since) = moment(backup, "/status/backupCreatedAt") else {
        let status =
            json!({ "state": "InProgress", "snapshotName": name, "backupCreatedAt": turn.now().to_string() });
        return turn.status(key, backup, status);
    };
    if !turn.passed(since, BACKUP_TAKES) {
        let whole = shorten(BACKUP_TAKES, turn.context.speed).as_millis().max(1);
        let progress = u64::try_from(turn.now().since(since).as_millis() * 100 / whole).unwrap_or(0);
        turn.status(key, backup, json!({ "progress": progress }));
        return turn.again_after(POLL * 5);
    }
    let stamp = annotation(&snapshot, CONTENT_STAMP).unwrap_or_default();
    turn.patch(key, backup, json!({ "metadata": { "annotations": { CONTENT_STAMP: stamp } } }));
    let target =
        view.get(&Key::new(BACKUP_TARGETS, SPACE, label(backup, "backup-target").unwrap_or_default()));
    let target = target.map(|target| text(&target, "/spec/backupTargetURL").to_owned()).unwrap_or_default();
    let status = json!({
        "state": "Completed",
        "progress": 100,
        "url": format!("{target}?backup={}&volume={volume}", key.name),
        "snapshotCreatedAt": snapshot["status"]["creationTime"],
        "size": stored["status"]["actualSize"].as_u64().unwrap_or(0).to_string(),
        "volumeSize": stored["spec"]["size"],
        "backupTargetName": label(backup, "backup-target"),
    });
    turn.status(key, backup, status);
    ticket.give_back(turn, volume);
}

/// Longhorn's backup target controller.
pub(super) struct BackupTargets;

impl Controller for BackupTargets {
    fn name(&self) -> &'static str {
        "longhorn-manager"
    }

    fn lag(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        (changed.resource == BACKUP_TARGETS).then(|| changed.clone())
    }

    /// A target without a URL is not available (LH controller/backup_target_controller.go:450-485), nor is one on a host
    /// that no name server knows (RFC 2606).
    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "longhorn-backup-target-controller");
        let Some(target) = context.view.get(key) else { return turn.end() };
        let why = match text(&target, "/spec/backupTargetURL") {
            "" => "backup target URL is empty".to_owned(),
            url if url.contains(".invalid") => format!("cannot mount {url}: Name or service not known"),
            _ => String::new(),
        };
        let available = why.is_empty();
        let mut conditions = Conditions::of(&target, turn.now());
        match available {
            true => conditions.set("Unavailable", "False", "", ""),
            false => conditions.set("Unavailable", "True", "Unavailable", &why),
        }
        let mut status = json!({ "available": available, "conditions": conditions.into_value() });
        if available && target["status"]["available"] != json!(true) {
            status["lastSyncedAt"] = turn.now().to_string().into();
        }
        turn.status(key, &target, status);
        turn.end()
    }
}

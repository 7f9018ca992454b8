//! What Longhorn's CSI driver does about snapshots of volumes: inside the volume (`snap`) or in the backup target
//! (`bak`) (domain.md §3.5; CSI:51-54,885-895,1078).

use std::fmt;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::longhorn;
use crate::sim::controller::longhorn::SPACE;
use crate::sim::controller::turn::Turn;
use crate::sim::kinds::BACKUP_TARGETS;
use crate::sim::kinds::LONGHORN_BACKUPS;
use crate::sim::kinds::LONGHORN_SNAPSHOTS;
use crate::sim::object::deleting;
use crate::sim::object::moment;
use crate::sim::object::text;
use crate::sim::world::Key;
use crate::sim::world::View;
use crate::time::Timestamp;

/// The target that volumes use unless they say otherwise.
const TARGET: &str = "default";

/// Where the data of a snapshot is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::sim::controller) enum Handle {
    /// In the volume itself.
    Snapshot {
        /// The volume.
        volume: String,
        /// Its snapshot.
        snapshot: String,
    },
    /// In the backup target.
    Backup {
        /// The volume that was backed up.
        volume: String,
        /// The backup.
        backup: String,
    },
}

impl Handle {
    /// Reads a handle; none if it is of another form.
    pub(in crate::sim::controller) fn parse(handle: &str) -> Option<Self> {
        let (scheme, path) = handle.split_once("://")?;
        let (volume, of) = path.split_once('/')?;
        let (volume, of) = (volume.to_owned(), of.to_owned());
        match scheme {
            "snap" => Some(Self::Snapshot { volume, snapshot: of }),
            "bak" | "bs" => Some(Self::Backup { volume, backup: of }),
            _ => None,
        }
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot { volume, snapshot } => write!(f, "snap://{volume}/{snapshot}"),
            Self::Backup { volume, backup } => write!(f, "bak://{volume}/{backup}"),
        }
    }
}

/// How far a snapshot is.
pub(in crate::sim::controller) enum Made {
    /// It is on its way.
    Going,
    /// The driver could not, and may be able to later: no last answer.
    Later(String),
    /// The driver refuses.
    Never(String),
    /// The data is as it was at a moment. It can be used once it is ready.
    Done {
        /// Where it is.
        handle: Handle,
        /// The moment.
        at: Timestamp,
        /// In bytes.
        size: u64,
        /// Whether it can be used.
        ready: bool,
    },
}

/// The snapshot of a Longhorn volume.
pub(in crate::sim::controller) fn snapshot_key(snapshot: &str) -> Key {
    Key::new(LONGHORN_SNAPSHOTS, SPACE, snapshot)
}

/// A backup of Longhorn.
pub(in crate::sim::controller) fn backup_key(backup: &str) -> Key {
    Key::new(LONGHORN_BACKUPS, SPACE, backup)
}

/// `CreateSnapshot`: makes what is missing, and says how far it is.
pub(in crate::sim::controller) fn create(
    turn: &mut Turn<'_>,
    volume: &str,
    snapshot: &str,
    way: &str,
) -> Made {
    let backs_up = match way {
        "snap" => false,
        "" | "bak" | "bs" => true,
        other => {
            return Made::Never(format!(
                "rpc error: code = InvalidArgument desc = invalid snapshot type: {other}"
            ));
        }
    };
    let view = turn.context.view;
    let stored = longhorn::volume(view, volume);
    let Some(stored) = stored.filter(|stored| !deleting(stored)) else {
        return Made::Never(format!("rpc error: code = NotFound desc = volume {volume} not found"));
    };
    if backs_up && !target_is_available(turn.context.view) {
        let message = format!("backup target {TARGET} is not available");
        return Made::Later(format!("rpc error: code = Aborted desc = {message}"));
    }
    let size = text(&stored, "/spec/size").parse().unwrap_or(0);
    let Some(taken) = view.get(&snapshot_key(snapshot)) else {
        turn.create(
            LONGHORN_SNAPSHOTS,
            json!({
                "apiVersion": "longhorn.io/v1beta2",
                "kind": "Snapshot",
                "metadata": { "name": snapshot, "namespace": SPACE },
                "spec": { "volume": volume, "createSnapshot": true },
            }),
        );
        return Made::Going;
    };
    let Some(at) = moment(&taken, "/status/creationTime") else { return Made::Going };
    let ready = taken["status"]["readyToUse"] == json!(true);
    if !backs_up {
        let handle = Handle::Snapshot { volume: volume.to_owned(), snapshot: snapshot.to_owned() };
        return Made::Done { handle, at, size, ready };
    }
    if !ready {
        return Made::Going;
    }
    back_up(turn, volume, snapshot, at, size)
}

/// Has a snapshot copied to the backup target.
fn back_up(turn: &mut Turn<'_>, volume: &str, snapshot: &str, at: Timestamp, size: u64) -> Made {
    let name = snapshot.replacen("snapshot-", "backup-", 1);
    let handle = Handle::Backup { volume: volume.to_owned(), backup: name.clone() };
    match turn.context.view.get(&backup_key(&name)) {
        None => {
            turn.create(
                LONGHORN_BACKUPS,
                json!({
                    "apiVersion": "longhorn.io/v1beta2",
                    "kind": "Backup",
                    "metadata": {
                        "name": name,
                        "namespace": SPACE,
                        "labels": { "backup-target": TARGET, "backup-volume": volume },
                    },
                    "spec": { "snapshotName": snapshot, "backupMode": "incremental" },
                }),
            );
            Made::Going
        }
        Some(backup) => match text(&backup, "/status/state") {
            "" => Made::Going,
            "Error" => {
                Made::Never(format!("rpc error: code = Internal desc = {}", text(&backup, "/status/error")))
            }
            state => Made::Done { handle, at, size, ready: state == "Completed" },
        },
    }
}

/// True once backups can be put there.
pub(in crate::sim) fn target_is_available(view: &dyn View) -> bool {
    let target = view.get(&Key::new(BACKUP_TARGETS, SPACE, TARGET));
    target.is_some_and(|target| target["status"]["available"] == json!(true))
}

/// `DeleteSnapshot`: true once nothing of it is left. A volume that is gone has none; a backup needs its target.
pub(in crate::sim::controller) fn delete(turn: &mut Turn<'_>, handle: &Handle) -> Result<bool, String> {
    let key = match handle {
        Handle::Snapshot { volume, .. } if longhorn::volume(turn.context.view, volume).is_none() => {
            return Ok(true);
        }
        Handle::Snapshot { snapshot, .. } => snapshot_key(snapshot),
        Handle::Backup { .. } if !target_is_available(turn.context.view) => {
            return Err(format!("rpc error: code = Aborted desc = backup target {TARGET} is not available"));
        }
        Handle::Backup { backup, .. } => backup_key(backup),
    };
    match turn.context.view.get(&key) {
        None => Ok(true),
        Some(found) => {
            if !deleting(&found) {
                turn.delete(&key);
            }
            Ok(false)
        }
    }
}

/// What a new volume is to hold: the value of a volume's `spec.dataSource` for a snapshot, of its `spec.fromBackup` for
/// a backup. The data must be there, and the volume as large as its source.
pub(in crate::sim::controller) fn source(
    turn: &Turn<'_>,
    handle: &str,
    size: u64,
) -> Result<(&'static str, String), String> {
    let view = turn.context.view;
    let missing = |what: &str| Err(format!("rpc error: code = NotFound desc = {what} not found"));
    let (found, whole) = match Handle::parse(handle) {
        None => return Err(format!("rpc error: code = InvalidArgument desc = invalid snapshot {handle}")),
        Some(Handle::Snapshot { volume, snapshot }) => {
            let Some(stored) = longhorn::volume(view, &volume).filter(|stored| !deleting(stored)) else {
                return missing(&format!("volume {volume}"));
            };
            if view.get(&snapshot_key(&snapshot)).is_none_or(|snapshot| deleting(&snapshot)) {
                return missing(&format!("snapshot {snapshot}"));
            }
            (("dataSource", handle.to_owned()), text(&stored, "/spec/size").to_owned())
        }
        Some(Handle::Backup { backup, .. }) => {
            let Some(found) = view.get(&backup_key(&backup)) else {
                return missing(&format!("backup {backup}"));
            };
            let url = text(&found, "/status/url").to_owned();
            (("fromBackup", url), text(&found, "/status/volumeSize").to_owned())
        }
    };
    if whole.parse() != Ok(size) {
        let message = format!("size {size} is not that of the source, {whole}");
        return Err(format!("rpc error: code = OutOfRange desc = {message}"));
    }
    Ok(found)
}

/// The snapshot or backup that a volume was made of, if it was.
pub(in crate::sim::controller) fn origin(volume: &Value) -> Option<Handle> {
    let of_backup = || {
        let query = text(volume, "/spec/fromBackup").split_once('?')?.1;
        let of = |name: &str| query.split('&').find_map(|part| part.strip_prefix(name)).map(str::to_owned);
        Some(Handle::Backup { volume: of("volume=")?, backup: of("backup=")? })
    };
    Handle::parse(text(volume, "/spec/dataSource")).or_else(of_backup)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_name_the_volume_and_what_is_in_it() {
        let snapshot = Handle::Snapshot { volume: "v".to_owned(), snapshot: "s".to_owned() };
        let backup = Handle::Backup { volume: "v".to_owned(), backup: "b".to_owned() };
        for (text, handle) in
            [("snap://v/s", Some(&snapshot)), ("bak://v/b", Some(&backup)), ("bi://v/b", None), ("", None)]
        {
            assert_eq!(Handle::parse(text).as_ref(), handle, "{text}");
        }
        assert_eq!(snapshot.to_string(), "snap://v/s");
        let made_of = |spec: Value| origin(&json!({ "spec": spec }));
        assert_eq!(made_of(json!({ "dataSource": "snap://v/s" })), Some(snapshot));
        assert_eq!(made_of(json!({ "fromBackup": "nfs://target?backup=b&volume=v" })), Some(backup));
        assert_eq!(made_of(json!({})), None);
    }
}

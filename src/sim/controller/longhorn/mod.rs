//! Longhorn: volumes with their engines and replicas, who wants them attached, backing images, nodes with their disks
//! (domain.md §2.5, §3.6, §6).

pub(in crate::sim) mod backing;
pub(super) mod clone;
mod disk;
pub(super) mod recovery;
mod snapshot;
mod ticket;
mod volume;

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::CONTENT_STAMP;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::NO_SPACE;
use crate::sim::kinds::LONGHORN_ENGINES;
use crate::sim::kinds::LONGHORN_NODES;
use crate::sim::kinds::LONGHORN_VOLUMES;
use crate::sim::kinds::VOLUMES;
use crate::sim::object::annotation;
use crate::sim::object::is_true;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Resource;
use crate::sim::world::View;
use crate::time::Timestamp;

/// Where all of Longhorn's objects are.
pub(in crate::sim) const SPACE: &str = "longhorn-system";
/// Longhorn's CSI driver.
pub(in crate::sim::controller) const DRIVER: &str = "driver.longhorn.io";
/// Keeps a volume until its parts are gone.
const FINALIZER: &str = "longhorn.io";
/// The label by which parts are found (domain.md §3.6).
const OF_VOLUME: &str = "longhornvolume";
/// The image of the engine that Longhorn 1.11.2 brings.
const ENGINE_IMAGE: &str = "longhornio/longhorn-engine:v1.11.2";

/// Longhorn's controllers.
pub(super) fn all() -> Vec<Arc<dyn Controller>> {
    vec![
        Arc::new(volume::Volumes),
        Arc::new(ticket::Tickets),
        Arc::new(disk::Disks),
        Arc::new(backing::BackingImages),
        Arc::new(clone::Clones),
        Arc::new(snapshot::Snapshots),
        Arc::new(snapshot::Backups),
        Arc::new(snapshot::BackupTargets),
    ]
}

/// A Longhorn volume by its handle.
pub(super) fn volume(view: &dyn View, handle: &str) -> Option<Arc<Value>> {
    view.get(&Key::new(LONGHORN_VOLUMES, SPACE, handle))
}

/// A new volume for a claim of a class.
pub(super) fn new_volume(name: &str, claim: &Value, class: &Value) -> Value {
    let parameter = |name: &str| text(class, &format!("/parameters/{name}"));
    let shared =
        claim["spec"]["accessModes"].as_array().is_some_and(|modes| modes.contains(&json!("ReadWriteMany")));
    let size = bytes(text(claim, "/spec/resources/requests/storage"));
    let mut volume = json!({
        "apiVersion": "longhorn.io/v1beta2",
        "kind": "Volume",
        "metadata": { "name": name, "namespace": SPACE, "finalizers": [FINALIZER] },
        "spec": {
            "size": size.to_string(),
            "numberOfReplicas": parameter("numberOfReplicas").parse::<u64>().unwrap_or(3),
            "staleReplicaTimeout": parameter("staleReplicaTimeout").parse::<u64>().unwrap_or(30),
            "accessMode": if shared { "rwx" } else { "rwo" },
            "migratable": parameter("migratable") == "true" && shared,
            "dataEngine": "v1",
            "dataLocality": "disabled",
            "frontend": "blockdev",
            "image": ENGINE_IMAGE,
            "nodeID": "",
            "migrationNodeID": "",
        },
    });
    if let Some(backing) = backing::of_class(class) {
        volume["spec"]["backingImage"] = (*backing.name).into();
    }
    volume
}

/// So much of a volume, in percent, has been written: its size on the disks rises (domain.md §2.3).
pub(super) fn written(turn: &mut Turn<'_>, handle: &str, percent: u64) {
    let key = Key::new(LONGHORN_VOLUMES, SPACE, handle);
    if let Some(volume) = turn.context.view.get(&key) {
        let size: u64 = text(&volume, "/spec/size").parse().unwrap_or(0);
        turn.status(&key, &volume, json!({ "actualSize": size / 100 * percent.min(100) }));
    }
}

/// When the engine of a volume started, if it runs.
pub(super) fn engine_started_at(view: &dyn View, handle: &str) -> Option<Timestamp> {
    let engines = parts(view, LONGHORN_ENGINES, handle);
    engines.first().and_then(|engine| volume::started_at(engine))
}

/// What is on a volume: the word that the volume of the cluster carries.
fn stamp(view: &dyn View, handle: &str) -> Option<String> {
    let volumes = view.list(VOLUMES, None);
    let persistent = volumes.iter().find(|found| text(found, "/spec/csi/volumeHandle") == handle)?;
    annotation(persistent, CONTENT_STAMP).map(str::to_owned)
}

/// True if the volume is ready for workloads: `IsVolumeReady` of LH types/volumes.go:14-56 (domain.md §3.6).
pub(super) fn is_ready(volume: &Value) -> bool {
    let copied =
        ["completed", "copy-completed-awaiting-healthy"].contains(&text(volume, "/status/cloneStatus/state"));
    let filled = match recovery::origin(volume) {
        None => true,
        Some(recovery::Handle::Snapshot { .. }) => copied,
        Some(recovery::Handle::Backup { .. }) => volume["status"]["restoreRequired"] == json!(false),
    };
    filled && is_attachable(volume)
}

/// True if Longhorn itself can attach the volume.
fn is_attachable(volume: &Value) -> bool {
    let state = text(volume, "/status/state");
    let scheduled = is_true(volume, "Scheduled");
    !["", "creating", "deleting"].contains(&state)
        && (state != "detached" || scheduled)
        && text(volume, "/status/robustness") != "faulted"
}

/// How many bytes a quantity is; zero for what is none.
pub(super) fn bytes(quantity: &str) -> u64 {
    const UNITS: [(&str, u64); 8] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
    ];
    let unit = UNITS.iter().find_map(|(name, factor)| Some((quantity.strip_suffix(name)?, *factor)));
    let (number, factor) = unit.unwrap_or((quantity, 1));
    number.parse::<u64>().map_or(0, |number| number.saturating_mul(factor))
}

/// A part of a volume: an engine, a replica, an attachment.
fn part(volume: &Value, kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "longhorn.io/v1beta2",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": SPACE,
            "labels": { OF_VOLUME: text(volume, "/metadata/name") },
            "ownerReferences": [{
                "apiVersion": "longhorn.io/v1beta2",
                "kind": "Volume",
                "name": text(volume, "/metadata/name"),
                "uid": uid(volume),
            }],
        },
        "spec": spec,
    })
}

/// The parts of a kind that a volume has.
fn parts(view: &dyn View, resource: Resource, volume: &str) -> Vec<Arc<Value>> {
    let mut parts = view.list(resource, Some(SPACE));
    parts.retain(|part| text(part, "/spec/volumeName") == volume);
    parts
}

/// Longhorn's own name for a node of the cluster.
fn node_key(name: &str) -> Key {
    Key::new(LONGHORN_NODES, SPACE, name)
}

/// The nodes that take a replica of `size` bytes, the emptiest first.
fn nodes_with_room(turn: &Turn<'_>, size: u64) -> Vec<String> {
    if turn.fault(NO_SPACE) {
        return vec![];
    }
    let nodes = turn.context.view.list(LONGHORN_NODES, Some(SPACE));
    let mut roomy: Vec<(std::cmp::Reverse<u64>, String)> = nodes
        .iter()
        .filter_map(|node| Some((std::cmp::Reverse(disk::room(node).filter(|room| *room >= size)?), node)))
        .map(|(room, node)| (room, text(node, "/metadata/name").to_owned()))
        .collect();
    roomy.sort();
    roomy.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_counted_in_bytes() {
        for (quantity, expected) in
            [("10Gi", 10 << 30), ("512Mi", 512 << 20), ("5G", 5_000_000_000), ("1024", 1024), ("much", 0)]
        {
            assert_eq!(bytes(quantity), expected, "{quantity}");
        }
    }
}

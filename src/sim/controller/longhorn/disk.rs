//! Longhorn's nodes: their conditions, and how much room is on their disks.

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::longhorn::SPACE;
use crate::sim::controller::longhorn::node_key;
use crate::sim::controller::node;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::NO_SPACE;
use crate::sim::kinds::LONGHORN_NODES;
use crate::sim::kinds::LONGHORN_REPLICAS;
use crate::sim::object::Conditions;
use crate::sim::object::is_true;
use crate::sim::object::text;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// How large each disk is, in bytes.
const DISK_SIZE: u64 = 500 << 30;
/// How much of a disk must stay free, in percent: Longhorn's default (domain.md §6).
const MINIMAL_AVAILABLE: u64 = 25;
/// What should be true of a node (domain.md §6, LH k8s/pkg/apis/longhorn/v1beta2/node.go:6-34).
const CONDITIONS: [&str; 7] = [
    "Ready",
    "Schedulable",
    "MountPropagation",
    "KernelModulesLoaded",
    "RequiredPackages",
    "NFSClientInstalled",
    "Multipathd",
];

/// Longhorn's node controller.
pub(super) struct Disks;

impl Controller for Disks {
    fn name(&self) -> &'static str {
        "longhorn-manager"
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        match changed.resource {
            LONGHORN_NODES => Some(changed.clone()),
            LONGHORN_REPLICAS => {
                Some(text(object, "/spec/nodeID")).filter(|name| !name.is_empty()).map(node_key)
            }
            _ => None,
        }
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "longhorn-node-controller");
        let Some(found) = context.view.get(key) else { return turn.end() };
        let down = node::is_down(context, &key.name);
        let mut conditions = Conditions::of(&found, turn.now());
        for kind in CONDITIONS {
            match down && kind == "Ready" {
                true => conditions.set(kind, "False", "KubernetesNodeNotReady", "the node is not ready"),
                false => conditions.set(kind, "True", "", ""),
            }
        }
        let disks = found["spec"]["disks"].as_object();
        let statuses = disks
            .into_iter()
            .flatten()
            .map(|(name, disk)| (name.clone(), status(&turn, key, &found, name, disk)));
        let statuses: Value = statuses.collect::<serde_json::Map<_, _>>().into();
        turn.status(key, &found, json!({ "conditions": conditions.into_value(), "diskStatus": statuses }));
        if node::some_down(context) {
            turn.again_after(node::DOWN_POLL);
        }
        turn.end()
    }
}

fn status(turn: &Turn<'_>, key: &Key, node: &Value, name: &str, disk: &Value) -> Value {
    let replicas = turn.context.view.list(LONGHORN_REPLICAS, Some(SPACE));
    let here = replicas.iter().filter(|replica| text(replica, "/spec/nodeID") == &*key.name);
    let sizes: Vec<(String, u64)> = here
        .map(|replica| {
            let size = text(replica, "/spec/volumeSize").parse().unwrap_or(0);
            (text(replica, "/metadata/name").to_owned(), size)
        })
        .collect();
    let full = turn.fault(NO_SPACE);
    let before = json!({ "status": node["status"]["diskStatus"][name].clone() });
    let mut conditions = Conditions::of(&before, turn.now());
    conditions.set("Ready", "True", "", "");
    let available = if full { DISK_SIZE / 100 } else { DISK_SIZE - DISK_SIZE / 10 };
    if full {
        let message =
            format!("disk {name} on the node {} has {available} available, which is too little", key.name);
        conditions.set("Schedulable", "False", "DiskPressure", &message);
    } else {
        conditions.set("Schedulable", "True", "", "");
    }
    // A replica that is gone leaves the map, which a merge does with null.
    let mut scheduled = serde_json::Map::new();
    for gone in before["status"]["scheduledReplica"].as_object().into_iter().flatten().map(|(name, _)| name) {
        scheduled.insert(gone.clone(), Value::Null);
    }
    scheduled.extend(sizes.iter().map(|(name, size)| (name.clone(), (*size).into())));
    json!({
        "conditions": conditions.into_value(),
        "diskName": name,
        "diskPath": disk["path"],
        "diskType": "filesystem",
        "diskUUID": format!("{name}-{}", key.name),
        "filesystemType": "ext2/ext3",
        "storageMaximum": DISK_SIZE,
        "storageAvailable": available,
        "storageScheduled": sizes.iter().map(|(_, size)| size).sum::<u64>(),
        "scheduledReplica": scheduled,
    })
}

/// The bytes that still can be given to replicas on a node that takes any: (maximum - reserved) - scheduled, on a disk
/// with enough free (domain.md §6).
pub(super) fn room(node: &Value) -> Option<u64> {
    let takes = node["spec"]["allowScheduling"] == json!(true)
        && is_true(node, "Ready")
        && is_true(node, "Schedulable");
    let disks = node["status"]["diskStatus"].as_object().filter(|_| takes)?;
    let rooms = disks.iter().filter_map(|(name, disk)| {
        let number = |field: &str| disk[field].as_u64().unwrap_or(0);
        let schedulable = is_true(&json!({ "status": disk }), "Schedulable");
        let enough = number("storageAvailable") * 100 >= number("storageMaximum") * MINIMAL_AVAILABLE;
        let reserved = node["spec"]["disks"][name]["storageReserved"].as_u64().unwrap_or(0);
        let used = reserved.saturating_add(number("storageScheduled"));
        (schedulable && enough).then(|| number("storageMaximum").saturating_sub(used))
    });
    rooms.max()
}

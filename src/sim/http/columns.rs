//! Which columns `kubectl get` shows, kind by kind: those of kube-apiserver, and of the CRDs their printer columns.

use serde_json::Value;

use crate::sim::http::table::condition;
use crate::sim::kinds;
use crate::sim::meta;
use crate::sim::world::Resource;
use crate::time::Timestamp;

/// What stands in a cell.
pub(super) enum Cell {
    /// The value at a JSON pointer.
    Path(&'static str),
    /// The text at a JSON pointer, or `<none>`.
    Name(&'static str),
    /// The status of a condition.
    Condition(&'static str),
    /// How long ago a moment was.
    Age(&'static str),
    /// How many entries a map or list has.
    Size(&'static str),
    /// Whatever it takes.
    Computed(fn(&Value, Timestamp) -> String),
}

impl Cell {
    /// The type that the head of the table gives.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Size(_) => "integer",
            _ => "string",
        }
    }
}

/// A column.
pub(super) struct Column {
    /// Its title.
    pub(super) name: &'static str,
    /// What it shows.
    pub(super) cell: Cell,
    /// Whether only `-o wide` shows it.
    pub(super) wide: bool,
}

const fn column(name: &'static str, cell: Cell) -> Column {
    Column { name, cell, wide: false }
}

const fn path(name: &'static str, pointer: &'static str) -> Column {
    column(name, Cell::Path(pointer))
}

const fn wide(name: &'static str, pointer: &'static str) -> Column {
    Column { name, cell: Cell::Path(pointer), wide: true }
}

/// A column of the wide form that says `<none>` rather than nothing.
const fn named(name: &'static str, pointer: &'static str) -> Column {
    Column { name, cell: Cell::Name(pointer), wide: true }
}

const NAME: Column = path("Name", "/metadata/name");
const AGE: Column = column("Age", Cell::Age("/metadata/creationTimestamp"));

/// The columns of a kind.
pub(super) fn of(resource: Resource) -> &'static [Column] {
    let table = COLUMNS.iter().find(|(of, _)| *of == resource);
    table.map_or(const { &[NAME, AGE] }, |(_, columns)| *columns)
}

const EVENT_COLUMNS: &[Column] = &[
    column("Last Seen", Cell::Age("/lastTimestamp")),
    path("Type", "/type"),
    path("Reason", "/reason"),
    column("Object", Cell::Computed(event_object)),
    path("Message", "/message"),
    wide("Source", "/source/component"),
    wide("Count", "/count"),
    wide("Name", "/metadata/name"),
];

const COLUMNS: &[(Resource, &[Column])] = &[
    (kinds::CDIS, &[NAME, AGE, path("Phase", "/status/phase")]),
    (
        kinds::DATA_VOLUMES,
        &[
            NAME,
            path("Phase", "/status/phase"),
            path("Progress", "/status/progress"),
            path("Restarts", "/status/restartCount"),
            AGE,
        ],
    ),
    (
        kinds::LONGHORN_VOLUMES,
        &[
            NAME,
            path("Data Engine", "/spec/dataEngine"),
            path("State", "/status/state"),
            path("Robustness", "/status/robustness"),
            column("Scheduled", Cell::Condition("Schedulable")),
            path("Size", "/spec/size"),
            path("Node", "/status/currentNodeID"),
            AGE,
        ],
    ),
    (
        kinds::LONGHORN_ENGINES,
        &[
            NAME,
            path("Data Engine", "/spec/dataEngine"),
            path("State", "/status/currentState"),
            path("Node", "/spec/nodeID"),
            AGE,
        ],
    ),
    (
        kinds::LONGHORN_REPLICAS,
        &[
            NAME,
            path("Data Engine", "/spec/dataEngine"),
            path("State", "/status/currentState"),
            path("Node", "/spec/nodeID"),
            path("Disk", "/spec/diskID"),
            AGE,
        ],
    ),
    (
        kinds::BACKING_IMAGES,
        &[
            NAME,
            path("UUID", "/status/uuid"),
            path("SourceType", "/spec/sourceType"),
            path("Size", "/status/size"),
            path("VirtualSize", "/status/virtualSize"),
            AGE,
        ],
    ),
    (
        kinds::IMAGES,
        &[
            NAME,
            path("BACKEND", "/spec/backend"),
            path("DISPLAY-NAME", "/spec/displayName"),
            path("SIZE", "/status/size"),
            path("VIRTUALSIZE", "/status/virtualSize"),
            AGE,
        ],
    ),
    (
        kinds::LONGHORN_NODES,
        &[
            NAME,
            column("Ready", Cell::Condition("Ready")),
            path("AllowScheduling", "/spec/allowScheduling"),
            column("Schedulable", Cell::Condition("Schedulable")),
            AGE,
        ],
    ),
    (
        kinds::PODS,
        &[
            NAME,
            column("Ready", Cell::Computed(pod_ready)),
            column("Status", Cell::Computed(pod_status)),
            column("Restarts", Cell::Computed(pod_restarts)),
            AGE,
            named("IP", "/status/podIP"),
            named("Node", "/spec/nodeName"),
            named("Nominated Node", "/status/nominatedNodeName"),
            named("Readiness Gates", "/spec/readinessGates"),
        ],
    ),
    (
        kinds::NODES,
        &[
            NAME,
            column("Status", Cell::Computed(node_status)),
            column("Roles", Cell::Computed(node_roles)),
            AGE,
            path("Version", "/status/nodeInfo/kubeletVersion"),
            wide("OS-Image", "/status/nodeInfo/osImage"),
            wide("Kernel-Version", "/status/nodeInfo/kernelVersion"),
        ],
    ),
    (kinds::NAMESPACES, &[NAME, path("Status", "/status/phase"), AGE]),
    (kinds::CONFIG_MAPS, &[NAME, column("Data", Cell::Size("/data")), AGE]),
    (kinds::SECRETS, &[NAME, path("Type", "/type"), column("Data", Cell::Size("/data")), AGE]),
    (kinds::SERVICE_ACCOUNTS, &[NAME, column("Secrets", Cell::Size("/secrets")), AGE]),
    (
        kinds::CLAIMS,
        &[
            NAME,
            column("Status", Cell::Computed(phase)),
            path("Volume", "/spec/volumeName"),
            path("Capacity", "/status/capacity/storage"),
            column("Access Modes", Cell::Computed(access_modes)),
            path("StorageClass", "/spec/storageClassName"),
            AGE,
            wide("VolumeMode", "/spec/volumeMode"),
        ],
    ),
    (
        kinds::VOLUMES,
        &[
            NAME,
            path("Capacity", "/spec/capacity/storage"),
            column("Access Modes", Cell::Computed(access_modes)),
            path("Reclaim Policy", "/spec/persistentVolumeReclaimPolicy"),
            column("Status", Cell::Computed(phase)),
            column("Claim", Cell::Computed(claim)),
            path("StorageClass", "/spec/storageClassName"),
            AGE,
        ],
    ),
    (kinds::EVENTS, EVENT_COLUMNS),
    (kinds::NEW_EVENTS, EVENT_COLUMNS),
    (
        kinds::STORAGE_CLASSES,
        &[
            column("Name", Cell::Computed(storage_class)),
            path("Provisioner", "/provisioner"),
            path("ReclaimPolicy", "/reclaimPolicy"),
            path("VolumeBindingMode", "/volumeBindingMode"),
            path("AllowVolumeExpansion", "/allowVolumeExpansion"),
            AGE,
        ],
    ),
    (
        kinds::VOLUME_ATTACHMENTS,
        &[
            NAME,
            path("Attacher", "/spec/attacher"),
            path("PV", "/spec/source/persistentVolumeName"),
            path("Node", "/spec/nodeName"),
            path("Attached", "/status/attached"),
            AGE,
        ],
    ),
    (kinds::LEASES, &[NAME, path("Holder", "/spec/holderIdentity"), AGE]),
    (kinds::DEFINITIONS, &[NAME, path("Created At", "/metadata/creationTimestamp")]),
    (
        kinds::API_SERVICES,
        &[
            NAME,
            column("Service", Cell::Computed(service)),
            column("Available", Cell::Condition("Available")),
            AGE,
        ],
    ),
    (
        kinds::VIRTUAL_MACHINES,
        &[NAME, AGE, path("Status", "/status/printableStatus"), column("Ready", Cell::Condition("Ready"))],
    ),
    (
        kinds::INSTANCES,
        &[
            NAME,
            AGE,
            path("Phase", "/status/phase"),
            path("IP", "/status/interfaces/0/ipAddress"),
            path("NodeName", "/status/nodeName"),
            column("Ready", Cell::Condition("Ready")),
        ],
    ),
    (kinds::MIGRATIONS, &[NAME, path("Phase", "/status/phase"), path("VMI", "/spec/vmiName"), AGE]),
    (kinds::KUBEVIRTS, &[NAME, AGE, path("Phase", "/status/phase")]),
    (
        kinds::SNAPSHOTS,
        &[
            NAME,
            path("SourceKind", "/spec/source/kind"),
            path("SourceName", "/spec/source/name"),
            path("Phase", "/status/phase"),
            path("ReadyToUse", "/status/readyToUse"),
            column("CreationTime", Cell::Age("/status/creationTime")),
            path("Error", "/status/error/message"),
        ],
    ),
    (
        kinds::SNAPSHOT_CONTENTS,
        &[
            NAME,
            path("ReadyToUse", "/status/readyToUse"),
            column("CreationTime", Cell::Age("/status/creationTime")),
            path("Error", "/status/error/message"),
        ],
    ),
    (
        kinds::RESTORES,
        &[
            NAME,
            path("TargetKind", "/spec/target/kind"),
            path("TargetName", "/spec/target/name"),
            path("Complete", "/status/complete"),
            column("RestoreTime", Cell::Age("/status/restoreTime")),
        ],
    ),
    (
        kinds::VOLUME_SNAPSHOTS,
        &[
            NAME,
            path("ReadyToUse", "/status/readyToUse"),
            path("SourcePVC", "/spec/source/persistentVolumeClaimName"),
            path("SourceSnapshotContent", "/spec/source/volumeSnapshotContentName"),
            path("RestoreSize", "/status/restoreSize"),
            path("SnapshotClass", "/spec/volumeSnapshotClassName"),
            path("SnapshotContent", "/status/boundVolumeSnapshotContentName"),
            column("CreationTime", Cell::Age("/status/creationTime")),
            AGE,
        ],
    ),
    (
        kinds::VOLUME_SNAPSHOT_CONTENTS,
        &[
            NAME,
            path("ReadyToUse", "/status/readyToUse"),
            path("RestoreSize", "/status/restoreSize"),
            path("DeletionPolicy", "/spec/deletionPolicy"),
            path("Driver", "/spec/driver"),
            path("VolumeSnapshotClass", "/spec/volumeSnapshotClassName"),
            path("VolumeSnapshot", "/spec/volumeSnapshotRef/name"),
            path("VolumeSnapshotNamespace", "/spec/volumeSnapshotRef/namespace"),
            AGE,
        ],
    ),
    (
        kinds::VOLUME_SNAPSHOT_CLASSES,
        &[NAME, path("Driver", "/driver"), path("DeletionPolicy", "/deletionPolicy"), AGE],
    ),
    (
        kinds::LONGHORN_SNAPSHOTS,
        &[
            NAME,
            path("Volume", "/spec/volume"),
            path("CreationTime", "/status/creationTime"),
            path("ReadyToUse", "/status/readyToUse"),
            path("RestoreSize", "/status/restoreSize"),
            path("Size", "/status/size"),
            AGE,
        ],
    ),
    (
        kinds::LONGHORN_BACKUPS,
        &[
            NAME,
            path("SnapshotName", "/status/snapshotName"),
            path("SnapshotSize", "/status/size"),
            path("SnapshotCreatedAt", "/status/snapshotCreatedAt"),
            path("BackupTarget", "/status/backupTargetName"),
            path("State", "/status/state"),
            path("LastSyncedAt", "/status/lastSyncedAt"),
        ],
    ),
    (
        kinds::BACKUP_TARGETS,
        &[
            NAME,
            path("URL", "/spec/backupTargetURL"),
            path("Credential", "/spec/credentialSecret"),
            path("LastBackupAt", "/spec/pollInterval"),
            path("Available", "/status/available"),
            path("LastSyncedAt", "/status/lastSyncedAt"),
        ],
    ),
    (
        kinds::BACKUPS,
        &[
            NAME,
            path("SOURCE_KIND", "/spec/source/kind"),
            path("SOURCE_NAME", "/spec/source/name"),
            path("TYPE", "/spec/type"),
            path("READY_TO_USE", "/status/readyToUse"),
            AGE,
            path("ERROR", "/status/error/message"),
        ],
    ),
    (
        kinds::HARVESTER_RESTORES,
        &[
            NAME,
            path("TARGET_KIND", "/spec/target/kind"),
            path("TARGET_NAME", "/spec/target/name"),
            path("COMPLETE", "/status/complete"),
            AGE,
            path("ERROR", "/status/error/message"),
        ],
    ),
];

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn pod_ready(pod: &Value, _now: Timestamp) -> String {
    let statuses = list(pod, "/status/containerStatuses");
    let ready = statuses.iter().filter(|status| status["ready"] == true).count();
    format!("{ready}/{}", list(pod, "/spec/containers").len())
}

fn pod_status(pod: &Value, _now: Timestamp) -> String {
    if meta::is_deleting(pod) {
        return "Terminating".to_owned();
    }
    let statuses = list(pod, "/status/containerStatuses").iter();
    let mut waiting = statuses.map(|status| meta::text(status, "/state/waiting/reason"));
    if let Some(reason) = waiting.find(|reason| !reason.is_empty()) {
        return reason.to_owned();
    }
    match (meta::text(pod, "/status/reason"), meta::text(pod, "/status/phase")) {
        ("", "Succeeded") => "Completed".to_owned(),
        ("", "Failed") => "Error".to_owned(),
        ("", phase) => phase.to_owned(),
        (reason, _) => reason.to_owned(),
    }
}

fn pod_restarts(pod: &Value, _now: Timestamp) -> String {
    let statuses = list(pod, "/status/containerStatuses").iter();
    let restarts: i64 = statuses.filter_map(|status| status["restartCount"].as_i64()).sum();
    restarts.to_string()
}

fn node_status(node: &Value, _now: Timestamp) -> String {
    let mut status = match condition(node, "Ready", "status") {
        "True" => "Ready",
        "" => "Unknown",
        _ => "NotReady",
    }
    .to_owned();
    if node.pointer("/spec/unschedulable").is_some_and(|flag| *flag == true) {
        status.push_str(",SchedulingDisabled");
    }
    status
}

fn node_roles(node: &Value, _now: Timestamp) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let roles = labels.into_iter().flatten().map(|(label, _)| label.as_str());
    let mut roles: Vec<&str> =
        roles.filter_map(|label| label.strip_prefix("node-role.kubernetes.io/")).collect();
    roles.sort_unstable();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

fn phase(object: &Value, _now: Timestamp) -> String {
    if meta::is_deleting(object) { "Terminating" } else { meta::text(object, "/status/phase") }.to_owned()
}

fn access_modes(object: &Value, _now: Timestamp) -> String {
    let modes = match list(object, "/status/accessModes") {
        [] => list(object, "/spec/accessModes"),
        modes => modes,
    };
    let short = |mode: &Value| match mode.as_str().unwrap_or_default() {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "?",
    };
    modes.iter().map(short).collect::<Vec<_>>().join(",")
}

fn claim(volume: &Value, _now: Timestamp) -> String {
    let part = |field: &str| meta::text(volume, &format!("/spec/claimRef/{field}"));
    match part("name") {
        "" => String::new(),
        name => format!("{}/{name}", part("namespace")),
    }
}

fn event_object(event: &Value, _now: Timestamp) -> String {
    let part = |field: &str| meta::text(event, &format!("/involvedObject/{field}"));
    format!("{}/{}", part("kind").to_lowercase(), part("name"))
}

fn storage_class(class: &Value, _now: Timestamp) -> String {
    let annotations = class.pointer("/metadata/annotations");
    let default = annotations.and_then(|a| a.get("storageclass.kubernetes.io/is-default-class"));
    match default.and_then(Value::as_str) {
        Some("true") => format!("{} (default)", meta::name(class)),
        _ => meta::name(class).to_owned(),
    }
}

fn service(api: &Value, _now: Timestamp) -> String {
    let part = |field: &str| meta::text(api, &format!("/spec/service/{field}"));
    match part("name") {
        "" => "Local".to_owned(),
        name => format!("{}/{name}", part("namespace")),
    }
}

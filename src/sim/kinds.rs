//! The kinds that the cluster serves: one table, a row each. Discovery, OpenAPI, patches and table output follow it.

use crate::sim::world::Resource;

/// How the items of a list are told apart when it is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListRule {
    /// By fields: `merge` is the one of strategic merge patches, `keys` are those of server-side apply.
    Keyed {
        /// The merge key.
        merge: &'static str,
        /// The keys that together name an item.
        keys: &'static [&'static str],
    },
    /// By value.
    Set,
    /// Not at all: the list is replaced as a whole.
    Atomic,
}

/// A kind of object.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a kind, none implies another")]
#[expect(clippy::struct_field_names, reason = "`kind` is what the API calls it")]
pub struct Kind {
    /// Its group and plural.
    pub resource: Resource,
    /// Under which group and plural its objects are kept: another one for a kind that two groups serve.
    pub stored: Resource,
    /// The versions it is served in; the first is the preferred one and the one that is stored.
    pub versions: &'static [&'static str],
    /// The name in `kind`.
    pub kind: &'static str,
    /// Other names for kubectl. Two groups may use the same one.
    pub short_names: &'static [&'static str],
    /// Groups of kinds that kubectl knows, for instance `all`.
    pub categories: &'static [&'static str],
    /// Whether it lives in namespaces.
    pub namespaced: bool,
    /// Whether `status` is written through its own subresource and ignored everywhere else.
    pub status: bool,
    /// Whether it comes from a CustomResourceDefinition: no strategic merge, and `generation` counts changes.
    pub custom: bool,
    /// Whether a delete that removes the object answers with the object instead of a `Status`.
    pub returns_deleted: bool,
    /// Lists that are not atomic, by path without indexes.
    pub lists: &'static [(&'static str, ListRule)],
    /// Fields by which it can be selected, besides name and namespace.
    pub selectable: &'static [&'static str],
}

impl Kind {
    const fn new(resource: Resource, versions: &'static [&'static str], kind: &'static str) -> Self {
        Self {
            resource,
            stored: resource,
            versions,
            kind,
            short_names: &[],
            categories: &[],
            namespaced: true,
            status: false,
            custom: false,
            returns_deleted: false,
            lists: &[],
            selectable: &[],
        }
    }

    /// A kind that kube-apiserver serves itself.
    const fn core(resource: Resource, kind: &'static str) -> Self {
        Self::new(resource, &["v1"], kind)
    }

    /// A kind that a CustomResourceDefinition brings.
    const fn custom(resource: Resource, version: &'static [&'static str], kind: &'static str) -> Self {
        let mut row = Self::new(resource, version, kind);
        row.custom = true;
        row
    }

    const fn stored_as(mut self, resource: Resource) -> Self {
        self.stored = resource;
        self
    }

    const fn cluster(mut self) -> Self {
        self.namespaced = false;
        self
    }

    const fn with_status(mut self) -> Self {
        self.status = true;
        self
    }

    const fn returns_deleted(mut self) -> Self {
        self.returns_deleted = true;
        self
    }

    const fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }

    const fn in_all(mut self) -> Self {
        self.categories = &["all"];
        self
    }

    const fn lists(mut self, lists: &'static [(&'static str, ListRule)]) -> Self {
        self.lists = lists;
        self
    }

    const fn selectable(mut self, fields: &'static [&'static str]) -> Self {
        self.selectable = fields;
        self
    }

    /// The singular name for kubectl.
    pub fn singular(&self) -> String {
        self.kind.to_lowercase()
    }

    /// `apiVersion` of the stored objects.
    pub fn api_version(&self) -> String {
        self.api_version_of(self.versions[0])
    }

    /// `apiVersion` in one of its versions.
    pub fn api_version_of(&self, version: &str) -> String {
        match self.resource.group {
            "" => version.to_owned(),
            group => format!("{group}/{version}"),
        }
    }

    /// The plural with its group, as error messages name it: `virtualmachines.kubevirt.io`.
    pub fn qualified(&self) -> String {
        qualify(self.resource.plural, self.resource.group)
    }

    /// The kind with its group: `VirtualMachine.kubevirt.io`.
    pub fn qualified_kind(&self) -> String {
        qualify(self.kind, self.resource.group)
    }

    /// How the list at `path` (field names joined by dots, without indexes) is merged.
    pub fn list_rule(&self, path: &str) -> ListRule {
        let rules = self.lists.iter().chain(METADATA_LISTS);
        rules.into_iter().find(|(p, _)| *p == path).map_or(ListRule::Atomic, |(_, rule)| *rule)
    }

    /// Whether the maps at `path` (in a list: its items) are owned as a whole.
    pub fn is_atomic(&self, path: &str) -> bool {
        match path {
            "metadata.ownerReferences" => true,
            "secrets" => self.resource == SERVICE_ACCOUNTS,
            "involvedObject" => self.resource == EVENTS,
            _ => false,
        }
    }

    /// Whether every object has something at `path`, so that it is never new there: kube-apiserver's own types have
    /// fields that cannot be absent.
    pub fn is_given(&self, path: &str) -> bool {
        match path {
            "metadata" => true,
            "spec" | "status" => !self.custom,
            "spec.containers" => self.resource == PODS,
            "spec.resources" => self.resource == CLAIMS,
            "source" => self.resource == EVENTS,
            _ => false,
        }
    }

    /// What can be asked of its collection and its objects, as RBAC names it.
    pub fn verbs(&self) -> &'static [&'static str] {
        const ALL: &[&str] =
            &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
        match self.resource {
            NAMESPACES => &["create", "delete", "get", "list", "patch", "update", "watch"],
            _ if self.is_view() => &["get", "list", "watch"],
            _ => ALL,
        }
    }

    /// Whether it only shows the objects of another kind.
    pub fn is_view(&self) -> bool {
        self.resource != self.stored
    }

    /// Whether `generation` counts the changes of its objects.
    pub fn counts_generations(&self) -> bool {
        self.custom || self.resource == PODS
    }
}

fn qualify(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// The row of a resource that comes from the table.
pub(super) fn of(resource: Resource) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.resource == resource)
}

/// The kind behind a URL.
pub(super) fn by_plural(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    KINDS
        .iter()
        .find(|k| k.resource.group == group && k.resource.plural == plural && k.versions.contains(&version))
}

/// The kind that `apiVersion` and `kind` of an object name.
pub(super) fn by_kind(api_version: &str, kind: &str) -> Option<&'static Kind> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    KINDS.iter().find(|k| k.resource.group == group && k.kind == kind && k.versions.contains(&version))
}

/// All groups with their versions, preferred one first, in the order of the table.
pub(super) fn groups() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut groups: Vec<(&'static str, Vec<&'static str>)> = vec![];
    for kind in KINDS {
        let at = groups.iter().position(|(group, _)| *group == kind.resource.group).unwrap_or_else(|| {
            groups.push((kind.resource.group, vec![]));
            groups.len() - 1
        });
        for version in kind.versions {
            if !groups[at].1.contains(version) {
                groups[at].1.push(version);
            }
        }
    }
    groups
}

/// Names a resource.
const fn resource(group: &'static str, plural: &'static str) -> Resource {
    Resource { group, plural }
}

/// Nodes.
pub(super) const NODES: Resource = resource("", "nodes");
/// Namespaces.
pub(super) const NAMESPACES: Resource = resource("", "namespaces");
/// Secrets.
pub(super) const SECRETS: Resource = resource("", "secrets");
/// Config maps.
pub(super) const CONFIG_MAPS: Resource = resource("", "configmaps");
/// Service accounts.
pub(super) const SERVICE_ACCOUNTS: Resource = resource("", "serviceaccounts");
/// Pods.
pub(super) const PODS: Resource = resource("", "pods");
/// Claims of volumes.
pub(super) const CLAIMS: Resource = resource("", "persistentvolumeclaims");
/// Volumes.
pub(super) const VOLUMES: Resource = resource("", "persistentvolumes");
/// Events, in their core form.
pub(super) const EVENTS: Resource = resource("", "events");
/// Events, in the form of their own group.
pub(super) const NEW_EVENTS: Resource = resource("events.k8s.io", "events");
/// Storage classes.
pub(super) const STORAGE_CLASSES: Resource = resource("storage.k8s.io", "storageclasses");
/// Attachments of volumes to nodes.
pub(super) const VOLUME_ATTACHMENTS: Resource = resource("storage.k8s.io", "volumeattachments");
/// Registrations of aggregated APIs.
pub(super) const API_SERVICES: Resource = resource("apiregistration.k8s.io", "apiservices");
/// Leases.
pub(super) const LEASES: Resource = resource("coordination.k8s.io", "leases");
/// Definitions of custom resources.
pub(super) const DEFINITIONS: Resource = resource("apiextensions.k8s.io", "customresourcedefinitions");
/// Virtual machines.
pub(super) const VIRTUAL_MACHINES: Resource = resource("kubevirt.io", "virtualmachines");
/// Running (or ended) instances of virtual machines.
pub(super) const INSTANCES: Resource = resource("kubevirt.io", "virtualmachineinstances");
/// Live migrations of instances.
pub(super) const MIGRATIONS: Resource = resource("kubevirt.io", "virtualmachineinstancemigrations");
/// The installation of KubeVirt itself.
pub(super) const KUBEVIRTS: Resource = resource("kubevirt.io", "kubevirts");

/// The installation of CDI itself.
pub(crate) const CDIS: Resource = resource("cdi.kubevirt.io", "cdis");
/// CDI's disks.
pub(crate) const DATA_VOLUMES: Resource = resource("cdi.kubevirt.io", "datavolumes");
/// What CDI's populator imports.
pub(crate) const IMPORT_SOURCES: Resource = resource("cdi.kubevirt.io", "volumeimportsources");
/// What CDI's populator clones.
pub(crate) const CLONE_SOURCES: Resource = resource("cdi.kubevirt.io", "volumeclonesources");
/// Longhorn's volumes.
pub(crate) const LONGHORN_VOLUMES: Resource = resource("longhorn.io", "volumes");
/// Their engines.
pub(crate) const LONGHORN_ENGINES: Resource = resource("longhorn.io", "engines");
/// Their replicas.
pub(crate) const LONGHORN_REPLICAS: Resource = resource("longhorn.io", "replicas");
/// Who wants them attached where.
pub(crate) const LONGHORN_ATTACHMENTS: Resource = resource("longhorn.io", "volumeattachments");
/// The files that volumes of images begin with.
pub(crate) const BACKING_IMAGES: Resource = resource("longhorn.io", "backingimages");
/// Harvester's images.
pub(crate) const IMAGES: Resource = resource("harvesterhci.io", "virtualmachineimages");
/// Longhorn's snapshots.
pub(crate) const LONGHORN_SNAPSHOTS: Resource = resource("longhorn.io", "snapshots");
/// What Longhorn finds on disks that belongs to no volume.
pub(crate) const ORPHANS: Resource = resource("longhorn.io", "orphans");
/// KubeVirt's snapshots of VMs.
pub(crate) const SNAPSHOTS: Resource = resource("snapshot.kubevirt.io", "virtualmachinesnapshots");
/// What is in them.
pub(crate) const SNAPSHOT_CONTENTS: Resource =
    resource("snapshot.kubevirt.io", "virtualmachinesnapshotcontents");
/// KubeVirt's restores.
pub(crate) const RESTORES: Resource = resource("snapshot.kubevirt.io", "virtualmachinerestores");
/// Snapshots of volumes.
pub(crate) const VOLUME_SNAPSHOTS: Resource = resource("snapshot.storage.k8s.io", "volumesnapshots");
/// What is in them.
pub(crate) const VOLUME_SNAPSHOT_CONTENTS: Resource =
    resource("snapshot.storage.k8s.io", "volumesnapshotcontents");
/// Harvester's backups and snapshots of VMs.
pub(crate) const BACKUPS: Resource = resource("harvesterhci.io", "virtualmachinebackups");
/// Harvester's restores: another kind of the same name (domain.md §3.3).
pub(crate) const HARVESTER_RESTORES: Resource = resource("harvesterhci.io", "virtualmachinerestores");
/// Longhorn's settings.
pub(crate) const LONGHORN_SETTINGS: Resource = resource("longhorn.io", "settings");
/// Harvester's upgrades.
pub(crate) const UPGRADES: Resource = resource("harvesterhci.io", "upgrades");
/// The charts that Harvester is made of.
pub(crate) const MANAGED_CHARTS: Resource = resource("management.cattle.io", "managedcharts");
/// What Fleet installs.
pub(crate) const BUNDLES: Resource = resource("fleet.cattle.io", "bundles");
/// Which driver makes snapshots of volumes, and how.
pub(crate) const VOLUME_SNAPSHOT_CLASSES: Resource =
    resource("snapshot.storage.k8s.io", "volumesnapshotclasses");
/// Where Longhorn keeps backups.
pub(crate) const BACKUP_TARGETS: Resource = resource("longhorn.io", "backuptargets");
/// Longhorn's backups of snapshots.
pub(crate) const LONGHORN_BACKUPS: Resource = resource("longhorn.io", "backups");
/// What CDI knows of a storage class.
pub(crate) const STORAGE_PROFILES: Resource = resource("cdi.kubevirt.io", "storageprofiles");
/// Kept former states of an object, for instance of a running VM.
pub(crate) const REVISIONS: Resource = resource("apps", "controllerrevisions");
/// What a namespace may use.
pub(crate) const QUOTAS: Resource = resource("", "resourcequotas");
/// Longhorn's nodes with their disks.
pub(crate) const LONGHORN_NODES: Resource = resource("longhorn.io", "nodes");

const fn keyed(keys: &'static [&'static str]) -> ListRule {
    ListRule::Keyed { merge: keys[0], keys }
}

const METADATA_LISTS: &[(&str, ListRule)] =
    &[("metadata.ownerReferences", keyed(&["uid"])), ("metadata.finalizers", ListRule::Set)];

const CONDITIONS: &[(&str, ListRule)] = &[("status.conditions", keyed(&["type"]))];

const NODE_LISTS: &[(&str, ListRule)] = &[
    ("spec.podCIDRs", ListRule::Set),
    ("status.conditions", keyed(&["type"])),
    ("status.addresses", keyed(&["type"])),
];

const POD_LISTS: &[(&str, ListRule)] = &[
    ("spec.containers", keyed(&["name"])),
    ("spec.containers.env", keyed(&["name"])),
    ("spec.containers.ports", keyed(&["containerPort", "protocol"])),
    ("spec.containers.volumeMounts", keyed(&["mountPath"])),
    ("spec.containers.volumeDevices", keyed(&["devicePath"])),
    ("spec.initContainers", keyed(&["name"])),
    ("spec.initContainers.env", keyed(&["name"])),
    ("spec.initContainers.volumeMounts", keyed(&["mountPath"])),
    ("spec.volumes", keyed(&["name"])),
    ("spec.imagePullSecrets", keyed(&["name"])),
    ("spec.hostAliases", keyed(&["ip"])),
    ("status.conditions", keyed(&["type"])),
    ("status.podIPs", keyed(&["ip"])),
];

const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
];

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// The table.
pub(super) const KINDS: &[Kind] = &[
    Kind::core(CONFIG_MAPS, "ConfigMap").short(&["cm"]),
    Kind::core(EVENTS, "Event").short(&["ev"]).selectable(EVENT_FIELDS),
    Kind::core(NAMESPACES, "Namespace")
        .cluster()
        .with_status()
        .short(&["ns"])
        .lists(CONDITIONS)
        .selectable(&["status.phase"]),
    Kind::core(NODES, "Node")
        .cluster()
        .with_status()
        .short(&["no"])
        .lists(NODE_LISTS)
        .selectable(&["spec.unschedulable"]),
    Kind::core(CLAIMS, "PersistentVolumeClaim")
        .with_status()
        .returns_deleted()
        .short(&["pvc"])
        .lists(CONDITIONS),
    Kind::core(VOLUMES, "PersistentVolume").cluster().with_status().returns_deleted().short(&["pv"]),
    Kind::core(PODS, "Pod")
        .with_status()
        .returns_deleted()
        .short(&["po"])
        .in_all()
        .lists(POD_LISTS)
        .selectable(POD_FIELDS),
    Kind::core(SECRETS, "Secret").selectable(&["type"]),
    Kind::core(SERVICE_ACCOUNTS, "ServiceAccount")
        .returns_deleted()
        .short(&["sa"])
        .lists(&[("secrets", keyed(&["name"]))]),
    Kind::core(API_SERVICES, "APIService").cluster().with_status().lists(CONDITIONS),
    Kind::core(DEFINITIONS, "CustomResourceDefinition")
        .cluster()
        .with_status()
        .short(&["crd", "crds"])
        .lists(CONDITIONS),
    Kind::core(LEASES, "Lease"),
    Kind::core(NEW_EVENTS, "Event").short(&["ev"]).stored_as(EVENTS),
    Kind::core(QUOTAS, "ResourceQuota").with_status().returns_deleted().short(&["quota"]),
    Kind::core(REVISIONS, "ControllerRevision"),
    Kind::core(STORAGE_CLASSES, "StorageClass").cluster().returns_deleted().short(&["sc"]),
    Kind::core(VOLUME_ATTACHMENTS, "VolumeAttachment").cluster().with_status(),
    Kind::custom(VIRTUAL_MACHINES, &["v1", "v1alpha3"], "VirtualMachine")
        .with_status()
        .short(&["vm", "vms"])
        .in_all(),
    Kind::custom(INSTANCES, &["v1", "v1alpha3"], "VirtualMachineInstance").short(&["vmi", "vmis"]).in_all(),
    Kind::custom(MIGRATIONS, &["v1", "v1alpha3"], "VirtualMachineInstanceMigration")
        .with_status()
        .short(&["vmim", "vmims"])
        .in_all(),
    Kind::custom(KUBEVIRTS, &["v1", "v1alpha3"], "KubeVirt").with_status().short(&["kv", "kvs"]).in_all(),
    Kind::custom(CDIS, &["v1beta1", "v1alpha1"], "CDI").cluster().short(&["cdi", "cdis"]),
    Kind::custom(DATA_VOLUMES, &["v1beta1"], "DataVolume").with_status().short(&["dv", "dvs"]).in_all(),
    Kind::custom(IMPORT_SOURCES, &["v1beta1"], "VolumeImportSource"),
    Kind::custom(CLONE_SOURCES, &["v1beta1"], "VolumeCloneSource"),
    Kind::custom(LONGHORN_VOLUMES, &["v1beta2"], "Volume").with_status().short(&["lhv"]),
    Kind::custom(LONGHORN_ENGINES, &["v1beta2"], "Engine").with_status().short(&["lhe"]),
    Kind::custom(LONGHORN_REPLICAS, &["v1beta2"], "Replica").with_status().short(&["lhr"]),
    Kind::custom(LONGHORN_ATTACHMENTS, &["v1beta2"], "VolumeAttachment").with_status().short(&["lhva"]),
    Kind::custom(BACKING_IMAGES, &["v1beta2"], "BackingImage").with_status().short(&["lhbi"]),
    Kind::custom(IMAGES, &["v1beta1"], "VirtualMachineImage").short(&["vmimage", "vmimages"]),
    Kind::custom(LONGHORN_SNAPSHOTS, &["v1beta2"], "Snapshot").with_status().short(&["lhsnap"]),
    Kind::custom(ORPHANS, &["v1beta2"], "Orphan").with_status().short(&["lho"]),
    Kind::custom(SNAPSHOTS, &["v1beta1", "v1alpha1"], "VirtualMachineSnapshot")
        .with_status()
        .short(&["vmsnapshot", "vmsnapshots"])
        .in_all(),
    Kind::custom(SNAPSHOT_CONTENTS, &["v1beta1", "v1alpha1"], "VirtualMachineSnapshotContent")
        .with_status()
        .short(&["vmsnapshotcontent", "vmsnapshotcontents"])
        .in_all(),
    Kind::custom(RESTORES, &["v1beta1", "v1alpha1"], "VirtualMachineRestore")
        .with_status()
        .short(&["vmrestore", "vmrestores"])
        .in_all(),
    Kind::custom(VOLUME_SNAPSHOTS, &["v1"], "VolumeSnapshot").with_status().short(&["vs"]),
    Kind::custom(VOLUME_SNAPSHOT_CONTENTS, &["v1"], "VolumeSnapshotContent")
        .cluster()
        .with_status()
        .short(&["vsc", "vscs"]),
    Kind::custom(VOLUME_SNAPSHOT_CLASSES, &["v1"], "VolumeSnapshotClass")
        .cluster()
        .short(&["vsclass", "vsclasses"]),
    Kind::custom(BACKUP_TARGETS, &["v1beta2"], "BackupTarget").with_status().short(&["lhbt"]),
    Kind::custom(LONGHORN_BACKUPS, &["v1beta2"], "Backup").with_status().short(&["lhb"]),
    Kind::custom(STORAGE_PROFILES, &["v1beta1"], "StorageProfile").cluster().with_status(),
    Kind::custom(BACKUPS, &["v1beta1"], "VirtualMachineBackup").short(&["vmbackup", "vmbackups"]),
    Kind::custom(HARVESTER_RESTORES, &["v1beta1"], "VirtualMachineRestore")
        .short(&["vmrestore", "vmrestores"]),
    Kind::custom(LONGHORN_SETTINGS, &["v1beta2"], "Setting").with_status().short(&["lhs"]),
    Kind::custom(UPGRADES, &["v1beta1"], "Upgrade"),
    Kind::custom(MANAGED_CHARTS, &["v3"], "ManagedChart").with_status(),
    Kind::custom(BUNDLES, &["v1alpha1"], "Bundle").with_status(),
    Kind::custom(LONGHORN_NODES, &["v1beta2"], "Node").with_status().short(&["lhn"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_url_and_by_its_name() {
        for kind in KINDS {
            for version in kind.versions {
                let found = by_plural(kind.resource.group, version, kind.resource.plural);
                assert_eq!(found.map(|k| k.resource), Some(kind.resource));
                let found = by_kind(&kind.api_version_of(version), kind.kind);
                assert_eq!(found.map(|k| k.resource), Some(kind.resource));
            }
        }
        assert!(by_plural("kubevirt.io", "v2", "virtualmachines").is_none());
        assert!(by_kind("kubevirt.io/v1", "Pod").is_none());
    }

    #[test]
    fn lists_are_atomic_unless_the_table_says_otherwise() {
        let pods = of(PODS).expect("a row");
        assert_eq!(pods.list_rule("metadata.finalizers"), ListRule::Set);
        assert_eq!(
            pods.list_rule("spec.containers.ports"),
            ListRule::Keyed { merge: "containerPort", keys: &["containerPort", "protocol"] }
        );
        assert_eq!(pods.list_rule("spec.tolerations"), ListRule::Atomic);
    }
}

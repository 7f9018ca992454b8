//! The kinds that the cluster serves.

use crate::sim::world::Resource;

/// Names a resource.
const fn resource(group: &'static str, plural: &'static str) -> Resource {
    Resource { group, plural }
}

/// Nodes.
pub const NODES: Resource = resource("", "nodes");
/// Namespaces.
pub const NAMESPACES: Resource = resource("", "namespaces");
/// Secrets.
pub const SECRETS: Resource = resource("", "secrets");
/// Config maps.
pub const CONFIG_MAPS: Resource = resource("", "configmaps");
/// Service accounts.
pub const SERVICE_ACCOUNTS: Resource = resource("", "serviceaccounts");
/// Pods.
pub const PODS: Resource = resource("", "pods");
/// Claims of volumes.
pub const CLAIMS: Resource = resource("", "persistentvolumeclaims");
/// Volumes.
pub const VOLUMES: Resource = resource("", "persistentvolumes");
/// Events, in their core form.
pub const EVENTS: Resource = resource("", "events");
/// Storage classes.
pub const STORAGE_CLASSES: Resource = resource("storage.k8s.io", "storageclasses");
/// Attachments of volumes to nodes.
pub const VOLUME_ATTACHMENTS: Resource = resource("storage.k8s.io", "volumeattachments");
/// Registrations of aggregated APIs.
pub const API_SERVICES: Resource = resource("apiregistration.k8s.io", "apiservices");
/// Leases.
pub const LEASES: Resource = resource("coordination.k8s.io", "leases");
/// Definitions of custom resources.
pub const DEFINITIONS: Resource = resource("apiextensions.k8s.io", "customresourcedefinitions");
/// Virtual machines.
pub const VIRTUAL_MACHINES: Resource = resource("kubevirt.io", "virtualmachines");
/// Running (or ended) instances of virtual machines.
pub const INSTANCES: Resource = resource("kubevirt.io", "virtualmachineinstances");
/// Live migrations of instances.
pub const MIGRATIONS: Resource = resource("kubevirt.io", "virtualmachineinstancemigrations");
/// The installation of KubeVirt itself.
pub const KUBEVIRTS: Resource = resource("kubevirt.io", "kubevirts");

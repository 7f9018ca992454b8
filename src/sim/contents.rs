//! What is in a cluster that is not started empty: nodes, the platform's own objects and a running VM. Also the makers
//! of further VMs and claims, for fixtures and tests.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::CLAIM_TEMPLATES;
use crate::sim::controller::CONTENT_STAMP;
use crate::sim::controller::LONGHORN_SPACE;
use crate::sim::controller::node_address;
use crate::sim::fault::BACKUP_TARGET_MISSING;
use crate::sim::fault::GATE_OFF;
use crate::sim::fault::PROVISION_FAILS;
use crate::sim::fault::STOP_HANGS;
use crate::sim::kinds;
use crate::sim::kinds::API_SERVICES;
use crate::sim::kinds::BACKUP_TARGETS;
use crate::sim::kinds::CDIS;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::KUBEVIRTS;
use crate::sim::kinds::LEASES;
use crate::sim::kinds::LONGHORN_NODES;
use crate::sim::kinds::NAMESPACES;
use crate::sim::kinds::NODES;
use crate::sim::kinds::PODS;
use crate::sim::kinds::STORAGE_CLASSES;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::kinds::VOLUME_SNAPSHOT_CLASSES;
use crate::sim::object::text;
use crate::sim::stage::Stage;
use crate::sim::strategy::Strategy;
use crate::sim::world::Fault;
use crate::sim::world::Founding;
use crate::sim::world::Key;
use crate::sim::world::Resource;
use crate::sim::world::Write;
use crate::time::Timestamp;
use crate::time::shorten;

/// How long the cluster has been running when it is first seen: half of it is enough for a VM to boot.
const PAST: Duration = Duration::from_mins(2);
/// How much longer it has been running if it is in trouble already: until the platform has done all that it does about a
/// dead node by itself (domain.md §4.4).
const TROUBLED_PAST: Duration = Duration::from_mins(8);
/// Faults that were always there before the cluster is first seen; others begin with it, unless it is said.
const OLD_FAULTS: [Fault; 2] = [PROVISION_FAILS, STOP_HANGS];
/// What is on the demo's disk.
const DEMO_CONTENT: &str = "opensuse-leap-15.6";
/// The nodes, all of them control plane and workers.
const NODE_NAMES: [&str; 3] = ["node-1", "node-2", "node-3"];
/// The namespaces of the platform, besides those of every cluster.
const PLATFORM_NAMESPACES: [&str; 5] = [
    "cattle-fleet-system",
    "cattle-monitoring-system",
    "cattle-system",
    "harvester-system",
    "longhorn-system",
];
/// KubeVirt as Harvester v1.8.2 pins it (domain.md §0).
const KUBEVIRT_VERSION: &str = "1.7.4-150700.3.24.2";
/// The gates that Harvester switches on (domain.md §0).
const GATES: [&str; 5] =
    ["CPUManager", "DeclarativeHotplugVolumes", "ExpandDisks", "EnableVirtioFsConfigVolumes", "HostDevices"];
/// The classes of volume snapshots with their parameters (domain.md §0).
const SNAPSHOT_CLASSES: [(&str, &[(&str, &str)]); 2] =
    [("longhorn", &[]), ("longhorn-snapshot", &[("type", "snap")])];
/// How long the objects of fixtures have been there when it is first seen, but for the last seconds.
const FURTHER_PAST: Duration = Duration::from_secs(50);
/// Those seconds, in which faults of its configuration begin: until everyone knows of them.
const UNSETTLED: Duration = Duration::from_secs(10);
/// Pods of which there is one: namespace and name.
const DEPLOYED: [(&str, &str); 15] = [
    ("harvester-system", "harvester-84d5f9d9c-7xkqv"),
    ("harvester-system", "harvester-webhook-6c4f7b9d5-n2mlp"),
    ("harvester-system", "harvester-network-controller-manager-58d7-qv4zt"),
    ("harvester-system", "virt-api-7f8c5d9b6-4jw8s"),
    ("harvester-system", "virt-controller-6b9d8f7c4-hx2qd"),
    ("harvester-system", "virt-controller-6b9d8f7c4-pl9vk"),
    ("harvester-system", "virt-operator-5c8f6d7b9-wz5rt"),
    ("harvester-system", "cdi-apiserver-6c9d8b7f5-r2xkm"),
    ("harvester-system", "cdi-deployment-7d6f9c8b4-w8tzq"),
    ("harvester-system", "cdi-uploadproxy-5f8b7d9c6-j4nvp"),
    ("cattle-system", "rancher-75d9c8f6b-k8q2m"),
    ("cattle-system", "rancher-webhook-6d8b9f7c5-t4xzn"),
    ("longhorn-system", "longhorn-driver-deployer-7b6c9d8f5-v9wkj"),
    ("longhorn-system", "csi-attacher-5d9f8c7b6-2mzqx"),
    ("longhorn-system", "csi-provisioner-6f7c8d9b5-s7plk"),
];
/// Pods of which there is one on each node: namespace and the beginning of the name.
const ON_EACH_NODE: [(&str, &str); 7] = [
    ("kube-system", "etcd"),
    ("kube-system", "kube-apiserver"),
    ("kube-system", "kube-controller-manager"),
    ("kube-system", "kube-scheduler"),
    ("harvester-system", "virt-handler"),
    ("harvester-system", "harvester-node-manager"),
    ("longhorn-system", "longhorn-manager"),
];
/// Leases of leaders: a controller renews them, a stale one means that its holder is frozen (domain.md §6).
pub(in crate::sim) const LEADERS: [(&str, &str); 4] = [
    ("kube-system", "kube-controller-manager"),
    ("kube-system", "kube-scheduler"),
    ("harvester-system", "virt-controller"),
    ("harvester-system", "harvester-controllers"),
];

/// The objects of the cluster, with their statuses, in the order of their creation. The controllers have worked on all of
/// them for a while, so VMs of fixtures run if their strategy says so.
pub fn contents(founding: &Founding<'_>) -> Vec<Value> {
    let troubled = if founding.already.is_empty() { Duration::ZERO } else { TROUBLED_PAST };
    let past = |duration| shorten(duration, founding.speed);
    let mut stage = furnished(founding.now - past(PAST + troubled));
    stage.speed = founding.speed;
    stage.write(Write::Create(CLAIMS, claim("demo-disk")), "harvester");
    stage.write(Write::Create(VIRTUAL_MACHINES, vm("demo", Strategy::RerunOnFailure)), "harvester");
    stage.run_for(past(PAST / 2));
    stage.faults = founding.faults.iter().copied().filter(|fault| OLD_FAULTS.contains(fault)).collect();
    stage.faults.extend(founding.already);
    unsettle(&mut stage, founding.already);
    for object in founding.further {
        if let Some(kind) = kinds::by_kind(text(object, "/apiVersion"), text(object, "/kind")) {
            stage.found(kind.resource, object, "kubectl");
        }
    }
    stage.run_for(past(FURTHER_PAST + troubled));
    unsettle(&mut stage, founding.faults);
    stage.run_for(past(UNSETTLED));
    let mut objects = stage.into_objects();
    for volume in objects.iter_mut().filter(|object| text(object, "/spec/claimRef/name") == "demo-disk") {
        volume["metadata"]["annotations"][CONTENT_STAMP] = DEMO_CONTENT.into();
    }
    objects
}

/// Takes from the platform what is missing with the faults.
fn unsettle(stage: &mut Stage, faults: &[Fault]) {
    if faults.contains(&GATE_OFF) {
        let gates = json!({ "developerConfiguration": { "featureGates": GATES } });
        let key = Key::new(KUBEVIRTS, "harvester-system", "kubevirt");
        stage.write(Write::Patch(key, json!({ "spec": { "configuration": gates } })), "helm");
    }
    if faults.contains(&BACKUP_TARGET_MISSING) {
        let key = Key::new(BACKUP_TARGETS, LONGHORN_SPACE, "default");
        stage.write(Write::Patch(key, json!({ "spec": { "backupTargetURL": "" } })), "helm");
    }
}

/// A stage with nodes and platform, just installed.
pub(in crate::sim) fn furnished(now: Timestamp) -> Stage {
    let mut stage = Stage::new(now);
    for (resource, object) in platform() {
        stage.write(Write::Create(resource, object), "helm");
    }
    stage
}

fn platform() -> Vec<(Resource, Value)> {
    let mut objects: Vec<(Resource, Value)> = vec![];
    objects.extend(PLATFORM_NAMESPACES.iter().map(|name| (NAMESPACES, namespace(name))));
    objects.extend(NODE_NAMES.iter().map(|name| (NODES, node(name))));
    objects.extend(NODE_NAMES.iter().map(|name| (LONGHORN_NODES, longhorn_node(name))));
    objects.push((STORAGE_CLASSES, storage_class()));
    objects.extend(
        SNAPSHOT_CLASSES
            .iter()
            .map(|(name, parameters)| (VOLUME_SNAPSHOT_CLASSES, snapshot_class(name, parameters))),
    );
    objects.push((BACKUP_TARGETS, backup_target()));
    objects.push((KUBEVIRTS, kubevirt()));
    objects.push((CDIS, cdi()));
    objects.push((API_SERVICES, api_service()));
    objects.extend(LEADERS.iter().map(|(space, name)| (LEASES, lease(space, name))));
    objects.extend(DEPLOYED.iter().map(|(space, name)| (PODS, pod(space, name, None))));
    for (space, name) in ON_EACH_NODE {
        objects
            .extend(NODE_NAMES.iter().map(|node| (PODS, pod(space, &format!("{name}-{node}"), Some(node)))));
    }
    objects
}

fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": { "name": name, "labels": { "kubernetes.io/metadata.name": name } },
        "status": { "phase": "Active" },
    })
}

fn node(name: &str) -> Value {
    let resources =
        json!({ "cpu": "16", "memory": "65685996Ki", "pods": "200", "ephemeral-storage": "149527126718" });
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "beta.kubernetes.io/os": "linux",
                "harvesterhci.io/managed": "true",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubevirt.io/schedulable": "true",
                "node-role.kubernetes.io/control-plane": "true",
                "node-role.kubernetes.io/etcd": "true",
            },
        },
        "spec": { "providerID": format!("rke2://{name}") },
        "status": {
            "addresses": [
                { "type": "InternalIP", "address": node_address(name) },
                { "type": "Hostname", "address": name },
            ],
            "capacity": resources,
            "allocatable": resources,
            "nodeInfo": {
                "architecture": "amd64",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kernelVersion": "6.4.0-150700.53.19-default",
                "kubeletVersion": "v1.34.2+rke2r1",
                "operatingSystem": "linux",
                "osImage": "Harvester v1.8.2",
            },
        },
    })
}

/// A node as Longhorn sees it, with one disk.
fn longhorn_node(name: &str) -> Value {
    let disk = json!({
        "allowScheduling": true,
        "diskType": "filesystem",
        "evictionRequested": false,
        "path": "/var/lib/harvester/defaultdisk",
        "storageReserved": 32_212_254_720_u64,
        "tags": [],
    });
    json!({
        "apiVersion": "longhorn.io/v1beta2",
        "kind": "Node",
        "metadata": { "name": name, "namespace": LONGHORN_SPACE },
        "spec": {
            "name": name,
            "allowScheduling": true,
            "evictionRequested": false,
            "disks": { "default-disk": disk },
            "tags": [],
        },
    })
}

/// A class of volume snapshots. None is the default one (domain.md §0).
fn snapshot_class(name: &str, parameters: &[(&str, &str)]) -> Value {
    let mut class = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshotClass",
        "metadata": { "name": name },
        "driver": "driver.longhorn.io",
        "deletionPolicy": "Delete",
    });
    for (parameter, value) in parameters {
        class["parameters"][*parameter] = (*value).into();
    }
    class
}

/// Where Longhorn keeps backups.
fn backup_target() -> Value {
    json!({
        "apiVersion": "longhorn.io/v1beta2",
        "kind": "BackupTarget",
        "metadata": { "name": "default", "namespace": LONGHORN_SPACE },
        "spec": {
            "backupTargetURL": "nfs://backup.example:/harvester",
            "credentialSecret": "",
            "pollInterval": "5m0s",
        },
    })
}

/// The class of Harvester's disks (domain.md §0), annotated with the class of its snapshots as §3.1 recommends.
fn storage_class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "harvester-longhorn",
            "annotations": {
                "storageclass.kubernetes.io/is-default-class": "true",
                "harvesterhci.io/is-reserved-storageclass": "true",
                "cdi.harvesterhci.io/storageProfileVolumeSnapshotClass": "longhorn-snapshot",
            },
        },
        "provisioner": "driver.longhorn.io",
        "parameters": { "numberOfReplicas": "3", "staleReplicaTimeout": "30", "migratable": "true" },
        "allowVolumeExpansion": true,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    })
}

/// KubeVirt, well (domain.md §0, §6), with the gate that the manual adds (§6.1 there).
fn kubevirt() -> Value {
    let gates: Vec<&str> = GATES.into_iter().chain(["Snapshot"]).collect();
    let condition = |kind: &str, status: &str, message: &str| json!({ "type": kind, "status": status, "reason": "AllComponentsReady", "message": message });
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "KubeVirt",
        "metadata": { "name": "kubevirt", "namespace": "harvester-system" },
        "spec": {
            "configuration": {
                "developerConfiguration": {
                    "featureGates": gates,
                },
                "vmRolloutStrategy": "LiveUpdate",
            },
            "workloadUpdateStrategy": { "workloadUpdateMethods": ["LiveMigrate"] },
        },
        "status": {
            "phase": "Deployed",
            "observedKubeVirtVersion": KUBEVIRT_VERSION,
            "targetKubeVirtVersion": KUBEVIRT_VERSION,
            "conditions": [
                condition("Available", "True", "All components are ready."),
                condition("Progressing", "False", "All components are ready."),
                condition("Degraded", "False", "All components are ready."),
            ],
        },
    })
}

/// CDI, well (domain.md §0, §6).
fn cdi() -> Value {
    let condition = |kind: &str, status: &str| json!({ "type": kind, "status": status, "reason": "DeployCompleted", "message": "Deployment Completed" });
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "CDI",
        "metadata": { "name": "cdi" },
        "spec": {
            "cloneStrategyOverride": "copy",
            "config": { "featureGates": ["HonorWaitForFirstConsumer"] },
        },
        "status": {
            "phase": "Deployed",
            "observedVersion": "1.64.0",
            "targetVersion": "1.64.0",
            "conditions": [
                condition("Available", "True"),
                condition("Progressing", "False"),
                condition("Degraded", "False"),
            ],
        },
    })
}

fn api_service() -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": { "name": "v1.subresources.kubevirt.io" },
        "spec": {
            "group": "subresources.kubevirt.io",
            "version": "v1",
            "groupPriorityMinimum": 1_000,
            "versionPriority": 15,
            "service": { "namespace": "harvester-system", "name": "virt-api", "port": 443 },
        },
        "status": {
            "conditions": [
                { "type": "Available", "status": "True", "reason": "Passed", "message": "all checks passed" },
            ],
        },
    })
}

fn lease(space: &str, name: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": { "name": name, "namespace": space },
        "spec": { "holderIdentity": format!("{name}-{}", NODE_NAMES[0]), "leaseDurationSeconds": 15 },
    })
}

fn pod(space: &str, name: &str, node: Option<&str>) -> Value {
    let app = name.split("-node-").next().unwrap_or(name);
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": space, "labels": { "app.kubernetes.io/name": app } },
        "spec": { "containers": [{ "name": app, "image": format!("rancher/{app}:v1.8.2") }] },
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
        pod["spec"]["tolerations"] = json!([{ "operator": "Exists" }]);
        if app == "virt-handler" {
            pod["metadata"]["labels"]["kubevirt.io"] = app.into();
        }
    }
    pod
}

/// The pod of that name, if it is one of which each node has one.
pub(in crate::sim) fn daemon_pod(space: &str, name: &str) -> Option<Value> {
    let (_, app) = ON_EACH_NODE.iter().find(|(own, app)| *own == space && name.starts_with(app))?;
    let node = NODE_NAMES.iter().find(|node| name == format!("{app}-{node}"))?;
    Some(pod(space, name, Some(*node)))
}

/// A claim in `default`, of the kind that Harvester makes for a VM's disk: RWX and a block device (domain.md §2.6).
pub fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": { "requests": { "storage": "10Gi" } },
            "storageClassName": "harvester-longhorn",
            "volumeMode": "Block",
        },
    })
}

/// A VM in `default` with one disk on the claim `<name>-disk`, as Harvester's page makes it.
pub fn vm(name: &str, strategy: Strategy) -> Value {
    let mut listed = claim(&format!("{name}-disk"));
    if let Some(fields) = listed.as_object_mut() {
        fields.retain(|field, _| ["metadata", "spec"].contains(&field.as_str()));
    }
    listed["metadata"] = json!({ "name": format!("{name}-disk") });
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": { "harvesterhci.io/creator": "harvester", "harvesterhci.io/os": "linux" },
            "annotations": { CLAIM_TEMPLATES: json!([listed]).to_string() },
        },
        "spec": {
            "runStrategy": strategy.name(),
            "template": {
                "metadata": { "labels": { "harvesterhci.io/vmName": name } },
                "spec": {
                    "domain": {
                        "cpu": { "cores": 2, "sockets": 1, "threads": 1 },
                        "memory": { "guest": "3996Mi" },
                        "resources": { "limits": { "cpu": "2", "memory": "4Gi" } },
                        "features": { "acpi": { "enabled": true } },
                        "devices": {
                            "disks": [{ "name": "disk-0", "bootOrder": 1, "disk": { "bus": "virtio" } }],
                            "interfaces": [{ "name": "default", "masquerade": {}, "model": "virtio" }],
                        },
                    },
                    "evictionStrategy": "LiveMigrateIfPossible",
                    "networks": [{ "name": "default", "pod": {} }],
                    "terminationGracePeriodSeconds": 120,
                    "volumes": [
                        { "name": "disk-0", "persistentVolumeClaim": { "claimName": format!("{name}-disk") } },
                    ],
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::sim::object::is_true;
    use crate::sim::object::name;
    use crate::sim::object::uid;

    fn now() -> Timestamp {
        "2026-09-06T12:00:00Z".parse().expect("RFC 3339")
    }

    fn cluster(further: &[Value], faults: &[Fault]) -> Vec<Value> {
        contents(&Founding { now: now(), speed: 1.0, further, faults, already: &[] })
    }

    #[test]
    fn a_new_cluster_is_well_and_its_vm_runs() {
        let objects = cluster(&[], &[]);
        let of_kind = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
        // The nodes of Kubernetes and those of Longhorn.
        assert!(of_kind("Node").count() == 6 && of_kind("Node").all(|node| is_true(node, "Ready")));
        assert!(of_kind("Pod").all(|pod| is_true(pod, "Ready")), "every pod is ready");
        let demo = of_kind("VirtualMachine").next().expect("demo");
        assert_eq!((name(demo), text(demo, "/status/printableStatus")), ("demo", "Running"));
        assert_eq!(demo["status"]["ready"], true);
        let instance = of_kind("VirtualMachineInstance").next().expect("demo runs");
        for condition in ["Ready", "LiveMigratable", "AgentConnected"] {
            assert!(is_true(instance, condition), "{condition}");
        }
        let claim = of_kind("PersistentVolumeClaim").next().expect("demo has a disk");
        assert_eq!(text(claim, "/status/phase"), "Bound");
        let uids: BTreeSet<&str> = objects.iter().map(uid).collect();
        assert_eq!(uids.len(), objects.len());
        let fresh = |lease: &Value| {
            text(lease, "/spec/renewTime").parse().is_ok_and(|at| now().since(at).as_secs() <= 15)
        };
        assert!(of_kind("Lease").count() == 7 && of_kind("Lease").all(fresh));
    }

    #[test]
    fn the_same_moment_gives_the_same_cluster() {
        assert_eq!(cluster(&[], &[]), cluster(&[], &[]));
    }

    #[test]
    fn vms_of_fixtures_have_a_past_too() {
        let further = [claim("a-disk"), vm("a", Strategy::Always), vm("b", Strategy::Manual), node("node-3")];
        let shown = |objects: &[Value]| -> Vec<String> {
            let vms = objects.iter().filter(|object| object["kind"] == "VirtualMachine");
            vms.map(|vm| format!("{} {}", name(vm), text(vm, "/status/printableStatus"))).collect()
        };
        assert_eq!(shown(&cluster(&further, &[])), ["demo Running", "a Running", "b Stopped"]);
        // Most faults begin with the cluster, some were there before.
        let faults = [crate::sim::fault::START_FAILS, PROVISION_FAILS];
        let objects = cluster(&further, &faults);
        assert_eq!(shown(&objects), ["demo Running", "a ErrorUnschedulable", "b Stopped"]);
        let nodes = objects.iter().filter(|object| object["kind"] == "Node" && object["apiVersion"] == "v1");
        assert_eq!(nodes.count(), 3);
    }

    #[test]
    fn an_object_that_the_webhooks_refuse_is_handed_on() {
        let mut bad = vm("bad", Strategy::Halted);
        bad["spec"]["runStrategy"] = "Stopped".into();
        assert!(cluster(&[bad.clone()], &[]).contains(&bad));
    }
}

//! The controllers of the platform: Kubernetes' own (scheduler, kubelet, node lifecycle, volumes), KubeVirt's, CDI's,
//! Longhorn's and Harvester's. Each is a pure function of what is in the cluster, so a controller that was away goes on where it was.
//!
//! Every transition is a row of a table that names its source in `domain.md`.

mod cdi;
mod csi;
mod csi_snapshot;
mod daemon;
mod evacuation;
pub(in crate::sim) mod guest;
mod harvester;
pub(in crate::sim) mod image;
pub(in crate::sim) mod instance;
mod intruder;
mod kubelet;
pub(in crate::sim) mod launcher;
pub(in crate::sim) mod longhorn;
mod maintenance;
mod migration;
mod node;
mod outage;
mod probe;
#[cfg(test)]
mod scenarios;
mod scheduler;
mod snapshot;
mod turn;
mod visitor;
mod vm;
mod vm_disks;
mod vm_status;
mod vmbackup;
mod volume;

use std::sync::Arc;

pub(in crate::sim) use harvester::CLAIM_TEMPLATES;
pub(in crate::sim) use harvester::HARVESTER;
pub(in crate::sim) use harvester::RUN_STRATEGY;
pub(in crate::sim) use longhorn::SPACE as LONGHORN_SPACE;
pub(in crate::sim) use longhorn::recovery::target_is_available as backup_target_is_available;
pub(in crate::sim) use node::address as node_address;
pub(in crate::sim) use snapshot::LOADED_GATES;
pub(in crate::sim) use vmbackup::is_snapshot as is_vm_snapshot;
pub(in crate::sim) use volume::CONTENT_STAMP;

use crate::sim::world::Controller;

/// All controllers, in no particular order.
pub(super) fn all() -> Vec<Arc<dyn Controller>> {
    let mut all: Vec<Arc<dyn Controller>> = vec![
        Arc::new(vm::VirtualMachines),
        Arc::new(instance::Instances),
        Arc::new(guest::Guests),
        Arc::new(harvester::RunStrategies),
        Arc::new(harvester::ListedClaims),
        Arc::new(harvester::RemovedClaims),
        Arc::new(image::Images),
        Arc::new(migration::Migrations),
        Arc::new(evacuation::Evacuations),
        Arc::new(maintenance::Maintenance),
        Arc::new(scheduler::Scheduler),
        Arc::new(kubelet::Pods),
        Arc::new(probe::Probes),
        Arc::new(daemon::Daemons),
        Arc::new(node::Heartbeats),
        Arc::new(node::Lifecycle),
        Arc::new(node::DownNodes),
        Arc::new(node::SilentHandlers),
        Arc::new(node::Leaders),
        Arc::new(volume::Provisioner),
        Arc::new(volume::ClaimProtection),
        Arc::new(volume::Volumes),
        Arc::new(csi::AttachDetach),
        Arc::new(csi::Attacher),
        Arc::new(csi_snapshot::VolumeSnapshots),
        Arc::new(csi_snapshot::Contents),
        Arc::new(outage::Outages),
        Arc::new(visitor::Visitor),
        Arc::new(intruder::Restores),
        Arc::new(intruder::Sources),
        Arc::new(intruder::Editors),
    ];
    all.extend(cdi::all());
    all.extend(longhorn::all());
    all.extend(snapshot::all());
    all.extend(vmbackup::all());
    all
}

//! What is built into the binary, so that it works alone: the files of `/workflows`. A test compares the lists with the
//! folder.

use crate::definition::read::Files;

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../workflows/", $path)))),*]
    };
}

/// Workflows.
pub(super) const WORKFLOWS: &[(&str, &str)] = files!(
    "capacity-check.toml",
    "disk-spec-check.toml",
    "image-import.toml",
    "import-diagnose.toml",
    "node-failure-watch.toml",
    "node-maintenance-enter.toml",
    "node-maintenance-exit.toml",
    "platform-gate.toml",
    "platform-healthcheck.toml",
    "residue-check.toml",
    "restore-discard.toml",
    "restore-verify.toml",
    "snapshot-check.toml",
    "snapshot-delete-stuck.toml",
    "snapshot-delete.toml",
    "snapshot-path-fix.toml",
    "snapshot-preflight.toml",
    "snapshot-prune.toml",
    "vm-backup-restore.toml",
    "vm-backup.toml",
    "vm-check.toml",
    "vm-cold-migrate.toml",
    "vm-create.toml",
    "vm-delete-stuck.toml",
    "vm-delete.toml",
    "vm-force-restart.toml",
    "vm-force-stop.toml",
    "vm-live-migrate.toml",
    "vm-network-check.toml",
    "vm-placement-check.toml",
    "vm-reattach-disks.toml",
    "vm-restart.toml",
    "vm-restore-as-new.toml",
    "vm-restore.toml",
    "vm-snapshot.toml",
    "vm-start.toml",
    "vm-stop.toml",
    "volume-release.toml",
);

/// Knowledge files.
pub(super) const KNOWLEDGE: &[(&str, &str)] = files!(
    "knowledge/admission.toml",
    "knowledge/api.toml",
    "knowledge/delete.toml",
    "knowledge/import.toml",
    "knowledge/move.toml",
    "knowledge/relations.toml",
    "knowledge/snapshot.toml",
    "knowledge/storage.toml",
    "knowledge/vm.toml",
);

/// Manifests and fixtures beside the workflows.
const BESIDE: &[(&str, &str)] = files!(
    "fixtures/always-on.yaml",
    "fixtures/archived-partly.yaml",
    "fixtures/archived.yaml",
    "fixtures/attach-error.yaml",
    "fixtures/backup-in-progress.yaml",
    "fixtures/capacity-guests.yaml",
    "fixtures/capacity-volume.yaml",
    "fixtures/check-changed.yaml",
    "fixtures/check-full.yaml",
    "fixtures/check-guests.yaml",
    "fixtures/check-held.yaml",
    "fixtures/check-import.yaml",
    "fixtures/check-lost.yaml",
    "fixtures/check-single.yaml",
    "fixtures/check-stopping.yaml",
    "fixtures/choosy.yaml",
    "fixtures/claim-missing.yaml",
    "fixtures/claim-of-web.yaml",
    "fixtures/class-late.yaml",
    "fixtures/class-shared.yaml",
    "fixtures/clone-of-demo.yaml",
    "fixtures/clone-of-nothing.yaml",
    "fixtures/clone-restarts.yaml",
    "fixtures/cloud-config-left.yaml",
    "fixtures/cloud-config.yaml",
    "fixtures/delete-refused.yaml",
    "fixtures/delete-volumes.yaml",
    "fixtures/deleting.yaml",
    "fixtures/disks-imported.yaml",
    "fixtures/disks-swapped.yaml",
    "fixtures/disks-taken.yaml",
    "fixtures/disks-unkept.yaml",
    "fixtures/farewell.yaml",
    "fixtures/five-migrations.yaml",
    "fixtures/growing.yaml",
    "fixtures/halted-pending-claim.yaml",
    "fixtures/halted.yaml",
    "fixtures/health-backup-target.yaml",
    "fixtures/health-cdi.yaml",
    "fixtures/health-certificate-late.yaml",
    "fixtures/health-certificate.yaml",
    "fixtures/health-chart.yaml",
    "fixtures/health-claim-lost.yaml",
    "fixtures/health-claim-waits.yaml",
    "fixtures/health-control-plane.yaml",
    "fixtures/health-etcd.yaml",
    "fixtures/health-kubevirt.yaml",
    "fixtures/health-lease-early.yaml",
    "fixtures/health-lease-old.yaml",
    "fixtures/health-metrics.yaml",
    "fixtures/health-released.yaml",
    "fixtures/health-restore.yaml",
    "fixtures/health-single.yaml",
    "fixtures/health-upgrade.yaml",
    "fixtures/health-webhook.yaml",
    "fixtures/image-again.yaml",
    "fixtures/image-checksum.yaml",
    "fixtures/image-hollow.yaml",
    "fixtures/image-often.yaml",
    "fixtures/image-once.yaml",
    "fixtures/image-shown.yaml",
    "fixtures/image-upload-failed.yaml",
    "fixtures/image-upload.yaml",
    "fixtures/image.yaml",
    "fixtures/import-finishing.yaml",
    "fixtures/import-forgotten.yaml",
    "fixtures/import-http.yaml",
    "fixtures/import-large.yaml",
    "fixtures/import-lost.yaml",
    "fixtures/import-shared.yaml",
    "fixtures/import-waits.yaml",
    "fixtures/keepsake.yaml",
    "fixtures/leaving.yaml",
    "fixtures/leftover-pod-on.yaml",
    "fixtures/leftover-pod.yaml",
    "fixtures/lent.yaml",
    "fixtures/manual-off.yaml",
    "fixtures/manual-on.yaml",
    "fixtures/migration.yaml",
    "fixtures/node-2-maintained.yaml",
    "fixtures/node-asked-again.yaml",
    "fixtures/node-cordoned.yaml",
    "fixtures/node-drained.yaml",
    "fixtures/node-draining.yaml",
    "fixtures/node-full.yaml",
    "fixtures/node-maintained.yaml",
    "fixtures/node-plain.yaml",
    "fixtures/node-without-network.yaml",
    "fixtures/off-pending-claim.yaml",
    "fixtures/on-node-2.yaml",
    "fixtures/once-ended.yaml",
    "fixtures/once-on.yaml",
    "fixtures/over-quota.yaml",
    "fixtures/paused-on.yaml",
    "fixtures/pod-not-ready.yaml",
    "fixtures/relict.yaml",
    "fixtures/rerun-off.yaml",
    "fixtures/restore-in-progress.yaml",
    "fixtures/restore-while-off.yaml",
    "fixtures/restored-and-left.yaml",
    "fixtures/restored-by-hand.yaml",
    "fixtures/roamer.yaml",
    "fixtures/running-false.yaml",
    "fixtures/running-true.yaml",
    "fixtures/shy.yaml",
    "fixtures/single-replica.yaml",
    "fixtures/snapshot-backed.yaml",
    "fixtures/snapshot-busy.yaml",
    "fixtures/snapshot-claims.yaml",
    "fixtures/snapshot-class-annotated.yaml",
    "fixtures/snapshot-class-changed.yaml",
    "fixtures/snapshot-class-default.yaml",
    "fixtures/snapshot-class-none.yaml",
    "fixtures/snapshot-class-stock.yaml",
    "fixtures/snapshot-dead.yaml",
    "fixtures/snapshot-endless.yaml",
    "fixtures/snapshot-held.yaml",
    "fixtures/snapshot-in-progress.yaml",
    "fixtures/snapshot-leftover.yaml",
    "fixtures/snapshot-mixed.yaml",
    "fixtures/snapshot-networked.yaml",
    "fixtures/snapshot-partial.yaml",
    "fixtures/snapshot-series.yaml",
    "fixtures/snapshot-stuck.yaml",
    "fixtures/snapshot-templates.yaml",
    "fixtures/snapshot-wanted.yaml",
    "fixtures/snapshot-while-off.yaml",
    "fixtures/spare-claim.yaml",
    "fixtures/starts-paused.yaml",
    "fixtures/stuck-finalizers.yaml",
    "fixtures/stuck-guest.yaml",
    "fixtures/stuck-handler.yaml",
    "fixtures/stuck-node.yaml",
    "fixtures/stuck-pod.yaml",
    "fixtures/stuck-shared.yaml",
    "fixtures/tight-quota.yaml",
    "fixtures/unschedulable.yaml",
    "fixtures/upgrade-in-progress.yaml",
    "fixtures/volumes-copied.yaml",
    "fixtures/volumes-held.yaml",
    "fixtures/volumes-kept.yaml",
    "fixtures/volumes-snapshot.yaml",
    "fixtures/volumes-used.yaml",
    "manifests/live-migration.yaml",
    "manifests/vm-create.yaml",
);

/// Reads the built-in manifests and fixtures.
pub(super) struct ShippedFiles;

impl Files for ShippedFiles {
    fn read(&self, path: &str) -> Result<String, String> {
        let found = BESIDE.iter().find(|(name, _)| *name == path);
        found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| "it is not built in".to_owned())
    }

    fn shown(&self, path: &str) -> String {
        format!("(built in) {path}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    fn files_in(dir: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        let Ok(entries) = fs::read_dir(dir) else { return };
        for entry in entries {
            let path = entry.expect("a folder that can be read").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if path.is_dir() {
                files_in(&path, &format!("{prefix}{name}/"), found);
            } else {
                found.insert(format!("{prefix}{name}"));
            }
        }
    }

    #[test]
    fn every_file_of_the_workflows_folder_is_built_in() {
        let mut there = BTreeSet::new();
        files_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("workflows"), "", &mut there);
        there.retain(|name| Path::new(name).extension().is_none_or(|extension| extension != "md"));
        let built_in =
            [WORKFLOWS, KNOWLEDGE, BESIDE].into_iter().flatten().map(|(path, _)| (*path).to_owned());
        assert_eq!(built_in.collect::<BTreeSet<_>>(), there);
    }
}

//! Harvester's webhooks for its own backups and restores (domain.md §3.8; HV
//! pkg/webhook/resources/virtualmachinerestore/validator.go:133-221,356-360).

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::backup_target_is_available;
use crate::sim::controller::is_vm_snapshot;
use crate::sim::kinds::BACKUPS;
use crate::sim::kinds::HARVESTER_RESTORES;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::object::deleting;
use crate::sim::object::name;
use crate::sim::object::namespace;
use crate::sim::object::text;
use crate::sim::strategy::Strategy;
use crate::sim::world::Admission;
use crate::sim::world::Key;

/// A backup without a type is one to the target: the default of the CRD.
pub(super) fn mutate(new: &mut Value) {
    if text(new, "/spec/type").is_empty() {
        new["spec"]["type"] = "backup".into();
    }
}

/// What is wrong with a new backup.
pub(super) fn backup_complaint(admission: &Admission<'_>, new: &Value) -> Option<String> {
    let source = text(new, "/spec/source/name");
    if admission.view.get(&Key::new(VIRTUAL_MACHINES, &admission.key.namespace, source)).is_none() {
        return Some(format!("virtualmachines.kubevirt.io \"{source}\" not found"));
    }
    (!is_vm_snapshot(new) && !backup_target_is_available(admission.view))
        .then(|| "backup target is not set".to_owned())
}

/// What is wrong with a new restore; one that is complete already is none. The last refusal is Harvester's guard against the race of KubeVirt's restore.
pub(super) fn restore_complaint(admission: &Admission<'_>, new: &Value) -> Option<String> {
    if new["status"]["complete"] == json!(true) {
        return None;
    }
    let view = admission.view;
    let space = &*admission.key.namespace;
    let (from, backup) =
        (text(new, "/spec/virtualMachineBackupNamespace"), text(new, "/spec/virtualMachineBackupName"));
    let Some(backup) = view.get(&Key::new(BACKUPS, from, backup)) else {
        return Some(format!("virtualmachinebackups.harvesterhci.io \"{backup}\" not found"));
    };
    if backup["status"]["readyToUse"] != json!(true) {
        return Some(format!("VMBackup {from}/{} is not ready", name(&backup)));
    }
    let target = text(new, "/spec/target/name");
    let vm = view.get(&Key::new(VIRTUAL_MACHINES, space, target));
    if new["spec"]["newVM"] == json!(true) {
        return vm.map(|_| format!("VM {target:?} already exists"));
    }
    let Some(vm) = vm else { return Some(format!("VM {target:?} does not exist")) };
    let runs = view.get(&Key::new(INSTANCES, space, target)).is_some();
    if runs || Strategy::of(&vm) != Some(Strategy::Halted) {
        return Some(format!("Please stop the VM {target:?} before doing a restore"));
    }
    let restores = view.list(HARVESTER_RESTORES, Some(space));
    let unfinished = restores.iter().find(|other| {
        text(other, "/spec/target/name") == target && other["status"]["complete"] != json!(true)
    });
    if let Some(other) = unfinished {
        return Some(format!(
            "Please wait for the previous VM restore {space}/{} to be complete first",
            name(other)
        ));
    }
    (is_vm_snapshot(&backup) && text(new, "/spec/deletionPolicy") != "retain")
        .then(|| "delete policy with backup type snapshot for replacing VM is not supported".to_owned())
}

/// The claims of a VM belong to its restore: that stays as long as the VM.
pub(super) fn undeletable_restore(admission: &Admission<'_>, restore: &Value) -> Option<String> {
    let target = text(restore, "/spec/target/name");
    let vm = admission.view.get(&Key::new(VIRTUAL_MACHINES, namespace(restore), target));
    vm.filter(|vm| !deleting(vm)).map(|_| {
        let (space, restore) = (namespace(restore), name(restore));
        format!("can not delete VMRestore {space}/{restore}, because VM {space}/{target} still exists")
    })
}

/// A VM that is to be stopped while a backup of it runs (HVAL:569): wait, then ask again.
pub(super) fn busy_vm(admission: &Admission<'_>, new: &Value) -> Option<String> {
    let old = Strategy::of(admission.old?)?;
    if old == Strategy::Halted || Strategy::of(new) != Some(Strategy::Halted) {
        return None;
    }
    let backups = admission.view.list(BACKUPS, Some(namespace(new)));
    let running = backups.iter().find(|backup| {
        text(backup, "/spec/source/name") == name(new)
            && backup["status"]["readyToUse"] != json!(true)
            && backup["status"]["error"].is_null()
    });
    running.map(|backup| {
        format!("there is vmbackup in progress for vm {}/{}: {}", namespace(new), name(new), name(backup))
    })
}

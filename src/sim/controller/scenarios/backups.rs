//! Harvester's own backups, snapshots and restores (domain.md §3.8).

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::CLAIM_TEMPLATES;
use crate::sim::controller::LONGHORN_SPACE;
use crate::sim::controller::scenarios::Scene;
use crate::sim::kinds::BACKUP_TARGETS;
use crate::sim::kinds::BACKUPS;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::HARVESTER_RESTORES;
use crate::sim::kinds::LONGHORN_BACKUPS;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::kinds::VOLUME_SNAPSHOTS;
use crate::sim::object::annotation;
use crate::sim::object::is_true;
use crate::sim::object::items;
use crate::sim::object::name;
use crate::sim::object::text;
use crate::sim::strategy::Strategy;
use crate::sim::world::Key;
use crate::sim::world::Write;

impl Scene {
    fn back_up(&mut self, way: &str) {
        let backup = json!({
            "apiVersion": "harvesterhci.io/v1beta1",
            "kind": "VirtualMachineBackup",
            "metadata": { "name": "b", "namespace": "default" },
            "spec": { "source": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "a" }, "type": way },
        });
        self.0.write(Write::Create(BACKUPS, backup), "kubectl");
    }

    fn backup(&self) -> Arc<Value> {
        self.0.get(BACKUPS, "default", "b").expect("is there")
    }

    fn restore_backup(&mut self, target: &str, is_new: bool, policy: &str) {
        let restore = json!({
            "apiVersion": "harvesterhci.io/v1beta1",
            "kind": "VirtualMachineRestore",
            "metadata": { "name": "hr", "namespace": "default" },
            "spec": {
                "target": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": target },
                "virtualMachineBackupName": "b",
                "virtualMachineBackupNamespace": "default",
                "newVM": is_new,
                "deletionPolicy": policy,
            },
        });
        self.0.write(Write::Create(HARVESTER_RESTORES, restore), "kubectl");
    }

    fn restored_backup(&self) -> Option<Arc<Value>> {
        self.0.get(HARVESTER_RESTORES, "default", "hr")
    }

    fn last_refusal(&self) -> &str {
        self.0.refusals.last().map_or("", String::as_str)
    }
}

fn claim_of(vm: &Value) -> String {
    text(&items(vm, "/spec/template/spec/volumes")[0], "/persistentVolumeClaim/claimName").to_owned()
}

#[test]
fn a_backup_covers_claims_only_and_is_ready_when_it_is_copied() {
    let mut scene = Scene::new(Strategy::Halted);
    let mut volumes = scene.vm()["spec"]["template"]["spec"]["volumes"].clone();
    volumes.as_array_mut().expect("a list").push(json!({ "name": "disk-1", "dataVolume": { "name": "d" } }));
    scene.patch(json!({ "spec": { "template": { "spec": { "volumes": volumes } } } }));
    scene.set_content("a-disk", "database");
    scene.back_up("backup");
    scene.wait(15);
    assert!(is_true(&scene.backup(), "InProgress") && scene.backup()["status"]["readyToUse"] == json!(false));
    scene.wait(60);
    let backup = scene.backup();
    assert!(is_true(&backup, "Ready") && backup["status"]["progress"] == json!(100));
    let covered = items(&backup, "/status/volumeBackups");
    assert_eq!((covered.len(), text(&covered[0], "/volumeName")), (1, "disk-0"), "HBAK:916-931");
    assert_eq!(text(&covered[0], "/longhornBackupName"), name(&scene.only(LONGHORN_BACKUPS)));
    assert_eq!(text(&scene.only(VOLUME_SNAPSHOTS), "/spec/volumeSnapshotClassName"), "longhorn");
}

#[test]
fn nobody_stops_a_vm_while_it_is_backed_up() {
    let mut scene = Scene::running(Strategy::Always);
    scene.back_up("backup");
    scene.wait(5);
    scene.patch(json!({ "spec": { "runStrategy": "Halted" } }));
    assert!(scene.last_refusal().contains("there is vmbackup in progress"), "{}", scene.last_refusal());
    scene.wait(60);
    scene.patch(json!({ "spec": { "runStrategy": "Halted" } }));
    scene.wait(60);
    assert!(scene.instance().is_none());
}

#[test]
fn a_restore_of_a_backup_starts_the_vm_on_new_claims_and_deletes_the_old_ones() {
    let mut scene = Scene::new(Strategy::Halted);
    scene.set_content("a-disk", "database");
    scene.back_up("backup");
    scene.wait(60);
    scene.set_content("a-disk", "written later");
    scene.restore_backup("a", false, "delete");
    scene.wait(120);
    let restore = scene.restored_backup().expect("is there");
    assert!(restore["status"]["complete"] == json!(true), "{}", restore["status"]);
    let claim = claim_of(&scene.vm());
    assert!(claim.starts_with("restore-b-") && claim.ends_with("-disk-0"));
    assert_eq!((scene.content(&claim).as_str(), scene.phase().as_str()), ("database", "Running"));
    assert!(annotation(&scene.vm(), CLAIM_TEMPLATES).is_some_and(|listed| listed.contains(&claim)));
    scene.wait(30);
    assert!(scene.0.get(CLAIMS, "default", "a-disk").is_none());
    // The claim belongs to the restore, which is kept while there is a VM, and goes with it (harvester#6668).
    scene.0.write(Write::Delete(Key::new(HARVESTER_RESTORES, "default", "hr")), "kubectl");
    assert!(scene.last_refusal().contains("because VM default/a still exists"), "{}", scene.last_refusal());
    scene.0.write(Write::Delete(Scene::key(VIRTUAL_MACHINES)), "kubectl");
    scene.wait(120);
    assert!(scene.restored_backup().is_none() && scene.0.get(CLAIMS, "default", &claim).is_none());
}

#[test]
fn what_harvester_refuses_to_restore() {
    let mut scene = Scene::running(Strategy::Always);
    scene.back_up("snapshot");
    scene.wait(30);
    assert_eq!(scene.backup()["status"]["readyToUse"], json!(true));
    scene.restore_backup("a", false, "retain");
    assert!(scene.last_refusal().contains("Please stop the VM \"a\" before doing a restore"));
    scene.restore_backup("a", true, "retain");
    assert!(scene.last_refusal().ends_with("VM \"a\" already exists"));
    scene.patch(json!({ "spec": { "runStrategy": "Halted" } }));
    scene.wait(60);
    scene.restore_backup("a", false, "delete");
    let refused = "delete policy with backup type snapshot for replacing VM is not supported";
    assert!(scene.last_refusal().ends_with(refused));
    scene.restore_backup("a", false, "retain");
    scene.wait(120);
    assert_eq!(scene.restored_backup().expect("is there")["status"]["complete"], json!(true));
    assert!(scene.0.get(CLAIMS, "default", "a-disk").is_some(), "retained");
}

#[test]
fn a_snapshot_goes_with_its_vm_and_a_new_vm_can_be_made_of_it() {
    let mut scene = Scene::new(Strategy::Halted);
    scene.set_content("a-disk", "database");
    scene.back_up("snapshot");
    scene.wait(30);
    scene.restore_backup("twin", true, "retain");
    scene.wait(150);
    assert_eq!(scene.restored_backup().expect("is there")["status"]["complete"], json!(true));
    let twin = scene.0.get(VIRTUAL_MACHINES, "default", "twin").expect("is made");
    assert_eq!(scene.content(&claim_of(&twin)), "database");
    scene.0.write(Write::Delete(Scene::key(VIRTUAL_MACHINES)), "kubectl");
    scene.wait(60);
    assert!(scene.0.list(BACKUPS).is_empty(), "§5.1 cascaded by surprise");
}

#[test]
fn a_backup_needs_a_target() {
    let mut scene = Scene::new(Strategy::Halted);
    let target = Key::new(BACKUP_TARGETS, LONGHORN_SPACE, "default");
    scene.write(target, json!({ "spec": { "backupTargetURL": "" } }));
    scene.wait(10);
    scene.back_up("backup");
    assert!(scene.last_refusal().ends_with("backup target is not set"));
}

//! Restores, the control plane of which is green whatever becomes of the data (domain.md §3.3, §3.6, manual §6.4).

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::sim::contents;
use crate::sim::controller::LONGHORN_SPACE;
use crate::sim::controller::scenarios::Scene;
use crate::sim::controller::snapshot;
use crate::sim::fault;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::DATA_VOLUMES;
use crate::sim::kinds::LONGHORN_ENGINES;
use crate::sim::kinds::LONGHORN_REPLICAS;
use crate::sim::kinds::LONGHORN_SNAPSHOTS;
use crate::sim::kinds::LONGHORN_VOLUMES;
use crate::sim::kinds::PODS;
use crate::sim::kinds::RESTORES;
use crate::sim::kinds::STORAGE_CLASSES;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::kinds::VOLUME_SNAPSHOT_CONTENTS;
use crate::sim::kinds::VOLUMES;
use crate::sim::object::condition;
use crate::sim::object::is_true;
use crate::sim::object::items;
use crate::sim::object::label;
use crate::sim::object::name;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::strategy::Strategy;
use crate::sim::world::Fault;
use crate::sim::world::Key;
use crate::sim::world::Resource;
use crate::sim::world::Write;

/// A VM `a` whose disk `d` is made from a template, as in the manual, with data on it and a snapshot `s`; halted.
fn snapshotted(faults: &[Fault]) -> Scene {
    let mut vm = contents::vm("a", Strategy::Halted);
    let spec = json!({ "source": { "blank": {} }, "pvc": contents::claim("d")["spec"] });
    vm["metadata"]["annotations"] = json!({});
    vm["spec"]["dataVolumeTemplates"] = json!([{ "metadata": { "name": "d" }, "spec": spec }]);
    vm["spec"]["template"]["spec"]["volumes"] = json!([{ "name": "disk-0", "dataVolume": { "name": "d" } }]);
    let mut scene = Scene::with(vm, &[]);
    scene.wait(60);
    scene.set_content("d", "database");
    scene.take_snapshot();
    scene.wait(30);
    assert_eq!(scene.snapshot()["status"]["readyToUse"], json!(true));
    scene.set_content("d", "written later");
    scene.0.faults = faults.to_vec();
    scene
}

/// The same as Harvester's page makes it, with two claims.
fn paged(faults: &[Fault]) -> Scene {
    let mut scene = Scene::new(Strategy::Halted);
    scene.add_second_disk();
    scene.wait(30);
    scene.set_content("a-disk", "system");
    scene.set_content("a-data", "database");
    scene.take_snapshot();
    scene.wait(30);
    assert_eq!(scene.snapshot()["status"]["readyToUse"], json!(true));
    scene.0.faults = faults.to_vec();
    scene
}

impl Scene {
    fn restore_with(&mut self, called: &str, fields: Value) {
        let mut restore = json!({
            "apiVersion": "snapshot.kubevirt.io/v1beta1",
            "kind": "VirtualMachineRestore",
            "metadata": { "name": called, "namespace": "default" },
            "spec": {
                "target": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "a" },
                "virtualMachineSnapshotName": "s",
            },
        });
        for (field, value) in fields.as_object().into_iter().flatten() {
            restore["spec"][field] = value.clone();
        }
        self.0.write(Write::Create(RESTORES, restore), "kubectl");
    }

    fn restore(&mut self) {
        self.restore_with("r", json!({}));
    }

    fn restored(&self) -> Arc<Value> {
        self.0.get(RESTORES, "default", "r").expect("is there")
    }

    fn is_complete(&self) -> bool {
        self.restored()["status"]["complete"] == json!(true)
    }

    /// The claim of a volume of the VM.
    fn claim_of(&self, number: usize) -> String {
        let vm = self.vm();
        snapshot::disks(&vm).nth(number).expect("is there").claim.to_owned()
    }

    /// The Longhorn volume of a claim.
    fn volume_of(&self, claim: &str) -> Arc<Value> {
        let claim = self.0.get(CLAIMS, "default", claim).expect("is there");
        let handle = text(&claim, "/spec/volumeName").to_owned();
        self.0.get(LONGHORN_VOLUMES, LONGHORN_SPACE, &handle).expect("is there")
    }

    /// The engines or replicas of the volume of a claim.
    fn parts(&self, resource: Resource, claim: &str) -> Vec<Arc<Value>> {
        let volume = self.volume_of(claim);
        let mut parts = self.0.list(resource);
        parts.retain(|part| text(part, "/spec/volumeName") == name(&volume));
        parts
    }

    /// The state of a clone and of its volume.
    fn clone_state(&self, claim: &str) -> [String; 3] {
        let volume = self.volume_of(claim);
        ["/status/cloneStatus/state", "/status/state", "/status/robustness"]
            .map(|place| text(&volume, place).to_owned())
    }

    /// Nothing of the control plane shows that anything is wrong.
    fn is_green(&self) -> bool {
        let claim = self.0.get(CLAIMS, "default", &self.claim_of(0)).expect("is there");
        let disk = self.0.get(DATA_VOLUMES, "default", &self.claim_of(0)).expect("is there");
        let content = self.only(VOLUME_SNAPSHOT_CONTENTS);
        self.is_complete()
            && is_true(&self.restored(), "Ready")
            && text(&claim, "/status/phase") == "Bound"
            && text(&disk, "/status/phase") == "Succeeded"
            && self.snapshot()["status"]["readyToUse"] == json!(true)
            && content["status"]["readyToUse"] == json!(true)
    }

    fn start(&mut self) {
        self.patch(json!({ "spec": { "runStrategy": "Always" } }));
    }

    fn keep_source(&mut self) {
        let claim = self.0.get(CLAIMS, "default", "d").expect("is there");
        let key = Key::new(VOLUMES, "", text(&claim, "/spec/volumeName"));
        self.write(key, json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } }));
    }

    fn has_data(&self, claim: &str) -> bool {
        self.content(claim) == "database"
    }
}

/// What the manual calls form A.
#[test]
fn a_copy_that_begins_after_its_source_has_gone_fails_and_all_is_green() {
    let mut scene = snapshotted(&[fault::RESTORE_CLONE_FAILED]);
    scene.restore();
    scene.wait(120);
    assert!(scene.is_green() && scene.0.list(LONGHORN_SNAPSHOTS).is_empty());
    let claim = scene.claim_of(0);
    assert_eq!(scene.clone_state(&claim), ["failed", "detached", "unknown"]);
    let clone = scene.volume_of(&claim)["status"]["cloneStatus"].clone();
    assert_eq!((&clone["sourceVolume"], &clone["attemptCount"]), (&json!(""), &json!(0)));
    assert!(!scene.has_data(&claim));
    scene.start();
    scene.wait(600);
    assert_eq!(scene.phase(), "Scheduling");
    assert!(scene.happened("FailedAttachVolume") > 0);
}

/// What the manual calls form B: also what happens at the usual pace.
#[test]
fn a_copy_whose_source_goes_meanwhile_stays_initiated_and_all_is_green() {
    for faults in [&[fault::RESTORE_CLONE_INITIATED][..], &[]] {
        let mut scene = snapshotted(faults);
        scene.restore();
        scene.wait(120);
        assert!(scene.is_green());
        let claim = scene.claim_of(0);
        assert_eq!(scene.clone_state(&claim), ["initiated", "attached", "degraded"], "{faults:?}");
        let volume = scene.volume_of(&claim);
        assert_eq!(volume["status"]["cloneStatus"]["attemptCount"], json!(1));
        let replicas = scene.parts(LONGHORN_REPLICAS, &claim);
        assert_eq!((volume["spec"]["numberOfReplicas"].clone(), replicas.len()), (json!(3), 1));
        assert!(!scene.has_data(&claim));
        scene.start();
        scene.wait(600);
        assert_eq!(scene.phase(), "Scheduling");
    }
}

/// domain-cases.md 20.
#[test]
fn a_copy_that_is_faster_than_the_collection_is_degraded_until_it_has_been_attached_for_a_while() {
    let mut scene = snapshotted(&[fault::RESTORE_DEGRADED_HEALS]);
    scene.restore();
    scene.wait(60);
    let claim = scene.claim_of(0);
    assert!(scene.is_green() && scene.has_data(&claim));
    assert_eq!(scene.clone_state(&claim), ["copy-completed-awaiting-healthy", "detached", "unknown"]);
    scene.start();
    scene.wait(60);
    assert_eq!(scene.phase(), "Running");
    assert_eq!(scene.clone_state(&claim), ["copy-completed-awaiting-healthy", "attached", "degraded"]);
    let modes = scene.parts(LONGHORN_ENGINES, &claim)[0]["status"]["replicaModeMap"].clone();
    let count = |mode: &str| modes.as_object().into_iter().flatten().filter(|(_, m)| *m == mode).count();
    assert_eq!((count("RW"), count("WO")), (1, 2));
    scene.wait(150);
    assert_eq!(scene.clone_state(&claim), ["completed", "attached", "healthy"]);
    assert!(scene.has_data(&claim) && scene.parts(LONGHORN_REPLICAS, &claim).len() == 3);
}

#[test]
fn a_copy_without_room_for_its_replicas_stays_degraded() {
    let mut scene = snapshotted(&[fault::RESTORE_DEGRADED_STAYS]);
    scene.restore();
    scene.wait(60);
    assert!(scene.is_green());
    scene.start();
    scene.wait(900);
    let claim = scene.claim_of(0);
    assert_eq!(scene.phase(), "Running");
    assert_eq!(scene.clone_state(&claim), ["copy-completed-awaiting-healthy", "attached", "degraded"]);
    let volume = scene.volume_of(&claim);
    let scheduled = condition(&volume, "Scheduled").expect("is told");
    assert_eq!(text(scheduled, "/reason"), "ReplicaSchedulingFailure");
    assert!(scene.has_data(&claim));
}

#[test]
fn with_its_source_kept_a_copy_is_complete_however_long_it_takes() {
    for faults in [&[fault::RESTORE_CLONE_FAILED][..], &[fault::RESTORE_CLONE_INITIATED], &[]] {
        let mut scene = snapshotted(faults);
        scene.keep_source();
        scene.restore();
        scene.wait(300);
        let claim = scene.claim_of(0);
        assert!(scene.is_green() && scene.has_data(&claim), "{faults:?}");
        scene.start();
        scene.wait(120);
        assert_eq!((scene.phase().as_str(), scene.clone_state(&claim)[0].as_str()), ("Running", "completed"));
        let kept =
            scene.0.list(VOLUMES).into_iter().filter(|volume| text(volume, "/status/phase") == "Released");
        assert_eq!(kept.count(), 1, "the old volume is still there");
    }
}

#[test]
fn a_source_that_is_deleted_by_hand_is_gone_though_it_was_kept() {
    let mut scene = snapshotted(&[fault::SOURCE_DELETED_MIDWAY]);
    scene.keep_source();
    scene.restore();
    scene.wait(300);
    let claim = scene.claim_of(0);
    assert!(scene.is_green());
    assert_eq!(scene.clone_state(&claim)[0], "initiated");
}

#[test]
fn a_restore_gives_the_vm_new_disks_and_leaves_its_strategy_and_metadata() {
    let mut scene = snapshotted(&[fault::RESTORE_DEGRADED_HEALS]);
    scene.patch(json!({ "metadata": { "labels": { "team": "x" } }, "spec": { "template": { "spec": { "domain": { "cpu": { "cores": 4 } } } } } }));
    let before = scene.vm();
    scene.restore();
    scene.wait(60);
    let vm = scene.vm();
    let restore = scene.restored();
    let claim = format!("restore-{}-disk-0", uid(&restore));
    assert_eq!(scene.claim_of(0), claim);
    assert_eq!((text(&vm, "/spec/runStrategy"), label(&vm, "team")), ("Halted", Some("x")));
    assert_eq!(vm["spec"]["template"]["spec"]["domain"]["cpu"]["cores"], json!(2), "as in the snapshot");
    assert_ne!(before["spec"], vm["spec"]);
    assert_eq!(restore["status"]["deletedDataVolumes"], json!(["d"]));
    assert_eq!(text(&items(&restore, "/status/restores")[0], "/dataVolumeName"), claim);
    assert!(vm["status"].get("restoreInProgress").is_none());
    for resource in [DATA_VOLUMES, CLAIMS, VOLUMES, LONGHORN_VOLUMES] {
        // The claim `a-disk` of the scene has nothing to do with this VM.
        let all = scene.0.list(resource).into_iter().filter(|object| {
            let of = [
                name(object),
                text(object, "/spec/claimRef/name"),
                text(object, "/status/kubernetesStatus/pvcName"),
            ];
            !of.contains(&"a-disk")
        });
        assert_eq!(all.count(), 1, "{}", resource.plural);
    }
    assert!(scene.0.list(PODS).iter().all(|pod| label(pod, "app") != Some("containerized-data-importer")));
    // The VM takes its restore along, without a word (kubevirt#13956).
    scene.0.write(Write::Delete(Scene::key(VIRTUAL_MACHINES)), "kubectl");
    scene.wait(60);
    assert!(scene.0.list(RESTORES).is_empty() && scene.0.get(CLAIMS, "default", &claim).is_none());
}

#[test]
fn claims_that_a_page_made_stay_beside_the_new_ones() {
    let mut scene = paged(&[]);
    scene.restore();
    scene.wait(60);
    assert!(scene.is_complete());
    let (first, second) = (scene.claim_of(0), scene.claim_of(1));
    assert!(first.ends_with("-disk-0") && second.ends_with("-disk-1"));
    assert_eq!((scene.content(&first), scene.content(&second)), ("system".to_owned(), "database".to_owned()));
    assert_eq!(
        (scene.content("a-disk"), scene.content("a-data")),
        ("system".to_owned(), "database".to_owned())
    );
    assert!(items(&scene.restored(), "/status/deletedDataVolumes").is_empty());
}

/// domain.md §3.3: permanent data loss.
#[test]
fn in_place_the_data_goes_before_it_is_copied() {
    let mut scene = paged(&[]);
    scene.restore_with("r", json!({ "volumeRestorePolicy": "InPlace" }));
    scene.wait(120);
    assert!(!scene.is_complete());
    for claim in ["a-disk", "a-data"] {
        let claim = scene.0.get(CLAIMS, "default", claim).expect("is made again");
        assert_eq!(text(&claim, "/status/phase"), "Pending");
    }
    assert!(scene.happened("ProvisioningFailed") > 0 && scene.0.list(LONGHORN_SNAPSHOTS).is_empty());
}

#[test]
fn in_place_a_backup_survives() {
    let mut scene = Scene::new(Strategy::Halted);
    let annotations = json!({ "cdi.harvesterhci.io/storageProfileVolumeSnapshotClass": "longhorn" });
    let key = Key::new(STORAGE_CLASSES, "", "harvester-longhorn");
    scene.write(key, json!({ "metadata": { "annotations": annotations } }));
    scene.set_content("a-disk", "database");
    scene.wait(5);
    scene.take_snapshot();
    scene.wait(60);
    scene.set_content("a-disk", "written later");
    scene.restore_with("r", json!({ "volumeRestorePolicy": "InPlace" }));
    scene.wait(120);
    assert!(scene.is_complete() && scene.has_data("a-disk"));
    assert_eq!(scene.claim_of(0), "a-disk");
    scene.start();
    scene.wait(60);
    assert_eq!(scene.phase(), "Running");
}

#[test]
fn a_target_that_runs_is_waited_for_stopped_or_refused_as_the_policy_says() {
    for (policy, seconds, complete, failed) in [
        ("WaitGracePeriod", 400, false, true),
        ("FailImmediate", 20, false, true),
        ("WaitEventually", 400, false, false),
        ("StopTarget", 400, true, false),
    ] {
        let mut scene = snapshotted(&[fault::RESTORE_DEGRADED_HEALS]);
        scene.start();
        scene.wait(90);
        assert_eq!(scene.phase(), "Running");
        scene.restore_with("r", json!({ "targetReadinessPolicy": policy }));
        scene.wait(seconds);
        assert_eq!(
            (scene.is_complete(), is_true(&scene.restored(), "Failure")),
            (complete, failed),
            "{policy}"
        );
        if failed {
            scene.restore_with("r2", json!({}));
            let refused = scene.0.refusals.last().expect("a failed one blocks, too");
            assert!(refused.ends_with("VirtualMachineRestore \"r\" in progress"), "{refused}");
        }
        if policy == "WaitEventually" {
            scene.patch(json!({ "spec": { "runStrategy": "Halted" } }));
            scene.wait(200);
            assert!(scene.is_complete());
        }
    }
}

/// domain-cases.md 25.
#[test]
fn a_restore_that_somebody_deletes_frees_the_vm_and_leaves_its_claim() {
    let mut scene = snapshotted(&[fault::RESTORE_VANISHES]);
    scene.restore();
    scene.wait(30);
    assert!(scene.0.list(RESTORES).is_empty());
    assert!(scene.vm()["status"].get("restoreInProgress").is_none());
    assert_eq!(scene.claim_of(0), "d", "the VM is as it was");
}

#[test]
fn a_restore_to_another_name_makes_a_halted_vm_beside_the_old_one() {
    let mut scene = snapshotted(&[]);
    let target = json!({ "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "b" });
    let overrides = json!([{ "volumeName": "disk-0", "restoreName": "b-root" }]);
    let patches = json!([r#"{"op": "add", "path": "/spec/template/spec/domain/cpu/cores", "value": 4}"#]);
    scene.restore_with(
        "r",
        json!({ "target": target, "volumeRestoreOverrides": overrides, "patches": patches }),
    );
    scene.wait(90);
    assert!(scene.is_complete());
    let new = scene.0.get(VIRTUAL_MACHINES, "default", "b").expect("is made");
    assert_eq!(text(&new, "/spec/runStrategy"), "Halted");
    assert_eq!(new["spec"]["template"]["spec"]["domain"]["cpu"]["cores"], json!(4));
    assert_eq!(text(&items(&new, "/spec/template/spec/volumes")[0], "/dataVolume/name"), "b-root");
    assert!(scene.has_data("b-root"));
    assert_eq!(scene.content("d"), "written later");
}

#[test]
fn a_patch_that_does_not_fit_keeps_a_restore_to_another_name_waiting() {
    let mut scene = snapshotted(&[]);
    let target = json!({ "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "b" });
    let patches = json!([r#"{"op": "replace", "path": "/spec/nothing/here", "value": 4}"#]);
    scene.restore_with("r", json!({ "target": target, "patches": patches }));
    scene.wait(90);
    assert!(!scene.is_complete() && scene.0.get(VIRTUAL_MACHINES, "default", "b").is_none());
    let told = condition(&scene.restored(), "Progressing").expect("is told").clone();
    assert!(text(&told, "/reason").starts_with("patch "), "{told}");
}

#[test]
fn a_restore_without_its_data_is_bound_to_nothing() {
    let mut scene = paged(&[]);
    let snapshot = scene.0.list(LONGHORN_SNAPSHOTS)[0].clone();
    let key = Key::new(LONGHORN_SNAPSHOTS, LONGHORN_SPACE, name(&snapshot));
    scene.0.write(Write::Delete(key), "test");
    scene.wait(5);
    scene.restore();
    scene.wait(120);
    assert!(!scene.is_complete() && scene.happened("ProvisioningFailed") > 0);
}

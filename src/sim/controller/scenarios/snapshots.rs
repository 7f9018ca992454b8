//! Snapshots of VMs, from the gate to the data (domain.md §3.1, §3.2, §3.4, §3.5).

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::sim::contents;
use crate::sim::controller::CONTENT_STAMP;
use crate::sim::controller::LONGHORN_SPACE;
use crate::sim::controller::scenarios::Scene;
use crate::sim::fault;
use crate::sim::kinds::BACKUP_TARGETS;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::KUBEVIRTS;
use crate::sim::kinds::LONGHORN_BACKUPS;
use crate::sim::kinds::LONGHORN_SNAPSHOTS;
use crate::sim::kinds::SNAPSHOT_CONTENTS;
use crate::sim::kinds::SNAPSHOTS;
use crate::sim::kinds::STORAGE_CLASSES;
use crate::sim::kinds::STORAGE_PROFILES;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::kinds::VOLUME_SNAPSHOT_CLASSES;
use crate::sim::kinds::VOLUME_SNAPSHOT_CONTENTS;
use crate::sim::kinds::VOLUME_SNAPSHOTS;
use crate::sim::object::annotation;
use crate::sim::object::condition;
use crate::sim::object::deleting;
use crate::sim::object::is_true;
use crate::sim::object::items;
use crate::sim::object::name;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::strategy::Strategy;
use crate::sim::world::Key;
use crate::sim::world::Resource;
use crate::sim::world::Write;

const ALL: [Resource; 5] =
    [SNAPSHOTS, SNAPSHOT_CONTENTS, VOLUME_SNAPSHOTS, VOLUME_SNAPSHOT_CONTENTS, LONGHORN_SNAPSHOTS];

/// The target of Longhorn's backups.
fn target() -> Key {
    Key::new(BACKUP_TARGETS, LONGHORN_SPACE, "default")
}

impl Scene {
    pub(super) fn write(&mut self, key: Key, patch: Value) {
        self.0.write(Write::Patch(key, patch), "test");
    }

    /// Asks for a snapshot `s` of the VM.
    pub(super) fn take_snapshot(&mut self) {
        let snapshot = json!({
            "apiVersion": "snapshot.kubevirt.io/v1beta1",
            "kind": "VirtualMachineSnapshot",
            "metadata": { "name": "s", "namespace": "default" },
            "spec": { "source": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "a" } },
        });
        self.0.write(Write::Create(SNAPSHOTS, snapshot), "kubectl");
    }

    pub(super) fn snapshot(&self) -> Arc<Value> {
        self.0.get(SNAPSHOTS, "default", "s").expect("is there")
    }

    /// Phase and readiness of the snapshot.
    fn state(&self) -> (String, bool) {
        let snapshot = self.snapshot();
        (text(&snapshot, "/status/phase").to_owned(), snapshot["status"]["readyToUse"] == json!(true))
    }

    /// The only object of a kind.
    pub(super) fn only(&self, resource: Resource) -> Arc<Value> {
        let all = self.0.list(resource);
        assert_eq!(all.len(), 1, "{}", resource.plural);
        all[0].clone()
    }

    fn delete_snapshot(&mut self) {
        self.0.write(Write::Delete(Key::new(SNAPSHOTS, "default", "s")), "kubectl");
    }

    /// Without the annotation that Harvester recommends, as on a cluster that nobody has touched.
    fn forget_snapshot_class(&mut self) {
        let annotations = json!({ "cdi.harvesterhci.io/storageProfileVolumeSnapshotClass": null });
        let key = Key::new(STORAGE_CLASSES, "", "harvester-longhorn");
        self.write(key, json!({ "metadata": { "annotations": annotations } }));
        self.wait(5);
    }

    fn profile(&self) -> String {
        let profile = self.0.get(STORAGE_PROFILES, "", "harvester-longhorn").expect("is there");
        text(&profile, "/status/snapshotClass").to_owned()
    }
}

#[test]
fn a_snapshot_of_a_halted_vm_leads_to_the_data_of_its_volume() {
    let mut scene = Scene::new(Strategy::Halted);
    scene.set_content("a-disk", "database");
    scene.take_snapshot();
    scene.wait(1);
    assert_eq!(scene.state(), ("InProgress".to_owned(), false));
    scene.wait(20);
    assert_eq!(scene.state(), ("Succeeded".to_owned(), true));
    let snapshot = scene.snapshot();
    assert!(is_true(&snapshot, "Ready") && snapshot["status"].get("indications").is_none());
    assert_eq!(snapshot["status"]["snapshotVolumes"], json!({ "includedVolumes": ["disk-0"] }));
    let content = scene.only(SNAPSHOT_CONTENTS);
    assert_eq!(name(&content), format!("vmsnapshot-content-{}", uid(&snapshot)));
    let of_volume = scene.only(VOLUME_SNAPSHOTS);
    assert_eq!(name(&of_volume), format!("vmsnapshot-{}-volume-disk-0", uid(&snapshot)));
    let shown = ["/spec/volumeSnapshotClassName", "/status/restoreSize"].map(|place| text(&of_volume, place));
    assert_eq!(shown, ["longhorn-snapshot", "10Gi"]);
    let stored = scene.only(LONGHORN_SNAPSHOTS);
    let handle = format!("snap://{}/{}", text(&stored, "/spec/volume"), name(&stored));
    assert_eq!(text(&scene.only(VOLUME_SNAPSHOT_CONTENTS), "/status/snapshotHandle"), handle);
    assert_eq!(annotation(&stored, CONTENT_STAMP), Some("database"));
    let held = ["snapshotInProgress"].map(|field| scene.vm()["status"].get(field).cloned());
    assert_eq!(held, [None], "the VM is free again");
    let claim = scene.0.get(CLAIMS, "default", "a-disk").expect("is there");
    assert_eq!(items(&claim, "/metadata/finalizers").len(), 1, "and so is its claim");
}

/// The manual saw 5 to 11 seconds (§6.2 there).
#[test]
fn nobody_stops_a_vm_while_a_snapshot_is_taken() {
    let mut scene = Scene::running(Strategy::Always);
    scene.wait(30);
    scene.take_snapshot();
    scene.wait(3);
    let frozen = |scene: &Scene| text(&scene.instance().expect("runs"), "/status/fsFreezeStatus").to_owned();
    assert_eq!(frozen(&scene), "frozen");
    scene.patch(json!({ "spec": { "runStrategy": "Halted" } }));
    let refused = scene.0.refusals.last().expect("is refused");
    assert!(refused.ends_with("Cannot update vm running state until snapshot \"s\" completes"), "{refused}");
    scene.wait(9);
    assert_eq!(scene.state(), ("Succeeded".to_owned(), true));
    assert_eq!(frozen(&scene), "");
    assert_eq!(scene.snapshot()["status"]["indications"], json!(["Online", "GuestAgent"]));
    scene.patch(json!({ "spec": { "runStrategy": "Halted" } }));
    scene.wait(60);
    assert!(scene.instance().is_none());
}

/// domain-cases.md 23.
#[test]
fn a_guest_that_cannot_be_frozen_makes_the_snapshot_fail_at_its_deadline() {
    let mut scene = Scene::running(Strategy::Always);
    scene.wait(30);
    scene.0.faults = vec![fault::FREEZE_FAILS];
    scene.take_snapshot();
    scene.wait(60);
    assert_eq!(scene.state(), ("InProgress".to_owned(), false));
    assert!(text(&scene.snapshot(), "/status/error/message").contains("400 Bad Request"));
    scene.wait(5 * 60);
    let snapshot = scene.snapshot();
    let failure = condition(&snapshot, "Failure").expect("it failed");
    assert_eq!(text(failure, "/reason"), "snapshot deadline exceeded");
    assert_eq!(scene.state(), ("Failed".to_owned(), false));
    let instance = scene.instance().expect("runs");
    assert!(instance["status"].get("fsFreezeStatus").is_none());
    assert!(
        scene.vm()["status"].get("snapshotInProgress").is_none() && scene.0.list(VOLUME_SNAPSHOTS).is_empty()
    );
    // A later recovery does not bring it back.
    scene.0.faults.clear();
    scene.wait(60);
    assert_eq!(scene.state(), ("Failed".to_owned(), false));
}

#[test]
fn without_its_gate_nothing_is_taken_and_virt_api_knows_it_some_seconds_later() {
    let mut scene = Scene::new(Strategy::Halted);
    let key = Key::new(KUBEVIRTS, "harvester-system", "kubevirt");
    let gates = |gates: Value| json!({ "spec": { "configuration": { "developerConfiguration": { "featureGates": gates } } } });
    scene.write(key.clone(), gates(json!([])));
    scene.wait(5);
    scene.take_snapshot();
    assert!(scene.0.refusals.last().is_some_and(|why| why.ends_with("snapshot feature gate not enabled")));
    scene.write(key, gates(json!(["Snapshot"])));
    scene.take_snapshot();
    assert_eq!(scene.0.refusals.len(), 2, "not yet");
    scene.wait(5);
    scene.take_snapshot();
    scene.wait(30);
    assert_eq!(scene.state(), ("Succeeded".to_owned(), true));
}

#[test]
fn the_class_is_that_of_the_annotation_else_the_default_one_else_the_first_in_name_order() {
    let mut scene = Scene::new(Strategy::Halted);
    assert_eq!(scene.profile(), "longhorn-snapshot");
    scene.forget_snapshot_class();
    assert_eq!(scene.profile(), "longhorn", "§3.1 the seed's failure");
    let annotations = json!({ "snapshot.storage.kubernetes.io/is-default-class": "true" });
    let key = Key::new(VOLUME_SNAPSHOT_CLASSES, "", "longhorn-snapshot");
    scene.write(key, json!({ "metadata": { "annotations": annotations } }));
    scene.wait(5);
    assert_eq!(scene.profile(), "longhorn-snapshot");
    // Harvester undoes what others write into the profile.
    let key = Key::new(STORAGE_PROFILES, "", "harvester-longhorn");
    scene.write(key, json!({ "spec": { "snapshotClass": "longhorn" } }));
    scene.wait(5);
    assert_eq!(scene.profile(), "longhorn-snapshot");
}

/// domain-cases.md 17.
#[test]
fn a_backup_without_a_target_is_neither_made_nor_deleted() {
    let mut scene = Scene::new(Strategy::Halted);
    scene.forget_snapshot_class();
    scene.write(target(), json!({ "spec": { "backupTargetURL": "" } }));
    scene.wait(5);
    let told = scene.0.get(BACKUP_TARGETS, LONGHORN_SPACE, "default").expect("is there");
    let unavailable = condition(&told, "Unavailable").expect("is told");
    assert_eq!(
        (text(unavailable, "/status"), text(unavailable, "/message")),
        ("True", "backup target URL is empty")
    );
    scene.take_snapshot();
    scene.wait(30);
    let error = text(&scene.snapshot(), "/status/error/message").to_owned();
    assert!(
        error.contains("Aborted") && error.ends_with("backup target default is not available"),
        "{error}"
    );
    scene.delete_snapshot();
    scene.wait(600);
    let content = scene.only(VOLUME_SNAPSHOT_CONTENTS);
    assert!(deleting(&content));
    assert!(annotation(&content, "snapshot.storage.kubernetes.io/volumesnapshot-being-created").is_some());
    assert!(scene.0.list(SNAPSHOTS).is_empty(), "only the parts are held");

    scene.write(target(), json!({ "spec": { "backupTargetURL": "nfs://backup.example:/harvester" } }));
    scene.wait(120);
    for resource in
        ALL.into_iter().filter(|resource| *resource != LONGHORN_SNAPSHOTS).chain([LONGHORN_BACKUPS])
    {
        assert!(scene.0.list(resource).is_empty(), "{}", resource.plural);
    }
}

#[test]
fn a_backup_succeeds_before_it_can_be_used() {
    let mut scene = Scene::new(Strategy::Halted);
    scene.set_content("a-disk", "database");
    scene.forget_snapshot_class();
    scene.take_snapshot();
    scene.wait(15);
    assert_eq!(scene.state(), ("Succeeded".to_owned(), false), "§3.2 two steps");
    scene.wait(30);
    assert_eq!(scene.state(), ("Succeeded".to_owned(), true));
    let backup = scene.only(LONGHORN_BACKUPS);
    assert_eq!(text(&backup, "/status/state"), "Completed");
    assert_eq!(annotation(&backup, CONTENT_STAMP), Some("database"));
    let handle = text(&scene.only(VOLUME_SNAPSHOT_CONTENTS), "/status/snapshotHandle").to_owned();
    assert!(handle.starts_with("bak://") && handle.ends_with(name(&backup)), "{handle}");
}

#[test]
fn a_deleted_snapshot_leaves_nothing() {
    let mut scene = Scene::new(Strategy::Halted);
    scene.take_snapshot();
    scene.wait(30);
    for resource in ALL {
        scene.only(resource);
    }
    scene.delete_snapshot();
    scene.wait(30);
    for resource in ALL {
        assert!(scene.0.list(resource).is_empty(), "{}", resource.plural);
    }
}

/// domain-cases.md 19: the content says ready for ever.
#[test]
fn the_data_of_a_snapshot_goes_with_its_volume_and_nobody_is_told() {
    let mut scene = Scene::new(Strategy::Halted);
    scene.take_snapshot();
    scene.wait(30);
    scene.0.write(Write::Delete(Scene::key(VIRTUAL_MACHINES)), "kubectl");
    scene.wait(30);
    scene.0.write(Write::Delete(Key::new(CLAIMS, "default", "a-disk")), "kubectl");
    scene.wait(60);
    assert!(scene.0.list(LONGHORN_SNAPSHOTS).is_empty());
    assert_eq!(scene.only(VOLUME_SNAPSHOT_CONTENTS)["status"]["readyToUse"], json!(true));
    assert_eq!(scene.state(), ("Succeeded".to_owned(), true));
    scene.delete_snapshot();
    scene.wait(30);
    assert!(scene.0.list(VOLUME_SNAPSHOT_CONTENTS).is_empty(), "§3.5 a no-op success");
}

#[test]
fn a_volume_can_be_left_out_without_a_word() {
    let mut scene = Scene::new(Strategy::Halted);
    scene.add_second_disk();
    scene.0.faults = vec![fault::SNAPSHOT_EXCLUDES_VOLUME];
    scene.wait(10);
    scene.take_snapshot();
    scene.wait(30);
    assert_eq!(scene.state(), ("Succeeded".to_owned(), true));
    let volumes = scene.snapshot()["status"]["snapshotVolumes"].clone();
    assert_eq!(volumes, json!({ "includedVolumes": ["disk-0"], "excludedVolumes": ["disk-1"] }));
}

#[test]
fn a_content_that_is_stuck_goes_once_its_annotation_is_taken_away() {
    let mut scene = Scene::new(Strategy::Halted);
    scene.0.faults = vec![fault::CONTENT_STUCK];
    scene.take_snapshot();
    scene.wait(6 * 60);
    assert_eq!(scene.state(), ("Failed".to_owned(), false));
    scene.delete_snapshot();
    scene.wait(600);
    let content = scene.only(VOLUME_SNAPSHOT_CONTENTS);
    assert!(deleting(&content) && scene.0.list(LONGHORN_SNAPSHOTS).is_empty());
    let annotations = json!({ "snapshot.storage.kubernetes.io/volumesnapshot-being-created": null });
    let key = Key::new(VOLUME_SNAPSHOT_CONTENTS, "", name(&content));
    scene.write(key, json!({ "metadata": { "annotations": annotations } }));
    scene.wait(30);
    assert!(scene.0.list(VOLUME_SNAPSHOT_CONTENTS).is_empty() && scene.0.list(VOLUME_SNAPSHOTS).is_empty());
}

#[test]
fn a_snapshot_waits_for_claims_that_are_not_there_yet() {
    let mut vm = contents::vm("a", Strategy::Halted);
    let volumes = json!([{ "name": "disk-0", "persistentVolumeClaim": { "claimName": "late" } }]);
    vm["spec"]["template"]["spec"]["volumes"] = volumes;
    let mut scene = Scene::with(vm, &[]);
    scene.wait(30);
    scene.take_snapshot();
    scene.wait(30);
    let snapshot = scene.snapshot();
    let progressing = condition(&snapshot, "Progressing").expect("is told");
    assert_eq!(
        (text(progressing, "/status"), text(progressing, "/reason")),
        ("False", "PVC default/late does not exist")
    );
    scene.0.write(Write::Create(CLAIMS, contents::claim("late")), "test");
    scene.wait(30);
    assert_eq!(scene.state(), ("Succeeded".to_owned(), true));
}

//! What becomes of DataVolumes: imports, clones, and what goes wrong with them.

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::sim::contents;
use crate::sim::controller::CONTENT_STAMP;
use crate::sim::controller::scenarios::Scene;
use crate::sim::fault::CLONE_SOURCE_IN_USE;
use crate::sim::fault::IMPORT_404;
use crate::sim::fault::IMPORT_PERMISSION_DENIED;
use crate::sim::fault::IMPORT_RESET;
use crate::sim::fault::IMPORT_RWX_NO_SHARE;
use crate::sim::fault::IMPORT_STALL;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::DATA_VOLUMES;
use crate::sim::kinds::IMPORT_SOURCES;
use crate::sim::kinds::LONGHORN_VOLUMES;
use crate::sim::kinds::PODS;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::kinds::VOLUMES;
use crate::sim::object::annotation;
use crate::sim::object::condition;
use crate::sim::object::items;
use crate::sim::object::label;
use crate::sim::object::name;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::strategy::Strategy;
use crate::sim::world::Fault;
use crate::sim::world::Key;
use crate::sim::world::Write;

const IMAGE: &str = "https://mirror.example/os.img";

/// A DataVolume `d` in `default`: RWX and a block device unless the claim says otherwise.
fn data_volume(source: Value) -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": { "name": "d", "namespace": "default" },
        "spec": { "source": source, "pvc": contents::claim("d")["spec"] },
    })
}

/// A VM `a` whose disk is made from a template.
fn vm_with_template(strategy: Strategy) -> Value {
    let mut vm = contents::vm("a", strategy);
    let spec = data_volume(json!({ "http": { "url": IMAGE } }))["spec"].clone();
    vm["metadata"]["annotations"] = json!({});
    vm["spec"]["dataVolumeTemplates"] = json!([{ "metadata": { "name": "d" }, "spec": spec }]);
    vm["spec"]["template"]["spec"]["volumes"] = json!([{ "name": "disk-0", "dataVolume": { "name": "d" } }]);
    vm
}

impl Scene {
    fn with_disk(volume: Value, faults: &[Fault]) -> Self {
        let mut scene = Self::with(contents::vm("a", Strategy::Halted), faults);
        scene.wait(30);
        scene.0.write(Write::Create(DATA_VOLUMES, volume), "test");
        scene
    }

    fn disk(&self) -> Arc<Value> {
        self.0.get(DATA_VOLUMES, "default", "d").expect("is there")
    }

    fn disk_phase(&self) -> String {
        text(&self.disk(), "/status/phase").to_owned()
    }

    fn target(&self) -> Arc<Value> {
        self.0.get(CLAIMS, "default", "d").expect("is there")
    }

    /// What is on the volume of a claim.
    pub(super) fn content(&self, claim: &str) -> String {
        let claim = self.0.get(CLAIMS, "default", claim).expect("is there");
        let volume = self.0.get(VOLUMES, "", text(&claim, "/spec/volumeName")).expect("is bound");
        annotation(&volume, CONTENT_STAMP).unwrap_or_default().to_owned()
    }

    pub(super) fn set_content(&mut self, claim: &str, content: &str) {
        let claim = self.0.get(CLAIMS, "default", claim).expect("is there");
        let key = Key::new(VOLUMES, "", text(&claim, "/spec/volumeName"));
        let patch = json!({ "metadata": { "annotations": { CONTENT_STAMP: content } } });
        self.0.write(Write::Patch(key, patch), "test");
    }

    /// The claims and pods that CDI has made besides the target.
    fn helpers(&self) -> Vec<String> {
        let both = self.0.list(CLAIMS).into_iter().chain(self.0.list(PODS));
        let helpers = both.filter(|object| label(object, "app") == Some("containerized-data-importer"));
        helpers.map(|object| name(&object).to_owned()).filter(|name| name != "d").collect()
    }

    /// Phases and progress of the DataVolume in their order, once each, until it succeeds or the time is over.
    fn course(&mut self, seconds: u64) -> Vec<(String, String)> {
        let mut seen: Vec<(String, String)> = vec![];
        for _ in 0..seconds {
            self.wait(1);
            let disk = self.disk();
            let now = ["/status/phase", "/status/progress"].map(|place| text(&disk, place).to_owned());
            let now: (String, String) = now.into();
            if seen.last() != Some(&now) {
                seen.push(now);
            }
        }
        seen
    }
}

fn percent(progress: &str) -> Option<f64> {
    progress.strip_suffix('%')?.parse().ok()
}

#[test]
fn an_import_goes_through_its_phases_and_leaves_nothing_but_the_disk() {
    for (source, content, scratch) in [
        (json!({ "http": { "url": IMAGE } }), IMAGE, true),
        (json!({ "registry": { "url": "docker://mirror.example/os" } }), "docker://mirror.example/os", true),
        (json!({ "blank": {} }), "blank", false),
    ] {
        let mut scene = Scene::with_disk(data_volume(source.clone()), &[]);
        scene.wait(2);
        let target = scene.target();
        let prime = format!("prime-{}", uid(&target));
        assert_eq!(text(&target, "/status/phase"), "Pending", "§2.2 pending until the end");
        let mut helpers = vec![prime.clone(), format!("importer-{prime}")];
        if scratch {
            helpers.insert(1, format!("{prime}-scratch"));
        }
        while scene.helpers().len() < helpers.len() && scene.disk_phase() == "Pending" {
            scene.wait(1);
        }
        assert_eq!(scene.helpers(), helpers, "{source}");
        let made = uid(&scene.0.get(CLAIMS, "default", &prime).expect("is there")).to_owned();

        let course = scene.course(90);
        let mut phases: Vec<&str> = course.iter().map(|(phase, _)| phase.as_str()).collect();
        phases.dedup();
        assert!(
            ["Pending", "ImportScheduled", "ImportInProgress", "Succeeded"].ends_with(&phases),
            "{source}: {phases:?}"
        );
        let numbers: Vec<f64> = course.iter().filter_map(|(_, progress)| percent(progress)).collect();
        assert!(numbers.is_sorted() && numbers.last() == Some(&100.0), "{source}: {numbers:?}");
        assert!(course.last().is_some_and(|(_, progress)| progress == "100.0%"));

        assert_eq!(scene.content("d"), content);
        assert_eq!(scene.helpers(), Vec::<String>::new(), "{source}");
        assert_eq!(
            text(&scene.target(), "/spec/volumeName"),
            format!("pvc-{made}"),
            "§2.2 named after prime"
        );
        let disk = scene.disk();
        for kind in ["Bound", "Ready"] {
            assert_eq!(text(condition(&disk, kind).expect(kind), "/status"), "True", "{kind}");
        }
        let stored = scene.0.list(LONGHORN_VOLUMES);
        assert_eq!(stored.len(), 2, "a-disk and d: no scratch is left");
        assert!(
            stored.iter().any(|volume| volume["status"]["actualSize"].as_u64() > Some(0)),
            "§2.3 bytes rise"
        );
    }
}

#[test]
fn a_deleted_disk_takes_its_claim_and_its_import_along() {
    let mut scene = Scene::with_disk(data_volume(json!({ "http": { "url": IMAGE } })), &[]);
    scene.wait(25);
    assert_eq!(scene.disk_phase(), "ImportInProgress");
    scene.0.write(Write::Delete(Key::new(DATA_VOLUMES, "default", "d")), "test");
    scene.wait(60);
    assert!(scene.0.get(CLAIMS, "default", "d").is_none());
    assert_eq!(scene.helpers(), Vec::<String>::new());
    assert!(scene.0.list(IMPORT_SOURCES).is_empty());
    assert_eq!(scene.0.list(LONGHORN_VOLUMES).len(), 1, "only a-disk is left");
}

#[test]
fn an_import_that_loses_its_connection_begins_again_and_never_fails() {
    let mut scene = Scene::with_disk(data_volume(json!({ "http": { "url": IMAGE } })), &[IMPORT_RESET]);
    let course = scene.course(240);
    let numbers: Vec<f64> = course.iter().filter_map(|(_, progress)| percent(progress)).collect();
    assert!(numbers.iter().any(|number| *number > 90.0), "{numbers:?}");
    let falls = numbers.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(falls >= 2, "§2.3 a fall with a restart is a retry: {numbers:?}");
    let disk = scene.disk();
    assert!(disk["status"]["restartCount"].as_u64() >= Some(2), "{disk}");
    assert!(course.iter().all(|(phase, _)| phase != "Failed" && phase != "Succeeded"), "§2.1");
    let pods = scene.0.list(PODS);
    let pod = pods.iter().find(|pod| name(pod).starts_with("importer-")).expect("is there");
    let last = &items(pod, "/status/containerStatuses")[0]["lastState"]["terminated"];
    assert!(text(last, "/message").ends_with("SSL connect error: Recv failure: Connection reset by peer"));
    assert_eq!(last["exitCode"], 1);
}

#[test]
fn what_stops_an_import_is_in_the_condition_of_the_disk() {
    let filesystem = |mut volume: Value| {
        volume["spec"]["pvc"]["volumeMode"] = "Filesystem".into();
        volume
    };
    let http = data_volume(json!({ "http": { "url": IMAGE } }));
    for (volume, fault, words) in [
        (http.clone(), IMPORT_404, "expected status code 200, got 404. Status: 404 Not Found"),
        (
            http.clone(),
            IMPORT_PERMISSION_DENIED,
            "blockdev: cannot open /dev/cdi-block-volume: Permission denied",
        ),
        (filesystem(http.clone()), IMPORT_RWX_NO_SHARE, "qemu-img execution failed"),
    ] {
        let mut scene = Scene::with_disk(volume, &[fault]);
        let mut errors = 0;
        for _ in 0..60 {
            scene.wait(1);
            let disk = scene.disk();
            let running = condition(&disk, "Running").cloned().unwrap_or_default();
            if text(&running, "/reason") == "Error" {
                assert!(text(&running, "/message").ends_with(words), "{}: {running}", fault.name);
                errors += 1;
            }
        }
        assert!(errors > 5, "{}", fault.name);
        assert!(scene.disk()["status"]["restartCount"].as_u64() >= Some(2), "{}", fault.name);
        assert_eq!(scene.content_of_target(), None, "{}", fault.name);
    }
    // The faults of block devices leave file systems alone, and the other way round.
    for (volume, fault) in [(filesystem(http.clone()), IMPORT_PERMISSION_DENIED), (http, IMPORT_RWX_NO_SHARE)]
    {
        let mut scene = Scene::with_disk(volume, &[fault]);
        scene.wait(90);
        assert_eq!(scene.disk_phase(), "Succeeded", "{}", fault.name);
    }
}

impl Scene {
    fn content_of_target(&self) -> Option<String> {
        let bound = text(&self.target(), "/status/phase") == "Bound";
        bound.then(|| self.content("d"))
    }
}

#[test]
fn a_stalled_import_stands_still_without_a_restart() {
    let mut scene = Scene::with_disk(data_volume(json!({ "http": { "url": IMAGE } })), &[IMPORT_STALL]);
    scene.wait(600);
    let disk = scene.disk();
    assert_eq!(
        ["/status/phase", "/status/progress"].map(|place| text(&disk, place)),
        ["ImportInProgress", "45.20%"]
    );
    assert_eq!(disk["status"]["restartCount"], 0);
}

#[test]
fn a_clone_has_the_content_of_its_source() {
    let mut scene = Scene::with(contents::vm("a", Strategy::Halted), &[]);
    scene.wait(30);
    scene.set_content("a-disk", "opensuse");
    scene.0.write(Write::Create(DATA_VOLUMES, data_volume(json!({ "pvc": { "name": "a-disk" } }))), "test");
    let course = scene.course(120);
    let mut phases: Vec<&str> = course.iter().map(|(phase, _)| phase.as_str()).collect();
    phases.dedup();
    assert!(
        ["", "Pending", "CloneScheduled", "CloneInProgress", "Succeeded"].ends_with(&phases),
        "{phases:?}"
    );
    assert_eq!((scene.content("d"), scene.content("a-disk")), ("opensuse".to_owned(), "opensuse".to_owned()));
    assert_eq!(scene.helpers(), Vec::<String>::new());
}

#[test]
fn a_clone_waits_while_its_source_is_in_use() {
    let mut scene = Scene::running(Strategy::Manual);
    scene.0.write(Write::Create(DATA_VOLUMES, data_volume(json!({ "pvc": { "name": "a-disk" } }))), "test");
    scene.wait(120);
    let disk = scene.disk();
    assert_eq!(
        ["/status/phase", "/status/progress"].map(|place| text(&disk, place)),
        ["CloneScheduled", "N/A"]
    );
    let (_, _, message) =
        scene.0.events.iter().find(|(_, reason, _)| reason == "CloneSourceInUse").expect("is told");
    assert!(
        message.starts_with("pod default/virt-launcher-a-")
            && message.ends_with("using PersistentVolumeClaim a-disk")
    );
    scene.call("stop", &json!({ "gracePeriod": 0 })).expect("can be stopped");
    scene.wait(120);
    assert_eq!(scene.disk_phase(), "Succeeded", "it goes on when the source is free");

    let clone = data_volume(json!({ "pvc": { "name": "a-disk" } }));
    let mut scene = Scene::with_disk(clone, &[CLONE_SOURCE_IN_USE]);
    scene.wait(300);
    assert_eq!(scene.disk_phase(), "CloneScheduled");
}

#[test]
fn a_clone_needs_a_source_that_is_there_and_fits() {
    let mut scene = Scene::with_disk(data_volume(json!({ "pvc": { "name": "nowhere" } })), &[]);
    scene.wait(30);
    assert_eq!((scene.disk_phase().as_str(), scene.happened("CloneWithoutSource") > 0), ("Pending", true));
    let mut small = data_volume(json!({ "pvc": { "name": "a-disk" } }));
    small["spec"]["pvc"]["resources"]["requests"]["storage"] = "1Gi".into();
    let mut scene = Scene::with_disk(small, &[]);
    scene.wait(30);
    assert!(scene.happened("ErrIncompatiblePVC") > 0 && scene.0.get(CLAIMS, "default", "d").is_none());
}

#[test]
fn a_vm_waits_for_its_disk_and_makes_it_again_when_it_is_gone() {
    let mut scene = Scene::with(vm_with_template(Strategy::Always), &[]);
    let mut shown = vec![];
    for _ in 0..120 {
        scene.wait(1);
        if shown.last() != Some(&scene.shown()) {
            shown.push(scene.shown());
        }
    }
    let from = shown.iter().position(|status| status == "Provisioning").expect("is shown");
    assert_eq!(shown[from..], ["Provisioning", "Starting", "Running"].map(str::to_owned));
    assert_eq!(scene.content("d"), IMAGE);

    scene.patch(json!({ "spec": { "runStrategy": "Halted" } }));
    scene.wait(60);
    scene.0.write(Write::Delete(Key::new(DATA_VOLUMES, "default", "d")), "test");
    scene.wait(120);
    assert_eq!(
        (scene.disk_phase().as_str(), scene.shown().as_str()),
        ("Succeeded", "Stopped"),
        "§2.4 refilled"
    );

    scene.0.write(Write::Delete(Scene::key(VIRTUAL_MACHINES)), "test");
    scene.wait(60);
    assert!(scene.0.list(DATA_VOLUMES).is_empty() && scene.0.get(CLAIMS, "default", "d").is_none(), "§5.1");
    assert_eq!(
        scene.0.list(LONGHORN_VOLUMES).len(),
        1,
        "the volume of a-disk, which is listed nowhere, stays"
    );
}

#[test]
fn a_vm_shows_an_import_that_fails_while_its_container_is_down() {
    let mut scene = Scene::with(vm_with_template(Strategy::Always), &[IMPORT_404]);
    let mut shown = vec![];
    for _ in 0..90 {
        scene.wait(1);
        shown.push(scene.shown());
    }
    shown.dedup();
    let flaps = shown.iter().filter(|status| *status == "DataVolumeError").count();
    assert!(flaps >= 2 && shown.contains(&"Provisioning".to_owned()), "§1.3 it comes and goes: {shown:?}");
    assert!(scene.instance().is_none());
}

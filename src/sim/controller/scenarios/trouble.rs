//! What becomes of VMs when something is wrong.

use serde_json::json;

use crate::sim::contents;
use crate::sim::controller::scenarios::Fate;
use crate::sim::controller::scenarios::Scene;
use crate::sim::controller::scenarios::fate;
use crate::sim::fault;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::NODES;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::object::annotation;
use crate::sim::object::condition;
use crate::sim::object::is_true;
use crate::sim::object::items;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::strategy::Strategy;
use crate::sim::world::Write;

#[test]
fn failing_starts_are_held_back_more_and_more_and_forgotten_after_a_good_one() {
    let mut scene = Scene::with(contents::vm("a", Strategy::Always), &[fault::START_FAILS]);
    scene.wait(30);
    let failures = |scene: &Scene| scene.vm()["status"]["startFailure"]["consecutiveFailCount"].as_u64();
    let mut counts = vec![];
    let mut shown = vec![];
    for _ in 0..200 {
        scene.wait(1);
        counts.push(failures(&scene));
        shown.push(scene.shown());
    }
    counts.dedup();
    assert!(counts.len() >= 3 && counts.len() <= 6, "{counts:?}");
    assert!(shown.contains(&"CrashLoopBackOff".to_owned()));
    scene.0.faults.clear();
    scene.wait(310);
    assert_eq!((scene.shown().as_str(), failures(&scene)), ("Running", None));
}

#[test]
fn the_fault_of_1_7_4_shows_a_stopped_vm_as_waiting() {
    let mut vm = contents::vm("a", Strategy::RerunOnFailure);
    vm["metadata"]["annotations"] = json!({});
    let mut scene = Scene::with(vm, &[]);
    scene.wait(60);
    scene.call("stop", &json!({})).expect("is accepted");
    scene.wait(30);
    assert_eq!(scene.shown(), "Stopped");
    scene.0.faults = vec![fault::PROVISION_FAILS];
    let mut orphan = contents::claim("a-disk");
    orphan["metadata"]["name"] = "a-other".into();
    scene.0.write(Write::Create(CLAIMS, orphan), "test");
    let volume = json!([{ "name": "disk-0", "persistentVolumeClaim": { "claimName": "a-other" } }]);
    scene.patch(json!({ "spec": { "template": { "spec": { "volumes": volume } } } }));
    scene.wait(10);
    assert_eq!((scene.shown().as_str(), scene.instance().is_none()), ("WaitingForVolumeBinding", true));
}

#[test]
fn a_node_that_goes_down_gives_its_vms_back_after_a_while() {
    let mut vm = contents::vm("a", Strategy::Always);
    vm["spec"]["template"]["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": "node-2" });
    let mut scene = Scene::with(vm, &[]);
    scene.wait(60);
    scene.patch(json!({ "spec": { "template": { "spec": { "nodeSelector": null } } } }));
    scene.wait(5);
    let old = scene.instance().map(|instance| uid(&instance).to_owned()).expect("runs");
    scene.0.faults = vec![fault::NODE_DOWN];
    let node = |scene: &Scene| scene.0.get(NODES, "", "node-2").expect("is there");
    let ready = |scene: &Scene| text(condition(&node(scene), "Ready").expect("has"), "/status").to_owned();
    let taint =
        |scene: &Scene, key: &str| items(&node(scene), "/spec/taints").iter().any(|t| text(t, "/key") == key);
    scene.wait(25);
    assert_eq!(ready(&scene), "True");
    scene.wait(17);
    assert_eq!(ready(&scene), "Unknown");
    assert!(!taint(&scene, "kubevirt.io/drain"));
    scene.wait(16);
    assert!(taint(&scene, "kubevirt.io/drain") && !taint(&scene, "node.kubernetes.io/out-of-service"));
    assert_eq!(condition(&node(&scene), "Drained").map(|drained| text(drained, "/status")), Some("False"));
    assert_eq!(fate(&scene, &old), Fate::Old("Running"), "nobody knows what became of it");
    assert_eq!(scene.vm()["status"]["ready"], false);
    scene.wait(180);
    assert!(taint(&scene, "node.kubernetes.io/out-of-service") && is_true(&node(&scene), "Drained"));
    scene.wait(60);
    assert_eq!(fate(&scene, &old), Fate::New);
    assert_ne!(text(&scene.instance().expect("runs"), "/status/nodeName"), "node-2");
    scene.0.faults.clear();
    scene.wait(30);
    assert_eq!(ready(&scene), "True");
    assert!(items(&node(&scene), "/spec/taints").is_empty() && condition(&node(&scene), "Drained").is_none());
}

#[test]
fn faults_stop_vms_where_they_say() {
    for (faults, phase, shown, reason) in [
        (&[fault::ATTACH_FAILS], "Scheduling", "Starting", "FailedAttachVolume"),
        (&[fault::SLOW_START], "Scheduling", "Starting", "Scheduled"),
        (&[fault::PROVISION_FAILS], "Scheduling", "ErrorUnschedulable", "ProvisioningFailed"),
        (&[fault::IMAGE_PULL_FAILS], "Scheduling", "ImagePullBackOff", "Failed"),
    ] {
        let mut scene = Scene::with(contents::vm("a", Strategy::Always), faults);
        scene.wait(100);
        assert_eq!((scene.phase().as_str(), scene.shown().as_str()), (phase, shown), "{faults:?}");
        assert!(scene.happened(reason) > 0, "{faults:?}");
        scene.0.faults.clear();
        scene.wait(200);
        assert_eq!(scene.phase(), "Running", "{faults:?} and it goes on without the fault");
    }
    let mut scene = Scene::with(contents::vm("a", Strategy::Always), &[fault::STOP_HANGS]);
    scene.wait(60);
    scene.patch(json!({ "spec": { "runStrategy": "Halted" } }));
    scene.wait(300);
    assert_eq!(scene.phase(), "Succeeded");
    assert_eq!(items(&scene.instance().expect("is held"), "/metadata/finalizers").len(), 1);
}

#[test]
fn somebody_else_starts_the_vm_once() {
    let mut scene = Scene::running(Strategy::Always);
    scene.0.faults = vec![fault::FOREIGN_START];
    scene.patch(json!({ "spec": { "runStrategy": "Halted" } }));
    scene.wait(2);
    assert_eq!(Strategy::of(&scene.vm()), Some(Strategy::Always), "while the guest shuts down");
    scene.wait(60);
    assert_eq!(scene.phase(), "Running");
    scene.patch(json!({ "spec": { "runStrategy": "Halted" } }));
    scene.wait(60);
    assert!(scene.instance().is_none(), "the second time nobody interferes");
}

#[test]
fn a_forced_stop_leaves_time_to_interfere() {
    for (fault, gone) in [(fault::FOREIGN_START, false), (fault::FOREIGN_DELETE, true)] {
        let mut scene = Scene::running(Strategy::Always);
        scene.0.faults = vec![fault];
        scene.call("stop", &json!({ "gracePeriod": 0 })).expect("is accepted");
        scene.wait(60);
        assert_eq!(scene.0.get(VIRTUAL_MACHINES, "default", "a").is_none(), gone, "{fault:?}");
        assert_eq!(scene.phase() == "Running", !gone, "{fault:?}");
    }
}

#[test]
fn guests_misbehave_when_they_are_started_and_not_before() {
    let ready = |scene: &Scene| scene.instance().is_some_and(|instance| is_true(&instance, "Ready"));
    for fault in [fault::IO_ERROR, fault::GUEST_HANGS, fault::GUEST_POWERS_OFF, fault::QUOTA_EXCEEDED] {
        let mut scene = Scene::running(Strategy::RerunOnFailure);
        scene.0.faults = vec![fault];
        scene.wait(60);
        assert!(ready(&scene), "{fault:?} lets a running guest alone");
        scene.call("restart", &json!({})).expect("is accepted");
        scene.wait(60);
        assert!(!ready(&scene), "{fault:?}");
        let vm = scene.vm();
        match fault {
            fault::IO_ERROR => {
                let paused = condition(&vm, "Paused").map(|paused| text(paused, "/reason").to_owned());
                assert_eq!((paused.as_deref(), scene.shown().as_str()), (Some("PausedIOError"), "Paused"));
            }
            fault::GUEST_HANGS => {
                assert_eq!((scene.phase().as_str(), &vm["status"]["ready"]), ("Running", &json!(false)));
            }
            fault::GUEST_POWERS_OFF => assert!(scene.instance().is_none() && scene.shown() == "Stopped"),
            _ => {
                assert_eq!(Strategy::of(&vm), Some(Strategy::Halted));
                assert!(annotation(&vm, "harvesterhci.io/insufficient-resource-quota").is_some());
                assert_eq!(scene.happened("InsufficientResourceQuota"), 1);
            }
        }
    }
}

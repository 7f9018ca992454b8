//! The faults of guests, of the platform and of other people, seen without a server.

use serde_json::Value;
use serde_json::json;

use crate::sim::contents;
use crate::sim::controller::RUN_STRATEGY;
use crate::sim::controller::scenarios::Scene;
use crate::sim::fault;
use crate::sim::kinds::API_SERVICES;
use crate::sim::kinds::KUBEVIRTS;
use crate::sim::kinds::PODS;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::object::annotation;
use crate::sim::object::condition;
use crate::sim::object::is_true;
use crate::sim::object::text;
use crate::sim::strategy::Strategy;
use crate::sim::world::Fault;
use crate::sim::world::Key;
use crate::sim::world::Write;

/// A VM that was halted before the faults began.
fn halted(faults: &[Fault]) -> Scene {
    let mut scene = Scene::with(contents::vm("a", Strategy::Halted), &[]);
    scene.wait(60);
    scene.0.faults = faults.to_vec();
    scene
}

/// A VM that runs, with faults from now on.
fn running(faults: &[Fault]) -> Scene {
    let mut scene = Scene::with(contents::vm("a", Strategy::Always), &[]);
    scene.wait(60);
    assert_eq!(scene.phase(), "Running");
    scene.0.faults = faults.to_vec();
    scene
}

fn start(scene: &mut Scene, strategy: &str) {
    let annotations = json!({ RUN_STRATEGY: strategy });
    scene.patch(json!({ "metadata": { "annotations": annotations }, "spec": { "runStrategy": strategy } }));
}

fn halt(scene: &mut Scene) {
    scene.patch(json!({ "spec": { "runStrategy": "Halted" } }));
}

fn reason(object: &Value, kind: &str) -> String {
    condition(object, kind).map_or(String::new(), |found| text(found, "/reason").to_owned())
}

#[test]
fn guests_have_their_mishaps_seconds_after_their_start() {
    let mut scene = halted(&[fault::GUEST_HANGS]);
    start(&mut scene, "Always");
    scene.wait(120);
    let instance = scene.instance().expect("it was started");
    assert_eq!((scene.phase().as_str(), reason(&instance, "Ready").as_str()), ("Running", "GuestNotRunning"));

    let mut scene = halted(&[fault::IO_ERROR]);
    start(&mut scene, "Always");
    scene.wait(120);
    assert_eq!(reason(&scene.instance().expect("it was started"), "Paused"), "PausedIOError");
    assert_eq!(scene.shown(), "Paused");

    let mut scene = halted(&[fault::GUEST_POWERS_OFF]);
    start(&mut scene, "RerunOnFailure");
    scene.wait(120);
    assert!(scene.instance().is_none(), "it stays off (domain.md §1.1)");
}

#[test]
fn other_people_interfere_once() {
    for (fault, expected) in [(fault::FOREIGN_STOP, "Halted"), (fault::QUOTA_EXCEEDED, "Halted")] {
        let mut scene = halted(&[fault]);
        start(&mut scene, "Always");
        scene.wait(60);
        assert_eq!(text(&scene.vm(), "/spec/runStrategy"), expected, "{fault:?}");
        let marked = annotation(&scene.vm(), "harvesterhci.io/insufficient-resource-quota").is_some();
        assert_eq!(marked, fault == fault::QUOTA_EXCEEDED);
        start(&mut scene, "Always");
        scene.wait(60);
        assert_eq!(scene.phase(), "Running", "{fault:?}");
    }
    let exists = |scene: &Scene| scene.0.get(VIRTUAL_MACHINES, "default", "a").is_some();
    let mut scene = halted(&[fault::FOREIGN_DELETE_STARTED]);
    start(&mut scene, "Always");
    scene.wait(60);
    assert!(!exists(&scene));
    let mut scene = running(&[fault::FOREIGN_DELETE]);
    halt(&mut scene);
    scene.wait(60);
    assert!(!exists(&scene));
}

#[test]
fn a_late_visitor_finds_the_vm_off() {
    let mut scene = running(&[fault::FOREIGN_START_LATE]);
    halt(&mut scene);
    scene.wait(30);
    assert!(scene.instance().is_none());
    scene.wait(60);
    assert_eq!(scene.phase(), "Running");
    halt(&mut scene);
    scene.wait(120);
    assert!(scene.instance().is_none(), "once");
}

#[test]
fn a_slow_handler_lets_go_in_the_end() {
    let mut scene = running(&[fault::STOP_SLOW]);
    halt(&mut scene);
    scene.wait(4 * 60);
    assert_eq!(scene.phase(), "Succeeded");
    scene.wait(2 * 60);
    assert!(scene.instance().is_none());
}

#[test]
fn frozen_controllers_leave_everything_as_it_is() {
    let mut scene = halted(&[fault::CONTROLLERS_FROZEN]);
    start(&mut scene, "Always");
    scene.wait(60);
    assert!(scene.instance().is_none());
    scene.0.faults.clear();
    start(&mut scene, "Manual");
    start(&mut scene, "Always");
    scene.wait(60);
    assert_eq!(scene.phase(), "Running");
}

#[test]
fn a_foreign_webhook_stores_another_strategy() {
    let mut scene = halted(&[fault::STRATEGY_REWRITTEN]);
    start(&mut scene, "Always");
    assert_eq!(text(&scene.vm(), "/spec/runStrategy"), "Manual");
}

#[test]
fn the_platform_shows_what_is_wrong_with_it() {
    let keys = [
        Key::new(KUBEVIRTS, "harvester-system", "kubevirt"),
        Key::new(API_SERVICES, "", "v1.subresources.kubevirt.io"),
        Key::new(PODS, "harvester-system", "virt-api-7f8c5d9b6-4jw8s"),
    ];
    let mut scene = halted(&[fault::KUBEVIRT_UPDATING, fault::VIRT_API_DOWN]);
    for key in &keys {
        scene
            .0
            .write(Write::Patch(key.clone(), json!({ "metadata": { "labels": { "seen": "1" } } })), "test");
    }
    scene.wait(10);
    let told = |number: usize, kind: &str| {
        is_true(&scene.0.view().get(&keys[number]).expect("is in every cluster"), kind)
    };
    assert!(["Available", "Progressing", "Degraded"].iter().all(|kind| told(0, kind)));
    assert!(!told(1, "Available") && !told(2, "Ready"));
}

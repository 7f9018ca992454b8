//! What becomes of VMs when nothing is wrong.

use std::time::Duration;

use serde_json::json;

use crate::sim::contents;
use crate::sim::controller::RUN_STRATEGY;
use crate::sim::controller::launcher;
use crate::sim::controller::scenarios::Fate;
use crate::sim::controller::scenarios::Scene;
use crate::sim::controller::scenarios::fate;
use crate::sim::controller::volume;
use crate::sim::fault;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::NODES;
use crate::sim::kinds::PODS;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::kinds::VOLUMES;
use crate::sim::object::annotation;
use crate::sim::object::condition;
use crate::sim::object::deleting;
use crate::sim::object::is_true;
use crate::sim::object::items;
use crate::sim::object::key_of;
use crate::sim::object::label;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::strategy::Strategy;
use crate::sim::world::Key;
use crate::sim::world::Write;

#[test]
fn creating_a_vm_starts_it_as_its_strategy_says() {
    for (strategy, runs, shown) in [
        (Strategy::Always, true, "Running"),
        (Strategy::RerunOnFailure, true, "Running"),
        (Strategy::Once, true, "Running"),
        (Strategy::Manual, false, "Stopped"),
        (Strategy::Halted, false, "Stopped"),
    ] {
        let scene = Scene::new(strategy);
        let vm = scene.vm();
        assert_eq!((scene.instance().is_some(), scene.shown()), (runs, shown.to_owned()), "{strategy:?}");
        assert_eq!(vm["status"]["ready"], runs, "{strategy:?}");
        assert_eq!(text(&vm, "/status/runStrategy"), if runs { strategy.name() } else { "" });
        assert_eq!(vm["status"]["created"], runs);
        let ready = condition(&vm, "Ready").expect("has a Ready condition");
        assert_eq!(text(ready, "/reason") == "VMINotExists", !runs, "{strategy:?}");
        let noted = (strategy != Strategy::Halted).then_some(strategy.name());
        assert_eq!(annotation(&vm, RUN_STRATEGY), noted, "the strategy is noted after the fact");
    }
}

#[test]
fn running_true_is_always_and_keeps_its_field() {
    let mut vm = contents::vm("a", Strategy::Halted);
    vm["spec"] = json!({ "running": true, "template": vm["spec"]["template"] });
    let mut scene = Scene::with(vm, &[]);
    scene.wait(60);
    assert_eq!(scene.phase(), "Running");
    scene.call("stop", &json!({})).expect("is accepted");
    scene.wait(60);
    assert_eq!(scene.vm()["spec"]["running"], false);
    assert!(scene.vm()["spec"]["runStrategy"].is_null() && scene.instance().is_none());
    scene.call("start", &json!({})).expect("is accepted");
    scene.wait(60);
    assert_eq!((scene.vm()["spec"]["running"].clone(), scene.phase()), (json!(true), "Running".to_owned()));
}

/// Every strategy × what happens to the running VM (domain.md §1.1, §1.7).
#[test]
fn what_becomes_of_a_running_vm_depends_on_its_strategy() {
    use Strategy::{Always, Halted, Manual, Once, RerunOnFailure};
    type Deed = fn(&mut Scene);
    let shutdown: Deed = |scene| scene.guest("shutdown");
    let crash: Deed = |scene| scene.guest("crash");
    let delete: Deed = |scene| scene.0.write(Write::Delete(Scene::key(INSTANCES)), "kubectl");
    let stop: Deed = |scene| scene.call("stop", &json!({})).expect("is accepted");
    let restart: Deed = |scene| scene.call("restart", &json!({})).expect("is accepted");
    let halt: Deed = |scene| scene.patch(json!({ "spec": { "runStrategy": "Halted" } }));
    let pod: Deed = |scene| {
        let pod = scene.pod().expect("has a pod");
        scene.0.write(Write::Delete(key_of(PODS, &pod)), "kubectl");
    };
    for (strategy, name, deed, expected, after) in [
        (Always, "shutdown", shutdown, Fate::New, Always),
        (Always, "crash", crash, Fate::New, Always),
        (Always, "delete", delete, Fate::New, Always),
        (Always, "stop", stop, Fate::Off, Halted),
        (Always, "restart", restart, Fate::New, Always),
        (Always, "halt", halt, Fate::Off, Halted),
        (Always, "pod", pod, Fate::New, Always),
        (RerunOnFailure, "shutdown", shutdown, Fate::Off, RerunOnFailure),
        (RerunOnFailure, "crash", crash, Fate::New, RerunOnFailure),
        (RerunOnFailure, "delete", delete, Fate::Off, RerunOnFailure),
        (RerunOnFailure, "stop", stop, Fate::Off, RerunOnFailure),
        (RerunOnFailure, "restart", restart, Fate::New, RerunOnFailure),
        (RerunOnFailure, "halt", halt, Fate::Off, Halted),
        (RerunOnFailure, "pod", pod, Fate::Off, RerunOnFailure),
        (Manual, "shutdown", shutdown, Fate::Old("Succeeded"), Manual),
        (Manual, "crash", crash, Fate::Old("Failed"), Manual),
        (Manual, "delete", delete, Fate::Off, Manual),
        (Manual, "stop", stop, Fate::Off, Manual),
        (Manual, "restart", restart, Fate::New, Manual),
        (Manual, "halt", halt, Fate::Off, Halted),
        (Manual, "pod", pod, Fate::Old("Succeeded"), Manual),
        (Once, "shutdown", shutdown, Fate::Old("Succeeded"), Once),
        (Once, "crash", crash, Fate::Old("Failed"), Once),
        (Once, "delete", delete, Fate::New, Once),
        (Once, "stop", stop, Fate::Off, Halted),
        (Once, "halt", halt, Fate::Off, Halted),
    ] {
        let mut scene = Scene::running(strategy);
        let old = scene.instance().map(|instance| uid(&instance).to_owned()).expect("runs");
        deed(&mut scene);
        scene.wait(90);
        assert_eq!(fate(&scene, &old), expected, "{strategy:?} {name}");
        assert_eq!(Strategy::of(&scene.vm()), Some(after), "{strategy:?} {name}");
        let shown = if expected == Fate::New { "Running" } else { "Stopped" };
        assert_eq!(scene.shown(), shown, "{strategy:?} {name}");
        assert!(items(&scene.vm(), "/status/stateChangeRequests").is_empty(), "{strategy:?} {name}");
        assert_eq!(scene.0.refusals, Vec::<String>::new());
    }
}

#[test]
fn a_halted_vm_starts_with_the_strategy_that_harvester_noted() {
    for (noted, expected) in
        [(None, "RerunOnFailure"), (Some("Always"), "Always"), (Some("Manual"), "Manual")]
    {
        let mut vm = contents::vm("a", Strategy::Halted);
        if let Some(noted) = noted {
            vm["metadata"]["annotations"][RUN_STRATEGY] = noted.into();
        }
        let mut scene = Scene::with(vm, &[]);
        scene.wait(10);
        scene.call("start", &json!({})).expect("is accepted");
        scene.wait(60);
        assert_eq!(text(&scene.vm(), "/spec/runStrategy"), expected);
        // Manual waits for a request, and the patch was none.
        assert_eq!(scene.phase(), if expected == "Manual" { "" } else { "Running" });
    }
}

#[test]
fn a_halted_vm_with_a_queued_start_is_switched_on() {
    let mut scene = Scene::new(Strategy::Halted);
    scene.call("start", &json!({ "paused": true })).expect("is queued");
    scene.wait(60);
    assert_eq!(text(&scene.vm(), "/spec/runStrategy"), "RerunOnFailure", "Harvester rewrote Always");
    assert_eq!(scene.shown(), "Paused");
    scene.call("unpause", &json!({})).expect("is paused");
    scene.wait(5);
    assert_eq!(scene.shown(), "Running");
}

/// The refusals of domain.md §1.7.
#[test]
fn a_verb_that_does_not_fit_is_refused_in_kubevirts_words() {
    let conflict = |message: &str| {
        Err(format!("409 Operation cannot be fulfilled on virtualmachine.kubevirt.io \"a\": {message}"))
    };
    for (strategy, verb, body, expected) in [
        (Strategy::Halted, "stop", json!({}), conflict("VM is not running")),
        (Strategy::Manual, "stop", json!({}), conflict("VM is not running")),
        (Strategy::Manual, "restart", json!({}), conflict("VM is not running: Halted")),
        (
            Strategy::Halted,
            "restart",
            json!({}),
            conflict("RunStategy Halted does not support manual restart requests"),
        ),
        (
            Strategy::Once,
            "restart",
            json!({}),
            conflict("RunStategy Once does not support manual restart requests"),
        ),
        (Strategy::Always, "start", json!({}), conflict("VM is already running")),
        (
            Strategy::Always,
            "restart",
            json!({ "gracePeriodSeconds": 5 }),
            Err("400 For force restart, only gracePeriod=0 is supported for now".to_owned()),
        ),
        (
            Strategy::Manual,
            "explode",
            json!({}),
            Err("404 the server could not find the requested resource".to_owned()),
        ),
    ] {
        let mut scene = Scene::new(strategy);
        assert_eq!(scene.call(verb, &body), expected, "{strategy:?} {verb}");
    }
    for (strategy, message) in [
        (Strategy::Always, "Always does not support manual start requests"),
        (Strategy::Once, "Once does not support manual start requests"),
    ] {
        // Not running, because its disk does not exist.
        let mut vm = contents::vm("a", strategy);
        vm["metadata"]["annotations"] = json!({});
        vm["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = "none".into();
        let mut scene = Scene::with(vm, &[]);
        assert_eq!(scene.call("start", &json!({})), conflict(message));
        scene.wait(30);
        assert_eq!(scene.shown(), "ErrorPvcNotFound");
    }
    let mut scene = Scene::running(Strategy::RerunOnFailure);
    scene.call("restart", &json!({})).expect("is accepted");
    let underway = "500 Internal error occurred: unable to complete request: stop/start already underway";
    assert_eq!(scene.call("restart", &json!({})), Err(underway.to_owned()));
    assert_eq!(scene.call("stop", &json!({})), Ok(()), "a stop replaces the queue");
    scene.wait(60);
    assert!(scene.instance().is_none());
}

/// domain.md §1.6: phase Running with deletionTimestamp meanwhile, Succeeded after ACPI, Failed after the grace period.
#[test]
fn a_shutdown_takes_as_long_as_the_guest_and_its_grace_period_allow() {
    for (faults, acpi, grace, busy, done, stopped_because) in [
        (&[][..], true, 120, 7, 12, "was shut down"),
        (&[fault::NO_ACPI][..], true, 120, 118, 124, "was killed"),
        (&[fault::NO_ACPI][..], true, 30, 28, 34, "was killed"),
        (&[], true, 3, 2, 6, "was killed"),
        (&[], false, 120, 0, 4, "was shut down"),
    ] {
        let mut vm = contents::vm("a", Strategy::Always);
        vm["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = grace.into();
        vm["spec"]["template"]["spec"]["domain"]["features"]["acpi"]["enabled"] = acpi.into();
        let mut scene = Scene::with(vm, faults);
        scene.wait(60);
        scene.patch(json!({ "spec": { "runStrategy": "Halted" } }));
        if busy > 0 {
            scene.wait(busy);
            let instance = scene.instance().expect("is still there");
            assert!(
                deleting(&instance) && text(&instance, "/status/phase") == "Running",
                "{faults:?} {grace}"
            );
            assert_eq!(scene.shown(), "Stopping");
        }
        scene.wait(done - busy);
        assert!(
            scene.instance().is_none()
                && scene.0.list(PODS).iter().all(|pod| label(pod, launcher::CREATED_BY).is_none())
        );
        let (_, _, message) =
            scene.0.events.iter().rfind(|(_, reason, _)| reason == "Stopped").expect("stopped");
        assert!(message.contains(stopped_because), "{faults:?} {acpi} {grace}: {message}");
        assert_eq!(scene.shown(), "Stopped");
    }
}

#[test]
fn a_stop_with_grace_zero_kills_a_guest_that_does_not_listen() {
    let mut scene = Scene::with(contents::vm("a", Strategy::RerunOnFailure), &[fault::NO_ACPI]);
    scene.wait(60);
    scene.call("stop", &json!({})).expect("is accepted");
    scene.wait(20);
    assert_eq!(scene.shown(), "Stopping");
    scene.call("stop", &json!({ "gracePeriod": 0 })).expect("is accepted");
    scene.wait(5);
    assert!(scene.instance().is_none(), "killed at once, and a killed guest of a stop is not run again");
    scene.wait(60);
    assert_eq!((scene.instance().is_none(), scene.shown().as_str()), (true, "Stopped"));

    let mut scene = Scene::with(contents::vm("a", Strategy::Always), &[fault::NO_ACPI]);
    scene.wait(60);
    scene.patch(json!({ "spec": { "runStrategy": "Halted" } }));
    scene.wait(10);
    assert!(scene.call("stop", &json!({})).is_err_and(|refusal| refusal.contains("shorter graceperiod")));
    scene.call("stop", &json!({ "gracePeriod": 0 })).expect("is accepted");
    scene.wait(5);
    assert!(scene.instance().is_none());
}

#[test]
fn a_forced_restart_does_not_wait_for_the_guest() {
    let mut scene = Scene::with(contents::vm("a", Strategy::Always), &[fault::NO_ACPI]);
    scene.wait(60);
    let old = scene.instance().map(|instance| uid(&instance).to_owned()).expect("runs");
    scene.call("restart", &json!({ "gracePeriodSeconds": 0 })).expect("is accepted");
    scene.wait(20);
    assert_eq!(fate(&scene, &old), Fate::New);
    assert_eq!(scene.instance().expect("runs")["spec"]["terminationGracePeriodSeconds"], 120);
}

#[test]
fn the_status_trails_the_spec_and_phases_follow_each_other() {
    let mut scene = Scene::new(Strategy::Halted);
    scene.patch(json!({ "spec": { "runStrategy": "Manual" }, "metadata": { "annotations": { RUN_STRATEGY: "Manual" } } }));
    scene.0.run_for(Duration::from_millis(100));
    assert_eq!(scene.vm()["status"]["desiredGeneration"], 1, "the controller has not looked yet");
    scene.wait(1);
    assert_eq!(scene.vm()["status"]["desiredGeneration"], 2);
    scene.call("start", &json!({})).expect("is accepted");
    let mut phases: Vec<String> = vec![];
    let mut shown: Vec<String> = vec![];
    for _ in 0..300 {
        scene.0.run_for(Duration::from_millis(100));
        phases.push(scene.phase());
        shown.push(scene.shown());
    }
    phases.dedup();
    shown.dedup();
    let expected = ["", "", "Pending", "Scheduling", "Scheduled", "Running"];
    assert_eq!(
        phases.iter().filter(|phase| !phase.is_empty()).collect::<Vec<_>>(),
        expected[2..].iter().collect::<Vec<_>>()
    );
    assert_eq!(shown, ["Stopped", "Starting", "Running"]);
}

#[test]
fn an_instance_has_the_fields_that_people_look_at() {
    let scene = Scene::running(Strategy::Always);
    let instance = scene.instance().expect("runs");
    let pod = scene.pod().expect("has a pod");
    let node = text(&instance, "/status/nodeName");
    assert!(!node.is_empty() && node == text(&pod, "/spec/nodeName"));
    assert_eq!(instance["status"]["activePods"], json!({ uid(&pod): node }));
    for finalizer in
        ["kubevirt.io/foregroundDeleteVirtualMachine", "kubevirt.io/virtualMachineControllerFinalize"]
    {
        assert!(crate::sim::object::has_finalizer(&instance, finalizer), "{finalizer}");
    }
    for kind in ["Ready", "LiveMigratable", "AgentConnected"] {
        assert!(is_true(&instance, kind) && is_true(&scene.vm(), kind), "{kind}");
    }
    assert_eq!(label(&pod, "kubevirt.io"), Some("virt-launcher"));
    assert_eq!(label(&pod, "kubevirt.io/created-by"), Some(uid(&instance)));
    assert_eq!(label(&pod, "vm.kubevirt.io/name"), Some("a"));
    assert_eq!(label(&pod, "harvesterhci.io/vmName"), Some("a"));
    assert_eq!(
        (annotation(&pod, "kubevirt.io/domain"), label(&pod, "kubevirt.io/domain")),
        (Some("a"), None)
    );
    assert_eq!(text(&pod, "/status/phase"), "Running");
    assert_eq!(scene.vm()["status"]["observedGeneration"], scene.vm()["status"]["desiredGeneration"]);
}

#[test]
fn a_changed_template_waits_for_a_restart_unless_it_is_live_updated() {
    let mut scene = Scene::running(Strategy::Always);
    let pin = json!({ "spec": { "template": { "spec": { "nodeSelector": { "kubernetes.io/hostname": "node-1" } } } } });
    scene.patch(pin);
    scene.wait(5);
    assert!(!is_true(&scene.vm(), "RestartRequired"));
    assert_eq!(
        text(&scene.instance().expect("runs"), "/spec/nodeSelector/kubernetes.io~1hostname"),
        "node-1"
    );
    assert_eq!(scene.vm()["status"]["observedGeneration"], scene.vm()["status"]["desiredGeneration"]);
    scene.patch(json!({ "spec": { "template": { "spec": { "domain": { "cpu": { "cores": 4 } } } } } }));
    scene.wait(5);
    assert!(is_true(&scene.vm(), "RestartRequired"));
    assert_ne!(scene.vm()["status"]["observedGeneration"], scene.vm()["status"]["desiredGeneration"]);
    scene.call("restart", &json!({})).expect("is accepted");
    scene.wait(60);
    assert!(!is_true(&scene.vm(), "RestartRequired"));
    assert_eq!(
        text(&scene.instance().expect("runs"), "/status/nodeName"),
        "node-1",
        "the pin holds from now on"
    );
}

#[test]
fn pods_go_only_where_they_fit() {
    let mut scene = Scene::new(Strategy::Halted);
    for node in ["node-1", "node-3"] {
        let cordon = json!({ "spec": { "unschedulable": true } });
        scene.0.write(Write::Patch(Key::new(NODES, "", node), cordon), "kubectl");
    }
    scene.wait(2);
    assert!(items(&scene.0.get(NODES, "", "node-1").expect("is there"), "/spec/taints").len() == 1);
    let pin = json!({ "kubernetes.io/hostname": "node-3" });
    scene.patch(
        json!({ "spec": { "runStrategy": "Always", "template": { "spec": { "nodeSelector": pin } } } }),
    );
    scene.wait(30);
    assert_eq!(scene.shown(), "ErrorUnschedulable");
    let (_, _, why) =
        scene.0.events.iter().rfind(|(_, reason, _)| reason == "FailedScheduling").expect("is said");
    assert_eq!(
        why,
        "0/3 nodes are available: 2 node(s) were unschedulable, 1 node(s) didn't match Pod's node affinity/selector."
    );
    let uncordon = json!({ "spec": { "unschedulable": null } });
    scene.0.write(Write::Patch(Key::new(NODES, "", "node-3"), uncordon), "kubectl");
    scene.wait(30);
    assert_eq!(text(&scene.instance().expect("runs"), "/status/nodeName"), "node-3");
}

#[test]
fn a_claim_is_bound_after_a_moment_protected_while_used_and_reclaimed() {
    let mut scene = Scene::running(Strategy::Manual);
    let disk = || Key::new(CLAIMS, "default", "a-disk");
    let claim = scene.0.get(CLAIMS, "default", "a-disk").expect("is there");
    let volume = text(&claim, "/spec/volumeName").to_owned();
    let bound = scene.0.get(VOLUMES, "", &volume).expect("is there");
    assert_eq!(text(&bound, "/status/phase"), "Bound");
    assert_eq!(annotation(&bound, volume::CONTENT_STAMP), Some(volume::BLANK));
    scene.0.write(Write::Delete(disk()), "kubectl");
    assert!(scene.0.refusals[0].contains("currently attached to VMs: default/a"));
    // Without the VM nothing refuses, but the pod protects.
    let orphan = json!({ "metadata": { "ownerReferences": null } });
    scene.0.write(Write::Patch(Scene::key(INSTANCES), orphan), "test");
    scene.0.write(
        Write::Patch(Scene::key(VIRTUAL_MACHINES), json!({ "metadata": { "annotations": null } })),
        "test",
    );
    let free = json!({ "spec": { "template": { "spec": { "volumes": [] } } } });
    scene.patch(free);
    scene.0.write(Write::Delete(disk()), "kubectl");
    scene.wait(10);
    assert!(deleting(&scene.0.get(CLAIMS, "default", "a-disk").expect("is protected")));
    scene.0.write(Write::Delete(Scene::key(INSTANCES)), "kubectl");
    scene.wait(30);
    assert!(scene.0.get(CLAIMS, "default", "a-disk").is_none());
    scene.wait(10);
    assert!(scene.0.get(VOLUMES, "", &volume).is_none(), "reclaim policy Delete");
}

#[test]
fn harvester_makes_a_listed_claim_again_and_it_is_empty() {
    let mut scene = Scene::new(Strategy::Halted);
    let volume = |scene: &Scene| {
        scene.0.get(CLAIMS, "default", "a-disk").map(|claim| text(&claim, "/spec/volumeName").to_owned())
    };
    let old = volume(&scene);
    let free = json!({ "spec": { "template": { "spec": { "volumes": [] } } } });
    scene.patch(free);
    scene.0.write(Write::Delete(Key::new(CLAIMS, "default", "a-disk")), "kubectl");
    scene.wait(60);
    let new = volume(&scene);
    assert!(new.is_some() && new != old, "{old:?} {new:?}");
}

#[test]
fn deleting_a_vm_takes_instance_and_pod_along_and_leaves_the_claim() {
    let mut scene = Scene::running(Strategy::Always);
    scene.0.write(Write::Delete(Scene::key(VIRTUAL_MACHINES)), "kubectl");
    scene.wait(3);
    assert_eq!(scene.shown(), "Terminating");
    scene.wait(30);
    assert!(scene.0.get(VIRTUAL_MACHINES, "default", "a").is_none() && scene.instance().is_none());
    assert!(scene.0.list(PODS).iter().all(|pod| label(pod, launcher::CREATED_BY).is_none()));
    assert!(scene.0.get(CLAIMS, "default", "a-disk").is_some());
}

#[test]
fn a_pod_that_is_removed_by_force_fails_its_instance() {
    let mut scene = Scene::running(Strategy::RerunOnFailure);
    let old = scene.instance().map(|instance| uid(&instance).to_owned()).expect("runs");
    let pod = scene.pod().expect("has a pod");
    scene.0.write(Write::DeleteNow(key_of(PODS, &pod)), "kubectl");
    scene.0.run_for(Duration::from_millis(300));
    assert_eq!(scene.phase(), "Failed");
    scene.wait(60);
    assert_eq!(fate(&scene, &old), Fate::New);
}

/// domain.md §4.4: 40 s to Unknown, 15 s to the drain taint, 180 s more to out-of-service.
#[test]
fn at_sixty_times_the_pace_everything_takes_a_sixtieth() {
    let mut scene = Scene::new(Strategy::Halted);
    scene.0.speed = 60.0;
    scene.patch(json!({ "spec": { "runStrategy": "Always" } }));
    scene.0.run_for(Duration::from_millis(500));
    assert_eq!(scene.phase(), "Running");
    scene.patch(json!({ "spec": { "runStrategy": "Halted" } }));
    scene.0.run_for(Duration::from_millis(100));
    assert_eq!(scene.shown(), "Stopping");
    scene.0.run_for(Duration::from_millis(200));
    assert!(scene.instance().is_none());
}

/// A trap for an undo: the strategy is acted on while the old instance is still there, and then it was not switched.
#[test]
fn a_switch_to_rerun_on_failure_during_the_shutdown_does_not_start_the_vm() {
    for (wait, expected) in [(3, Fate::Off), (30, Fate::New)] {
        let mut scene = Scene::running(Strategy::RerunOnFailure);
        let old = scene.instance().map(|instance| uid(&instance).to_owned()).expect("runs");
        scene.patch(json!({ "spec": { "runStrategy": "Halted" } }));
        scene.wait(wait);
        scene.patch(json!({ "spec": { "runStrategy": "RerunOnFailure" } }));
        scene.wait(60);
        assert_eq!(fate(&scene, &old), expected, "switched {wait} s after the halt");
    }
}

#[test]
fn a_stopped_vm_keeps_the_conditions_of_its_last_instance() {
    let mut scene = Scene::running(Strategy::Always);
    scene.patch(json!({ "spec": { "runStrategy": "Halted" } }));
    scene.wait(60);
    assert!(is_true(&scene.vm(), "AgentConnected") && !is_true(&scene.vm(), "Ready"));
}

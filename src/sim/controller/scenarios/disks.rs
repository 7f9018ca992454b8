//! What becomes of volumes: made, attached, detached, deleted.

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::sim::contents;
use crate::sim::controller::LONGHORN_SPACE;
use crate::sim::controller::scenarios::Scene;
use crate::sim::fault::ATTACH_STUCK;
use crate::sim::fault::NO_SPACE;
use crate::sim::fault::NODE_DOWN;
use crate::sim::fault::PVC_NEVER_BINDS;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::LONGHORN_ATTACHMENTS;
use crate::sim::kinds::LONGHORN_ENGINES;
use crate::sim::kinds::LONGHORN_NODES;
use crate::sim::kinds::LONGHORN_REPLICAS;
use crate::sim::kinds::LONGHORN_VOLUMES;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::kinds::VOLUME_ATTACHMENTS;
use crate::sim::kinds::VOLUMES;
use crate::sim::object::condition;
use crate::sim::object::text;
use crate::sim::strategy::Strategy;
use crate::sim::world::Key;
use crate::sim::world::Write;

/// The name of the volume of `a-disk`.
fn handle(scene: &Scene) -> String {
    text(&scene.0.get(CLAIMS, "default", "a-disk").expect("is there"), "/spec/volumeName").to_owned()
}

fn volume(scene: &Scene) -> Arc<Value> {
    scene.0.get(LONGHORN_VOLUMES, LONGHORN_SPACE, &handle(scene)).expect("is there")
}

/// State, robustness and node of the volume of `a-disk`.
fn shown(scene: &Scene) -> [String; 3] {
    let volume = volume(scene);
    ["/status/state", "/status/robustness", "/status/currentNodeID"]
        .map(|place| text(&volume, place).to_owned())
}

#[test]
fn a_volume_is_attached_where_its_vm_runs_and_detached_when_it_is_off() {
    let mut scene = Scene::running(Strategy::Manual);
    let node = text(&scene.instance().expect("runs"), "/status/nodeName").to_owned();
    assert_eq!(shown(&scene), ["attached", "healthy", &node]);
    let engine =
        scene.0.get(LONGHORN_ENGINES, LONGHORN_SPACE, &format!("{}-e-0", handle(&scene))).expect("is there");
    let modes = engine["status"]["replicaModeMap"].as_object().expect("a map");
    assert!(modes.len() == 3 && modes.values().all(|mode| mode == "RW"), "{modes:?}");
    for replica in scene.0.list(LONGHORN_REPLICAS) {
        let of = ["/status/currentState", "/spec/failedAt"].map(|place| text(&replica, place).to_owned());
        assert_eq!(of, ["running", ""]);
        assert!(!text(&replica, "/spec/healthyAt").is_empty());
    }
    let tickets = scene.0.get(LONGHORN_ATTACHMENTS, LONGHORN_SPACE, &handle(&scene)).expect("is there");
    let tickets = tickets["spec"]["attachmentTickets"].as_object().expect("a map").clone();
    let ticket = tickets.values().next().expect("one ticket");
    assert_eq!((text(ticket, "/type"), text(ticket, "/nodeID")), ("csi-attacher", node.as_str()));
    assert_eq!(scene.0.list(VOLUME_ATTACHMENTS).len(), 1);

    scene.call("stop", &json!({ "gracePeriod": 0 })).expect("can be stopped");
    scene.wait(60);
    assert_eq!(shown(&scene), ["detached", "unknown", ""], "§3.6 detached always reads unknown");
    assert!(scene.0.list(VOLUME_ATTACHMENTS).is_empty());
    let engine =
        scene.0.get(LONGHORN_ENGINES, LONGHORN_SPACE, &format!("{}-e-0", handle(&scene))).expect("is there");
    assert_eq!(engine["status"].get("replicaModeMap"), None, "§3.6 empty when detached");
}

#[test]
fn a_deleted_claim_takes_everything_along_that_was_made_for_it() {
    let mut scene = Scene::new(Strategy::Halted);
    scene.0.write(Write::Delete(Scene::key(VIRTUAL_MACHINES)), "test");
    scene.wait(10);
    assert_eq!(scene.0.list(LONGHORN_REPLICAS).len(), 3);
    scene.0.write(Write::Delete(Key::new(CLAIMS, "default", "a-disk")), "test");
    scene.wait(30);
    for resource in
        [CLAIMS, VOLUMES, LONGHORN_VOLUMES, LONGHORN_ENGINES, LONGHORN_REPLICAS, LONGHORN_ATTACHMENTS]
    {
        assert!(scene.0.list(resource).is_empty(), "{}", resource.plural);
    }
    let scheduled = |node: &Value| node["status"]["diskStatus"]["default-disk"]["storageScheduled"].clone();
    assert!(scene.0.list(LONGHORN_NODES).iter().all(|node| scheduled(node) == 0), "the room is free again");
}

#[test]
fn a_volume_that_is_deleted_by_hand_takes_its_claim_along() {
    let mut scene = Scene::new(Strategy::Halted);
    scene.0.write(Write::Delete(Scene::key(VIRTUAL_MACHINES)), "test");
    scene.wait(10);
    let handle = handle(&scene);
    scene.0.write(Write::Delete(Key::new(LONGHORN_VOLUMES, LONGHORN_SPACE, &handle)), "test");
    scene.wait(30);
    for resource in [CLAIMS, VOLUMES, LONGHORN_VOLUMES, LONGHORN_REPLICAS] {
        assert!(scene.0.list(resource).is_empty(), "§5.1 the same blast radius: {}", resource.plural);
    }
}

#[test]
fn a_vm_does_not_start_on_a_volume_that_cannot_be_attached() {
    let mut scene = Scene::with(contents::vm("a", Strategy::Always), &[NO_SPACE]);
    scene.wait(60);
    let claim = scene.0.get(CLAIMS, "default", "a-disk").expect("is there");
    assert_eq!(text(&claim, "/status/phase"), "Bound", "§3.5 bound before anything is there");
    let volume = volume(&scene);
    let scheduled = condition(&volume, "Scheduled").expect("a condition");
    assert_eq!(
        (text(scheduled, "/status"), text(scheduled, "/reason")),
        ("False", "ReplicaSchedulingFailure")
    );
    assert_eq!(scene.phase(), "Scheduling");
    let (_, _, why) =
        scene.0.events.iter().find(|(_, reason, _)| reason == "FailedAttachVolume").expect("is told");
    assert!(why.ends_with("is not ready for workloads"), "{why}");

    let mut scene = Scene::with(contents::vm("a", Strategy::Always), &[ATTACH_STUCK]);
    scene.wait(300);
    assert_eq!((scene.phase().as_str(), shown(&scene)[0].as_str()), ("Scheduling", "attaching"));
    let attachments = scene.0.list(VOLUME_ATTACHMENTS);
    assert!(attachments.iter().all(|attachment| attachment["status"]["attached"] == json!(false)));
    assert_eq!(scene.happened("FailedAttachVolume"), 0, "nobody says why");
}

#[test]
fn a_claim_that_nobody_answers_stays_pending_without_a_word() {
    let mut scene = Scene::with(contents::vm("a", Strategy::Always), &[PVC_NEVER_BINDS]);
    scene.wait(300);
    let claim = scene.0.get(CLAIMS, "default", "a-disk").expect("is there");
    assert_eq!(text(&claim, "/status/phase"), "Pending");
    assert_eq!(scene.happened("ProvisioningFailed"), 0);
    assert_eq!(scene.shown(), "ErrorUnschedulable");
}

#[test]
fn a_volume_is_degraded_while_the_node_of_a_replica_is_down() {
    let mut scene = Scene::with(contents::vm("a", Strategy::Always), &[]);
    scene.wait(60);
    scene.0.faults = vec![NODE_DOWN];
    let node = text(&scene.instance().expect("runs"), "/status/nodeName").to_owned();
    // Longhorn looks at the volume again, as it does after a restart.
    let key = Key::new(LONGHORN_VOLUMES, LONGHORN_SPACE, &handle(&scene));
    scene.0.write(Write::Patch(key, json!({ "metadata": { "labels": { "x": "y" } } })), "test");
    scene.wait(60);
    let lost =
        scene.0.list(LONGHORN_REPLICAS).into_iter().find(|replica| text(replica, "/spec/nodeID") == "node-2");
    if node == "node-2" {
        return;
    }
    assert_eq!(shown(&scene), ["attached", "degraded", &node]);
    assert!(!text(&lost.expect("one is there"), "/spec/failedAt").is_empty());
}

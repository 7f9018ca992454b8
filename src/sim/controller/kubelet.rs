//! The kubelets: run the pods that are bound to their nodes.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::csi;
use crate::sim::controller::launcher;
use crate::sim::controller::node;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::ATTACH_FAILS;
use crate::sim::fault::IMAGE_PULL_FAILS;
use crate::sim::fault::SLOW_START;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::PODS;
use crate::sim::object::Conditions;
use crate::sim::object::claims;
use crate::sim::object::condition;
use crate::sim::object::deleting;
use crate::sim::object::is_final;
use crate::sim::object::items;
use crate::sim::object::label;
use crate::sim::object::moment;
use crate::sim::object::owner;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// From a bound pod to running containers.
const POD_START: Duration = Duration::from_secs(3);
/// The same with the fault `slow-start`: longer than a nervous timeout, shorter than a patient one.
const POD_START_SLOW: Duration = Duration::from_mins(4);
/// How often the kubelet looks for the attachment of a volume.
const ATTACH_POLL: Duration = Duration::from_secs(1);
/// How often the kubelet repeats what does not succeed.
const RETRY: Duration = Duration::from_secs(15);

/// All kubelets.
pub(super) struct Pods;

impl Controller for Pods {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn lag(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        if changed.resource == INSTANCES {
            return Some(Key::new(PODS, &changed.namespace, &launcher::pod_name(object)));
        }
        (changed.resource == PODS).then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "kubelet");
        let Some(pod) = context.view.get(key) else { return turn.end() };
        let node = text(&pod, "/spec/nodeName");
        if node.is_empty() {
            return turn.end();
        }
        if node::is_down(context, node) {
            turn.again_after(node::DOWN_POLL);
            return turn.end();
        }
        let guest = guest_of(context, &pod);
        if guest == Guest::Ended && text(&pod, "/status/phase") == "Running" {
            complete(&mut turn, key, &pod);
        } else if deleting(&pod) && guest != Guest::Alive {
            turn.delete_now(key);
        } else if !deleting(&pod) && ["", "Pending"].contains(&text(&pod, "/status/phase")) {
            start(&mut turn, key, &pod);
        }
        turn.end()
    }
}

/// What runs in the pod.
#[derive(PartialEq, Eq)]
enum Guest {
    /// It is no launcher pod, or its guest has not started.
    None,
    /// A guest that has not ended: the pod stays until virt-handler has shut it down (domain.md §1.6).
    Alive,
    Ended,
}

fn guest_of(context: &Context<'_>, pod: &Value) -> Guest {
    let Some(instance) = owner(pod, "VirtualMachineInstance") else { return Guest::None };
    let key = Key::new(INSTANCES, text(pod, "/metadata/namespace"), text(instance, "/name"));
    match context.view.get(&key) {
        Some(found) if uid(&found) != text(instance, "/uid") => Guest::Ended,
        Some(found) if is_final(&found) => Guest::Ended,
        // It has not arrived yet, or it has left (domain.md §4.1).
        Some(found) if text(&found, "/status/nodeName") != text(pod, "/spec/nodeName") => Guest::None,
        Some(found) if ["Scheduled", "Running"].contains(&text(&found, "/status/phase")) => Guest::Alive,
        Some(_) => Guest::None,
        None => Guest::Ended,
    }
}

fn start(turn: &mut Turn<'_>, key: &Key, pod: &Value) {
    let of_instance = label(pod, "kubevirt.io") == Some("virt-launcher");
    if items(pod, "/spec/containers").iter().any(|container| is_unreachable(text(container, "/image"))) {
        return pull_failed(turn, key, pod);
    }
    if of_instance && turn.fault(ATTACH_FAILS) && claims(pod, "/spec/volumes").next().is_some() {
        return attach_failed(turn, key, pod);
    }
    if of_instance && turn.fault(IMAGE_PULL_FAILS) {
        return pull_failed(turn, key, pod);
    }
    let slow = of_instance && turn.fault(SLOW_START);
    let Some(bound) = condition(pod, "PodScheduled").and_then(|bound| moment(bound, "/lastTransitionTime"))
    else {
        // The pod named its node itself, as static pods do.
        let mut conditions = Conditions::of(pod, turn.now());
        conditions.set("PodScheduled", "True", "", "");
        return turn.status(key, pod, json!({ "phase": "Pending", "conditions": conditions.into_value() }));
    };
    if turn.passed(bound, if slow { POD_START_SLOW } else { POD_START }) && volumes_attached(turn, key, pod) {
        run(turn, key, pod);
    }
}

/// True once the node has all volumes of the pod. Passes on why it has not.
fn volumes_attached(turn: &mut Turn<'_>, key: &Key, pod: &Value) -> bool {
    let node = text(pod, "/spec/nodeName");
    for volume in csi::volumes_of(turn.context.view, pod) {
        let attachment = turn.context.view.get(&csi::attachment_key(&volume, node));
        let attachment = attachment.filter(|attachment| !deleting(attachment));
        if attachment.as_ref().is_some_and(|attachment| attachment["status"]["attached"] == json!(true)) {
            continue;
        }
        let error =
            attachment.as_deref().map_or("", |attachment| text(attachment, "/status/attachError/message"));
        if error.is_empty() {
            turn.again_after(ATTACH_POLL);
        } else {
            let message = format!("AttachVolume.Attach failed for volume \"{volume}\" : {error}");
            turn.event(key, "Warning", "FailedAttachVolume", &message);
            turn.again_after(RETRY);
        }
        return false;
    }
    true
}

fn run(turn: &mut Turn<'_>, key: &Key, pod: &Value) {
    let now = turn.now();
    let started = now.to_string();
    let containers: Vec<Value> = items(pod, "/spec/containers")
        .iter()
        .map(|container| container_status(container, true, &json!({ "running": { "startedAt": started } })))
        .collect();
    let mut conditions = Conditions::of(pod, now);
    for kind in ["PodScheduled", "Initialized", "ContainersReady", "Ready"] {
        conditions.set(kind, "True", "", "");
    }
    let ip = address(uid(pod));
    let status = json!({
        "phase": "Running",
        "startTime": started,
        "hostIP": node::address(text(pod, "/spec/nodeName")),
        "podIP": ip,
        "podIPs": [{ "ip": ip }],
        "containerStatuses": containers,
        "conditions": conditions.into_value(),
    });
    turn.status(key, pod, status);
    for container in items(pod, "/spec/containers") {
        let message = format!("Started container {}", text(container, "/name"));
        turn.event(key, "Normal", "Started", &message);
    }
}

/// The launcher ends with its guest.
pub(super) fn complete(turn: &mut Turn<'_>, key: &Key, pod: &Value) {
    let now = turn.now();
    let state =
        json!({ "terminated": { "exitCode": 0, "reason": "Completed", "finishedAt": now.to_string() } });
    let containers: Vec<Value> =
        items(pod, "/spec/containers").iter().map(|c| container_status(c, false, &state)).collect();
    let mut conditions = Conditions::of(pod, now);
    for kind in ["ContainersReady", "Ready"] {
        conditions.set(kind, "False", "PodCompleted", "");
    }
    let status = json!({ "phase": "Succeeded", "containerStatuses": containers, "conditions": conditions.into_value() });
    turn.status(key, pod, status);
}

/// The attacher refuses the volume (domain.md §3.5): an event again and again, the pod stays Pending.
fn attach_failed(turn: &mut Turn<'_>, key: &Key, pod: &Value) {
    let claim = claims(pod, "/spec/volumes").next().unwrap_or_default();
    let claim = turn.context.view.get(&Key::new(CLAIMS, &key.namespace, claim));
    let volume = claim.as_deref().map_or("", |claim| text(claim, "/spec/volumeName"));
    let message = format!(
        "AttachVolume.Attach failed for volume \"{volume}\" : rpc error: code = Aborted desc = volume {volume} is not \
         ready for workloads"
    );
    turn.event(key, "Warning", "FailedAttachVolume", &message);
    turn.again_after(RETRY);
}

/// True for an image in a registry that cannot exist: the top-level domain `invalid` has no names (RFC 2606).
fn is_unreachable(image: &str) -> bool {
    image.split(['/', ':']).next().is_some_and(|registry| registry.ends_with(".invalid"))
}

fn pull_failed(turn: &mut Turn<'_>, key: &Key, pod: &Value) {
    let Some(container) = items(pod, "/spec/containers").first() else { return };
    let image = text(container, "/image");
    let tried = launcher::pull_error(pod).is_some();
    let reason = if tried { "ImagePullBackOff" } else { "ErrImagePull" };
    let message = if tried {
        format!("Back-off pulling image \"{image}\"")
    } else {
        format!(
            "failed to pull and unpack image \"{image}\": failed to resolve reference \"{image}\": not found"
        )
    };
    let state = json!({ "waiting": { "reason": reason, "message": message } });
    turn.status(key, pod, json!({ "containerStatuses": [container_status(container, false, &state)] }));
    turn.event(key, "Warning", "Failed", &message);
    turn.again_after(RETRY);
}

fn container_status(container: &Value, ready: bool, state: &Value) -> Value {
    json!({
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    })
}

/// An address in the pod network, the same for the same pod.
fn address(uid: &str) -> String {
    let hash = uid.bytes().fold(0_u16, |hash, byte| hash.wrapping_mul(31).wrapping_add(u16::from(byte)));
    let [high, low] = hash.to_be_bytes();
    format!("10.52.{}.{}", high % 4, low.max(2))
}

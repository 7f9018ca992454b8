//! KubeVirt's VMI controller: gives an instance its launcher pod, follows the pod, and cleans up at the end.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::launcher;
use crate::sim::controller::turn::Turn;
use crate::sim::controller::vm::CONTROLLER_FINALIZER;
use crate::sim::controller::vm::since_phase;
use crate::sim::fault::CONTROLLERS_FROZEN;
use crate::sim::fault::GUEST_HANGS;
use crate::sim::fault::HANDLER_HUNG;
use crate::sim::fault::STOP_HANGS;
use crate::sim::fault::STOP_SLOW;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::PODS;
use crate::sim::object::Conditions;
use crate::sim::object::claims;
use crate::sim::object::condition;
use crate::sim::object::deleting;
use crate::sim::object::is_final;
use crate::sim::object::is_true;
use crate::sim::object::items;
use crate::sim::object::key_of;
use crate::sim::object::label;
use crate::sim::object::moment;
use crate::sim::object::name;
use crate::sim::object::owner;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::object::without_finalizers;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;
use crate::time::Timestamp;

/// Keeps an instance until virt-handler has let go of it (domain.md §1.5).
pub(in crate::sim) const HANDLER_FINALIZER: &str = "kubevirt.io/foregroundDeleteVirtualMachine";
/// How long virt-handler keeps an ended instance with the fault `stop-slow`.
const SLOW_STOP: Duration = Duration::from_mins(5);
/// How often an instance whose handler hangs is looked at.
const HANDLER_POLL: Duration = Duration::from_secs(5);
/// How often a missing claim is looked for, because claims do not name their instance.
const CLAIM_POLL: Duration = Duration::from_secs(1);

/// KubeVirt's VMI controller.
pub(super) struct Instances;

impl Controller for Instances {
    fn name(&self) -> &'static str {
        "virt-controller"
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        if changed.resource == INSTANCES {
            return Some(changed.clone());
        }
        let instance =
            (changed.resource == PODS).then(|| owner(object, "VirtualMachineInstance")).flatten()?;
        Some(Key::new(INSTANCES, &changed.namespace, name_of(instance)))
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "virtualmachine-controller");
        if turn.fault(CONTROLLERS_FROZEN) {
            return turn.end();
        }
        let Some(instance) = context.view.get(key) else { return turn.end() };
        let pod = launcher::pod_of(context.view, &instance);
        let pod = pod.as_deref();
        let facts = Facts { instance: &instance, pod, missing: missing_claim(&mut turn, &instance) };
        if is_final(&instance) {
            finish(&mut turn, key, &facts);
        } else {
            advance(&mut turn, key, &facts);
        }
        // A guest that was ready before the fault goes on.
        let hangs = turn.fault(GUEST_HANGS) && !is_true(&instance, "Ready");
        let conditions = conditions(&facts, turn.now(), hangs);
        turn.status(key, &instance, json!({ "conditions": conditions }));
        turn.end()
    }
}

fn name_of(reference: &Value) -> &str {
    text(reference, "/name")
}

/// What the next phase depends on.
struct Facts<'a> {
    instance: &'a Value,
    pod: Option<&'a Value>,
    missing: Option<String>,
}

fn leaving(facts: &Facts<'_>) -> bool {
    deleting(facts.instance)
}

/// The pod is gone or has ended: nothing can run in it any more.
fn pod_lost(facts: &Facts<'_>) -> bool {
    facts.pod.is_none_or(is_final)
}

fn pod_ready(facts: &Facts<'_>) -> bool {
    facts.pod.is_some_and(|pod| text(pod, "/status/phase") == "Running" && is_true(pod, "Ready"))
}

/// A step of the life of an instance.
struct Row {
    phase: &'static str,
    when: fn(&Facts<'_>) -> bool,
    next: Next,
    source: &'static str,
}

/// What follows.
#[derive(Clone, Copy)]
enum Next {
    Phase(&'static str),
    CreatePod,
    DeletePod,
}

const fn row(phase: &'static str, when: fn(&Facts<'_>) -> bool, next: Next, source: &'static str) -> Row {
    Row { phase, when, next, source }
}

/// The first row that fits is done (domain.md §1.5; KV pkg/virt-controller/watch/vmi/lifecycle.go:300-470).
const ROWS: &[Row] = &[
    row("", |_| true, Next::Phase("Pending"), "§1.5 phases"),
    row("Pending", leaving, Next::Phase("Failed"), "§1.5 deleted before it had a pod"),
    row("Pending", |f| f.pod.is_some(), Next::Phase("Scheduling"), "§1.5 the pod exists"),
    row("Pending", |f| f.missing.is_none(), Next::CreatePod, "§1.5 launcher pod"),
    row("Scheduling", pod_lost, Next::Phase("Failed"), "§1.5 the pod vanished in Scheduling"),
    row("Scheduling", leaving, Next::DeletePod, "§1.6 deleted before virt-handler owned it"),
    row("Scheduling", pod_ready, Next::Phase("Scheduled"), "§1.5 the pod runs and virt-handler owns it"),
    row("Scheduled", pod_lost, Next::Phase("Failed"), "§1.5 the pod vanished later"),
    row("Running", pod_lost, Next::Phase("Failed"), "§1.5 the pod vanished later"),
];

fn advance(turn: &mut Turn<'_>, key: &Key, facts: &Facts<'_>) {
    let phase = text(facts.instance, "/status/phase");
    let Some(row) = ROWS.iter().find(|row| row.phase == phase && (row.when)(facts)) else { return };
    tracing::trace!(%key, source = row.source, "transition");
    match (row.next, facts.pod) {
        (Next::Phase(next), _) => {
            enter(turn, key, facts.instance, next);
            if next == "Scheduled" {
                hand_over(turn, key, facts);
            }
        }
        (Next::CreatePod, _) => {
            let pod = launcher::pod_for(facts.instance);
            let message = format!("Created virtual machine pod {}", name(&pod));
            turn.create(PODS, pod);
            turn.event(key, "Normal", "SuccessfulCreate", &message);
        }
        (Next::DeletePod, Some(pod)) if !deleting(pod) => turn.delete(&key_of(PODS, pod)),
        (Next::DeletePod, _) => {}
    }
}

/// Writes a phase and when it began.
pub(super) fn enter(turn: &mut Turn<'_>, key: &Key, instance: &Value, phase: &str) {
    let mut entered = items(instance, "/status/phaseTransitionTimestamps").to_vec();
    entered.push(json!({ "phase": phase, "phaseTransitionTimestamp": turn.now().to_string() }));
    turn.status(key, instance, json!({ "phase": phase, "phaseTransitionTimestamps": entered }));
}

/// The pod runs: the instance belongs to a node from now on.
fn hand_over(turn: &mut Turn<'_>, key: &Key, facts: &Facts<'_>) {
    let Some(pod) = facts.pod else { return };
    let node = text(pod, "/spec/nodeName");
    turn.patch(key, facts.instance, json!({ "metadata": { "labels": { "kubevirt.io/nodeName": node } } }));
    let active = json!({ uid(pod): node });
    let version = "registry.suse.com/suse/sles/15.7/virt-launcher:1.7.4-150700.3.24.2";
    turn.status(
        key,
        facts.instance,
        json!({ "nodeName": node, "activePods": active, "launcherContainerImageVersion": version }),
    );
}

/// An instance that has ended: the pod goes, then, if it was deleted, what kept the instance.
fn finish(turn: &mut Turn<'_>, key: &Key, facts: &Facts<'_>) {
    match facts.pod {
        Some(pod) if !deleting(pod) => turn.delete(&key_of(PODS, pod)),
        Some(_) => {}
        None => {
            turn.status(key, facts.instance, json!({ "activePods": null }));
            if leaving(facts) {
                let ended = since_phase(facts.instance, text(facts.instance, "/status/phase"));
                let slow = turn.fault(STOP_SLOW) && ended.is_some_and(|ended| !turn.passed(ended, SLOW_STOP));
                let hung = turn.fault(HANDLER_HUNG) && !handler_restarted(turn, facts.instance, ended);
                let held: &[&str] = if slow || hung || turn.fault(STOP_HANGS) {
                    &[CONTROLLER_FINALIZER]
                } else {
                    &[CONTROLLER_FINALIZER, HANDLER_FINALIZER]
                };
                turn.patch(key, facts.instance, without_finalizers(facts.instance, held));
            }
        }
    }
}

/// True if virt-handler on the node of an instance was started after the instance had ended. Looks again soon if not.
fn handler_restarted(turn: &mut Turn<'_>, instance: &Value, ended: Option<Timestamp>) -> bool {
    let node = text(instance, "/status/nodeName");
    let ended = ended.or_else(|| moment(instance, "/metadata/deletionTimestamp"));
    let started = turn
        .context
        .view
        .list(PODS, None)
        .iter()
        .filter(|pod| {
            label(pod, "kubevirt.io") == Some("virt-handler") && text(pod, "/spec/nodeName") == node
        })
        .filter_map(|pod| moment(pod, "/status/startTime"))
        .max();
    let restarted = started.zip(ended).is_some_and(|(started, ended)| started > ended);
    if !restarted {
        turn.again_after(HANDLER_POLL);
    }
    restarted
}

/// The name of a claim that the instance needs and that does not exist.
fn missing_claim(turn: &mut Turn<'_>, instance: &Value) -> Option<String> {
    if !["", "Pending"].contains(&text(instance, "/status/phase")) {
        return None;
    }
    let view = turn.context.view;
    let space = text(instance, "/metadata/namespace");
    let missing =
        claims(instance, "/spec/volumes").find(|claim| view.get(&Key::new(CLAIMS, space, claim)).is_none());
    if missing.is_some() {
        turn.again_after(CLAIM_POLL);
    }
    missing.map(str::to_owned)
}

/// The conditions that virt-controller answers for. Those of virt-handler stay as they are.
fn conditions(facts: &Facts<'_>, now: Timestamp, guest_hangs: bool) -> Value {
    let mut conditions = Conditions::of(facts.instance, now);
    match facts.pod {
        None => {
            let message = "virt-launcher pod has not yet been scheduled";
            conditions.set("Ready", "False", "PodNotExists", message);
        }
        Some(pod) if deleting(pod) || pod_lost(facts) => {
            conditions.set("Ready", "False", "PodTerminating", "virt-launcher pod is terminating");
        }
        Some(_) if guest_hangs || text(facts.instance, "/status/phase") != "Running" => {
            conditions.set("Ready", "False", "GuestNotRunning", "Guest VM is not reported as running");
        }
        // The pod has a readiness gate for this, so a paused guest gets no traffic.
        Some(_) if is_true(facts.instance, "Paused") => {
            let message = "the status of pod readiness gate \"kubevirt.io/virtual-machine-unpaused\" is not \"True\", \
                           but False";
            conditions.set("Ready", "False", "ReadinessGatesNotReady", message);
        }
        Some(pod) => match condition(pod, "Ready") {
            Some(_) => conditions.copy(facts.pod, "Ready"),
            None => {
                conditions.set(
                    "Ready",
                    "False",
                    "PodConditionMissing",
                    "virt-launcher pod is missing the Ready condition",
                );
            }
        },
    }
    match facts.pod.and_then(|pod| condition(pod, "PodScheduled")) {
        Some(scheduled) if text(scheduled, "/status") == "False" => {
            conditions.copy(facts.pod, "PodScheduled");
        }
        _ => conditions.remove("PodScheduled"),
    }
    match (&facts.missing, facts.pod.and_then(launcher::pull_error)) {
        (Some(claim), _) => {
            let space = text(facts.instance, "/metadata/namespace");
            let message = format!("PVC {space}/{claim} does not exist, waiting for it to appear");
            conditions.set("Synchronized", "False", "FailedPvcNotFound", &message);
        }
        (None, Some((reason, message))) => conditions.set("Synchronized", "False", reason, message),
        (None, None) => conditions.remove("Synchronized"),
    }
    conditions.into_value()
}

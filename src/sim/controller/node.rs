//! Nodes: heartbeats, what happens when they stop, and what Harvester and KubeVirt do about it (domain.md §4.4).

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::contents::LEADERS;
use crate::sim::controller::instance::enter;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::CONTROLLERS_FROZEN;
use crate::sim::fault::NODE_BLINKS;
use crate::sim::fault::NODE_DEAD;
use crate::sim::fault::NODE_DOWN;
use crate::sim::fault::NODE_UNREADY;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::LEASES;
use crate::sim::kinds::NODES;
use crate::sim::kinds::PODS;
use crate::sim::object::Conditions;
use crate::sim::object::annotation;
use crate::sim::object::condition;
use crate::sim::object::deleting;
use crate::sim::object::is_final;
use crate::sim::object::is_true;
use crate::sim::object::items;
use crate::sim::object::key_of;
use crate::sim::object::micro_time;
use crate::sim::object::moment;
use crate::sim::object::text;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;
use crate::time::Timestamp;

/// The node that the faults of nodes take away.
const DOWN_NODE: &str = "node-2";
/// How often what runs on a node that is down looks whether it is up again.
pub(super) const DOWN_POLL: Duration = Duration::from_secs(10);
/// Where the leases of nodes live.
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// How often a kubelet renews its lease.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How old a lease may be before its node is Unknown (domain.md §6).
const MONITOR_GRACE: Duration = Duration::from_secs(40);
/// How long pods tolerate an unreachable node: Kubernetes' default toleration.
const TOLERATION: Duration = Duration::from_mins(5);
/// Harvester's vm-force-reset-policy.period (domain.md §4.4).
const RESET_PERIOD: Duration = Duration::from_secs(15);
/// Harvester's vmMigrationTimeout (domain.md §4.4).
const MIGRATION_TIMEOUT: Duration = Duration::from_mins(3);
/// How long virt-handler may be silent (domain.md §1.5).
const HANDLER_GRACE: Duration = Duration::from_mins(5);
/// How often KubeVirt looks for silent handlers.
const HANDLER_CHECK: Duration = Duration::from_mins(1);

/// Harvester's taint for a node whose VMs are to move.
pub(super) const DRAIN: &str = "kubevirt.io/drain";
/// The taint that lets Kubernetes take pods and volumes away from a dead node.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Marks the node that was away with the fault `node-blinks`.
const BACK: &str = "sim/back";
/// How long it counts as silent: long enough to be closed for VMs, not long enough to be declared dead.
const BLINK: Duration = Duration::from_mins(1);

/// True if nothing on the node answers.
pub(super) fn is_down(context: &Context<'_>, node: &str) -> bool {
    node == DOWN_NODE && some_down(context)
}

/// True if a node does not answer.
pub(super) fn some_down(context: &Context<'_>) -> bool {
    let has = |fault| context.faults.contains(fault);
    let node = || context.view.get(&Key::new(NODES, "", DOWN_NODE));
    [NODE_DOWN, NODE_DEAD].iter().any(has)
        || has(&NODE_BLINKS) && node().is_some_and(|node| annotation(&node, BACK).is_none())
}

/// The address of a node: the number in its name is the last part.
pub(in crate::sim) fn address(node: &str) -> String {
    let number: String = node.chars().filter(char::is_ascii_digit).collect();
    format!("192.168.0.{}", 10 + number.parse::<u8>().map_or(0, |n| n.min(200)))
}

/// A node changed.
fn node_of(changed: &Key) -> Option<Key> {
    (changed.resource == NODES).then(|| changed.clone())
}

/// When the node's kubelet was last heard of.
fn heard_of(context: &Context<'_>, node: &str) -> Option<Timestamp> {
    let lease = context.view.get(&Key::new(LEASES, LEASE_NAMESPACE, node))?;
    moment(&lease, "/spec/renewTime")
}

/// Since when the node counts as silent, if it does.
fn unknown_since(node: &Value) -> Option<Timestamp> {
    let ready = condition(node, "Ready").filter(|ready| text(ready, "/status") == "Unknown")?;
    moment(ready, "/lastTransitionTime")
}

/// The patch that makes the node's taints `wanted` without `removed`; existing ones keep the time they were added.
pub(super) fn tainted(node: &Value, now: Timestamp, wanted: &[(&str, &str)], removed: &[&str]) -> Value {
    let same = |taint: &Value, (key, effect): &(&str, &str)| {
        text(taint, "/key") == *key && text(taint, "/effect") == *effect
    };
    let old = items(node, "/spec/taints");
    let kept = old.iter().filter(|taint| {
        !removed.contains(&text(taint, "/key")) || wanted.iter().any(|wanted| same(taint, wanted))
    });
    let mut taints: Vec<Value> = kept.cloned().collect();
    for (key, effect) in wanted.iter().filter(|wanted| !old.iter().any(|taint| same(taint, wanted))) {
        taints.push(json!({ "key": key, "effect": effect, "timeAdded": now.to_string() }));
    }
    let taints = if taints.is_empty() { Value::Null } else { taints.into() };
    json!({ "spec": { "taints": taints } })
}

/// The kubelets' heartbeats.
pub(super) struct Heartbeats;

impl Controller for Heartbeats {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        node_of(changed)
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "kubelet");
        let Some(node) = context.view.get(key) else { return turn.end() };
        turn.again_after(HEARTBEAT);
        if is_down(context, &key.name) {
            let away = unknown_since(&node).is_some_and(|since| turn.passed(since, BLINK));
            if away && turn.fault(NODE_BLINKS) {
                turn.patch(key, &node, json!({ "metadata": { "annotations": { BACK: "yes" } } }));
            }
            return turn.end();
        }
        let lease_key = Key::new(LEASES, LEASE_NAMESPACE, &key.name);
        let spec = json!({
            "holderIdentity": *key.name,
            "leaseDurationSeconds": MONITOR_GRACE.as_secs(),
            "renewTime": micro_time(turn.now()),
        });
        match (context.view.get(&lease_key), heard_of(context, &key.name)) {
            (Some(lease), Some(renewed)) => {
                if turn.passed(renewed, HEARTBEAT) {
                    turn.patch(&lease_key, &lease, json!({ "spec": spec }));
                }
            }
            (Some(lease), None) => turn.patch(&lease_key, &lease, json!({ "spec": spec })),
            (None, _) => turn.create(
                LEASES,
                json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": { "name": *key.name, "namespace": LEASE_NAMESPACE },
                    "spec": spec,
                }),
            ),
        }
        let mut conditions = Conditions::of(&node, turn.now());
        for kind in ["MemoryPressure", "DiskPressure", "PIDPressure"] {
            conditions.set(kind, "False", "KubeletHasSufficientResources", "");
        }
        if turn.fault(NODE_UNREADY) && &*key.name == DOWN_NODE {
            conditions.set("Ready", "False", "KubeletNotReady", "container runtime is down");
        } else {
            conditions.set("Ready", "True", "KubeletReady", "kubelet is posting ready status");
        }
        turn.status(key, &node, json!({ "conditions": conditions.into_value() }));
        turn.end()
    }
}

/// Kubernetes' node lifecycle: conditions and taints of silent nodes, the pods on them, the taint of a cordon.
pub(super) struct Lifecycle;

impl Controller for Lifecycle {
    fn name(&self) -> &'static str {
        "kube-controller-manager"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        node_of(changed)
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "node-controller");
        let Some(node) = context.view.get(key) else { return turn.end() };
        let mut taints = vec![];
        if node["spec"]["unschedulable"] == json!(true) {
            taints.push((UNSCHEDULABLE, "NoSchedule"));
        }
        let silent = heard_of(context, &key.name).is_some_and(|heard| turn.passed(heard, MONITOR_GRACE));
        if silent {
            let mut conditions = Conditions::of(&node, turn.now());
            for kind in ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"] {
                conditions.set(kind, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.");
            }
            turn.status(key, &node, json!({ "conditions": conditions.into_value() }));
            taints.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]);
            evict(&mut turn, key, &node);
        }
        turn.patch(key, &node, tainted(&node, turn.now(), &taints, &[UNREACHABLE, UNSCHEDULABLE]));
        turn.end()
    }
}

/// Pods on a silent node: not ready at once, deleted after their toleration, removed if the node is out of service.
fn evict(turn: &mut Turn<'_>, node_key: &Key, node: &Value) {
    let taint = |wanted: &str| items(node, "/spec/taints").iter().find(|taint| text(taint, "/key") == wanted);
    let out_of_service = taint(OUT_OF_SERVICE).is_some();
    let expired = taint(UNREACHABLE)
        .and_then(|taint| moment(taint, "/timeAdded"))
        .is_some_and(|since| turn.passed(since, TOLERATION));
    for pod in turn.context.view.list(PODS, None) {
        if text(&pod, "/spec/nodeName") != &*node_key.name {
            continue;
        }
        let key = key_of(PODS, &pod);
        if out_of_service {
            turn.delete_now(&key);
        } else {
            let mut conditions = Conditions::of(&pod, turn.now());
            conditions.set("Ready", "False", "NodeNotReady", "");
            turn.status(&key, &pod, json!({ "conditions": conditions.into_value() }));
            if expired && !deleting(&pod) {
                turn.delete(&key);
            }
        }
    }
    turn.again_after(DOWN_POLL);
}

/// Harvester's node down controller (HV pkg/controller/master/node/node_down_controller.go:29-45,95-203).
pub(super) struct DownNodes;

impl Controller for DownNodes {
    fn name(&self) -> &'static str {
        "harvester"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        node_of(changed)
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "node-down-controller");
        let Some(node) = context.view.get(key) else { return turn.end() };
        // Its setting vm-force-reset-policy is off.
        if turn.fault(NODE_DEAD) {
            return turn.end();
        }
        let mut conditions = Conditions::of(&node, turn.now());
        let mut taints = vec![];
        match unknown_since(&node) {
            Some(since) if turn.passed(since, RESET_PERIOD) => {
                taints.push((DRAIN, "NoSchedule"));
                if turn.passed(since, RESET_PERIOD + MIGRATION_TIMEOUT) {
                    taints.push((OUT_OF_SERVICE, "NoExecute"));
                    conditions.set("Drained", "True", "", "");
                } else {
                    conditions.set("Drained", "False", "", "");
                }
            }
            // Taints that somebody else has set stay.
            None if is_true(&node, "Ready") && condition(&node, "Drained").is_some() => {
                conditions.remove("Drained");
            }
            _ => return turn.end(),
        }
        turn.status(key, &node, json!({ "conditions": conditions.into_value() }));
        turn.patch(key, &node, tainted(&node, turn.now(), &taints, &[DRAIN, OUT_OF_SERVICE]));
        turn.end()
    }
}

/// KubeVirt's node controller: a silent virt-handler's instances are failed (domain.md §1.5).
pub(super) struct SilentHandlers;

impl Controller for SilentHandlers {
    fn name(&self) -> &'static str {
        "virt-controller"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        node_of(changed)
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "node-controller");
        turn.again_after(HANDLER_CHECK);
        let silent = heard_of(context, &key.name).is_some_and(|heard| turn.passed(heard, HANDLER_GRACE));
        if !silent || context.view.get(key).is_none() {
            return turn.end();
        }
        for instance in context.view.list(INSTANCES, None) {
            if text(&instance, "/status/nodeName") == &*key.name && !is_final(&instance) {
                let instance_key = key_of(INSTANCES, &instance);
                enter(&mut turn, &instance_key, &instance, "Failed");
                turn.status(&instance_key, &instance, json!({ "reason": "NodeUnresponsive" }));
                let message =
                    format!("virt-handler on node {} is not responsive, marking VMI as failed", key.name);
                turn.event(&instance_key, "Warning", "NodeUnresponsive", &message);
            }
        }
        turn.end()
    }
}

/// The leaders of the control plane, which renew their leases.
pub(super) struct Leaders;

impl Controller for Leaders {
    fn name(&self) -> &'static str {
        "kube-controller-manager"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        let leader =
            LEADERS.iter().any(|(space, name)| *space == &*changed.namespace && *name == &*changed.name);
        (changed.resource == LEASES && leader).then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "leader-election");
        let Some(lease) = context.view.get(key) else { return turn.end() };
        if turn.fault(CONTROLLERS_FROZEN) && &*key.name == "virt-controller" {
            return turn.end();
        }
        let renewed = moment(&lease, "/spec/renewTime");
        if renewed.is_none_or(|at| turn.passed(at, HEARTBEAT)) {
            turn.patch(key, &lease, json!({ "spec": { "renewTime": micro_time(turn.now()) } }));
            turn.again_after(HEARTBEAT);
        }
        turn.end()
    }
}

//! The scheduler: gives a pod a node.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::longhorn::bytes;
use crate::sim::controller::turn::Turn;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::NODES;
use crate::sim::kinds::PODS;
use crate::sim::object::Conditions;
use crate::sim::object::claims;
use crate::sim::object::deleting;
use crate::sim::object::is_final;
use crate::sim::object::is_true;
use crate::sim::object::items;
use crate::sim::object::label;
use crate::sim::object::name;
use crate::sim::object::namespace;
use crate::sim::object::pairs;
use crate::sim::object::text;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// How often a pod without a node is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// The scheduler.
pub(super) struct Scheduler;

impl Controller for Scheduler {
    fn name(&self) -> &'static str {
        "kube-scheduler"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        (changed.resource == PODS).then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "default-scheduler");
        let Some(pod) = context.view.get(key) else { return turn.end() };
        let waiting = text(&pod, "/spec/nodeName").is_empty() && !deleting(&pod);
        if waiting {
            match place(context, &pod) {
                Ok(node) => bind(&mut turn, key, &pod, &node),
                Err(why) => refuse(&mut turn, key, &pod, &why),
            }
        }
        turn.end()
    }
}

fn bind(turn: &mut Turn<'_>, key: &Key, pod: &Value, node: &str) {
    turn.patch(key, pod, json!({ "spec": { "nodeName": node } }));
    let mut conditions = Conditions::of(pod, turn.now());
    conditions.set("PodScheduled", "True", "", "");
    turn.status(key, pod, json!({ "phase": "Pending", "conditions": conditions.into_value() }));
    let message = format!("Successfully assigned {}/{} to {node}", key.namespace, key.name);
    turn.event(key, "Normal", "Scheduled", &message);
}

fn refuse(turn: &mut Turn<'_>, key: &Key, pod: &Value, why: &str) {
    let mut conditions = Conditions::of(pod, turn.now());
    conditions.set("PodScheduled", "False", "Unschedulable", why);
    let conditions = conditions.into_value();
    if pod.pointer("/status/conditions") != Some(&conditions) {
        turn.event(key, "Warning", "FailedScheduling", why);
    }
    turn.status(key, pod, json!({ "phase": "Pending", "conditions": conditions }));
    turn.again_after(RETRY);
}

/// Why a node cannot take a pod, in the scheduler's words. The first that fits is counted.
const REFUSALS: &[(&str, Refuses)] = &[
    ("node(s) were unschedulable", |node, _, _| node["spec"]["unschedulable"] == json!(true)),
    ("node(s) had untolerated taint(s)", |node, pod, _| {
        items(node, "/spec/taints").iter().any(|taint| !tolerated(taint, pod))
    }),
    ("node(s) were not ready", |node, _, _| !is_true(node, "Ready")),
    ("node(s) didn't match Pod's node affinity/selector", |node, pod, _| !selected(node, pod)),
    ("Insufficient cpu", |node, pod, pods| lacks(node, pod, pods, "cpu")),
    ("Insufficient memory", |node, pod, pods| lacks(node, pod, pods, "memory")),
];

/// True if this node refuses this pod, with these pods in the cluster.
type Refuses = fn(&Value, &Value, &[Arc<Value>]) -> bool;

/// The node for a pod: of those that fit the one with the fewest pods of instances, then by name.
fn place(context: &Context<'_>, pod: &Value) -> Result<String, String> {
    let nodes = context.view.list(NODES, None);
    let total = nodes.len();
    for claim in claims(pod, "/spec/volumes") {
        match context.view.get(&Key::new(CLAIMS, namespace(pod), claim)) {
            None => {
                return Err(format!(
                    "0/{total} nodes are available: persistentvolumeclaim \"{claim}\" not found."
                ));
            }
            Some(claim) if text(&claim, "/status/phase") != "Bound" => {
                let why = "pod has unbound immediate PersistentVolumeClaims";
                return Err(format!("0/{total} nodes are available: {why}."));
            }
            Some(_) => {}
        }
    }
    let pods = context.view.list(PODS, None);
    let load = |node: &Value| {
        let here = pods.iter().filter(|pod| text(pod, "/spec/nodeName") == name(node));
        here.filter(|pod| label(pod, "kubevirt.io") == Some("virt-launcher")).count()
    };
    let mut counts = vec![0_usize; REFUSALS.len()];
    let mut best: Option<(usize, &str)> = None;
    for node in &nodes {
        if let Some(i) = REFUSALS.iter().position(|(_, refuses)| refuses(node, pod, &pods)) {
            counts[i] += 1;
        } else {
            let this = (load(node), name(node));
            best = Some(best.map_or(this, |best| best.min(this)));
        }
    }
    if let Some((_, node)) = best {
        return Ok(node.to_owned());
    }
    let counted = REFUSALS.iter().zip(counts).filter(|(_, count)| *count > 0);
    let whys: Vec<String> = counted.map(|((why, _), count)| format!("{count} {why}")).collect();
    Err(format!("0/{total} nodes are available: {}.", whys.join(", ")))
}

/// True if the node has not as much of a resource left as the pod asks for.
fn lacks(node: &Value, pod: &Value, pods: &[Arc<Value>], resource: &str) -> bool {
    let Some(has) = node.pointer(&format!("/status/allocatable/{resource}")).and_then(Value::as_str) else {
        return false;
    };
    let here = pods.iter().filter(|other| text(other, "/spec/nodeName") == name(node) && !is_final(other));
    let taken: u64 = here.map(|other| asked(other, resource)).sum();
    taken.saturating_add(asked(pod, resource)) > thousandths(has)
}

/// What the containers of a pod ask for.
fn asked(pod: &Value, resource: &str) -> u64 {
    let containers = items(pod, "/spec/containers").iter();
    containers.map(|container| thousandths(text(container, &format!("/resources/requests/{resource}")))).sum()
}

fn thousandths(quantity: &str) -> u64 {
    match quantity.strip_suffix('m') {
        Some(number) => number.parse().unwrap_or(0),
        None => bytes(quantity).saturating_mul(1000),
    }
}

fn tolerated(taint: &Value, pod: &Value) -> bool {
    if text(taint, "/effect") == "PreferNoSchedule" {
        return true;
    }
    items(pod, "/spec/tolerations").iter().any(|toleration| {
        let (key, effect) = (text(toleration, "/key"), text(toleration, "/effect"));
        let any_value = text(toleration, "/operator") == "Exists";
        (effect.is_empty() || effect == text(taint, "/effect"))
            && (key == text(taint, "/key") || (key.is_empty() && any_value))
            && (any_value || text(toleration, "/value") == text(taint, "/value"))
    })
}

/// True if the node fits the selector and the affinity of a pod, or of an instance.
pub(super) fn selected(node: &Value, pod: &Value) -> bool {
    let labelled = pairs(pod, "/spec/nodeSelector").all(|(key, value)| label(node, key) == Some(value));
    let required =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let terms = items(pod, required);
    labelled && (terms.is_empty() || terms.iter().any(|term| term_fits(term, node)))
}

fn term_fits(term: &Value, node: &Value) -> bool {
    items(term, "/matchExpressions").iter().all(|expression| {
        let value = label(node, text(expression, "/key"));
        let listed = || items(expression, "/values").iter().any(|listed| listed.as_str() == value);
        match text(expression, "/operator") {
            "In" => value.is_some() && listed(),
            "NotIn" => value.is_none() || !listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    })
}

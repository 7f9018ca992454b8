//! Harvester's maintenance of a node: a request by annotation, the drain, the end (domain.md §4.3; HV
//! pkg/controller/master/nodedrain/nodedrain_controller.go:76-234 and
//! pkg/controller/master/node/maintain_controller.go:19-114).

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::HARVESTER;
use crate::sim::controller::node::DRAIN;
use crate::sim::controller::node::tainted;
use crate::sim::controller::scheduler;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::DRAIN_REFUSED;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::NODES;
use crate::sim::object::annotation;
use crate::sim::object::is_final;
use crate::sim::object::is_true;
use crate::sim::object::key_of;
use crate::sim::object::label;
use crate::sim::object::moment;
use crate::sim::object::name;
use crate::sim::object::text;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;
use crate::sim::world::View;

/// Asks for the drain of a node.
const REQUESTED: &str = "harvesterhci.io/drain-requested";
const FORCED: &str = "harvesterhci.io/drain-forced";
/// How far a node is that has been drained.
const STATUS: &str = "harvesterhci.io/maintain-status";
/// When the drain that is under way began; it begins again after its timeout.
const SINCE: &str = "sim/drain-since";
/// In a fixture: somebody asks for a drain again as soon as the node takes pods.
const AGAIN: &str = "sim/drain-again";
/// The timeout of a drain (HV pkg/util/drainhelper/helper.go:27-63).
const TIMEOUT: Duration = Duration::from_mins(4);
/// How often a drain looks what is left.
const POLL: Duration = Duration::from_secs(5);

/// Harvester's controllers of nodes that are drained and maintained.
pub(super) struct Maintenance;

impl Controller for Maintenance {
    fn name(&self) -> &'static str {
        HARVESTER
    }

    fn lag(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        match changed.resource {
            NODES => Some(changed.clone()),
            INSTANCES => {
                let node = text(object, "/status/nodeName");
                (!node.is_empty()).then(|| Key::new(NODES, "", node))
            }
            _ => None,
        }
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "node-drain-controller");
        let Some(node) = context.view.get(key) else { return turn.end() };
        let guests = guests_of(context.view, &key.name);
        let since = moment(&node, &format!("/metadata/annotations/{}", SINCE.replace('/', "~1")));
        if annotation(&node, REQUESTED) == Some("true") {
            match since {
                None if turn.fault(DRAIN_REFUSED) || is_refused(context.view, &node, &guests) => {
                    turn.patch(key, &node, annotate(&[(REQUESTED, None), (FORCED, None)]));
                }
                None => turn.patch(key, &node, annotate(&[(SINCE, Some(&turn.now().to_string()))])),
                Some(since) => {
                    drain(&mut turn, key, &node, &guests);
                    if turn.passed(since, TIMEOUT) {
                        turn.patch(key, &node, annotate(&[(SINCE, Some(&turn.now().to_string()))]));
                    }
                    turn.again_after(POLL);
                }
            }
            return turn.end();
        }
        // Whoever takes the request away ends the drain, and nothing else of it.
        if since.is_some() {
            turn.patch(key, &node, annotate(&[(SINCE, None)]));
        }
        if annotation(&node, STATUS) == Some("running") && guests.is_empty() {
            turn.patch(key, &node, annotate(&[(STATUS, Some("completed"))]));
        }
        if annotation(&node, AGAIN).is_some() && node["spec"]["unschedulable"] != json!(true) {
            turn.patch(key, &node, annotate(&[(REQUESTED, Some("true")), (AGAIN, None)]));
        }
        turn.end()
    }
}

fn annotate(annotations: &[(&str, Option<&str>)]) -> Value {
    let annotations: serde_json::Map<_, _> =
        annotations.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    json!({ "metadata": { "annotations": annotations } })
}

/// The instances on a node that have not ended.
fn guests_of(view: &dyn View, node: &str) -> Vec<Arc<Value>> {
    let mut guests = view.list(INSTANCES, None);
    guests.retain(|guest| text(guest, "/status/nodeName") == node && !is_final(guest));
    guests
}

/// True if a drain cannot be or would hurt: then the request vanishes, and only the log tells. A forced one halts the
/// VMs that cannot move, which is not rehearsed.
fn is_refused(view: &dyn View, node: &Value, guests: &[Arc<Value>]) -> bool {
    let nodes = view.list(NODES, None);
    let others: Vec<&Arc<Value>> = nodes.iter().filter(|other| name(other) != name(node)).collect();
    let manages = |node: &Value| label(node, "node-role.kubernetes.io/control-plane") == Some("true");
    let away = |node: &Value| annotation(node, STATUS).or(annotation(node, REQUESTED)).is_some();
    let managing: Vec<_> = others.iter().filter(|other| manages(other)).collect();
    let impossible = manages(node) && (managing.len() != 2 || managing.iter().any(|other| away(other)));
    let bound = |guest: &Value| !others.iter().any(|other| scheduler::selected(other, guest));
    impossible || guests.iter().any(|guest| !is_true(guest, "LiveMigratable") || bound(guest))
}

/// Closes the node and evicts what is on it: KubeVirt notes that on the instance and moves it (domain.md §4.1).
fn drain(turn: &mut Turn<'_>, key: &Key, node: &Value, guests: &[Arc<Value>]) {
    turn.patch(key, node, json!({ "spec": { "unschedulable": true } }));
    turn.patch(key, node, tainted(node, turn.now(), &[(DRAIN, "NoSchedule")], &[]));
    for guest in guests {
        turn.status(&key_of(INSTANCES, guest), guest, json!({ "evacuationNodeName": &*key.name }));
    }
    if guests.is_empty() && node["spec"]["unschedulable"] == json!(true) {
        let done = [(REQUESTED, None), (FORCED, None), (SINCE, None), (STATUS, Some("running"))];
        turn.patch(key, node, annotate(&done));
    }
}

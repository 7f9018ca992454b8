//! Somebody else: people, and Harvester's quota, who start, stop or delete a VM while others work on it.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::RUN_STRATEGY;
use crate::sim::controller::guest::shutdown_at;
use crate::sim::controller::turn::Turn;
use crate::sim::controller::vm::since_phase;
use crate::sim::fault::FOREIGN_DELETE;
use crate::sim::fault::FOREIGN_DELETE_STARTED;
use crate::sim::fault::FOREIGN_HALT;
use crate::sim::fault::FOREIGN_START;
use crate::sim::fault::FOREIGN_START_LATE;
use crate::sim::fault::FOREIGN_STOP;
use crate::sim::fault::QUOTA_EXCEEDED;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::object::annotation;
use crate::sim::object::condition;
use crate::sim::object::deleting;
use crate::sim::object::moment;
use crate::sim::object::text;
use crate::sim::strategy::Strategy;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Fault;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;
use crate::time::Timestamp;

/// Marks a VM that somebody has interfered with, so that it happens once.
const DONE: &str = "sim/visited";
/// Harvester's mark of a VM that it has halted for its quota (domain.md §1.2, HCON:63).
const QUOTA: &str = "harvesterhci.io/insufficient-resource-quota";

/// Who interferes, when, and how.
struct Visit {
    fault: Fault,
    /// What they wait for; `after` counts from then.
    since: fn(&Value, Option<&Value>) -> Option<Timestamp>,
    after: Duration,
    deed: Deed,
}

#[derive(Clone, Copy)]
enum Deed {
    Start,
    Halt,
    HaltForQuota,
    Delete,
}

/// Soon enough to be in the middle of a forced stop, too.
const HASTE: Duration = Duration::from_millis(500);

const VISITS: [Visit; 7] = [
    Visit { fault: FOREIGN_START, since: stopping, after: HASTE, deed: Deed::Start },
    Visit { fault: FOREIGN_START_LATE, since: stopped, after: Duration::from_mins(1), deed: Deed::Start },
    Visit { fault: FOREIGN_DELETE, since: stopping, after: HASTE, deed: Deed::Delete },
    Visit { fault: FOREIGN_HALT, since: running, after: HASTE, deed: Deed::Halt },
    Visit { fault: FOREIGN_STOP, since: starting, after: Duration::from_secs(1), deed: Deed::Halt },
    Visit {
        fault: FOREIGN_DELETE_STARTED,
        since: starting,
        after: Duration::from_secs(1),
        deed: Deed::Delete,
    },
    Visit { fault: QUOTA_EXCEEDED, since: starting, after: Duration::from_secs(1), deed: Deed::HaltForQuota },
];

fn halted(vm: &Value) -> bool {
    Strategy::of(vm) == Some(Strategy::Halted)
}

/// Since when the guest of a halted VM is shutting down.
fn stopping(vm: &Value, instance: Option<&Value>) -> Option<Timestamp> {
    instance.filter(|_| halted(vm)).and_then(shutdown_at)
}

/// Since when a halted VM without an instance is not ready, which is when its instance began to go.
fn stopped(vm: &Value, instance: Option<&Value>) -> Option<Timestamp> {
    let ready = condition(vm, "Ready").filter(|_| halted(vm) && instance.is_none())?;
    moment(ready, "/lastTransitionTime")
}

/// Since when there is an instance that does not run yet.
fn starting(vm: &Value, instance: Option<&Value>) -> Option<Timestamp> {
    let early = ["", "Pending", "Scheduling", "Scheduled"];
    let instance =
        instance.filter(|instance| early.contains(&text(instance, "/status/phase")) && !halted(vm))?;
    since_phase(instance, "Pending")
}

/// Since when a VM that is meant to run has a guest that runs.
fn running(vm: &Value, instance: Option<&Value>) -> Option<Timestamp> {
    instance.filter(|_| !halted(vm)).and_then(|instance| since_phase(instance, "Running"))
}

/// A person at Harvester's page, or Harvester itself.
pub(super) struct Visitor;

impl Controller for Visitor {
    fn name(&self) -> &'static str {
        "harvester-ui"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        let of_a_vm = [VIRTUAL_MACHINES, INSTANCES].contains(&changed.resource);
        of_a_vm.then(|| Key { resource: VIRTUAL_MACHINES, ..changed.clone() })
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "harvester-ui");
        let Some(vm) = context.view.get(key).filter(|vm| !deleting(vm)) else { return turn.end() };
        if annotation(&vm, DONE).is_some() {
            return turn.end();
        }
        let instance = context.view.get(&Key { resource: INSTANCES, ..key.clone() });
        for visit in VISITS.iter().filter(|visit| context.faults.contains(&visit.fault)) {
            let since = (visit.since)(&vm, instance.as_deref());
            if since.is_some_and(|since| turn.passed(since, visit.after)) {
                interfere(&mut turn, key, &vm, visit.deed);
                break;
            }
        }
        turn.end()
    }
}

fn interfere(turn: &mut Turn<'_>, key: &Key, vm: &Value, deed: Deed) {
    let halt = json!({ "running": null, "runStrategy": Strategy::Halted.name() });
    let (annotations, spec) = match deed {
        Deed::Delete => return turn.delete(key),
        Deed::Start => {
            // With the annotation Always stays Always (domain.md §1.2), and it alone starts a VM whose instance still
            // goes.
            let always = Strategy::Always.name();
            (
                json!({ DONE: "start", RUN_STRATEGY: always }),
                json!({ "running": null, "runStrategy": always }),
            )
        }
        Deed::Halt => (json!({ DONE: "halt" }), halt),
        Deed::HaltForQuota => {
            let message = "the resource quota of the namespace is exceeded";
            turn.event(key, "Warning", "InsufficientResourceQuota", message);
            (json!({ DONE: "quota", QUOTA: message }), halt)
        }
    };
    turn.patch(key, vm, json!({ "metadata": { "annotations": annotations }, "spec": spec }));
}

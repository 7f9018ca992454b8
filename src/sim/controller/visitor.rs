//! Somebody else: the fault `foreign-start`.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::RUN_STRATEGY;
use crate::sim::controller::guest::shutdown_at;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::FOREIGN_START;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::object::annotation;
use crate::sim::object::uid;
use crate::sim::strategy::Strategy;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// Marks a VM that was started behind somebody's back, so that it happens once.
const DONE: &str = "sim/foreign-start";
/// How long after the shutdown began the person presses Start.
const PATIENCE: Duration = Duration::from_secs(2);

/// A person at Harvester's page who wants the VM to run.
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
        let vm = context.view.get(key);
        let instance = context.view.get(&Key { resource: INSTANCES, ..key.clone() });
        let (Some(vm), Some(instance)) = (vm, instance) else { return turn.end() };
        let halted = Strategy::of(&vm) == Some(Strategy::Halted);
        if !turn.fault(FOREIGN_START) || !halted || annotation(&vm, DONE).is_some() {
            return turn.end();
        }
        if shutdown_at(&instance).is_some_and(|since| turn.passed(since, PATIENCE)) {
            // With the annotation Always stays Always (domain.md §1.2), and it alone starts a VM whose instance still goes.
            let always = Strategy::Always.name();
            let metadata = json!({ "annotations": { DONE: uid(&instance), RUN_STRATEGY: always } });
            turn.patch(
                key,
                &vm,
                json!({ "metadata": metadata, "spec": { "running": null, "runStrategy": always } }),
            );
        }
        turn.end()
    }
}

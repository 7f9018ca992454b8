//! Harvester's VM controllers.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::turn::Turn;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::object::annotation;
use crate::sim::object::deleting;
use crate::sim::object::has_finalizer;
use crate::sim::object::text;
use crate::sim::object::with_finalizer;
use crate::sim::object::without_finalizers;
use crate::sim::strategy::Strategy;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// The strategy that the next start gets (domain.md §1.2).
pub(in crate::sim) const RUN_STRATEGY: &str = "harvesterhci.io/vmRunStrategy";
/// The claims of a VM as a JSON list; a missing one is made again (domain.md §1.9, HCON:12).
pub(in crate::sim) const CLAIM_TEMPLATES: &str = "harvesterhci.io/volumeClaimTemplates";
/// Harvester's controllers, as the writer of their changes.
pub(in crate::sim) const HARVESTER: &str = "harvester";
/// How often the list of claims is looked at, because a deleted claim does not name its VM.
const CLAIM_POLL: Duration = Duration::from_secs(30);

fn vm_of(changed: &Key) -> Option<Key> {
    (changed.resource == VIRTUAL_MACHINES).then(|| changed.clone())
}

/// Notes the strategy after the fact, each time it is not Halted (HVMC:217-241).
pub(super) struct RunStrategies;

impl Controller for RunStrategies {
    fn name(&self) -> &'static str {
        HARVESTER
    }

    fn lag(&self) -> Duration {
        Duration::from_millis(400)
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        vm_of(changed)
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "harvester-vm-controller");
        let Some(vm) = context.view.get(key) else { return turn.end() };
        let strategy = Strategy::of(&vm).filter(|strategy| *strategy != Strategy::Halted && !deleting(&vm));
        if let Some(strategy) = strategy {
            turn.patch(key, &vm, json!({ "metadata": { "annotations": { RUN_STRATEGY: strategy.name() } } }));
        }
        turn.end()
    }
}

/// Keeps a deleted VM until the claims that are to go with it have been deleted.
const CLEANUP: &str = "wrangler.cattle.io/VMController.CleanupPVCAndSnapshot";
/// Names the claims, with commas between them, that go with the VM when it is deleted; all others stay (domain.md §5.1,
/// HCON:5).
const REMOVED_CLAIMS: &str = "harvesterhci.io/removedPersistentVolumeClaims";

/// Deletes the claims that are marked to go with their VM.
pub(super) struct RemovedClaims;

impl Controller for RemovedClaims {
    fn name(&self) -> &'static str {
        HARVESTER
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        let of_a_vm = [VIRTUAL_MACHINES, INSTANCES].contains(&changed.resource);
        of_a_vm.then(|| Key { resource: VIRTUAL_MACHINES, ..changed.clone() })
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "harvester-vm-controller");
        let Some(vm) = context.view.get(key) else { return turn.end() };
        if !deleting(&vm) {
            if !has_finalizer(&vm, CLEANUP) {
                turn.patch(key, &vm, with_finalizer(&vm, CLEANUP));
            }
            return turn.end();
        }
        let runs = context.view.get(&Key { resource: INSTANCES, ..key.clone() }).is_some();
        if runs || !has_finalizer(&vm, CLEANUP) {
            return turn.end();
        }
        let marked = annotation(&vm, REMOVED_CLAIMS).unwrap_or_default().split(',');
        for claim in marked.map(str::trim).filter(|claim| !claim.is_empty()) {
            let claim = Key::new(CLAIMS, &key.namespace, claim);
            if context.view.get(&claim).is_some_and(|claim| !deleting(&claim)) {
                turn.delete(&claim);
            }
        }
        turn.patch(key, &vm, without_finalizers(&vm, &[CLEANUP]));
        turn.end()
    }
}

/// Makes the claims that a VM lists and that are missing (HVMC:61-145).
pub(super) struct ListedClaims;

impl Controller for ListedClaims {
    fn name(&self) -> &'static str {
        HARVESTER
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        vm_of(changed)
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "harvester-vm-controller");
        let Some(vm) = context.view.get(key) else { return turn.end() };
        let listed =
            annotation(&vm, CLAIM_TEMPLATES).and_then(|text| serde_json::from_str::<Vec<Value>>(text).ok());
        let Some(listed) = listed.filter(|_| !deleting(&vm)) else { return turn.end() };
        for mut claim in listed {
            let name = text(&claim, "/metadata/name").to_owned();
            if name.is_empty() || context.view.get(&Key::new(CLAIMS, &key.namespace, &name)).is_some() {
                continue;
            }
            claim["apiVersion"] = "v1".into();
            claim["kind"] = "PersistentVolumeClaim".into();
            claim["metadata"]["namespace"] = (*key.namespace).into();
            turn.create(CLAIMS, claim);
        }
        turn.again_after(CLAIM_POLL);
        turn.end()
    }
}

//! What the platform shows of itself while parts of it are busy or down.

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::turn::Turn;
use crate::sim::fault::KUBEVIRT_UPDATING;
use crate::sim::fault::VIRT_API_DOWN;
use crate::sim::kinds::API_SERVICES;
use crate::sim::kinds::KUBEVIRTS;
use crate::sim::kinds::PODS;
use crate::sim::object::Conditions;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// The operators and probes that tell how the platform is.
pub(super) struct Outages;

impl Controller for Outages {
    fn name(&self) -> &'static str {
        "virt-operator"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        let told = [KUBEVIRTS, API_SERVICES].contains(&changed.resource);
        let virt_api = changed.resource == PODS && changed.name.starts_with("virt-api-");
        (told || virt_api).then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "virt-operator");
        let Some(object) = context.view.get(key) else { return turn.end() };
        let mut conditions = Conditions::of(&object, turn.now());
        match key.resource {
            // Busy, not broken: all three are true at once (domain.md §6).
            KUBEVIRTS if turn.fault(KUBEVIRT_UPDATING) => {
                let message = "Transitioning from previous version to 1.7.4-150700.3.24.2";
                for kind in ["Available", "Progressing", "Degraded"] {
                    conditions.set(kind, "True", "UpdateInProgress", message);
                }
            }
            API_SERVICES if turn.fault(VIRT_API_DOWN) => {
                let message = "endpoints for service/virt-api in \"harvester-system\" have no addresses";
                conditions.set("Available", "False", "MissingEndpoints", message);
            }
            PODS if turn.fault(VIRT_API_DOWN) => {
                for kind in ["ContainersReady", "Ready"] {
                    conditions.set(
                        kind,
                        "False",
                        "ContainersNotReady",
                        "containers with unready status: [virt-api]",
                    );
                }
            }
            _ => return turn.end(),
        }
        turn.status(key, &object, json!({ "conditions": conditions.into_value() }));
        turn.end()
    }
}

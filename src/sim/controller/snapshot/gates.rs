//! virt-api and its feature gates: it reads them from the KubeVirt CR by itself, some seconds later (domain.md §3.1).

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::turn::Turn;
use crate::sim::kinds::KUBEVIRTS;
use crate::sim::object::items;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// The gates that virt-api knows, with commas between them.
pub(in crate::sim) const LOADED: &str = "sim/loaded-gates";

/// virt-api's copy of the configuration.
pub(super) struct Gates;

impl Controller for Gates {
    fn name(&self) -> &'static str {
        "virt-api"
    }

    fn lag(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        (changed.resource == KUBEVIRTS).then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "virt-api");
        let Some(kubevirt) = context.view.get(key) else { return turn.end() };
        let gates = items(&kubevirt, "/spec/configuration/developerConfiguration/featureGates");
        let gates: Vec<&str> = gates.iter().filter_map(Value::as_str).collect();
        let loaded = json!({ LOADED: gates.join(",") });
        turn.patch(key, &kubevirt, json!({ "metadata": { "annotations": loaded } }));
        turn.end()
    }
}

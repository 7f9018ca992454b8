//! KubeVirt's evacuation controller: moves instances off the node that they are to leave (domain.md §4.1, §4.3).

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::turn::Turn;
use crate::sim::fault::CONTROLLERS_FROZEN;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::MIGRATIONS;
use crate::sim::object::annotation;
use crate::sim::object::is_final;
use crate::sim::object::is_true;
use crate::sim::object::items;
use crate::sim::object::key_of;
use crate::sim::object::moment;
use crate::sim::object::name;
use crate::sim::object::namespace;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;
use crate::time::Timestamp;

/// Marks a migration that empties a node.
const EVACUATION: &str = "kubevirt.io/evacuationMigration";
/// From a failed evacuation to the next one: doubled each time (KV
/// pkg/virt-controller/watch/migration/migration.go:1042-1076).
const BACK_OFF: Duration = Duration::from_secs(20);
const BACK_OFF_MAX: Duration = Duration::from_mins(5);
/// How many finished migrations of an instance are kept (migration.go:87).
const KEPT: usize = 5;

/// KubeVirt's evacuation controller.
pub(super) struct Evacuations;

impl Controller for Evacuations {
    fn name(&self) -> &'static str {
        "virt-controller"
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        match changed.resource {
            INSTANCES => Some(changed.clone()),
            MIGRATIONS => Some(Key::new(INSTANCES, &changed.namespace, text(object, "/spec/vmiName"))),
            _ => None,
        }
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "evacuation-controller");
        let Some(instance) = context.view.get(key).filter(|instance| !is_final(instance)) else {
            return turn.end();
        };
        let mut migrations = context.view.list(MIGRATIONS, Some(&key.namespace));
        migrations.retain(|migration| text(migration, "/spec/vmiName") == &*key.name);
        let mut over: Vec<&Arc<Value>> = migrations.iter().filter(|migration| is_final(migration)).collect();
        over.sort_by_key(|migration| ended(migration));
        let node = text(&instance, "/status/nodeName");
        let wanted = !node.is_empty() && text(&instance, "/status/evacuationNodeName") == node;
        let idle = over.len() == migrations.len();
        if wanted && idle && is_true(&instance, "LiveMigratable") && !turn.fault(CONTROLLERS_FROZEN) {
            let failed = over.iter().rev().take_while(|last| text(last, "/status/phase") == "Failed").count();
            let delay = BACK_OFF.saturating_mul(1 << failed.saturating_sub(1).min(KEPT)).min(BACK_OFF_MAX);
            let last = over.last().filter(|_| failed > 0).and_then(|last| ended(last));
            if last.is_none_or(|last| turn.passed(last, delay)) {
                turn.create(MIGRATIONS, evacuation(&instance, node, &over));
            }
        }
        for old in over.iter().rev().skip(KEPT).filter(|old| annotation(old, EVACUATION).is_some()) {
            turn.delete(&key_of(MIGRATIONS, old));
        }
        turn.end()
    }
}

/// When a migration ended.
fn ended(migration: &Value) -> Option<Timestamp> {
    let last = items(migration, "/status/phaseTransitionTimestamps").last()?;
    moment(last, "/phaseTransitionTimestamp")
}

/// The next evacuation of an instance.
fn evacuation(instance: &Value, node: &str, before: &[&Arc<Value>]) -> Value {
    let number = |migration: &Value| name(migration).rsplit('-').next().and_then(|n| n.parse::<u32>().ok());
    let next = before.iter().filter_map(|migration| number(migration)).max().unwrap_or(0) + 1;
    let tail = &uid(instance)[uid(instance).len().saturating_sub(5)..];
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": {
            "name": format!("kubevirt-evacuation-{tail}-{next}"),
            "namespace": namespace(instance),
            "annotations": { EVACUATION: node },
        },
        "spec": { "vmiName": name(instance) },
    })
}

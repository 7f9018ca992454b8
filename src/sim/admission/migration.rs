//! KubeVirt's webhook for live migrations: which ones are refused (domain.md §4.1, KV
//! pkg/virt-api/webhooks/validating-webhook/admitters/migration-create-admitter.go).

use serde_json::Value;

use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::MIGRATIONS;
use crate::sim::object::condition;
use crate::sim::object::is_final;
use crate::sim::object::namespace;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::world::Admission;
use crate::sim::world::Key;

/// The webhook, as its refusals name it.
pub(super) const WEBHOOK: &str = "migration-create-validator.kubevirt.io";

/// Why a migration must not be created.
pub(super) fn complaint(admission: &Admission<'_>, migration: &Value) -> Option<String> {
    let (space, wanted) = (namespace(migration), text(migration, "/spec/vmiName"));
    let Some(instance) = admission.view.get(&Key::new(INSTANCES, space, wanted)) else {
        return Some(format!("the VMI \"{wanted}\" does not exist under the cluster"));
    };
    if is_final(&instance) {
        return Some("Cannot migrate VMI in finalized state.".to_owned());
    }
    if let Some(migratable) = condition(&instance, "LiveMigratable").filter(|c| text(c, "/status") == "False")
    {
        let (reason, message) = (text(migratable, "/reason"), text(migratable, "/message"));
        return Some(format!("Cannot migrate VMI, Reason: {reason}, Message: {message}"));
    }
    let others = admission.view.list(MIGRATIONS, Some(space));
    let active = others.iter().find(|other| text(other, "/spec/vmiName") == wanted && !is_final(other))?;
    Some(format!(
        "in-flight migration detected. Active migration job ({}) is currently already in progress for VMI {wanted}.",
        uid(active)
    ))
}

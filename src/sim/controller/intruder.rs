//! Somebody else, who deletes what a restore needs, or changes a VM that runs.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::longhorn;
use crate::sim::controller::longhorn::clone;
use crate::sim::controller::longhorn::recovery;
use crate::sim::controller::longhorn::recovery::Handle;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::RESTORE_VANISHES;
use crate::sim::fault::SOURCE_DELETED_MIDWAY;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::LONGHORN_VOLUMES;
use crate::sim::kinds::RESTORES;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::object::annotation;
use crate::sim::object::deleting;
use crate::sim::object::items;
use crate::sim::object::text;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// How long after a copy began its source is deleted.
const MIDWAY: Duration = Duration::from_secs(3);
/// Of a VM: the merge patch that somebody applies to its template once the guest runs.
const CHANGED_LATER: &str = "sim/changed-later";

/// Deletes restores that have begun and are not complete (kubevirt#13956: the object is gone before it could tell).
pub(super) struct Restores;

impl Controller for Restores {
    fn name(&self) -> &'static str {
        "kubectl"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        (changed.resource == RESTORES).then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "kubectl");
        let Some(restore) = context.view.get(key).filter(|_| turn.fault(RESTORE_VANISHES)) else {
            return turn.end();
        };
        let begun = !items(&restore, "/status/restores").is_empty();
        if begun && restore["status"]["complete"] != json!(true) && !deleting(&restore) {
            turn.delete(key);
        }
        turn.end()
    }
}

/// Deletes the source of a copy at Longhorn's page, which no reclaim policy prevents (domain.md §5.1).
pub(super) struct Sources;

impl Controller for Sources {
    fn name(&self) -> &'static str {
        "longhorn-ui"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        (changed.resource == LONGHORN_VOLUMES).then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "longhorn-ui");
        let Some(copied) = context.view.get(key).filter(|_| turn.fault(SOURCE_DELETED_MIDWAY)) else {
            return turn.end();
        };
        let since =
            clone::since(&copied).filter(|_| text(&copied, "/status/cloneStatus/state") == "initiated");
        let (Some(since), Some(Handle::Snapshot { volume, .. })) = (since, recovery::origin(&copied)) else {
            return turn.end();
        };
        let source = longhorn::volume(context.view, &volume).is_some_and(|source| !deleting(&source));
        if source && turn.passed(since, MIDWAY) {
            turn.delete(&Key::new(LONGHORN_VOLUMES, longhorn::SPACE, &volume));
        }
        turn.end()
    }
}

/// Changes the templates of VMs that run, as their annotation says.
pub(super) struct Editors;

impl Controller for Editors {
    fn name(&self) -> &'static str {
        "kubectl-edit"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        let of_vm = [VIRTUAL_MACHINES, INSTANCES].contains(&changed.resource);
        of_vm.then(|| Key { resource: VIRTUAL_MACHINES, ..changed.clone() })
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "kubectl-edit");
        let Some(vm) = context.view.get(key) else { return turn.end() };
        let change = annotation(&vm, CHANGED_LATER).and_then(|text| serde_json::from_str::<Value>(text).ok());
        let instance = context.view.get(&Key { resource: INSTANCES, ..key.clone() });
        let runs = instance.is_some_and(|instance| text(&instance, "/status/phase") == "Running");
        if let Some(change) = change.filter(|_| runs) {
            let done = json!({ "metadata": { "annotations": { CHANGED_LATER: null } }, "spec": { "template": change } });
            turn.patch(key, &vm, done);
        }
        turn.end()
    }
}

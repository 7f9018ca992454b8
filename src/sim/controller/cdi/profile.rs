//! What CDI knows of each storage class, and how Harvester tells it which snapshots to take (domain.md §3.1).

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::HARVESTER;
use crate::sim::controller::cdi;
use crate::sim::controller::snapshot;
use crate::sim::controller::turn::Turn;
use crate::sim::kinds::STORAGE_CLASSES;
use crate::sim::kinds::STORAGE_PROFILES;
use crate::sim::kinds::VOLUME_SNAPSHOT_CLASSES;
use crate::sim::object::annotation;
use crate::sim::object::deleting;
use crate::sim::object::name;
use crate::sim::object::text;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// The annotation of a storage class that names its snapshot class (HCON:293).
const SNAPSHOT_CLASS: &str = "cdi.harvesterhci.io/storageProfileVolumeSnapshotClass";

/// The profile that is concerned. A snapshot class concerns all profiles, which is a key without a name.
fn profile_of(changed: &Key) -> Option<Key> {
    match changed.resource {
        STORAGE_CLASSES | STORAGE_PROFILES => Some(Key { resource: STORAGE_PROFILES, ..changed.clone() }),
        VOLUME_SNAPSHOT_CLASSES => Some(Key::new(STORAGE_PROFILES, "", "")),
        _ => None,
    }
}

/// Harvester's storage class controller: what a profile says of snapshots is what the class is annotated with. Other
/// changes of the profile are undone, except for classes that say dataEngine v1 (HV
/// pkg/controller/master/storageclass/storage_class_controller.go:131-221).
pub(super) struct AnnotatedClasses;

impl Controller for AnnotatedClasses {
    fn name(&self) -> &'static str {
        HARVESTER
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        profile_of(changed)
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "harvester-storage-class-controller");
        let class = context.view.get(&Key { resource: STORAGE_CLASSES, ..key.clone() });
        let (Some(class), Some(profile)) = (class, context.view.get(key)) else { return turn.end() };
        if text(&class, "/parameters/dataEngine") != "v1" {
            let wanted = annotation(&class, SNAPSHOT_CLASS);
            turn.patch(key, &profile, json!({ "spec": { "snapshotClass": wanted } }));
        }
        turn.end()
    }
}

/// CDI's storage profile controller.
pub(super) struct Profiles;

impl Controller for Profiles {
    fn name(&self) -> &'static str {
        "cdi-deployment"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        profile_of(changed)
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "storageprofile-controller");
        if key.name.is_empty() {
            for class in context.view.list(STORAGE_CLASSES, None) {
                let key = Key::new(STORAGE_PROFILES, "", name(&class));
                if let Some(profile) = context.view.get(&key) {
                    describe(&mut turn, &key, &class, &profile);
                }
            }
            return turn.end();
        }
        let class = context.view.get(&Key { resource: STORAGE_CLASSES, ..key.clone() });
        match (class, context.view.get(key)) {
            (None, Some(profile)) if !deleting(&profile) => turn.delete(key),
            (None, _) => {}
            (Some(_), None) => turn.create(
                STORAGE_PROFILES,
                json!({
                    "apiVersion": cdi::API_VERSION,
                    "kind": "StorageProfile",
                    "metadata": { "name": &*key.name, "labels": { "app": cdi::APP } },
                    "spec": {},
                }),
            ),
            (Some(class), Some(profile)) => describe(&mut turn, key, &class, &profile),
        }
        turn.end()
    }
}

/// The snapshot class of a profile: its own, else the one annotated as default, else the first in name order (CDI
/// pkg/controller/storageprofile-controller.go:96, pkg/controller/common/util.go:1894-1977).
fn describe(turn: &mut Turn<'_>, key: &Key, class: &Value, profile: &Value) {
    let driver = text(class, "/provisioner");
    let all = snapshot::classes_of(turn.context.view, driver);
    let named = |wanted: &str| all.iter().find(|class| name(class) == wanted);
    let own = named(text(profile, "/spec/snapshotClass"));
    let default = || all.iter().find(|class| snapshot::is_default(class));
    let chosen: Option<&Arc<Value>> = own.or_else(default).or_else(|| all.first());
    let sets = json!([
        { "accessModes": ["ReadWriteMany"], "volumeMode": "Block" },
        { "accessModes": ["ReadWriteOnce"], "volumeMode": "Block" },
        { "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem" },
    ]);
    let status = json!({
        "provisioner": driver,
        "storageClass": &*key.name,
        "cloneStrategy": "copy",
        "claimPropertySets": sets,
        "snapshotClass": chosen.map(|class| name(class)),
    });
    turn.status(key, profile, status);
}

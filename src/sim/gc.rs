//! The garbage collector and the namespace controller: what follows from a delete.

use serde_json::Value;

use crate::sim::delete::DeleteOptions;
use crate::sim::delete::FOREGROUND;
use crate::sim::delete::ORPHAN;
use crate::sim::delete::Preconditions;
use crate::sim::kinds;
use crate::sim::kinds::NAMESPACES;
use crate::sim::meta;
use crate::sim::registry::Caller;
use crate::sim::registry::Registry;
use crate::sim::store::Change;
use crate::sim::store::Happened;
use crate::sim::world::Key;
use crate::sim::world::View as _;
use crate::time::Timestamp;

/// The finalizer of volumes in use.
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
const COLLECTOR: &str = "generic-garbage-collector";
const NAMESPACE_CONTROLLER: &str = "namespace-controller";

impl Registry {
    /// Does what follows from a change: deletes what has lost its owners, ends foreground and orphaning deletes,
    /// empties and removes namespaces.
    pub(super) fn collect(&mut self, change: &Change, now: Timestamp) {
        let caller = Caller::controller(COLLECTOR, now);
        if change.happened == Happened::Deleted {
            for dependent in self.store.dependents(meta::uid(&change.object)) {
                self.collect_one(&dependent, &caller);
            }
            for owner in meta::owners(&change.object).filter_map(|o| owner_key(&change.key, o)) {
                self.end_foreground(&owner, &caller);
            }
        } else {
            self.end_orphaning(&change.key, &caller);
            self.end_foreground(&change.key, &caller);
            self.end_protection(&change.key);
            if meta::owners(&change.object).next().is_some() {
                self.collect_one(&change.key, &caller);
            }
        }
        let namespace = match &change.key {
            key if key.resource == NAMESPACES => key.clone(),
            key => Key::new(NAMESPACES, "", &key.namespace),
        };
        self.empty_namespace(&namespace, now);
    }

    /// Deletes the object if it has owners and none of them exists; forgets those that are gone otherwise.
    fn collect_one(&mut self, key: &Key, caller: &Caller) {
        let Some(object) = self.store.get(key) else { return };
        if meta::is_deleting(&object) {
            return;
        }
        let (present, absent): (Vec<_>, Vec<_>) =
            meta::owners(&object).partition(|owner| self.owner_exists(key, owner));
        if absent.is_empty() {
            return;
        }
        if present.is_empty() {
            self.delete_dependent(key, &object, "Background", caller);
        } else {
            let kept: Vec<Value> = present.into_iter().cloned().collect();
            self.set_owners(key, &object, kept);
        }
    }

    /// Whether the owner that a reference names exists. An owner of an unknown kind cannot be judged: it does.
    fn owner_exists(&self, dependent: &Key, owner: &Value) -> bool {
        let Some(key) = owner_key(dependent, owner) else { return true };
        self.store.get(&key).is_some_and(|found| meta::uid(&found) == meta::text(owner, "/uid"))
    }

    fn delete_dependent(&mut self, key: &Key, object: &Value, policy: &str, caller: &Caller) {
        let Some(kind) = kinds::of(key.resource) else { return };
        let options = DeleteOptions {
            propagation_policy: Some(policy.to_owned()),
            preconditions: Some(Preconditions {
                uid: Some(meta::uid(object).to_owned()),
                resource_version: None,
            }),
            ..DeleteOptions::default()
        };
        if let Err(failure) = self.delete(kind, key, &options, caller) {
            tracing::debug!(%key, %failure, "a dependent stays");
        }
    }

    fn set_owners(&mut self, key: &Key, object: &Value, owners: Vec<Value>) {
        let mut object = object.clone();
        let value = (!owners.is_empty()).then(|| Value::Array(owners));
        meta::set(&mut object, "ownerReferences", value);
        self.store.put(key, object);
    }

    /// Goes on with a foreground delete: dependents first, then the object.
    fn end_foreground(&mut self, key: &Key, caller: &Caller) {
        let Some(object) = self.waiting_for(key, FOREGROUND) else { return };
        let uid = meta::uid(&object).to_owned();
        let mut blocked = false;
        for dependent in self.store.dependents(&uid) {
            let Some(found) = self.store.get(&dependent) else { continue };
            let blocks = meta::owners(&found)
                .any(|owner| meta::text(owner, "/uid") == uid && owner["blockOwnerDeletion"] == true);
            if !meta::is_deleting(&found) {
                let policy = if self.store.dependents(meta::uid(&found)).is_empty() {
                    "Background"
                } else {
                    "Foreground"
                };
                self.delete_dependent(&dependent, &found, policy, caller);
            }
            blocked |= blocks && self.store.get(&dependent).is_some();
        }
        if !blocked {
            self.drop_finalizer(key, FOREGROUND);
        }
    }

    /// Releases the dependents of an object that is deleted without them.
    fn end_orphaning(&mut self, key: &Key, _caller: &Caller) {
        let Some(object) = self.waiting_for(key, ORPHAN) else { return };
        let uid = meta::uid(&object);
        for dependent in self.store.dependents(uid) {
            let Some(found) = self.store.get(&dependent) else { continue };
            let kept = meta::owners(&found).filter(|owner| meta::text(owner, "/uid") != uid);
            let kept: Vec<Value> = kept.cloned().collect();
            self.set_owners(&dependent, &found, kept);
        }
        self.drop_finalizer(key, ORPHAN);
    }

    /// Lets a volume go that is bound to no claim.
    fn end_protection(&mut self, key: &Key) {
        let Some(volume) = self.waiting_for(key, VOLUME_PROTECTION) else { return };
        if meta::text(&volume, "/status/phase") != "Bound" {
            self.drop_finalizer(key, VOLUME_PROTECTION);
        }
    }

    /// The object, if it is being deleted and `finalizer` holds it.
    fn waiting_for(&self, key: &Key, finalizer: &str) -> Option<std::sync::Arc<Value>> {
        let object = self.store.get(key)?;
        let waits = meta::is_deleting(&object) && meta::finalizers(&object).contains(&finalizer);
        waits.then_some(object)
    }

    fn drop_finalizer(&mut self, key: &Key, finalizer: &str) {
        let Some(object) = self.store.get(key) else { return };
        let mut changed = (*object).clone();
        let mut left = meta::finalizers(&object);
        left.retain(|f| *f != finalizer);
        meta::set_finalizers(&mut changed, &left);
        let held = !left.is_empty()
            || object.pointer("/metadata/deletionGracePeriodSeconds").is_some_and(|grace| *grace != 0);
        if held {
            self.store.put(key, changed);
        } else {
            self.store.remove(key);
        }
    }

    /// Deletes what is in a namespace that is being deleted, then the namespace.
    fn empty_namespace(&mut self, key: &Key, now: Timestamp) {
        let Some(namespace) = self.store.get(key) else { return };
        if !meta::is_deleting(&namespace) {
            return;
        }
        let caller = Caller::controller(NAMESPACE_CONTROLLER, now);
        let mut left = false;
        for kind in kinds::KINDS.iter().filter(|kind| kind.namespaced) {
            let contents = self.store.list(kind.resource, Some(&key.name));
            for object in contents {
                let found = Key::new(kind.resource, &key.name, meta::name(&object));
                if !meta::is_deleting(&object) {
                    self.delete_dependent(&found, &object, "Background", &caller);
                }
                left |= self.store.get(&found).is_some();
            }
        }
        if !left && meta::finalizers(&namespace).is_empty() {
            self.store.remove(key);
        }
    }
}

/// The key of the owner that a reference names; none if its kind is unknown.
fn owner_key(dependent: &Key, owner: &Value) -> Option<Key> {
    let kind = kinds::by_kind(meta::text(owner, "/apiVersion"), meta::text(owner, "/kind"))?;
    let namespace = if kind.namespaced { &*dependent.namespace } else { "" };
    Some(Key::new(kind.resource, namespace, meta::text(owner, "/name")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sim::audit::Audit;
    use crate::sim::kinds::CONFIG_MAPS;
    use crate::sim::kinds::of;
    use crate::sim::world::Platform;

    const NOW: Timestamp = Timestamp::from_millis(0);

    /// A registry with the namespace `default`, and the garbage collector at hand.
    struct World {
        registry: Registry,
        seen: u64,
    }

    impl World {
        fn new() -> Self {
            let mut world =
                Self { registry: Registry::new(Platform::default(), vec![], Audit::default(), 0), seen: 0 };
            let kind = of(NAMESPACES).expect("a row");
            let namespace = json!({"metadata": {"name": "default"}});
            world.registry.create(kind, "", namespace, &Self::caller()).expect("new");
            world
        }

        fn caller() -> Caller {
            Caller::controller("test", NOW)
        }

        /// Creates a map that these maps own, the first of them blocking.
        fn map(&mut self, name: &str, owners: &[&str]) {
            let owners: Vec<Value> = owners
                .iter()
                .map(|owner| {
                    let uid = self.get(owner).map_or("gone".to_owned(), |o| meta::uid(&o).to_owned());
                    json!({
                        "apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid,
                        "blockOwnerDeletion": true,
                    })
                })
                .collect();
            let map = json!({"metadata": {"name": name, "ownerReferences": owners}});
            let kind = of(CONFIG_MAPS).expect("a row");
            self.registry.create(kind, "default", map, &Self::caller()).expect("new");
        }

        fn get(&self, name: &str) -> Option<std::sync::Arc<Value>> {
            self.registry.store.get(&Key::new(CONFIG_MAPS, "default", name))
        }

        fn delete(&mut self, name: &str, policy: &str) {
            let options =
                DeleteOptions { propagation_policy: Some(policy.to_owned()), ..DeleteOptions::default() };
            let key = Key::new(CONFIG_MAPS, "default", name);
            let kind = of(CONFIG_MAPS).expect("a row");
            self.registry.delete(kind, &key, &options, &Self::caller()).expect("it is there");
        }

        fn finalizers(&mut self, name: &str, finalizers: &[&str]) {
            let key = Key::new(CONFIG_MAPS, "default", name);
            let patch = json!({"metadata": {"finalizers": finalizers}});
            let write = crate::sim::world::Write::Patch(key, patch);
            self.registry.carry_out(&write, &Self::caller()).expect("accepted");
        }

        /// Lets the collector work until nothing changes any more; the names that are left.
        fn settle(&mut self) -> Vec<String> {
            loop {
                let changes: Vec<Change> =
                    self.registry.store.since(self.seen).expect("known").cloned().collect();
                let Some(last) = changes.last() else { break };
                self.seen = last.revision;
                for change in &changes {
                    self.registry.collect(change, NOW);
                }
            }
            let left = self.registry.store.list(CONFIG_MAPS, None);
            left.iter().map(|map| meta::name(map).to_owned()).collect()
        }
    }

    #[test]
    fn in_the_background_a_family_goes_from_the_top() {
        let mut world = World::new();
        world.map("a", &[]);
        world.map("b", &["a"]);
        world.map("c", &["b"]);
        world.map("other", &[]);
        world.finalizers("b", &["test/hold"]);
        world.delete("a", "Background");
        assert_eq!(world.settle(), ["b", "c", "other"], "b is held, and c has its owner still");
        world.finalizers("b", &[]);
        assert_eq!(world.settle(), ["other"]);
    }

    #[test]
    fn in_the_foreground_a_family_goes_from_the_bottom() {
        let mut world = World::new();
        world.map("a", &[]);
        world.map("b", &["a"]);
        world.map("c", &["b"]);
        world.finalizers("c", &["test/hold"]);
        world.delete("a", "Foreground");
        assert_eq!(world.settle(), ["a", "b", "c"]);
        assert!(meta::finalizers(&world.get("b").expect("waits")).contains(&FOREGROUND));
        world.finalizers("c", &[]);
        assert_eq!(world.settle(), Vec::<String>::new());
    }

    #[test]
    fn orphans_stay_without_their_owner() {
        let mut world = World::new();
        world.map("a", &[]);
        world.map("b", &["a"]);
        world.delete("a", "Orphan");
        assert_eq!(world.settle(), ["b"]);
        assert_eq!(meta::owners(&world.get("b").expect("stays")).count(), 0);
    }

    #[test]
    fn one_of_two_owners_is_enough_to_stay() {
        let mut world = World::new();
        world.map("a", &[]);
        world.map("b", &[]);
        world.map("c", &["a", "b"]);
        world.delete("a", "Background");
        assert_eq!(world.settle(), ["b", "c"]);
        assert_eq!(meta::owners(&world.get("c").expect("stays")).count(), 1);
        world.map("d", &["nobody"]);
        assert_eq!(world.settle(), ["b", "c"], "an owner that never was does not count");
    }

    #[test]
    fn a_namespace_waits_for_what_is_in_it() {
        let mut world = World::new();
        world.map("a", &[]);
        world.finalizers("a", &["test/hold"]);
        let key = Key::new(NAMESPACES, "", "default");
        let delete = crate::sim::world::Write::Delete(key.clone());
        world.registry.carry_out(&delete, &World::caller()).expect("accepted");
        assert_eq!(world.settle(), ["a"]);
        let namespace = world.registry.store.get(&key).expect("waits");
        assert_eq!(meta::text(&namespace, "/status/phase"), "Terminating");
        world.finalizers("a", &[]);
        assert_eq!(world.settle(), Vec::<String>::new());
        assert!(world.registry.store.get(&key).is_none());
    }
}

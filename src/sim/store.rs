//! The objects of the cluster, their versions, and what has changed lately. A pure state machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use serde_json::Value;

use crate::sim::meta;
use crate::sim::world::Key;
use crate::sim::world::Resource;
use crate::sim::world::View;

/// How many changes are remembered for watches. etcd keeps about five minutes; this is more than a rehearsal makes in
/// that time, and bounds the memory.
pub(super) const HISTORY_MAX: usize = 8192;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Happened {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// One change.
#[derive(Debug, Clone)]
pub(super) struct Change {
    /// The version that it led to.
    pub revision: u64,
    /// Which object.
    pub key: Key,
    /// What happened.
    pub happened: Happened,
    /// The object after the change; of a deleted one the last state, with the version of its end.
    pub object: Arc<Value>,
    /// The object before the change.
    pub before: Option<Arc<Value>>,
}

/// A version that has been forgotten, with the oldest one known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Forgotten {
    /// The oldest version from which a watch may start.
    pub oldest: u64,
}

/// The objects and their history.
#[derive(Debug, Default)]
pub(super) struct Store {
    objects: BTreeMap<Key, Arc<Value>>,
    dependents: BTreeMap<String, BTreeSet<Key>>,
    history: VecDeque<Change>,
    revision: u64,
    oldest: u64,
}

impl Store {
    /// The version of the last change.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Stores an object under its next version and returns it as stored.
    pub(super) fn put(&mut self, key: &Key, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        meta::set(&mut object, "resourceVersion", Some(self.revision.to_string().into()));
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), object.clone());
        if let Some(before) = &before {
            self.unlink(key, before);
        }
        for owner in meta::owners(&object) {
            let uid = meta::text(owner, "/uid").to_owned();
            self.dependents.entry(uid).or_default().insert(key.clone());
        }
        let happened = if before.is_some() { Happened::Modified } else { Happened::Added };
        self.remember(key, happened, object.clone(), before);
        object
    }

    /// Removes an object and returns its last state.
    pub(super) fn remove(&mut self, key: &Key) -> Option<Arc<Value>> {
        let before = self.objects.remove(key)?;
        self.unlink(key, &before);
        self.revision += 1;
        let mut last = (*before).clone();
        meta::set(&mut last, "resourceVersion", Some(self.revision.to_string().into()));
        let last = Arc::new(last);
        self.remember(key, Happened::Deleted, last.clone(), Some(before));
        Some(last)
    }

    fn unlink(&mut self, key: &Key, object: &Value) {
        for owner in meta::owners(object) {
            let uid = meta::text(owner, "/uid");
            if let Some(keys) = self.dependents.get_mut(uid) {
                keys.remove(key);
                if keys.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
    }

    fn remember(&mut self, key: &Key, happened: Happened, object: Arc<Value>, before: Option<Arc<Value>>) {
        let change = Change { revision: self.revision, key: key.clone(), happened, object, before };
        self.history.push_back(change);
        if self.history.len() > HISTORY_MAX {
            let forgotten = self.history.pop_front();
            self.oldest = forgotten.map_or(self.oldest, |change| change.revision);
        }
    }

    /// Forgets all history, as a compaction of etcd does.
    pub(super) fn compact(&mut self) {
        self.history.clear();
        self.oldest = self.revision;
    }

    /// The changes after version `from`, oldest first; or that they are no longer known.
    pub(super) fn since(&self, from: u64) -> Result<impl Iterator<Item = &Change>, Forgotten> {
        if from < self.oldest {
            return Err(Forgotten { oldest: self.oldest });
        }
        let start = self.history.partition_point(|change| change.revision <= from);
        Ok(self.history.range(start..))
    }

    /// The objects that name `uid` as an owner.
    pub(super) fn dependents(&self, uid: &str) -> Vec<Key> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// All objects with their keys.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Key, &Arc<Value>)> {
        self.objects.iter()
    }

    /// The objects of a kind after `after` in key order, in one namespace or everywhere.
    pub(super) fn scan<'a>(
        &'a self,
        resource: Resource,
        namespace: Option<&'a str>,
        after: Option<&Key>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Value>)> + use<'a> {
        let start = match after {
            Some(key) => Bound::Excluded(key.clone()),
            None => Bound::Included(Key::new(resource, namespace.unwrap_or_default(), "")),
        };
        self.objects.range((start, Bound::Unbounded)).take_while(move |(key, _)| {
            key.resource == resource && namespace.is_none_or(|wanted| *key.namespace == *wanted)
        })
    }

    /// The objects of a kind as they were at version `at`, in key order.
    pub(super) fn scan_at(
        &self,
        at: u64,
        resource: Resource,
        namespace: Option<&str>,
    ) -> Result<BTreeMap<Key, Arc<Value>>, Forgotten> {
        let changes: Vec<&Change> = self.since(at)?.collect();
        let now = self.scan(resource, namespace, None);
        let mut objects: BTreeMap<Key, Arc<Value>> =
            now.map(|(key, object)| (key.clone(), object.clone())).collect();
        for change in changes.into_iter().rev() {
            let wanted = namespace.is_none_or(|wanted| *change.key.namespace == *wanted);
            if change.key.resource != resource || !wanted {
                continue;
            }
            match &change.before {
                Some(before) => drop(objects.insert(change.key.clone(), before.clone())),
                None => drop(objects.remove(&change.key)),
            }
        }
        Ok(objects)
    }
}

impl View for Store {
    fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.objects.get(key).cloned()
    }

    fn list(&self, resource: Resource, namespace: Option<&str>) -> Vec<Arc<Value>> {
        self.scan(resource, namespace, None).map(|(_, object)| object.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sim::kinds::CONFIG_MAPS;
    use crate::sim::kinds::SECRETS;

    fn key(namespace: &str, name: &str) -> Key {
        Key::new(CONFIG_MAPS, namespace, name)
    }

    fn map(namespace: &str, name: &str, text: &str) -> Value {
        json!({"metadata": {"namespace": namespace, "name": name}, "data": {"text": text}})
    }

    fn names(objects: &[Arc<Value>]) -> Vec<&str> {
        objects.iter().map(|object| meta::name(object)).collect()
    }

    #[test]
    fn a_list_holds_one_kind_in_name_order() {
        let mut store = Store::default();
        for (namespace, name) in [("b", "x"), ("a", "z"), ("a", "y")] {
            store.put(&key(namespace, name), map(namespace, name, ""));
        }
        store.put(&Key::new(SECRETS, "a", "y"), json!({"metadata": {"name": "secret"}}));
        assert_eq!(names(&store.list(CONFIG_MAPS, None)), ["y", "z", "x"]);
        assert_eq!(names(&store.list(CONFIG_MAPS, Some("a"))), ["y", "z"]);
        assert_eq!(names(&store.list(SECRETS, None)), ["secret"]);
        let rest = store.scan(CONFIG_MAPS, None, Some(&key("a", "y")));
        assert_eq!(rest.map(|(key, _)| &*key.name).collect::<Vec<_>>(), ["z", "x"]);
    }

    #[test]
    fn an_older_version_can_be_read_until_it_is_forgotten() {
        let mut store = Store::default();
        store.put(&key("a", "kept"), map("a", "kept", "old"));
        store.put(&key("a", "gone"), map("a", "gone", "old"));
        let then = store.revision();
        store.put(&key("a", "kept"), map("a", "kept", "new"));
        store.remove(&key("a", "gone"));
        store.put(&key("a", "late"), map("a", "late", "new"));
        let old = store.scan_at(then, CONFIG_MAPS, None).expect("still known");
        let texts: Vec<_> = old.values().map(|o| (meta::name(o), meta::text(o, "/data/text"))).collect();
        assert_eq!(texts, [("gone", "old"), ("kept", "old")]);
        store.compact();
        assert!(store.scan_at(then, CONFIG_MAPS, None).is_err());
        assert!(store.since(store.revision()).is_ok());
    }

    #[test]
    fn history_is_bounded() {
        let mut store = Store::default();
        for i in 0..=HISTORY_MAX {
            store.put(&key("a", "x"), map("a", "x", &i.to_string()));
        }
        assert_eq!(store.since(0).err(), Some(Forgotten { oldest: 1 }));
        assert_eq!(store.since(1).expect("known").count(), HISTORY_MAX);
    }

    #[test]
    fn dependents_follow_the_owner_references() {
        let mut store = Store::default();
        let owned = |owner: &str| json!({"metadata": {"name": "x", "ownerReferences": [{"uid": owner}]}});
        store.put(&key("a", "x"), owned("1"));
        assert_eq!(store.dependents("1"), [key("a", "x")]);
        store.put(&key("a", "x"), owned("2"));
        assert!(store.dependents("1").is_empty());
        store.remove(&key("a", "x"));
        assert!(store.dependents("2").is_empty());
    }
}

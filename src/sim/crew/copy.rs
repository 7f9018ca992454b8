//! A copy of what a server has.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::world::Key;
use crate::sim::world::Resource;
use crate::sim::world::View;

/// The objects, each as new as it was ever seen: an answer to a write may come before or after the watch tells of it.
#[derive(Default)]
pub(super) struct Copy {
    objects: BTreeMap<Key, Arc<Value>>,
    /// The uids of those that are gone, of which a watch may still tell.
    gone: BTreeSet<String>,
}

impl Copy {
    /// Takes in an object and returns it, unless a newer state is known.
    pub(super) fn put(&mut self, key: &Key, object: Value) -> Option<Arc<Value>> {
        let known = self.objects.get(key);
        if self.gone.contains(uid(&object)) || known.is_some_and(|known| version(known) >= version(&object)) {
            return None;
        }
        let object = Arc::new(object);
        self.objects.insert(key.clone(), object.clone());
        Some(object)
    }

    /// Forgets an object and returns its last state, if it was known.
    pub(super) fn remove(&mut self, key: &Key, uid_of_it: &str) -> Option<Arc<Value>> {
        self.gone.insert(uid_of_it.to_owned());
        self.objects.get(key).filter(|known| uid(known) == uid_of_it)?;
        self.objects.remove(key)
    }

    /// All objects.
    pub(super) fn all(&self) -> impl Iterator<Item = &Value> {
        self.objects.values().map(|object| &**object)
    }
}

/// Versions count up (KEP-5504), so that the newer one can be told.
fn version(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().unwrap_or(0)
}

impl View for Copy {
    fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.objects.get(key).cloned()
    }

    fn list(&self, resource: Resource, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let from = self.objects.range(Key::new(resource, namespace.unwrap_or_default(), "")..);
        let wanted =
            |key: &Key| key.resource == resource && namespace.is_none_or(|space| space == &*key.namespace);
        from.take_while(|(key, _)| wanted(key)).map(|(_, object)| object.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sim::kinds::CONFIG_MAPS;

    #[test]
    fn late_news_change_nothing() {
        let map = |version: &str, uid: &str| json!({"metadata": {"resourceVersion": version, "uid": uid}});
        let key = Key::new(CONFIG_MAPS, "default", "a");
        let mut copy = Copy::default();
        assert!(copy.put(&key, map("9", "x")).is_some());
        assert!(copy.put(&key, map("9", "x")).is_none() && copy.put(&key, map("8", "x")).is_none());
        assert!(copy.put(&key, map("10", "x")).is_some(), "ten is more than nine");
        assert!(copy.remove(&key, "x").is_some());
        assert!(copy.put(&key, map("11", "x")).is_none(), "it is gone");
        assert!(copy.put(&key, map("12", "y")).is_some());
        assert!(copy.remove(&key, "x").is_none(), "that was the one before");
        assert_eq!(copy.list(CONFIG_MAPS, None).len(), 1);
    }
}

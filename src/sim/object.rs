//! Reading and changing objects that are JSON trees. An absent field reads as empty.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::sim::world::Key;
use crate::sim::world::Resource;
use crate::time::Timestamp;

/// The text at a JSON pointer; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The list at a JSON pointer; empty if there is none.
pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The map at a JSON pointer as pairs of texts; entries that are no texts are left out.
pub(super) fn pairs<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = object.pointer(pointer).and_then(Value::as_object);
    map.into_iter().flatten().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
}

/// The moment at a JSON pointer, if there is one.
pub(super) fn moment(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).parse().ok()
}

/// A moment as the fields of type `MicroTime` want it: with six digits, neither more nor fewer.
pub(super) fn micro_time(at: Timestamp) -> String {
    at.to_string().replace('Z', "000Z")
}

/// The object's name.
pub(super) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// The object's namespace; empty for a cluster-scoped one.
pub(super) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// The object's uid.
pub(super) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// The object's key, given its kind.
pub(super) fn key_of(resource: Resource, object: &Value) -> Key {
    Key::new(resource, namespace(object), name(object))
}

/// True if a pod, an instance or a migration has ended.
pub(super) fn is_final(object: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&text(object, "/status/phase"))
}

/// True if the object is being deleted and only finalizers or a grace period keep it.
pub(super) fn deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
}

/// The value of an annotation.
pub(super) fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(name)?.as_str()
}

/// The value of a label.
pub(super) fn label<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.pointer("/metadata/labels")?.get(name)?.as_str()
}

/// The owner of a kind, as the object's references name it.
pub(super) fn owner<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(object, "/metadata/ownerReferences").iter().find(|owner| text(owner, "/kind") == kind)
}

/// A reference that makes `owner` the managing owner of another object.
pub(super) fn owned_by(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": name(owner),
        "uid": uid(owner),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// True if the object has this finalizer.
pub(super) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    items(object, "/metadata/finalizers").iter().any(|held| held == finalizer)
}

/// A patch that takes finalizers from the object and leaves the others.
pub(super) fn without_finalizers(object: &Value, finalizers: &[&str]) -> Value {
    let rest: Vec<&Value> = items(object, "/metadata/finalizers")
        .iter()
        .filter(|held| !held.as_str().is_some_and(|held| finalizers.contains(&held)))
        .collect();
    json!({ "metadata": { "finalizers": rest } })
}

/// A patch that gives the object a finalizer besides the ones it has.
pub(super) fn with_finalizer(object: &Value, finalizer: &str) -> Value {
    let mut all = items(object, "/metadata/finalizers").to_vec();
    all.push(finalizer.into());
    json!({ "metadata": { "finalizers": all } })
}

/// The condition of a type in the object's status.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(object, "/status/conditions").iter().find(|condition| text(condition, "/type") == kind)
}

/// True if the object has the condition and it is `True`.
pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| text(condition, "/status") == "True")
}

/// The claims that an instance, a VM template's spec or a pod's spec at `pointer` mounts. A DataVolume has the name of
/// its claim.
pub(super) fn claims<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> {
    let volumes = items(object, pointer).iter();
    let claim = |volume| match text(volume, "/persistentVolumeClaim/claimName") {
        "" => text(volume, "/dataVolume/name"),
        claim => claim,
    };
    volumes.map(claim).filter(|claim| !claim.is_empty())
}

/// True if merging `patch` into `old` would change it (RFC 7386).
pub(super) fn would_change(old: &Value, patch: &Value) -> bool {
    match (old, patch) {
        (Value::Object(old), Value::Object(patch)) => patch.iter().any(|(name, value)| match old.get(name) {
            Some(field) => would_change(field, value),
            None => !value.is_null(),
        }),
        (old, patch) => old != patch,
    }
}

/// The merge patch that turns `old` into `new`.
pub(super) fn patch_between(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return new.clone() };
    let mut patch: Map<String, Value> =
        old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), Value::Null)).collect();
    for (name, value) in new {
        match old.get(name) {
            Some(before) if before == value => {}
            Some(before) => drop(patch.insert(name.clone(), patch_between(before, value))),
            None => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    Value::Object(patch)
}

/// The conditions of a status that is being written. The time of a transition moves only when the status changes.
pub(super) struct Conditions {
    list: Vec<Value>,
    now: Timestamp,
}

impl Conditions {
    /// The conditions that the object has.
    pub(super) fn of(object: &Value, now: Timestamp) -> Self {
        Self { list: items(object, "/status/conditions").to_vec(), now }
    }

    /// Sets a condition to `True`, `False` or `Unknown`.
    pub(super) fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let place = self.list.iter().position(|condition| text(condition, "/type") == kind);
        let since = place
            .map(|i| &self.list[i])
            .filter(|condition| text(condition, "/status") == status)
            .filter(|condition| moment(condition, "/lastTransitionTime").is_some())
            .map_or_else(
                || self.now.to_string(),
                |condition| text(condition, "/lastTransitionTime").to_owned(),
            );
        let mut condition = json!({ "type": kind, "status": status, "lastTransitionTime": since });
        for (field, value) in [("reason", reason), ("message", message)] {
            if !value.is_empty() {
                condition[field] = value.into();
            }
        }
        match place {
            Some(i) => self.list[i] = condition,
            None => self.list.push(condition),
        }
    }

    /// Takes a condition over from another object, or removes it if that has none.
    pub(super) fn copy(&mut self, from: Option<&Value>, kind: &str) {
        let place = self.list.iter().position(|condition| text(condition, "/type") == kind);
        match (from.and_then(|object| condition(object, kind)), place) {
            (Some(found), Some(i)) => self.list[i] = found.clone(),
            (Some(found), None) => self.list.push(found.clone()),
            (None, _) => self.remove(kind),
        }
    }

    /// Removes a condition.
    pub(super) fn remove(&mut self, kind: &str) {
        self.list.retain(|condition| text(condition, "/type") != kind);
    }

    /// The list, for the status.
    pub(super) fn into_value(self) -> Value {
        Value::Array(self.list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_between_two_trees_makes_one_of_the_other() {
        let old = json!({ "a": 1, "b": { "c": 2, "d": 3 }, "e": [1] });
        let new = json!({ "b": { "c": 2, "x": 4 }, "e": [2] });
        let patch = patch_between(&old, &new);
        assert_eq!(patch, json!({ "a": null, "b": { "d": null, "x": 4 }, "e": [2] }));
        assert!(would_change(&old, &patch));
        assert!(!would_change(&new, &patch));
        assert!(!would_change(&new, &patch_between(&new, &new)));
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let at = Timestamp::from_millis;
        let mut conditions = Conditions::of(&json!({}), at(1_000));
        conditions.set("Ready", "False", "Starting", "");
        let object = json!({ "status": { "conditions": conditions.into_value() } });
        let mut conditions = Conditions::of(&object, at(2_000));
        conditions.set("Ready", "False", "StillStarting", "soon");
        let object = json!({ "status": { "conditions": conditions.into_value() } });
        let ready = condition(&object, "Ready").expect("was set");
        assert_eq!(moment(ready, "/lastTransitionTime"), Some(at(1_000)));
        assert_eq!(text(ready, "/reason"), "StillStarting");
        let mut conditions = Conditions::of(&object, at(3_000));
        conditions.set("Ready", "True", "", "");
        let object = json!({ "status": { "conditions": conditions.into_value() } });
        let ready = condition(&object, "Ready").expect("was set");
        assert_eq!(moment(ready, "/lastTransitionTime"), Some(at(3_000)));
        assert!(is_true(&object, "Ready"));
    }
}

//! What a write changed, path by path, and how to put it back.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::action::naming::LAST_WRITE;

/// A path that a write touched. A value that is not there is `None`; a null is `Some(Value::Null)`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// JSON pointer; empty for the whole object.
    pub path: String,
    /// The value before the write.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub before: Option<Value>,
    /// The value after it, as the server answered.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub after: Option<Value>,
}

/// Keeps a null apart from a missing key.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The most paths of one write that are remembered (E13): more is a manifest, which is undone by other means.
pub const CHANGES_MAX: usize = 1_000;

/// Maps with many writers: only single keys are ours, also where the map was not there before.
const SHARED_MAPS: [&str; 2] = ["/metadata/annotations", "/metadata/labels"];

/// The changes that a patch of nested objects (a merge patch, a strategic one, an applied manifest) made.
pub fn of_merge(patch: &Value, before: &Value, after: &Value) -> Vec<Change> {
    let mut paths = vec![];
    leaves(patch, Some(before), &mut String::new(), &mut paths);
    compare(paths, before, after)
}

/// The changes that a JSON patch made.
pub fn of_json_patch(patch: &Value, before: &Value, after: &Value) -> Vec<Change> {
    let operations = patch.as_array().map_or(&[][..], Vec::as_slice);
    let text = |operation: &Value, key: &str| operation.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut paths = vec![];
    for operation in operations {
        match operation.get("op").and_then(Value::as_str) {
            Some("test") => {}
            Some("move") => {
                paths.extend([text(operation, "from"), text(operation, "path")].into_iter().flatten());
            }
            _ => paths.extend(text(operation, "path")),
        }
    }
    let mut paths: Vec<String> = paths.into_iter().map(|path| existing_or_first_new(&path, before)).collect();
    paths.sort();
    paths.dedup();
    compare(paths, before, after)
}

/// True if at least one path holds another value than before.
pub fn any(changes: &[Change]) -> bool {
    changes.iter().any(|change| change.before != change.after)
}

fn compare(paths: Vec<String>, before: &Value, after: &Value) -> Vec<Change> {
    let noted = paths.into_iter().filter(|path| !is_own(path)).take(CHANGES_MAX);
    noted
        .map(|path| Change {
            before: before.pointer(&path).cloned(),
            after: after.pointer(&path).cloned(),
            path,
        })
        .collect()
}

/// Paths that say nothing about the object: who wrote it, and what identifies it.
fn is_own(path: &str) -> bool {
    let annotation = format!("/metadata/annotations/{}", escape(LAST_WRITE));
    path == annotation
        || matches!(path, "/apiVersion" | "/kind" | "/metadata/name" | "/metadata/namespace")
        || path == "/metadata/resourceVersion"
}

/// The deepest paths that a patch names. Where the object has nothing yet, the path ends: all below it is new.
fn leaves(patch: &Value, before: Option<&Value>, at: &mut String, out: &mut Vec<String>) {
    let empty = Value::Object(Map::new());
    let before = before.or_else(|| SHARED_MAPS.contains(&at.as_str()).then_some(&empty));
    let (Value::Object(fields), Some(Value::Object(old))) = (patch, before) else {
        out.push(at.clone());
        return;
    };
    // Directives of a strategic merge patch (`$patch`, `$retainKeys`) speak about the object around them.
    if fields.keys().any(|key| key.starts_with('$')) {
        out.push(at.clone());
        return;
    }
    for (key, value) in fields {
        let length = at.len();
        at.push('/');
        at.push_str(&escape(key));
        leaves(value, old.get(key), at, out);
        at.truncate(length);
    }
}

/// Shortens a pointer to what can be put back alone: a list as a whole, or the first part that was not there.
fn existing_or_first_new(path: &str, before: &Value) -> String {
    let mut at = before;
    let mut taken = String::new();
    for part in path.split('/').skip(1) {
        if at.is_array() {
            return taken;
        }
        taken.push('/');
        taken.push_str(part);
        match at.pointer(&format!("/{part}")) {
            Some(next) => at = next,
            None => return taken,
        }
    }
    taken
}

fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// The JSON patch that puts every change back which still holds what was written; the error lists the paths that
/// hold neither that nor the old value. An empty patch: everything is as it was.
pub fn undo(changes: &[Change], live: &Value) -> Result<Vec<Value>, Vec<String>> {
    let mut operations = vec![];
    let mut foreign = vec![];
    for change in changes {
        let now = live.pointer(&change.path);
        if now == change.before.as_ref() {
            continue;
        }
        if now != change.after.as_ref() {
            foreign.push(change.path.clone());
            continue;
        }
        match (&change.before, now) {
            (None, _) => operations.push(json!({"op": "remove", "path": change.path})),
            (Some(value), Some(_)) => {
                operations.push(json!({"op": "replace", "path": change.path, "value": value}));
            }
            (Some(value), None) => {
                operations.extend(missing_parents(&change.path, live));
                operations.push(json!({"op": "add", "path": change.path, "value": value}));
            }
        }
    }
    if foreign.is_empty() { Ok(operations) } else { Err(foreign) }
}

/// Operations that make the objects above `path`: a server drops maps that have become empty.
fn missing_parents(path: &str, live: &Value) -> Vec<Value> {
    let parents = path.match_indices('/').skip(1).map(|(end, _)| &path[..end]);
    let missing = parents.filter(|parent| live.pointer(parent).is_none());
    missing.map(|parent| json!({"op": "add", "path": parent, "value": Map::new()})).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before() -> Value {
        json!({"metadata": {"name": "a", "labels": {"x": "1"}}, "spec": {"running": true, "list": [1, 2]}})
    }

    #[test]
    fn a_merge_patch_is_recorded_at_its_leaves_and_new_maps_as_a_whole() {
        let patch = json!({"metadata": {"annotations": {"k/v": "1", LAST_WRITE: "me"}, "labels": {"x": "2"}},
                           "spec": {"running": null, "list": [3], "new": {"deep": 1}}});
        let after = json!({"metadata": {"name": "a", "labels": {"x": "2"},
                                        "annotations": {"k/v": "1", LAST_WRITE: "me"}},
                           "spec": {"list": [3], "new": {"deep": 1}}});
        let changes = of_merge(&patch, &before(), &after);
        let text = serde_json::to_value(&changes).expect("plain data");
        assert_eq!(
            text,
            json!([
                {"path": "/metadata/annotations/k~1v", "after": "1"},
                {"path": "/metadata/labels/x", "before": "1", "after": "2"},
                {"path": "/spec/running", "before": true},
                {"path": "/spec/list", "before": [1, 2], "after": [3]},
                {"path": "/spec/new", "after": {"deep": 1}},
            ])
        );
        assert_eq!(serde_json::from_value::<Vec<Change>>(text).expect("round trip"), changes);
        assert!(any(&changes) && !any(&of_merge(&json!({"spec": {"running": true}}), &before(), &before())));
    }

    #[test]
    fn a_json_patch_is_recorded_by_list_and_by_first_new_part() {
        let patch = json!([
            {"op": "test", "path": "/spec/running", "value": true},
            {"op": "add", "path": "/spec/list/-", "value": 3},
            {"op": "add", "path": "/spec/new/deep", "value": 1},
            {"op": "move", "from": "/metadata/labels/x", "path": "/metadata/labels/y"},
        ]);
        let paths: Vec<String> =
            of_json_patch(&patch, &before(), &before()).into_iter().map(|c| c.path).collect();
        assert_eq!(paths, ["/metadata/labels/x", "/metadata/labels/y", "/spec/list", "/spec/new"]);
    }

    #[test]
    fn undo_puts_back_what_still_holds_and_refuses_what_does_not() {
        let changes = vec![
            Change { path: "/spec/a".into(), before: None, after: Some(json!(1)) },
            Change { path: "/spec/b".into(), before: Some(json!(1)), after: Some(json!(2)) },
            Change { path: "/spec/gone/c".into(), before: Some(json!(3)), after: None },
            Change { path: "/spec/d".into(), before: Some(json!(4)), after: Some(json!(5)) },
        ];
        let live = json!({"spec": {"a": 1, "b": 2, "d": 4}});
        let patch: json_patch::Patch =
            serde_json::from_value(undo(&changes, &live).expect("all ours").into()).expect("a JSON patch");
        let mut restored = live.clone();
        json_patch::patch(&mut restored, &patch).expect("applies");
        assert_eq!(restored, json!({"spec": {"b": 1, "gone": {"c": 3}, "d": 4}}));
        assert_eq!(undo(&changes, &restored), Ok(vec![]), "a second undo has nothing to do");

        let foreign = json!({"spec": {"a": 1, "b": 7, "d": 4}});
        assert_eq!(undo(&changes, &foreign), Err(vec!["/spec/b".to_owned()]));
    }

    #[test]
    fn a_null_is_not_a_missing_value() {
        let change = Change { path: "/spec/a".into(), before: Some(Value::Null), after: None };
        let text = serde_json::to_string(&change).expect("plain data");
        assert_eq!(text, r#"{"path":"/spec/a","before":null}"#);
        assert_eq!(serde_json::from_str::<Change>(&text).expect("round trip"), change);
    }
}

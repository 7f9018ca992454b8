use serde_json::{Map, Value};

use crate::sim::failure::Failure;
use crate::sim::fields::join;
use crate::sim::kinds::Kind;
use crate::sim::kinds::ListRule;
use crate::sim::patch::MAP;

const DIRECTIVE: &str = "$patch";
const DELETE_ITEMS: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";
const RETAIN: &str = "$retainKeys";

/// Applies a strategic merge patch: like a merge patch, but lists with a merge key are merged item by item, and
/// directives (`$patch`, `$deleteFromPrimitiveList`, `$setElementOrder`, `$retainKeys`) say more.
pub fn strategic(kind: &Kind, target: &mut Value, patch: &Value) -> Result<(), Failure> {
    let Value::Object(patch) = patch else {
        return Err(Failure::not_a(patch, MAP));
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    merge_map(kind, "", target.as_object_mut().expect("made one above"), patch)
}

fn merge_map(
    kind: &Kind,
    path: &str,
    target: &mut Map<String, Value>,
    changes: &Map<String, Value>,
) -> Result<(), Failure> {
    match changes.get(DIRECTIVE).map(|directive| directive.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => {
            target.clone_from(changes);
            target.shift_remove(DIRECTIVE);
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        Some(other) => {
            return Err(Failure::bad_request(format!("unrecognized type: {other}")));
        }
    }
    if let Some(kept) = changes.get(RETAIN).and_then(Value::as_array) {
        target.retain(|field, _| kept.iter().any(|k| k == field));
    }
    for (field, value) in changes.iter().filter(|(field, _)| !field.starts_with('$')) {
        merge_field(kind, &join(path, field), target, field, value)?;
    }
    for (directive, value) in changes {
        if let Some(field) = directive.strip_prefix(DELETE_ITEMS) {
            let gone = value.as_array().map(Vec::as_slice).unwrap_or_default();
            if let Some(Value::Array(items)) = target.get_mut(field) {
                items.retain(|item| !gone.contains(item));
            }
        } else if let Some(field) = directive.strip_prefix(ORDER) {
            let rule = kind.list_rule(&join(path, field));
            if let (Some(Value::Array(items)), Some(order)) = (target.get_mut(field), value.as_array()) {
                let live = items.clone();
                arrange(rule, items, order, &live);
            }
        }
    }
    Ok(())
}

fn merge_field(
    kind: &Kind,
    path: &str,
    target: &mut Map<String, Value>,
    field: &str,
    value: &Value,
) -> Result<(), Failure> {
    match value {
        Value::Null => drop(target.shift_remove(field)),
        Value::Object(changes) => {
            let place = target.entry(field).or_insert(Value::Null);
            if !place.is_object() {
                *place = Value::Object(Map::new());
            }
            merge_map(kind, path, place.as_object_mut().expect("made one above"), changes)?;
            if changes.get(DIRECTIVE).is_some_and(|d| d == "delete") {
                target.shift_remove(field);
            }
        }
        Value::Array(changes) => {
            let place = target.entry(field).or_insert_with(|| Value::Array(vec![]));
            match (kind.list_rule(path), place) {
                (rule @ ListRule::Keyed { merge, .. }, Value::Array(items)) => {
                    let live = items.clone();
                    merge_keyed(kind, path, merge, items, changes)?;
                    arrange(rule, items, changes, &live);
                }
                (ListRule::Set, Value::Array(items)) => {
                    let live = items.clone();
                    let new: Vec<_> = changes.iter().filter(|item| !items.contains(item)).cloned().collect();
                    items.extend(new);
                    arrange(ListRule::Set, items, changes, &live);
                }
                (_, place) => *place = value.clone(),
            }
        }
        _ => drop(target.insert(field.to_owned(), value.clone())),
    }
    Ok(())
}

fn merge_keyed(
    kind: &Kind,
    path: &str,
    key: &str,
    items: &mut Vec<Value>,
    changes: &[Value],
) -> Result<(), Failure> {
    let replaces = changes.iter().any(|item| item.get(DIRECTIVE).is_some_and(|d| d == "replace"));
    if replaces {
        *items = changes.iter().filter(|item| item.get(DIRECTIVE).is_none()).cloned().collect();
        return Ok(());
    }
    for change in changes {
        let Some(name) = change.get(key) else {
            return Err(Failure::bad_request(format!(
                "map: {change} does not contain declared merge key: {key}"
            )));
        };
        let at = items.iter().position(|item| item.get(key) == Some(name));
        let deletes = change.get(DIRECTIVE).is_some_and(|d| d == "delete");
        match (at, change) {
            (Some(at), _) if deletes => drop(items.remove(at)),
            (None, _) if deletes => {}
            (Some(at), Value::Object(change)) => {
                let item = items[at].as_object_mut().expect("it has a merge key");
                merge_map(kind, path, item, change)?;
            }
            (_, change) => {
                let mut item = Map::new();
                let change = change.as_object().expect("it has a merge key");
                merge_map(kind, path, &mut item, change)?;
                items.push(Value::Object(item));
            }
        }
    }
    Ok(())
}

/// Brings `items` into the order of kube-apiserver: those that `order` names as it names them, and each of the others
/// before the first of these that it preceded in the `live` list.
fn arrange(rule: ListRule, items: &mut Vec<Value>, order: &[Value], live: &[Value]) {
    let same = |a: &Value, b: &Value| match rule {
        ListRule::Keyed { merge, .. } => a.get(merge) == b.get(merge),
        _ => a == b,
    };
    let place = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut named, others): (Vec<_>, Vec<_>) =
        items.drain(..).partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    let mut others = others.into_iter().peekable();
    for item in named {
        let at = place(live, &item);
        while let Some(other) = others.next_if(|other| at.is_some() && place(live, other) < at) {
            items.push(other);
        }
        items.push(item);
    }
    items.extend(others);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sim::kinds::PODS;
    use crate::sim::kinds::of;

    fn patched(before: &Value, patch: &Value) -> Value {
        let mut target = before.clone();
        strategic(of(PODS).expect("a row"), &mut target, patch).expect("a good patch");
        target
    }

    #[test]
    fn lists_with_a_key_are_merged_and_others_replaced() {
        let before = json!({"spec": {
            "containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}],
            "tolerations": [{"key": "x"}]
        }});
        let patch = json!({"spec": {
            "containers": [{"name": "b", "image": "2"}, {"name": "c", "image": "3"}],
            "tolerations": [{"key": "y"}]
        }});
        let after = json!({"spec": {
            "containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c", "image": "3"}],
            "tolerations": [{"key": "y"}]
        }});
        assert_eq!(patched(&before, &patch), after);
    }

    #[test]
    fn directives_delete_replace_and_order() {
        let before = json!({
            "metadata": {"finalizers": ["a", "b"], "labels": {"x": "1", "y": "1"}},
            "spec": {"containers": [{"name": "a"}, {"name": "b"}]}
        });
        for (patch, pointer, after) in [
            (json!({"metadata": {"finalizers": ["c"]}}), "/metadata/finalizers", json!(["c", "a", "b"])),
            (
                json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
                "/metadata/finalizers",
                json!(["b"]),
            ),
            (
                json!({"spec": {"containers": [{"$patch": "delete", "name": "a"}]}}),
                "/spec/containers",
                json!([{"name": "b"}]),
            ),
            (
                json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}}),
                "/spec/containers",
                json!([{"name": "z"}]),
            ),
            (
                json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}),
                "/spec/containers",
                json!([{"name": "b"}, {"name": "a"}]),
            ),
            (
                json!({"metadata": {"labels": {"$patch": "replace", "z": "1"}}}),
                "/metadata/labels",
                json!({"z": "1"}),
            ),
            (json!({"metadata": {"labels": {"x": null}}}), "/metadata/labels", json!({"y": "1"})),
            (json!({"metadata": {"labels": {"$retainKeys": ["y"]}}}), "/metadata/labels", json!({"y": "1"})),
        ] {
            assert_eq!(patched(&before, &patch).pointer(pointer), Some(&after), "{patch}");
        }
    }

    #[test]
    fn an_item_without_its_key_is_a_bad_request() {
        let patch = json!({"spec": {"containers": [{"image": "1"}]}});
        let failure = strategic(of(PODS).expect("a row"), &mut json!({}), &patch).expect_err("no key");
        assert_eq!(failure.code, 400);
    }
}

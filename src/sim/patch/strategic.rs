use serde_json::{Map, Value};

use crate::sim::failure::Failure;
use crate::sim::fields::join;
use crate::sim::kinds::Kind;
use crate::sim::kinds::ListRule;

const DIRECTIVE: &str = "$patch";
const DELETE_ITEMS: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";
const RETAIN: &str = "$retainKeys";

/// Applies a strategic merge patch: like a merge patch, but lists with a merge key are merged item by item, and
/// directives (`$patch`, `$deleteFromPrimitiveList`, `$setElementOrder`, `$retainKeys`) say more.
pub(crate) fn strategic(kind: &Kind, target: &mut Value, patch: &Value) -> Result<(), Failure> {
    let Value::Object(patch) = patch else {
        return Err(Failure::bad_request("a strategic merge patch must be an object"));
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
    let before = target.clone();
    for (field, value) in changes.iter().filter(|(field, _)| !field.starts_with('$')) {
        merge_field(kind, &join(path, field), target, field, value)?;
    }
    for (field, order) in orders(changes) {
        let rule = kind.list_rule(&join(path, field));
        let (Some(Value::Array(items)), Some(Value::Array(old))) = (target.get_mut(field), before.get(field))
        else {
            continue;
        };
        if rule != ListRule::Atomic {
            *items = in_order(rule, items, old, order);
        }
    }
    for (directive, value) in changes {
        let Some(field) = directive.strip_prefix(DELETE_ITEMS) else { continue };
        let gone = value.as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(Value::Array(items)) = target.get_mut(field) {
            items.retain(|item| !gone.contains(item));
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
                (ListRule::Keyed { merge, .. }, Value::Array(items)) => {
                    merge_keyed(kind, path, merge, items, changes)?;
                }
                (ListRule::Set, Value::Array(items)) => {
                    let new: Vec<_> = changes.iter().filter(|item| !items.contains(item)).cloned().collect();
                    items.extend(new);
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

/// The lists that a patch touches, with the order in which it names their items.
fn orders(changes: &Map<String, Value>) -> impl Iterator<Item = (&str, &[Value])> {
    changes.iter().filter_map(|(name, value)| {
        let order = value.as_array()?.as_slice();
        match name.strip_prefix(ORDER) {
            Some(field) => Some((field, order)),
            None if name.starts_with('$') || changes.contains_key(&format!("{ORDER}{name}")) => None,
            None => Some((name.as_str(), order)),
        }
    })
}

/// Puts the items of a merged list in order: those that the patch names as it names them, the others as they were in
/// `old`; between the two, what was before the other in `old` goes first, and what is new goes before what is not.
fn in_order(rule: ListRule, merged: &[Value], old: &[Value], order: &[Value]) -> Vec<Value> {
    let same = |a: &Value, b: &Value| match rule {
        ListRule::Keyed { merge, .. } => a.get(merge) == b.get(merge),
        _ => a == b,
    };
    let place = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut named, rest): (Vec<&Value>, Vec<&Value>) =
        merged.iter().partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    let (mut named, mut rest) = (named.into_iter().peekable(), rest.into_iter().peekable());
    let mut all = vec![];
    while let (Some(new), Some(kept)) = (named.peek(), rest.peek()) {
        let kept_first = match (place(old, kept), place(old, new)) {
            (Some(kept), Some(new)) => kept < new,
            _ => false,
        };
        all.extend(if kept_first { rest.next() } else { named.next() }.cloned());
    }
    all.extend(named.chain(rest).cloned());
    all
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

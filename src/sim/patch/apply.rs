use serde_json::Map;
use serde_json::Value;

use crate::sim::failure::Cause;
use crate::sim::failure::Failure;
use crate::sim::fields::FieldSet;
use crate::sim::fields::fields_of;
use crate::sim::fields::item_step;
use crate::sim::fields::join;
use crate::sim::kinds::Kind;
use crate::sim::kinds::ListRule;
use crate::sim::managed;
use crate::sim::managed::How;
use crate::sim::managed::Writer;
use crate::sim::meta;

/// Applies a manifest: merges it into the object, removes what the same manager applied before and no longer does
/// (unless somebody else owns it too), and records the ownership. Without `force`, a field of another manager with
/// another value is a conflict.
pub(crate) fn apply(
    kind: &Kind,
    object: &mut Value,
    manifest: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<(), Failure> {
    managed::adopt(kind, object, writer);
    let before = object.clone();
    let mut applied = fields_of(kind, manifest);
    managed::strip_unowned(&mut applied);
    let entries = managed::entries(&before);
    let (mine, others): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| {
        entry.manager == writer.manager && entry.how == How::Apply && entry.subresource == writer.subresource
    });
    let mut dropped = mine.iter().fold(FieldSet::default(), |set, entry| set.union(&entry.fields));
    dropped = dropped.difference(&applied);
    let others = others.iter().fold(applied.clone(), |set, entry| set.union(&entry.fields));
    merge(kind, "", object, manifest);
    let mut emptied = vec![];
    prune(kind, "", object, &dropped, &others, &mut emptied);
    if kind.custom && !emptied.is_empty() {
        let causes: Vec<Cause> = emptied.iter().map(|path| Cause::of_type(path, "object")).collect();
        return Err(Failure::invalid(kind, meta::name(&before), &causes));
    }
    managed::record_apply(kind, &before, object, applied, writer, force)
}

fn merge(kind: &Kind, path: &str, target: &mut Value, manifest: &Value) {
    match (target, manifest) {
        (Value::Object(target), Value::Object(manifest)) if !kind.is_atomic(path) => {
            for (field, value) in manifest {
                if value.is_null() {
                    target.shift_remove(field);
                } else if let Some(place) = target.get_mut(field) {
                    merge(kind, &join(path, field), place, value);
                } else {
                    target.insert(field.clone(), value.clone());
                }
            }
        }
        (Value::Array(items), Value::Array(manifest)) if kind.list_rule(path) != ListRule::Atomic => {
            merge_items(kind, path, items, manifest);
        }
        (target, manifest) => *target = manifest.clone(),
    }
}

/// Merges the items of a list. The order is that of the manifest; items that it does not name stay where they are
/// among the others.
fn merge_items(kind: &Kind, path: &str, items: &mut Vec<Value>, manifest: &[Value]) {
    let rule = kind.list_rule(path);
    let same = |a: &Value, b: &Value| item_step(rule, a) == item_step(rule, b);
    let is_in = |list: &[Value], item: &Value| list.iter().any(|other| same(other, item));
    let live = std::mem::take(items);
    let mut rest = live.as_slice();
    for (i, value) in manifest.iter().enumerate() {
        let next_shared = manifest[i..].iter().find(|later| is_in(&live, later));
        while let [first, tail @ ..] = rest {
            if !is_in(manifest, first) {
                items.push(first.clone());
            } else if !same(first, value) && next_shared.is_some_and(|shared| same(shared, first)) {
                break;
            }
            rest = tail;
            if same(first, value) {
                break;
            }
        }
        let mut item = live.iter().find(|item| same(item, value)).cloned().unwrap_or_else(|| value.clone());
        merge(kind, path, &mut item, value);
        items.push(item);
    }
    items.extend(rest.iter().filter(|item| !is_in(manifest, item)).cloned());
}

/// Removes the fields of `dropped` that `others` do not own, and the maps and lists that become empty by it. Names the
/// maps that `others` own all the same: of those the real server makes null, which a definition's schema then refuses.
fn prune(
    kind: &Kind,
    path: &str,
    target: &mut Value,
    dropped: &FieldSet,
    others: &FieldSet,
    emptied: &mut Vec<String>,
) {
    let none = FieldSet::default();
    match target {
        Value::Object(map) => {
            for (step, below) in dropped.steps() {
                let Some(field) = step.strip_prefix("f:") else { continue };
                let theirs = others.below(step).unwrap_or(&none);
                let Some(value) = map.get_mut(field) else { continue };
                let path = join(path, field);
                let full = value.as_object().is_some_and(|map| !map.is_empty());
                if goes(value, below, theirs, |value| prune(kind, &path, value, below, theirs, emptied)) {
                    map.shift_remove(field);
                } else if full && value.as_object().is_some_and(Map::is_empty) {
                    emptied.push(path);
                }
            }
        }
        Value::Array(items) => {
            let rule = kind.list_rule(path);
            items.retain_mut(|item| {
                let Some(step) = item_step(rule, item) else { return true };
                let Some(below) = dropped.below(&step) else { return true };
                let theirs = others.below(&step).unwrap_or(&none);
                !goes(item, below, theirs, |item| prune(kind, path, item, below, theirs, emptied))
            });
        }
        _ => {}
    }
}

/// Whether a value goes as a whole; if not, `inside` takes from it what goes.
fn goes(value: &mut Value, dropped: &FieldSet, others: &FieldSet, inside: impl FnOnce(&mut Value)) -> bool {
    if dropped.is_member() && others.is_empty() {
        return true;
    }
    inside(value);
    let empty = match value {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    empty && others.is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sim::kinds::CONFIG_MAPS;
    use crate::sim::kinds::PODS;
    use crate::sim::kinds::of;
    use crate::time::Timestamp;

    fn writer(manager: &str, how: How) -> Writer<'_> {
        let now = Timestamp::from_millis(0);
        Writer { manager, how, subresource: "", api_version: "v1", now }
    }

    fn apply_as(manager: &str, object: &mut Value, manifest: &Value) -> Result<(), Failure> {
        let kind = of(CONFIG_MAPS).expect("a row");
        apply(kind, object, manifest, &writer(manager, How::Apply), false)
    }

    #[test]
    fn a_manager_removes_what_it_no_longer_applies() {
        let mut object = json!({});
        apply_as("one", &mut object, &json!({"data": {"a": "1", "b": "1"}})).expect("new");
        apply_as("two", &mut object, &json!({"data": {"b": "1"}})).expect("the same value");
        apply_as("one", &mut object, &json!({"data": {"c": "1"}})).expect("its own fields");
        assert_eq!(object["data"], json!({"b": "1", "c": "1"}));
        apply_as("two", &mut object, &json!({})).expect("nothing left");
        assert_eq!(object["data"], json!({"c": "1"}));
        assert_eq!(managed::entries(&object).len(), 1);
    }

    #[test]
    fn another_value_for_somebody_elses_field_is_a_conflict_that_names_both() {
        let kind = of(CONFIG_MAPS).expect("a row");
        let mut object = json!({});
        let mut new = json!({"data": {"a": "1", "b": "1"}});
        managed::record_update(kind, &object, &mut new, &writer("kubectl-edit", How::Update));
        object = new;
        let failure = apply_as("me", &mut object.clone(), &json!({"data": {"a": "2"}})).expect_err("taken");
        assert_eq!(failure.code, 409);
        assert_eq!(
            failure.message,
            r#"Apply failed with 1 conflict: conflict with "kubectl-edit" using v1: .data.a"#
        );
        let both = json!({"data": {"a": "2", "b": "2"}});
        let failure = apply_as("me", &mut object.clone(), &both).expect_err("taken");
        assert_eq!(
            failure.message,
            "Apply failed with 2 conflicts: conflicts with \"kubectl-edit\" using v1:\n- .data.a\n- .data.b"
        );
        apply(kind, &mut object, &both, &writer("me", How::Apply), true).expect("forced");
        assert_eq!(object["data"], both["data"]);
        let owners: Vec<_> = managed::entries(&object).iter().map(|e| (e.manager.clone(), e.how)).collect();
        assert_eq!(owners, [("me".to_owned(), How::Apply), ("kubectl-edit".to_owned(), How::Update)]);
    }

    #[test]
    fn items_of_a_keyed_list_are_applied_one_by_one() {
        let kind = of(PODS).expect("a row");
        let mut object = json!({"spec": {"containers": [{"name": "side", "image": "1"}]}});
        let with = |image: &str| json!({"spec": {"containers": [{"name": "main", "image": image}]}});
        apply(kind, &mut object, &with("1"), &writer("me", How::Apply), false).expect("new");
        apply(kind, &mut object, &with("2"), &writer("me", How::Apply), false).expect("mine");
        assert_eq!(
            object["spec"]["containers"],
            json!([{"name": "side", "image": "1"}, {"name": "main", "image": "2"}])
        );
        apply(kind, &mut object, &json!({"spec": {}}), &writer("me", How::Apply), false).expect("mine");
        assert_eq!(object["spec"]["containers"], json!([{"name": "side", "image": "1"}]));
    }
}

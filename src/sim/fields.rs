//! Sets of fields, as `managedFields` describes who owns what (the format called FieldsV1).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::sim::kinds::Kind;
use crate::sim::kinds::ListRule;

/// A set of paths. A step of a path is written as in FieldsV1: `f:name`, `k:{"name":"x"}` or `v:"x"`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    member: bool,
    below: BTreeMap<String, FieldSet>,
}

impl FieldSet {
    /// Reads FieldsV1.
    pub(super) fn parse(json: &Value) -> Self {
        let mut set = Self::default();
        for (step, below) in json.as_object().into_iter().flatten() {
            if step == "." {
                set.member = true;
                continue;
            }
            let mut child = Self::parse(below);
            child.member |= child.below.is_empty();
            set.below.insert(step.clone(), child);
        }
        set
    }

    /// Writes FieldsV1.
    pub(super) fn to_json(&self) -> Value {
        let mut map = Map::new();
        if self.member && !self.below.is_empty() {
            map.insert(".".into(), Value::Object(Map::new()));
        }
        for (step, below) in &self.below {
            map.insert(step.clone(), below.to_json());
        }
        Value::Object(map)
    }

    /// Whether nothing is in it.
    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }

    /// Whether the place itself is in it, and not only something below.
    pub(super) fn is_member(&self) -> bool {
        self.member
    }

    /// What is below `step`.
    pub(super) fn below(&self, step: &str) -> Option<&FieldSet> {
        self.below.get(step)
    }

    /// The steps that lead on from here.
    pub(super) fn steps(&self) -> impl Iterator<Item = (&str, &FieldSet)> {
        self.below.iter().map(|(step, below)| (step.as_str(), below))
    }

    /// What is in either.
    #[must_use]
    pub(super) fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.member |= other.member;
        for (step, theirs) in &other.below {
            let mine = all.below.entry(step.clone()).or_default();
            *mine = mine.union(theirs);
        }
        all
    }

    /// What is in both.
    #[must_use]
    pub(super) fn intersection(&self, other: &Self) -> Self {
        let mut both = Self { member: self.member && other.member, below: BTreeMap::new() };
        for (step, mine) in &self.below {
            if let Some(theirs) = other.below.get(step) {
                both.add(step, mine.intersection(theirs));
            }
        }
        both
    }

    /// What is in this one only.
    #[must_use]
    pub(super) fn difference(&self, other: &Self) -> Self {
        let mut left = Self { member: self.member && !other.member, below: BTreeMap::new() };
        for (step, mine) in &self.below {
            let rest = match other.below.get(step) {
                Some(theirs) => mine.difference(theirs),
                None => mine.clone(),
            };
            left.add(step, rest);
        }
        left
    }

    /// This without the members of `other` and everything below them.
    #[must_use]
    pub(super) fn without_trees(&self, other: &Self) -> Self {
        if other.member {
            return Self::default();
        }
        let mut left = Self { member: self.member, below: BTreeMap::new() };
        for (step, mine) in &self.below {
            let rest = match other.below.get(step) {
                Some(theirs) => mine.without_trees(theirs),
                None => mine.clone(),
            };
            left.add(step, rest);
        }
        left
    }

    fn add(&mut self, step: &str, below: Self) {
        if !below.is_empty() {
            self.below.insert(step.to_owned(), below);
        }
    }

    /// The members as error messages name them, `.spec.containers[name="x"].image`, and in their order: at each place
    /// first the members, then what is below them.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = vec![];
        self.collect_paths("", &mut paths);
        paths
    }

    fn collect_paths(&self, here: &str, paths: &mut Vec<String>) {
        let below = self.below.iter().map(|(step, below)| (format!("{here}{}", shown_step(step)), below));
        let below: Vec<_> = below.collect();
        paths.extend(below.iter().filter(|(_, set)| set.member).map(|(path, _)| path.clone()));
        for (path, set) in below {
            set.collect_paths(&path, paths);
        }
    }

    /// Removes a top-level path of field names.
    pub(super) fn remove(&mut self, path: &[&str]) {
        let [first, rest @ ..] = path else {
            *self = Self::default();
            return;
        };
        let step = format!("f:{first}");
        if let Some(below) = self.below.get_mut(&step) {
            below.remove(rest);
            if below.is_empty() {
                self.below.remove(&step);
            }
        }
    }
}

fn shown_step(step: &str) -> String {
    match step.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("v", value)) => format!("[={value}]"),
        Some((_, keys)) => format!("[{}]", shown_keys(keys)),
        None => step.to_owned(),
    }
}

fn shown_keys(keys: &str) -> String {
    let parsed: Value = serde_json::from_str(keys).unwrap_or_default();
    let pairs = parsed.as_object().into_iter().flatten();
    pairs.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// The step to an item of a list, if the list is not atomic and the item has its keys.
pub(super) fn item_step(rule: ListRule, item: &Value) -> Option<String> {
    match rule {
        ListRule::Atomic => None,
        ListRule::Set => Some(format!("v:{item}")),
        ListRule::Keyed { keys, .. } => {
            let mut values = BTreeMap::new();
            for key in keys {
                match item.get(key) {
                    Some(value) => drop(values.insert(*key, value.clone())),
                    None if *key == "protocol" => drop(values.insert(*key, "TCP".into())),
                    None => return None,
                }
            }
            let text = serde_json::to_string(&values).expect("a map of JSON values");
            Some(format!("k:{text}"))
        }
    }
}

/// A dotted path of field names.
pub(super) fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// All fields that `value` gives a value, as an apply request owns them.
pub(super) fn fields_of(kind: &Kind, value: &Value) -> FieldSet {
    fields_at(kind, "", value)
}

fn fields_at(kind: &Kind, path: &str, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    match value {
        Value::Object(map) if !kind.is_atomic(path) && (!map.is_empty() || path.is_empty()) => {
            for (field, below) in map {
                set.add(&format!("f:{field}"), fields_at(kind, &join(path, field), below));
            }
        }
        Value::Array(items) => {
            let rule = kind.list_rule(path);
            for item in items {
                let Some(step) = item_step(rule, item) else {
                    set.member = true;
                    set.below.clear();
                    break;
                };
                let mut below = fields_at(kind, path, item);
                below.member = true;
                set.below.insert(step, below);
            }
            set.member |= items.is_empty();
        }
        _ => set.member = true,
    }
    set
}

/// All fields of a value that is new: besides the values also the maps and lists around them.
fn new_fields_at(kind: &Kind, path: &str, value: &Value) -> FieldSet {
    let mut set = FieldSet { member: !path.is_empty() && !kind.is_given(path), below: BTreeMap::new() };
    match value {
        Value::Object(map) if !kind.is_atomic(path) => {
            for (field, below) in map {
                set.add(&format!("f:{field}"), new_fields_at(kind, &join(path, field), below));
            }
        }
        Value::Array(items) => {
            let rule = kind.list_rule(path);
            for item in items {
                let Some(step) = item_step(rule, item) else { break };
                let mut below = new_fields_at(kind, path, item);
                below.member = true;
                set.below.insert(step, below);
            }
        }
        _ => {}
    }
    set
}

/// How two states of an object differ.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    /// Fields that are new or have another value.
    pub changed: FieldSet,
    /// Fields that are gone.
    pub removed: FieldSet,
}

impl Comparison {
    /// Whether there is no difference.
    pub(super) fn is_same(&self) -> bool {
        self.changed.is_empty() && self.removed.is_empty()
    }

    fn add(&mut self, step: &str, below: Self) {
        self.changed.add(step, below.changed);
        self.removed.add(step, below.removed);
    }
}

/// Compares two states of an object.
pub(super) fn compare(kind: &Kind, old: &Value, new: &Value) -> Comparison {
    compare_at(kind, "", Some(old), Some(new))
}

fn compare_at(kind: &Kind, path: &str, old: Option<&Value>, new: Option<&Value>) -> Comparison {
    let mut result = Comparison::default();
    let (old, new) = match (old, new) {
        (Some(old), None) => {
            result.removed = fields_at(kind, path, old);
            result.removed.member = true;
            return result;
        }
        (None, Some(new)) => {
            result.changed = new_fields_at(kind, path, new);
            return result;
        }
        (Some(old), Some(new)) => (old, new),
        (None, None) => return result,
    };
    match (old, new) {
        (Value::Object(old), Value::Object(new)) if !kind.is_atomic(path) => {
            let fields: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for field in fields {
                let below = compare_at(kind, &join(path, field), old.get(field), new.get(field));
                result.add(&format!("f:{field}"), below);
            }
        }
        (Value::Array(old), Value::Array(new)) if kind.list_rule(path) != ListRule::Atomic => {
            let rule = kind.list_rule(path);
            let (old, new) = (by_step(rule, old), by_step(rule, new));
            for step in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
                result.add(step, compare_at(kind, path, old.get(step).copied(), new.get(step).copied()));
                if !old.contains_key(step)
                    && let Some(item) = result.changed.below.get_mut(step)
                {
                    item.member = true;
                }
            }
        }
        (old, new) => result.changed.member = old != new,
    }
    result
}

fn by_step(rule: ListRule, items: &[Value]) -> BTreeMap<String, &Value> {
    items.iter().filter_map(|item| Some((item_step(rule, item)?, item))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sim::kinds::PODS;
    use crate::sim::kinds::of;

    fn pods() -> &'static Kind {
        of(PODS).expect("a row")
    }

    fn pod(image: &str, labels: &Value) -> Value {
        json!({
            "metadata": {"labels": labels, "finalizers": ["a/b"]},
            "spec": {"containers": [{"name": "c", "image": image}], "tolerations": [{"key": "x"}]},
        })
    }

    #[test]
    fn the_fields_of_a_pod_are_written_as_fields_v1() {
        let set = fields_of(pods(), &pod("i", &json!({"app": "x"})));
        let expected = json!({
            "f:metadata": {"f:finalizers": {"v:\"a/b\"": {}}, "f:labels": {"f:app": {}}},
            "f:spec": {
                "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}}},
                "f:tolerations": {}
            }
        });
        assert_eq!(set.to_json(), expected);
        assert_eq!(FieldSet::parse(&expected), set);
        assert!(set.paths().contains(&r#".spec.containers[name="c"].image"#.to_owned()));
    }

    #[test]
    fn a_comparison_names_what_changed_and_what_is_gone() {
        let old = pod("1", &json!({"kept": "x", "gone": "x"}));
        let new = pod("2", &json!({"kept": "x", "new": "x"}));
        let found = compare(pods(), &old, &new);
        assert_eq!(found.changed.paths(), [".metadata.labels.new", r#".spec.containers[name="c"].image"#]);
        assert_eq!(found.removed.paths(), [".metadata.labels.gone"]);
        assert!(compare(pods(), &old, &old).is_same());
    }

    #[test]
    fn sets_can_be_combined() {
        let parse = |json: Value| FieldSet::parse(&json);
        let a = parse(json!({"f:x": {"f:a": {}, "f:b": {}}, "f:y": {}}));
        let b = parse(json!({"f:x": {"f:b": {}, "f:c": {}}}));
        assert_eq!(a.union(&b).paths(), [".y", ".x.a", ".x.b", ".x.c"]);
        assert_eq!(a.intersection(&b).paths(), [".x.b"]);
        assert_eq!(a.difference(&b).paths(), [".y", ".x.a"]);
        assert_eq!(a.without_trees(&parse(json!({"f:x": {}}))).paths(), [".y"]);
        assert!(a.difference(&a).is_empty());
    }
}

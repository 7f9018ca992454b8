//! The field paths of a kind as a tree: what is below what, and which types the values had.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde_json::Value;

/// Stands for any element of a list.
pub(crate) const EACH: &str = "[]";
/// Stands for any key of a map.
pub(crate) const ANY: &str = "{}";
/// Fields that hold maps wherever they stand.
const MAPS: &[&str] = &["annotations", "labels", "limits", "matchLabels", "nodeSelector", "requests"];
/// What every object has, whatever its kind: no definition of a kind lists it.
pub(crate) const COMMON: &[&str] = &["apiVersion", "kind", "metadata"];

/// A field with what is below it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tree {
    /// The JSON types of the values that were seen: `string`, `integer`, … An object or a list only if it was empty.
    /// None for a field that is only read.
    pub(crate) types: BTreeSet<String>,
    /// The fields, or [`EACH`], or [`ANY`].
    pub(crate) below: BTreeMap<String, Tree>,
}

impl Tree {
    /// The field at `path`, made if it was not there.
    pub(crate) fn at(&mut self, path: &[String]) -> &mut Self {
        path.iter().fold(self, |tree, name| tree.below.entry(name.clone()).or_default())
    }

    /// Takes in an object.
    pub(crate) fn note_object(&mut self, object: &Value) {
        for (name, value) in object.as_object().into_iter().flatten() {
            if !COMMON.contains(&name.as_str()) {
                self.at(std::slice::from_ref(name)).note(value);
            }
        }
    }

    /// Takes in a value.
    pub(crate) fn note(&mut self, value: &Value) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                for (name, value) in fields {
                    self.below.entry(name.clone()).or_default().note(value);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                items.iter().for_each(|item| self.below.entry(EACH.to_owned()).or_default().note(item));
            }
            // A patch removes the field.
            Value::Null => {}
            other => drop(self.types.insert(type_of(other).to_owned())),
        }
    }

    /// Takes in what another tree has.
    pub(crate) fn add(&mut self, other: Self) {
        self.types.extend(other.types);
        for (name, tree) in other.below {
            self.below.entry(name).or_default().add(tree);
        }
    }

    /// Puts the keys of maps under [`ANY`]. A map is what `is_map` says, what is called as maps are, and what has a key
    /// that is no name of a field.
    pub(crate) fn fold_maps(&mut self, is_map: &dyn Fn(&[String]) -> bool) {
        self.fold(&mut vec![], is_map);
    }

    fn fold(&mut self, path: &mut Vec<String>, is_map: &dyn Fn(&[String]) -> bool) {
        let called = path.last().is_some_and(|name| MAPS.contains(&name.as_str()));
        let odd = self.below.keys().any(|key| key == ANY || key.contains(['.', '/']));
        if !self.below.is_empty() && (called || odd || is_map(path)) {
            let mut any = Self::default();
            std::mem::take(&mut self.below).into_values().for_each(|tree| any.add(tree));
            self.below.insert(ANY.to_owned(), any);
        }
        for (name, tree) in &mut self.below {
            path.push(name.clone());
            tree.fold(path, is_map);
            path.pop();
        }
        if !self.below.is_empty() {
            self.types.retain(|name| !["array", "object"].contains(&name.as_str()));
        }
    }

    /// Whether there is anything at `path`.
    pub(crate) fn has(&self, path: &[&str]) -> bool {
        match path {
            [] => true,
            [name, rest @ ..] => self.below.get(*name).is_some_and(|tree| tree.has(rest)),
        }
    }

    /// A line for each field with nothing below it: its path, and its types.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![];
        self.write("", &mut lines);
        lines
    }

    fn write(&self, path: &str, lines: &mut Vec<String>) {
        let types: Vec<&str> = self.types.iter().map(String::as_str).collect();
        if !path.is_empty() && (self.below.is_empty() || !types.is_empty()) {
            lines.push(format!("{path} {}", types.join("|")).trim_end().to_owned());
        }
        for (name, tree) in &self.below {
            let joint = if path.is_empty() || [EACH, ANY].contains(&name.as_str()) { "" } else { "." };
            tree.write(&format!("{path}{joint}{name}"), lines);
        }
    }

    /// Takes in a line of [`Self::lines`].
    pub(crate) fn read(&mut self, line: &str) {
        let (path, types) = line.split_once(' ').unwrap_or((line, ""));
        let path = path.replace(EACH, ".[]").replace(ANY, ".{}");
        let path: Vec<String> = path.split('.').filter(|name| !name.is_empty()).map(str::to_owned).collect();
        self.at(&path).types.extend(types.split('|').filter(|name| !name.is_empty()).map(str::to_owned));
    }
}

/// The name of the JSON type, as OpenAPI has it.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tree_is_what_its_lines_say() {
        let mut tree = Tree::default();
        tree.note_object(&json!({
            "metadata": {"name": "a"},
            "spec": {"on": true, "size": 3, "disks": [{"name": "a"}, {"bus": {}}], "gone": null, "none": []},
            "status": {"labels": {"a.b/c": "d"}, "sizes": {"x": 1.5}},
        }));
        tree.at(&["status".into(), "sizes".into(), EACH.into(), "read".into()]);
        tree.fold_maps(&|path| path == ["status", "sizes"]);
        let expected = [
            "spec.disks[].bus object",
            "spec.disks[].name string",
            "spec.gone",
            "spec.none array",
            "spec.on boolean",
            "spec.size integer",
            "status.labels{} string",
            "status.sizes{} number",
            "status.sizes{}.read",
        ];
        assert_eq!(tree.lines(), expected);
        let mut again = Tree::default();
        expected.iter().for_each(|line| again.read(line));
        assert_eq!(again, tree);
    }
}

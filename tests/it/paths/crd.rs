//! The definitions of the real platform, where this machine has them: what they say about a path.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::Value;

use crate::paths::tree::ANY;
use crate::paths::tree::EACH;
use crate::paths::tree::Tree;

/// The real definitions by full name, for instance `virtualmachines.kubevirt.io`; none where they are not.
pub(crate) static REAL: LazyLock<Option<BTreeMap<String, Value>>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/crds");
    let Ok(files) = fs::read_dir(&folder) else {
        let warning = format!(
            "\n*** LEFT OUT: every comparison with the definitions of the real platform. They are not in {} ***\n",
            folder.display()
        );
        // Not through a print macro, which the test harness would swallow for tests that pass.
        std::io::stderr().write_all(warning.as_bytes()).unwrap();
        return None;
    };
    let mut definitions = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        for document in
            documents.into_iter().filter(|document| document["kind"] == "CustomResourceDefinition")
        {
            definitions.insert(document["metadata"]["name"].as_str().unwrap().to_owned(), document);
        }
    }
    Some(definitions)
});

/// The version of a definition.
pub(crate) fn version<'d>(definition: &'d Value, name: &str) -> Option<&'d Value> {
    definition["spec"]["versions"].as_array()?.iter().find(|version| version["name"] == name)
}

/// The schema of a version's objects.
pub(crate) fn schema<'d>(definition: &'d Value, name: &str) -> Option<&'d Value> {
    version(definition, name)?.pointer("/schema/openAPIV3Schema")
}

/// What a schema says about something below it.
enum Below<'s> {
    Known(&'s Value),
    /// Whatever it is, it is kept.
    Open,
    Missing,
}

fn below<'s>(schema: &'s Value, name: &str) -> Below<'s> {
    let keys = &schema["additionalProperties"];
    let embedded = schema["x-kubernetes-embedded-resource"] == true;
    if name == EACH && schema["items"].is_object() {
        Below::Known(&schema["items"])
    } else if let Some(known) = schema["properties"].get(name) {
        Below::Known(known)
    } else if keys.is_object() {
        Below::Known(keys)
    } else if keys == true
        || schema["x-kubernetes-preserve-unknown-fields"] == true
        || embedded && ["apiVersion", "kind", "metadata"].contains(&name)
    {
        Below::Open
    } else {
        Below::Missing
    }
}

/// Whether the schema has a map there: its keys are no fields.
pub(crate) fn is_map(schema: &Value, path: &[String]) -> bool {
    let Some((name, rest)) = path.split_first() else {
        return schema["additionalProperties"].is_object() || schema["additionalProperties"] == true;
    };
    matches!(below(schema, name), Below::Known(known) if is_map(known, rest))
}

/// What of the tree the schema does not have, or has with another type.
pub(crate) fn contradictions(schema: &Value, tree: &Tree) -> Vec<String> {
    let mut wrong = vec![];
    compare(schema, tree, "", &mut wrong);
    wrong
}

fn compare(schema: &Value, tree: &Tree, path: &str, wrong: &mut Vec<String>) {
    for (name, tree) in &tree.below {
        let joint = if path.is_empty() || [EACH, ANY].contains(&name.as_str()) { "" } else { "." };
        let path = format!("{path}{joint}{name}");
        match below(schema, name) {
            Below::Open => {}
            Below::Missing => wrong.push(format!("{path}: there is no such field")),
            Below::Known(known) => {
                let misfits = tree.types.iter().filter(|kind| !fits(known, kind));
                wrong.extend(misfits.map(|kind| {
                    format!(
                        "{path}: {kind} where {} is expected",
                        known["type"].as_str().unwrap_or("another type")
                    )
                }));
                compare(known, tree, &path, wrong);
            }
        }
    }
}

fn fits(schema: &Value, kind: &str) -> bool {
    if schema["x-kubernetes-int-or-string"] == true {
        return ["integer", "string"].contains(&kind);
    }
    match schema["type"].as_str() {
        Some("number") => ["integer", "number"].contains(&kind),
        Some(expected) => expected == kind,
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_knows_what_it_has() {
        let text = json!({"type": "string"});
        let schema = json!({"type": "object", "properties": {
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "list": {"type": "array", "items": {"type": "object", "properties": {"name": text}}},
            "map": {"type": "object", "additionalProperties": text},
            "either": {"x-kubernetes-int-or-string": true},
        }});
        let mut tree = Tree::default();
        tree.note(&json!({
            "open": {"x": 1}, "list": [{"name": 1, "other": 2}], "map": {"a": "b"}, "either": 3, "none": {"x": 1},
        }));
        let expected = [
            "list[].name: integer where string is expected",
            "list[].other: there is no such field",
            "none: there is no such field",
        ];
        assert_eq!(contradictions(&schema, &tree), expected);
        assert!(is_map(&schema, &["map".into()]));
        assert!(!is_map(&schema, &["list".into()]));
    }
}

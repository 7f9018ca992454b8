//! Definitions of the custom kinds, made from the list of paths: what is not on it is pruned.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::paths::LIST;
use crate::paths::kinds::KINDS;
use crate::paths::kinds::Kind;
use crate::paths::tree::ANY;
use crate::paths::tree::EACH;
use crate::paths::tree::Tree;

/// The definitions of all custom kinds of the rehearsal cluster.
pub(crate) fn all() -> Vec<Value> {
    KINDS.iter().filter(|kind| kind.is_custom()).map(definition).collect()
}

/// The definition of a kind: scope, names and subresources as the rehearsal cluster has them.
fn definition(kind: &Kind) -> Value {
    let empty = Tree::default();
    let mut schema = schema_of(LIST.get(&kind.full_name()).unwrap_or(&empty));
    schema["type"] = "object".into();
    let subresources = if kind.status { json!({"status": {}}) } else { json!({}) };
    let version = |(i, name): (usize, &String)| {
        json!({
            "name": name, "served": true, "storage": i == 0, "subresources": subresources,
            "schema": {"openAPIV3Schema": schema},
        })
    };
    let versions: Vec<Value> = kind.versions.iter().enumerate().map(version).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": kind.full_name(),
            // Kubernetes wants its own groups to be talked about first.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests only"},
        },
        "spec": {
            "group": kind.group,
            "scope": if kind.resource.namespaced { "Namespaced" } else { "Cluster" },
            "names": {
                "kind": kind.resource.kind,
                "plural": kind.resource.name,
                "singular": kind.resource.singular_name,
                "shortNames": kind.resource.short_names.clone().unwrap_or_default(),
                "categories": kind.resource.categories.clone().unwrap_or_default(),
            },
            "versions": versions,
        },
    })
}

fn schema_of(tree: &Tree) -> Value {
    if let Some(each) = tree.below.get(EACH) {
        return json!({"type": "array", "items": schema_of(each)});
    }
    if let Some(any) = tree.below.get(ANY) {
        return json!({"type": "object", "additionalProperties": schema_of(any)});
    }
    if !tree.below.is_empty() {
        let fields: Map<String, Value> =
            tree.below.iter().map(|(name, tree)| (name.clone(), schema_of(tree))).collect();
        return json!({"type": "object", "properties": fields});
    }
    let types: Vec<&str> = tree.types.iter().map(String::as_str).collect();
    match types.as_slice() {
        ["integer", "string"] => json!({"x-kubernetes-int-or-string": true}),
        ["integer", "number"] => json!({"type": "number"}),
        ["array"] => json!({"type": "array", "items": {"type": "object"}}),
        [one] => json!({"type": one}),
        // Nobody writes it.
        [] => json!({"type": "string"}),
        several => panic!("no schema allows {several:?}"),
    }
}

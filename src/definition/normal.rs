//! The document that a run pins: a workflow with all that it needs, as JSON.

use std::collections::BTreeMap;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::definition::Workflow;
use crate::definition::codes;
use crate::definition::diagnostic::Diagnostic;
use crate::definition::node::Kind;
use crate::definition::node::Node;
use crate::definition::node::Place;
use crate::definition::read;
use crate::definition::report::Report;
use crate::definition::validate;
use crate::digest::sha256;
use crate::id::WorkflowName;

/// Version of the layout of the document.
const FORMAT: u64 = 1;

/// Tables whose order counts, although keys of a canonical document are sorted.
const ORDERED: [&str; 2] = ["steps", "finally"];

/// The document of one workflow: its tree and the order of its steps.
pub(super) fn workflow_document(root: &Node) -> Value {
    let mut document = Map::new();
    document.insert("tree".to_owned(), root.to_json());
    for key in ORDERED {
        if let Some(table) = root.get(key) {
            let names: Vec<_> = table.entries().iter().map(|entry| entry.key.as_str()).collect();
            document.insert(key.to_owned(), json!(names));
        }
    }
    Value::Object(document)
}

/// The document of `root` with those of all workflows that it calls.
pub(super) fn document(root: &WorkflowName, workflows: &BTreeMap<WorkflowName, &Value>) -> Value {
    let workflows: Map<_, _> =
        workflows.iter().map(|(name, document)| (name.to_string(), (*document).clone())).collect();
    json!({ "format": FORMAT, "root": root, "workflows": workflows })
}

/// The same document with `root` as its root and only what that needs.
pub fn part(document: &Value, root: &WorkflowName, needed: &[WorkflowName]) -> Value {
    let mut workflows = Map::new();
    for name in [root].into_iter().chain(needed) {
        workflows.insert(name.to_string(), document["workflows"][name.as_str()].clone());
    }
    json!({ "format": FORMAT, "root": root, "workflows": workflows })
}

/// SHA-256 of a document, as hexadecimal text. The order of keys makes no difference.
pub fn digest(document: &Value) -> String {
    let mut text = String::new();
    write_canonical(document, &mut text);
    sha256(&[text.as_bytes()])
}

/// JSON without spaces, the keys of each object sorted.
fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(entries) => {
            let sorted: BTreeMap<_, _> = entries.iter().collect();
            text.push('{');
            for (i, (key, value)) in sorted.into_iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write_canonical(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    text.push(',');
                }
                write_canonical(item, text);
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

/// The root's name and every workflow of a document. One that is not `trusted` is validated as well as read: an older
/// program may have accepted what this one refuses.
///
/// # Errors
/// Whatever this version of the language does not understand, or refuses.
pub fn workflows(
    document: &Value,
    trusted: bool,
) -> Result<(WorkflowName, BTreeMap<WorkflowName, Workflow>), Vec<Diagnostic>> {
    let mut report = Report::default();
    let place = Place { file: report.sources.add("(pinned definition)", ""), range: 0..0 };
    if document["format"] != FORMAT {
        let message =
            format!("the pinned definition has format {}, this version reads {FORMAT}", document["format"]);
        report.error(&codes::SYNTAX, &place, message);
    }
    let documents = document["workflows"].as_object().into_iter().flatten();
    let roots: Vec<Node> = documents.map(|(_, document)| tree(document, &place)).collect();
    let drafts: Vec<_> =
        roots.iter().filter_map(|root| read::read_workflow(&mut report, root, 0..1)).collect();
    if !trusted {
        validate::all(&mut report, &drafts, None);
    }
    let workflows: BTreeMap<_, _> =
        drafts.into_iter().map(|draft| (draft.workflow.name.clone(), draft.workflow.with_gate())).collect();
    let root = document["root"].as_str().and_then(|name| name.parse::<WorkflowName>().ok());
    match root.filter(|root| workflows.contains_key(root)) {
        Some(root) if report.errors() == 0 => Ok((root, workflows)),
        _ => {
            if report.errors() == 0 {
                report.error(&codes::SYNTAX, &place, "the pinned definition has no root workflow");
            }
            report.diagnostics.retain(Diagnostic::is_error);
            Err(report.diagnostics)
        }
    }
}

fn tree(document: &Value, place: &Place) -> Node {
    let mut root = Node::from_json(&document["tree"], place);
    restore_order(&mut root, document);
    root
}

/// An error about a pinned definition as a whole.
pub fn unusable(message: &str) -> Diagnostic {
    Diagnostic { place: None, ..Diagnostic::error(&codes::SYNTAX, &Place { file: 0, range: 0..0 }, message) }
}

fn restore_order(root: &mut Node, document: &Value) {
    let Kind::Table(entries) = &mut root.kind else { return };
    for entry in entries.iter_mut().filter(|entry| ORDERED.contains(&entry.key.as_str())) {
        let names = document[entry.key.as_str()].as_array();
        let order: BTreeMap<&str, usize> = names
            .into_iter()
            .flatten()
            .enumerate()
            .filter_map(|(i, name)| Some((name.as_str()?, i)))
            .collect();
        if let Kind::Table(steps) = &mut entry.node.kind {
            steps.sort_by_key(|step| order.get(step.key.as_str()).copied().unwrap_or(usize::MAX));
        }
    }
}

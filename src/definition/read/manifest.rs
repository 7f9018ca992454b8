//! Files beside a workflow: YAML manifests become part of its document, so that a run pins them with it.

use crate::definition::codes;
use crate::definition::node::Entry;
use crate::definition::node::Kind;
use crate::definition::node::Node;
use crate::definition::node::Place;
use crate::definition::node::Text;
use crate::definition::report::Report;

/// The largest file beside a workflow: that of a Kubernetes object.
const FILE_MAX: usize = 3 << 19;

/// Where files beside a workflow come from.
pub(in crate::definition) trait Files {
    /// The text of the file, or why there is none. `path` is relative, with `/`, without `..`.
    fn read(&self, path: &str) -> Result<String, String>;

    /// The path as shown to people.
    fn shown(&self, path: &str) -> String;
}

/// Puts the content of each named file in its place.
pub(in crate::definition) fn inline(report: &mut Report, root: &mut Node, files: &dyn Files) {
    let Kind::Table(entries) = &mut root.kind else { return };
    for entry in entries {
        match (entry.key.as_str(), &mut entry.node.kind) {
            ("steps" | "finally", Kind::Table(steps)) => {
                for step in steps {
                    inline_step(report, &mut step.node, files);
                }
            }
            ("rehearsals", Kind::List(rehearsals)) => {
                for rehearsal in rehearsals {
                    inline_fixture(report, rehearsal, files);
                }
            }
            _ => {}
        }
    }
}

fn inline_step(report: &mut Report, step: &mut Node, files: &dyn Files) {
    let Kind::Table(entries) = &mut step.kind else { return };
    for entry in entries {
        match (entry.key.as_str(), &mut entry.node.kind) {
            ("manifest", Kind::Text(_)) => inline_manifest(report, entry, files),
            ("rollback", Kind::List(undo)) => {
                for entry in undo {
                    inline_step(report, entry, files);
                }
            }
            _ => {}
        }
    }
}

fn inline_manifest(report: &mut Report, entry: &mut Entry, files: &dyn Files) {
    let Some((path, text)) = read(report, &entry.node, files) else { return };
    let file = report.sources.add(files.shown(&path), text.as_str());
    let place = Place { file, range: 0..0 };
    match serde_saphyr::from_str::<serde_json::Value>(&text) {
        Ok(value @ serde_json::Value::Object(_)) => {
            let mut node = Node::from_json(&value, &place);
            locate(&mut node, &text);
            entry.node = node;
        }
        Ok(_) => {
            report.error(&codes::WRONG_TYPE, &entry.node.place, format!("`{path}` does not hold one object"));
        }
        Err(error) => {
            report.error(&codes::SYNTAX, &place, format!("not YAML: {}", first_line(&error.to_string())));
        }
    }
}

fn inline_fixture(report: &mut Report, rehearsal: &mut Node, files: &dyn Files) {
    let Kind::Table(entries) = &mut rehearsal.kind else { return };
    for entry in entries.iter_mut().filter(|entry| entry.key == "fixture") {
        if let Some((_, text)) = read(report, &entry.node, files) {
            entry.node.kind = Kind::Text(Text { value: text, start: None });
        }
    }
}

/// The file that `node` names.
fn read(report: &mut Report, node: &Node, files: &dyn Files) -> Option<(String, String)> {
    let Kind::Text(text) = &node.kind else { return None };
    let path = text.value.clone();
    let outside = path.is_empty() || path.starts_with('/') || path.split('/').any(|part| part == "..");
    let result =
        if outside { Err("the path must lie beside the workflow".to_owned()) } else { files.read(&path) };
    match result {
        Ok(text) if text.len() <= FILE_MAX => Some((path, text)),
        Ok(text) => {
            let message = format!("`{path}` has {} bytes, at most {FILE_MAX} are allowed", text.len());
            report.error(&codes::BAD_FILE, &node.place, message);
            None
        }
        Err(reason) => {
            report.error(&codes::BAD_FILE, &node.place, format!("cannot read `{path}`: {reason}"));
            None
        }
    }
}

/// Finds the texts with expressions in the file, for carets.
fn locate(node: &mut Node, file: &str) {
    match &mut node.kind {
        Kind::Text(text) => {
            if let Some(start) = text.value.contains("{{").then(|| file.find(&text.value)).flatten() {
                node.place.range = start..start + text.value.len();
                text.start = Some(start);
            }
        }
        Kind::List(items) => {
            for item in items {
                locate(item, file);
            }
        }
        Kind::Table(entries) => {
            for entry in entries {
                locate(&mut entry.node, file);
            }
        }
        _ => {}
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

//! Names that authors give: usable in an expression, unique, not those of the language, not in circles.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::definition::codes;
use crate::definition::expr::Expr;
use crate::definition::model::Target;
use crate::definition::node::Entry;
use crate::definition::node::Node;
use crate::definition::read::Draft;
use crate::definition::report::Report;
use crate::definition::validate::Part;
use crate::definition::validate::elements;
use crate::definition::validate::parts;
use crate::definition::validate::place;
use crate::definition::validate::variables::VARIABLES;

/// Words of CEL that cannot be variables.
const WORDS: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
    "int",
    "uint",
    "double",
    "string",
    "bool",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
    "optional",
    "math",
    "lists",
    "base64",
    "strings",
];

/// Most names of one table: bounds how deep they can build on each other.
const NAMES_MAX: usize = 256;

pub(super) fn check(report: &mut Report, draft: &Draft<'_>) {
    for key in ["inputs", "outputs"] {
        members(report, draft.root, key);
    }
    variables(report, draft.root, "let");
    circles(report, draft.root, &[&draft.workflow.lets]);
    for node in elements(draft.root, "guards") {
        variables(report, node, "read");
    }
    for part in parts(draft) {
        step(report, draft, &part);
    }
}

fn step(report: &mut Report, draft: &Draft<'_>, part: &Part<'_>) {
    let waits = [part.node.get("wait")].into_iter().flatten();
    for node in [part.node].into_iter().chain(waits) {
        variables(report, node, "read");
        variables(report, node, "let");
        members(report, node, "track");
        for entry in entries(node, "let") {
            if entries(node, "read").iter().any(|read| read.key == entry.key) {
                let message = format!("`{}` is both a `read` and a `let`", entry.key);
                report.error(&codes::TWICE, &entry.key_place, message);
            }
        }
    }
    members(report, part.node, "capture");
    members(report, part.node, "outputs");
    circles(report, part.node, &[&draft.workflow.lets, &part.step.lets]);
    if let (Some(wait), Some(node)) = (&part.step.wait, part.node.get("wait")) {
        circles(report, node, &[&draft.workflow.lets, &part.step.lets, &wait.lets]);
    }
    if let Some(target) = &part.step.target {
        own_circle(report, part.node, target, &part.step.reads);
    }
}

/// The target is read first or after what it names; it cannot name what needs it.
fn own_circle(report: &mut Report, node: &Node, target: &Target, reads: &[(String, Target)]) {
    let wanted = target.references();
    let mut needs_object: BTreeSet<&str> = BTreeSet::from(["object"]);
    for (name, read) in reads {
        if read.references().iter().any(|used| needs_object.contains(used)) {
            needs_object.insert(name);
        }
    }
    if let Some(name) = wanted.iter().find(|name| needs_object.contains(**name)) {
        let message = format!("the target names `{name}`, which needs the target to be read");
        report.error(&codes::CIRCULAR_NAMES, place(node, "target"), message);
    }
}

fn entries<'n>(node: &'n Node, key: &str) -> &'n [Entry] {
    node.get(key).map_or(&[], Node::entries)
}

/// Names that expressions use by themselves.
fn variables(report: &mut Report, node: &Node, key: &str) {
    if let Some(first_too_many) = entries(node, key).get(NAMES_MAX) {
        let message = format!("a `{key}` table has at most {NAMES_MAX} names");
        report.error(&codes::TOO_MANY, &first_too_many.key_place, message);
    }
    for entry in entries(node, key) {
        if VARIABLES.contains(&entry.key.as_str()) || WORDS.contains(&entry.key.as_str()) {
            let message =
                format!("`{}` is a name of the language: choose another for this `{key}`", entry.key);
            report.error(&codes::NAME, &entry.key_place, message);
        }
    }
    members(report, node, key);
}

/// Names that expressions use behind a dot.
fn members(report: &mut Report, node: &Node, key: &str) {
    for entry in entries(node, key) {
        let good = entry.key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && entry.key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !good {
            let message = format!("`{}` cannot be used in an expression", entry.key);
            let hint = format!("letters, digits and `_`: `{}`", entry.key.replace(['-', '.', ' '], "_"));
            report.error_with(&codes::NAME, &entry.key_place, message, hint);
        }
    }
}

/// `let`s of the last scope that need each other.
fn circles(report: &mut Report, node: &Node, scopes: &[&BTreeMap<String, Expr>]) {
    let lookup = |name: &str| scopes.iter().rev().find_map(|lets| lets.get_key_value(name));
    for entry in entries(node, "let") {
        let mut path: Vec<&str> = vec![&entry.key];
        let mut seen = BTreeSet::new();
        if let Some((_, expr)) = lookup(&entry.key)
            && leads_back(expr, &entry.key, &lookup, &mut path, &mut seen)
            // One report for each circle.
            && path.iter().min() == path.first()
        {
            let names: Vec<_> = path.iter().copied().chain([entry.key.as_str()]).collect();
            let message = format!("`let`s are defined by each other in a circle: {}", names.join(" → "));
            report.error(&codes::CIRCULAR_NAMES, &entry.key_place, message);
        }
    }
}

fn leads_back<'e>(
    expr: &'e Expr,
    start: &str,
    lookup: &impl Fn(&str) -> Option<(&'e String, &'e Expr)>,
    path: &mut Vec<&'e str>,
    seen: &mut BTreeSet<&'e str>,
) -> bool {
    for name in expr.references() {
        if name == start {
            return true;
        }
        let Some((name, next)) = lookup(name) else { continue };
        if seen.insert(name) {
            path.push(name);
            if leads_back(next, start, lookup, path, seen) {
                return true;
            }
            path.pop();
        }
    }
    false
}

//! The shape of a document: keys and types, driven by the tables.

use crate::definition::actions;
use crate::definition::actions::ActionDoc;
use crate::definition::codes;
use crate::definition::keys;
use crate::definition::model::ActionKind;
use crate::definition::node::Entry;
use crate::definition::node::Kind;
use crate::definition::node::Node;
use crate::definition::report::Report;
use crate::definition::shape::Key;
use crate::definition::shape::Shape;
use crate::definition::suggest::did_you_mean;

/// Reports whatever in `node` differs from `shape`.
pub(super) fn check(report: &mut Report, node: &Node, shape: &Shape) {
    match (shape, &node.kind) {
        (Shape::Text, Kind::Text(text)) => {
            if let Some(at) = text.value.find("{{") {
                let place = text.part(&node.place, at..at + 2);
                let hint = "this text is taken as it stands".to_owned();
                report.error_with(&codes::TEMPLATE, &place, "no expression is evaluated here", hint);
            }
        }
        // A text in place of a number must give one when rendered; a plain one never will.
        (Shape::IntValue(..), Kind::Text(text)) if text.value.contains("{{") => {}
        (
            Shape::Template
            | Shape::Expr
            | Shape::Exprs
            | Shape::Duration
            | Shape::Regex
            | Shape::StepName
            | Shape::StepNames
            | Shape::File
            | Shape::Target
            | Shape::Manifest,
            Kind::Text(_),
        )
        | (Shape::Value | Shape::Json, _)
        | (Shape::Bool, Kind::Bool(_))
        | (Shape::Manifest, Kind::Table(_)) => {}
        (Shape::Int(min, max) | Shape::IntValue(min, max), Kind::Int(value)) => {
            range(report, node, value, min, max);
        }
        #[expect(clippy::cast_precision_loss, reason = "the limits are small")]
        (Shape::Number(min, max), Kind::Int(value)) => range(report, node, &(*value as f64), min, max),
        (Shape::Number(min, max), Kind::Float(value)) => range(report, node, value, min, max),
        (Shape::CountOrAll, Kind::Int(value)) => range(report, node, value, &0, &i64::from(u32::MAX)),
        (Shape::CountOrAll, Kind::Text(text)) => choice(report, node, &text.value, &["all"]),
        (Shape::Choice(choices), Kind::Text(text)) => choice(report, node, &text.value, choices),
        (Shape::List(element), Kind::List(items)) => {
            for item in items {
                check(report, item, element);
            }
        }
        (Shape::Exprs, Kind::List(items)) => {
            for item in items {
                check(report, item, &Shape::Expr);
            }
        }
        (Shape::StepNames, Kind::List(items)) if !items.is_empty() => {
            for item in items {
                check(report, item, &Shape::StepName);
            }
        }
        (Shape::After, Kind::List(items)) => {
            for item in items {
                match item.kind {
                    Kind::Table(_) => table(report, item, &[keys::AFTER], "after"),
                    _ => check(report, item, &Shape::StepName),
                }
            }
        }
        (Shape::Map(element), Kind::Table(entries)) => {
            for entry in entries {
                check(report, &entry.node, element);
            }
        }
        (Shape::Table(keys), Kind::Table(_)) => table(report, node, &[keys], "this table"),
        (Shape::Target, Kind::Table(_)) => table(report, node, &[keys::TARGET], "a target"),
        (Shape::Step { undo }, Kind::Table(_)) => step(report, node, *undo),
        (shape, _) => {
            let message = format!("{} is expected here, this is {}", expected(shape), node.kind_name());
            report.error_with(&codes::WRONG_TYPE, &node.place, message, hint_for(shape, node));
        }
    }
}

/// What a shape wants, for people.
fn expected(shape: &Shape) -> &'static str {
    match shape {
        Shape::Text | Shape::Template => "a string",
        Shape::Value | Shape::Json => "a value",
        Shape::Expr => "an expression in quotes",
        Shape::Exprs => "an expression in quotes, or a list of them,",
        Shape::Duration => "a duration in quotes, such as \"90s\",",
        Shape::Regex => "a regular expression in quotes",
        Shape::Bool => "true or false",
        Shape::Int(..) | Shape::IntValue(..) => "an integer",
        Shape::Number(..) => "a number",
        Shape::CountOrAll => "a count or \"all\"",
        Shape::Choice(_) => "one of some texts",
        Shape::StepName => "the name of a step",
        Shape::StepNames => "the name of a step, or a list of them,",
        Shape::List(_) => "a list",
        Shape::After => "a list of steps",
        Shape::Map(_) | Shape::Table(_) | Shape::Step { .. } => "a table",
        Shape::Target => "a name from [objects], or a table,",
        Shape::Manifest => "a table, or the name of a YAML file,",
        Shape::File => "the name of a file",
    }
}

fn hint_for(shape: &Shape, node: &Node) -> Option<String> {
    match (shape, &node.kind) {
        (Shape::List(_) | Shape::After, Kind::Text(text)) => Some(format!("write `[\"{}\"]`", text.value)),
        (Shape::Duration, Kind::Int(seconds)) => Some(format!("write `\"{seconds}s\"`")),
        (Shape::Expr, Kind::Bool(value)) => Some(format!("write `\"{value}\"`")),
        (Shape::Bool, Kind::Text(text)) if matches!(text.value.as_str(), "true" | "false") => {
            Some("leave the quotes out".to_owned())
        }
        (Shape::List(Shape::Table(_) | Shape::Step { .. }), Kind::Table(_)) => {
            Some("write the header with two brackets: `[[…]]`".to_owned())
        }
        _ => None,
    }
}

fn range<T: PartialOrd + std::fmt::Display>(report: &mut Report, node: &Node, value: &T, min: &T, max: &T) {
    if value < min || value > max || value.partial_cmp(value).is_none() {
        let message = if min == max {
            format!("only {min} is allowed here, this is {value}")
        } else {
            format!("{value} is not between {min} and {max}")
        };
        report.error(&codes::WRONG_VALUE, &node.place, message);
    }
}

fn choice(report: &mut Report, node: &Node, value: &str, choices: &[&str]) {
    if !choices.contains(&value) {
        let list: Vec<_> = choices.iter().map(|choice| format!("`{choice}`")).collect();
        let hint = did_you_mean(value, choices.iter().copied());
        let hint = hint.unwrap_or_else(|| format!("allowed: {}", list.join(", ")));
        report.error_with(&codes::WRONG_VALUE, &node.place, format!("`{value}` is not allowed here"), hint);
    }
}

/// Checks a table whose keys stand in `tables`; where a key stands in several, the first counts.
fn table(report: &mut Report, node: &Node, tables: &[&[Key]], what: &str) {
    let known = || tables.iter().flat_map(|table| table.iter());
    for entry in node.entries() {
        match known().find(|key| key.name == entry.key) {
            Some(key) => check(report, &entry.node, &key.shape),
            None if misplaced(&entry.key).is_some() && tables.len() > 1 => {}
            None => unknown(report, entry, known().map(|key| key.name), what),
        }
    }
    for key in known().filter(|key| key.required && node.get(key.name).is_none()) {
        report.error(&codes::MISSING_KEY, &head(node), format!("the key `{}` is missing", key.name));
    }
}

fn unknown<'k>(report: &mut Report, entry: &Entry, known: impl Iterator<Item = &'k str>, what: &str) {
    let message = format!("{what} takes no key `{}`", entry.key);
    report.error_with(&codes::UNKNOWN_KEY, &entry.key_place, message, did_you_mean(&entry.key, known));
}

/// The first line of a table, which says enough about where it is.
pub(super) fn head(node: &Node) -> crate::definition::node::Place {
    node.place.clone()
}

fn step(report: &mut Report, node: &Node, undo: bool) {
    let action = action_of(report, node);
    let own = action.map_or(&[] as &[Key], |action| action.keys);
    let side = if undo { keys::UNDO_ONLY } else { keys::STEP_ONLY };
    let waits = action.is_some_and(|action| action.kind == ActionKind::K8sWait);
    let wait = if waits { keys::WAIT } else { &[] };
    let what = match action {
        Some(action) if undo => format!("an entry of a rollback list with `{}`", action.name),
        Some(action) => format!("a step with `{}`", action.name),
        None => "a step".to_owned(),
    };
    if action.is_none() {
        // Whatever belongs to the unknown action would be reported as unknown, too.
        known_only(report, node, &[keys::STEP, side]);
        return;
    }
    elsewhere(report, node, undo);
    table(report, node, &[keys::STEP, side, own, wait], &what);
}

/// Why a key of the other sort of step does not belong here.
fn misplaced(key: &str) -> Option<&'static str> {
    if keys::STEP_ONLY.iter().any(|known| known.name == key) {
        Some("only steps take it; entries run in the order of the list")
    } else if keys::UNDO_ONLY.iter().any(|known| known.name == key) {
        Some("only entries of a rollback list take it")
    } else {
        None
    }
}

fn elsewhere(report: &mut Report, node: &Node, undo: bool) {
    let other = if undo { keys::STEP_ONLY } else { keys::UNDO_ONLY };
    for entry in node.entries().iter().filter(|entry| other.iter().any(|key| key.name == entry.key)) {
        let why = misplaced(&entry.key).unwrap_or_default();
        report.error(
            &codes::ROLLBACK,
            &entry.key_place,
            format!("`{}` does not belong here: {why}", entry.key),
        );
    }
}

fn known_only(report: &mut Report, node: &Node, tables: &[&[Key]]) {
    for entry in node.entries() {
        if let Some(key) = tables.iter().flat_map(|table| table.iter()).find(|key| key.name == entry.key) {
            check(report, &entry.node, &key.shape);
        }
    }
}

fn action_of(report: &mut Report, node: &Node) -> Option<&'static ActionDoc> {
    let Some(uses) = node.get("uses") else {
        report.error(&codes::MISSING_KEY, &head(node), "the key `uses` is missing");
        return None;
    };
    let Kind::Text(text) = &uses.kind else { return None };
    let action = actions::find(&text.value);
    if action.is_none() {
        let names = actions::ACTIONS.iter().map(|action| action.name).filter(|name| *name != "ext");
        let hint = did_you_mean(&text.value, names);
        report.error_with(
            &codes::UNKNOWN_ACTION,
            &uses.place,
            format!("there is no action `{}`", text.value),
            hint,
        );
    }
    action
}

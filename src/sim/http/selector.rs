//! Which objects a list or watch is about.

use serde_json::Value;

use crate::sim::failure::Failure;
use crate::sim::http::request::Query;
use crate::sim::kinds::Kind;
use crate::sim::meta;

/// A condition on a label.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    label: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

impl Requirement {
    fn holds(&self, object: &Value) -> bool {
        let value = meta::label(object, &self.label);
        let is_one = |values: &[String]| value.is_some_and(|value| values.iter().any(|v| v == value));
        match &self.test {
            Test::In(values) => is_one(values),
            Test::NotIn(values) => !is_one(values),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
        }
    }
}

/// A condition on a field.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldTest {
    pointer: String,
    equal: bool,
    value: String,
}

/// Conditions that all must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldTest>,
}

impl Selector {
    /// Reads `labelSelector` and `fieldSelector`.
    pub(super) fn parse(kind: &Kind, query: &Query) -> Result<Self, Failure> {
        let labels = parse_labels(query.get("labelSelector"))?;
        let fields = parse_fields(kind, query.get("fieldSelector"))?;
        Ok(Self { labels, fields })
    }

    /// Whether the object is meant.
    pub(super) fn matches(&self, object: &Value) -> bool {
        self.labels.iter().all(|requirement| requirement.holds(object))
            && self.fields.iter().all(|test| (field(object, &test.pointer) == test.value) == test.equal)
    }

    /// The one name that it allows, if it allows one only.
    pub(super) fn name(&self) -> Option<&str> {
        let named = |test: &&FieldTest| test.equal && test.pointer == "/metadata/name";
        self.fields.iter().find(named).map(|test| test.value.as_str())
    }
}

/// A field as text; what is absent is empty, or false for the one flag among the fields.
fn field(object: &Value, pointer: &str) -> String {
    match object.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None if pointer == "/spec/unschedulable" => "false".to_owned(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

fn parse_fields(kind: &Kind, text: &str) -> Result<Vec<FieldTest>, Failure> {
    let mut tests = vec![];
    for term in text.split(',').filter(|term| !term.is_empty()) {
        let (field, equal, value) = if let Some((field, value)) = term.split_once("!=") {
            (field, false, value)
        } else if let Some((field, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            (field, true, value)
        } else {
            let message = format!("invalid selector: '{text}'; can't understand '{term}'");
            return Err(Failure::bad_request(message));
        };
        let known = matches!(field, "metadata.name" | "metadata.namespace");
        if !known && !kind.selectable.contains(&field) {
            return Err(unknown_field(kind, field));
        }
        let path = if field == "source" { "source.component" } else { field };
        let pointer = format!("/{}", path.replace('.', "/"));
        tests.push(FieldTest { pointer, equal, value: value.to_owned() });
    }
    Ok(tests)
}

fn unknown_field(kind: &Kind, field: &str) -> Failure {
    Failure::bad_request(if kind.custom || !kind.selectable.is_empty() {
        format!("field label not supported: {field}")
    } else {
        format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    })
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, Failure> {
    split_terms(text).into_iter().map(|term| parse_requirement(term.trim())).collect()
}

/// Splits at commas that are not inside parentheses.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut terms) = (0_usize, 0, vec![]);
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                terms.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms.retain(|term| !term.trim().is_empty());
    terms
}

fn parse_requirement(term: &str) -> Result<Requirement, Failure> {
    let one = |value: &str| vec![value.trim().to_owned()];
    let (label, test) = if let Some(label) = term.strip_prefix('!') {
        (label, Test::Absent)
    } else if let Some((label, value)) = term.split_once("!=") {
        (label, Test::NotIn(one(value)))
    } else if let Some((label, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        (label, Test::In(one(value)))
    } else if let Some((label, values)) = term.split_once(" notin ") {
        (label, Test::NotIn(parse_values(term, values)?))
    } else if let Some((label, values)) = term.split_once(" in ") {
        (label, Test::In(parse_values(term, values)?))
    } else {
        (term, Test::Exists)
    };
    let label = label.trim();
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let values: &[String] = match &test {
        Test::In(values) | Test::NotIn(values) => values,
        Test::Exists | Test::Absent => &[],
    };
    if label.is_empty() || !label.chars().chain(values.iter().flat_map(|v| v.chars())).all(good) {
        return Err(bad_requirement(term));
    }
    Ok(Requirement { label: label.to_owned(), test })
}

fn parse_values(term: &str, values: &str) -> Result<Vec<String>, Failure> {
    let inner = values.trim().strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    let inner = inner.ok_or_else(|| bad_requirement(term))?;
    Ok(inner.split(',').map(|value| value.trim().to_owned()).collect())
}

fn bad_requirement(term: &str) -> Failure {
    Failure::bad_request(format!("unable to parse requirement: found '{term}', expected: a label selector"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sim::kinds::NODES;
    use crate::sim::kinds::of;

    #[test]
    fn labels_are_selected_as_kubectl_writes_it() {
        let object = json!({"metadata": {"labels": {"app": "x", "tier": "1", "example.com/a": ""}}});
        for (text, expected) in [
            ("", true),
            ("app=x", true),
            ("app==x,tier=1", true),
            ("app=y", false),
            ("app!=y", true),
            ("missing!=y", true),
            ("app in (x, y)", true),
            ("app notin (x,y)", false),
            ("missing notin (x)", true),
            ("app", true),
            ("!app", false),
            ("!missing,app in (x),tier", true),
            ("example.com/a=", true),
        ] {
            let labels = parse_labels(text).expect(text);
            let selector = Selector { labels, fields: vec![] };
            assert_eq!(selector.matches(&object), expected, "{text}");
        }
        for bad in ["a b", "a in x", "=x", "a in (x", "a===b"] {
            assert_eq!(parse_labels(bad).expect_err(bad).code, 400);
        }
    }

    #[test]
    fn fields_are_those_of_the_kind() {
        let kind = of(NODES).expect("a row");
        let object = json!({"metadata": {"name": "n"}, "spec": {}});
        for (text, expected) in [
            ("metadata.name=n", true),
            ("metadata.name!=n", false),
            ("spec.unschedulable=false", true),
            ("metadata.name=n,spec.unschedulable==true", false),
        ] {
            let fields = parse_fields(kind, text).expect(text);
            assert_eq!(Selector { labels: vec![], fields }.matches(&object), expected, "{text}");
        }
        let failure = parse_fields(kind, "spec.podCIDR=x").expect_err("not selectable");
        assert_eq!(failure.message, "field label not supported: spec.podCIDR");
    }
}

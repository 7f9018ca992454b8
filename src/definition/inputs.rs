//! What a caller gives, checked against what a workflow wants.

use serde_json::Map;
use serde_json::Value;

use crate::definition::duration;
use crate::definition::model::Input;
use crate::definition::model::InputKind;
use crate::definition::model::Workflow;
use crate::definition::suggest::did_you_mean;

/// Every mistake in the inputs that were given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct InputErrors(pub Vec<String>);

impl Workflow {
    /// Fills in defaults and checks types; `given` is an object, null counts as not given.
    ///
    /// # Errors
    /// All unknown, mistyped and missing inputs at once.
    pub fn complete_inputs(&self, given: &Value) -> Result<Value, InputErrors> {
        let empty = Map::new();
        let given = given.as_object().unwrap_or(&empty);
        let mut errors = vec![];
        for name in given.keys().filter(|name| !self.inputs.contains_key(*name)) {
            let hint = did_you_mean(name, self.inputs.keys().map(String::as_str));
            let hint = hint.map(|hint| format!(", {hint}")).unwrap_or_default();
            errors.push(format!("there is no input `{name}`{hint}"));
        }
        let mut complete = Map::new();
        for (name, input) in &self.inputs {
            let value = given.get(name).filter(|value| !value.is_null()).or(input.default.as_ref());
            match value.map(|value| input.coerce(value)) {
                Some(Ok(value)) => drop(complete.insert(name.clone(), value)),
                Some(Err(reason)) => errors.push(format!("input `{name}` {reason}")),
                None => errors.push(format!("input `{name}` is missing: {}", input.description.en)),
            }
        }
        if errors.is_empty() { Ok(Value::Object(complete)) } else { Err(InputErrors(errors)) }
    }

    /// True if a secret stands itself among the inputs.
    pub fn has_literal_secret(&self, inputs: &Map<String, Value>) -> bool {
        let secrets = self.inputs.iter().filter(|(_, input)| matches!(input.kind, InputKind::Secret));
        let values = secrets.filter_map(|(name, _)| inputs.get(name)?.as_str());
        values.into_iter().any(|text| literal_secret(text).is_some())
    }

    /// As [`Workflow::complete_inputs`], from the `k=v` texts of a command line.
    ///
    /// # Errors
    /// The same, and inputs that are given twice or are not of the form `k=v`.
    pub fn parse_inputs<'t>(&self, texts: impl IntoIterator<Item = &'t str>) -> Result<Value, InputErrors> {
        let mut errors = vec![];
        let mut given = Map::new();
        for text in texts {
            let Some((name, value)) = text.split_once('=') else {
                errors.push(format!("`{text}` is not of the form NAME=VALUE"));
                continue;
            };
            let value = match self.inputs.get(name) {
                Some(input) => input.read(value),
                None => Value::from(value),
            };
            if given.insert(name.to_owned(), value).is_some() {
                errors.push(format!("input `{name}` is given twice"));
            }
        }
        match self.complete_inputs(&Value::Object(given)) {
            Ok(value) if errors.is_empty() => Ok(value),
            Ok(_) => Err(InputErrors(errors)),
            Err(more) => {
                errors.extend(more.0);
                Err(InputErrors(errors))
            }
        }
    }
}

impl Input {
    /// The value that a text of a command line means; what does not fit stays a text and is refused later.
    fn read(&self, text: &str) -> Value {
        match self.kind {
            InputKind::Int { .. } => text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from),
            InputKind::Bool => text.parse::<bool>().map_or_else(|_| Value::from(text), Value::from),
            InputKind::List { .. } if text.trim_start().starts_with('[') => {
                serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
            }
            InputKind::List { .. } => {
                text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect()
            }
            _ => Value::from(text),
        }
    }

    /// The value as the run will see it, or what is wrong with it.
    ///
    /// # Errors
    /// A fragment that goes on after "input `x`".
    pub fn coerce(&self, value: &Value) -> Result<Value, String> {
        let text = || value.as_str().ok_or_else(|| "must be a text".to_owned());
        match &self.kind {
            InputKind::String { pattern } => matching(text()?, pattern.as_ref())?,
            InputKind::Int { min, max } => {
                let int = value.as_i64().ok_or_else(|| format!("must be an integer, it is {value}"))?;
                if min.is_some_and(|min| int < min) || max.is_some_and(|max| int > max) {
                    let bound =
                        |bound: &Option<i64>| bound.map(|bound| bound.to_string()).unwrap_or_default();
                    return Err(format!("must lie in {}..{}, it is {int}", bound(min), bound(max)));
                }
            }
            InputKind::Bool if !value.is_boolean() => {
                return Err(format!("must be true or false, it is {value}"));
            }
            InputKind::Bool => {}
            InputKind::Duration => {
                duration::parse(text()?).map_err(|error| format!("is wrong: {error}"))?;
            }
            InputKind::Enum(values) => {
                let text = text()?;
                if !values.iter().any(|value| value == text) {
                    return Err(format!("must be one of {}, it is `{text}`", values.join(", ")));
                }
            }
            InputKind::List { pattern } => {
                let items = value.as_array().ok_or("must be a list")?;
                for item in items {
                    matching(item.as_str().ok_or("must be a list of texts")?, pattern.as_ref())?;
                }
            }
            InputKind::Secret => secret_reference(text()?)?,
        }
        Ok(value.clone())
    }
}

fn matching(text: &str, pattern: Option<&regex::Regex>) -> Result<(), String> {
    match pattern {
        Some(pattern) if !pattern.is_match(text) => Err(format!("does not match {pattern}, it is `{text}`")),
        _ => Ok(()),
    }
}

/// What a secret begins with that is given itself. It is sealed before anything is kept of it.
const LITERAL: &str = "literal:";

/// The secret itself, if a text for an input of type secret holds it.
pub fn literal_secret(text: &str) -> Option<&str> {
    text.strip_prefix(LITERAL)
}

/// A secret is named; one that is given itself has to say so, so that a mistyped name is not taken for it. An empty text
/// says that there is none. The text is not repeated in the error.
fn secret_reference(text: &str) -> Result<(), String> {
    let good = match text.split_once(':') {
        None => text.is_empty(),
        Some(("env" | "file" | "sealed" | "literal", rest)) => !rest.is_empty(),
        Some(("k8s", rest)) => rest.split('/').count() == 3 && rest.split('/').all(|part| !part.is_empty()),
        _ => false,
    };
    if good {
        Ok(())
    } else {
        Err("must name a secret: `env:NAME`, `file:PATH` or `k8s:NAMESPACE/NAME/KEY`; \
             or hold it, as `literal:VALUE`"
            .to_owned())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::definition::Library;

    const TOML: &str = r#"
schema = 1
name = "w"
title = "W"
title_zh = "W"
[inputs]
vm = { type = "string", pattern = "[a-z]+", description = "the VM" }
count = { type = "int", min = 1, max = 9, default = 3 }
force = { type = "bool", default = false }
patience = { type = "duration", default = "5m" }
mode = { type = "enum", values = ["fast", "safe"], default = "safe" }
nodes = { type = "list", pattern = "node[0-9]", default = [] }
token = { type = "secret", default = "env:TOKEN" }
[steps.a]
uses = "sleep"
duration = "1s"
"#;

    fn workflow() -> std::sync::Arc<Workflow> {
        let library = Library::from_texts([("w.toml", TOML)]);
        assert!(library.diagnostics().is_empty(), "{:?}", library.diagnostics());
        library.get("w").expect("no mistakes").clone()
    }

    #[test]
    fn texts_of_a_command_line_become_values_and_defaults_are_filled_in() {
        let given = ["vm=a", "count=9", "force=true", "nodes=node1, node2", "token=k8s:ns/name/key"];
        let inputs = workflow().parse_inputs(given).expect("good inputs");
        let expected = json!({"vm": "a", "count": 9, "force": true, "patience": "5m", "mode": "safe",
            "nodes": ["node1", "node2"], "token": "k8s:ns/name/key"});
        assert_eq!(inputs, expected);
        let list = workflow().parse_inputs(["vm=a=b"]).expect_err("the value is `a=b`");
        assert!(list.to_string().contains("`a=b`"), "{list}");
    }

    #[test]
    fn all_mistakes_are_named_in_one_error_and_no_secret_is_repeated() {
        let given = [
            "count=ten",
            "count=1",
            "forc=true",
            "mode=slow",
            "patience=soon",
            "nodes=[\"x\"]",
            "token=hunter2",
            "odd",
        ];
        let error = workflow().parse_inputs(given).expect_err("everything is wrong").to_string();
        for part in [
            "`odd` is not of the form NAME=VALUE",
            "input `count` is given twice",
            "there is no input `forc`, did you mean `force`?",
            "input `mode` must be one of fast, safe, it is `slow`",
            "input `patience` is wrong: `soon` is not a duration",
            "input `nodes` does not match",
            "input `token` must name a secret",
            "input `vm` is missing: the VM",
        ] {
            assert!(error.contains(part), "{part} is not in: {error}");
        }
        assert!(!error.contains("hunter2"));
    }

    #[test]
    fn a_pattern_holds_for_the_whole_text_and_bounds_are_inclusive() {
        let vm = |vm: &str| workflow().complete_inputs(&json!({ "vm": vm })).is_ok();
        assert!(vm("abc") && !vm("abc1") && !vm("1abc") && !vm(""));
        let count = |count: i64| workflow().complete_inputs(&json!({ "vm": "a", "count": count })).is_ok();
        assert!(count(1) && count(9) && !count(0) && !count(10));
        let secret = |token: &str| workflow().complete_inputs(&json!({ "vm": "a", "token": token })).is_ok();
        assert!(
            secret("file:/a")
                && secret("sealed:AAAA")
                && secret("literal:a:b")
                && secret("")
                && !secret("literal:")
                && !secret("env:")
                && !secret("k8s:a/b")
                && !secret("k8s:a//b")
                && !secret("x:y")
        );
    }
}

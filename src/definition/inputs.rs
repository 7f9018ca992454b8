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

/// A secret is named, never written; the text is not repeated in the error.
fn secret_reference(text: &str) -> Result<(), String> {
    let good = match text.split_once(':') {
        Some(("env" | "file", rest)) => !rest.is_empty(),
        Some(("k8s", rest)) => rest.split('/').count() == 3 && rest.split('/').all(|part| !part.is_empty()),
        _ => false,
    };
    match good {
        true => Ok(()),
        false => {
            Err("must name a secret, not contain it: `env:NAME`, `file:PATH` or `k8s:NAMESPACE/NAME/KEY`"
                .to_owned())
        }
    }
}

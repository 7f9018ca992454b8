//! A JSON Schema of workflow files for editors, made from the tables that reading uses.

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::definition::actions;
use crate::definition::actions::ACTIONS;
use crate::definition::actions::ActionDoc;
use crate::definition::expr::FUNCTIONS;
use crate::definition::expr::SOURCE_MAX;
use crate::definition::keys;
use crate::definition::model::ActionKind;
use crate::definition::shape::Key;
use crate::definition::shape::Shape;
use crate::id::NAME_CHARS_MAX;

/// What a duration looks like, or a text that gives one.
const DURATION: &str = r"^(0|([0-9]+(\.[0-9]+)?(ms|us|ns|d|h|m|s))+|.*\{\{.*)$";

/// The schema (draft 2020-12) of a workflow file.
pub fn workflow_schema() -> Value {
    let mut defs = Map::new();
    for (name, undo) in [("step", false), ("undo", true)] {
        let side = if undo { keys::UNDO_ONLY } else { keys::STEP_ONLY };
        defs.insert(name.to_owned(), step(name));
        defs.insert(format!("{name}.keys"), json!({ "properties": properties(&[keys::STEP, side]) }));
        for action in ACTIONS {
            defs.insert(format!("{name}.{}", action.name), step_with(action, name, &[keys::STEP, side]));
        }
    }
    defs.insert("wait".to_owned(), table(keys::WAIT));
    defs.insert("target".to_owned(), target());
    defs.insert("expression".to_owned(), expression());
    let mut schema = table(keys::WORKFLOW);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Windrow workflow");
    schema["$defs"] = Value::Object(defs);
    schema
}

/// CEL, with our functions for whoever reads the hint.
fn expression() -> Value {
    let functions: Vec<_> = FUNCTIONS.iter().map(|f| format!("- `{}` {}", f.form, f.en)).collect();
    let description = format!("CEL. Beside its own functions:\n{}", functions.join("\n"));
    json!({ "type": "string", "minLength": 1, "maxLength": SOURCE_MAX, "description": description })
}

fn target() -> Value {
    let mut target = table(keys::TARGET);
    let required = |key: &str| json!({ "required": [key] });
    let by_selector = json!({ "anyOf": [required("selector"), required("field")] });
    target["oneOf"] = json!([required("name"), required("names"), required("all"), by_selector]);
    json!({ "anyOf": [{ "type": "string" }, target] })
}

/// A step: which keys it takes depends on its action.
fn step(name: &str) -> Value {
    let plain = ACTIONS.iter().filter(|action| action.kind != ActionKind::Extension);
    let names: Vec<_> = plain.clone().map(|action| action.name).collect();
    let extension = format!("^{}.+", actions::EXTENSION_PREFIX.replace('.', r"\."));
    let mut cases: Vec<Value> =
        plain.map(|action| case(&json!({ "const": action.name }), name, action.name)).collect();
    cases.push(case(&json!({ "pattern": extension }), name, "ext"));
    json!({
        "type": "object",
        "required": ["uses"],
        "properties": { "uses": { "anyOf": [{ "enum": names }, { "type": "string", "pattern": extension }] } },
        "allOf": cases,
    })
}

fn case(uses: &Value, name: &str, action: &str) -> Value {
    json!({
        "if": { "properties": { "uses": uses }, "required": ["uses"] },
        "then": { "$ref": format!("#/$defs/{name}.{action}") },
    })
}

fn step_with(action: &ActionDoc, name: &str, common: &[&[Key]]) -> Value {
    let waits = if action.kind == ActionKind::K8sWait { keys::WAIT } else { &[] };
    // The first table that has a key says what it is.
    let mut all = properties(&[action.keys, waits]);
    for key in common.iter().flat_map(|table| table.iter()) {
        all.insert(
            key.name.to_owned(),
            json!({ "$ref": format!("#/$defs/{name}.keys/properties/{}", key.name) }),
        );
    }
    let required: Vec<_> =
        [action.keys, waits].into_iter().flatten().filter(|key| key.required).map(|k| k.name).collect();
    let mut schema = json!({
        "description": describe(action.en, action.zh),
        "properties": all,
        "required": required,
        "additionalProperties": false,
    });
    let ways = actions::one_of(action.kind);
    if !ways.is_empty() {
        schema["oneOf"] = ways.iter().map(|way| json!({ "required": [way] })).collect();
    }
    schema
}

fn table(keys: &[Key]) -> Value {
    let required: Vec<_> = keys.iter().filter(|key| key.required).map(|key| key.name).collect();
    json!({
        "type": "object",
        "properties": properties(&[keys]),
        "required": required,
        "additionalProperties": false,
    })
}

fn properties(tables: &[&[Key]]) -> Map<String, Value> {
    let mut properties = Map::new();
    for key in tables.iter().flat_map(|table| table.iter()) {
        if !properties.contains_key(key.name) {
            let mut schema = shape(&key.shape);
            schema["description"] = describe(key.en, key.zh);
            properties.insert(key.name.to_owned(), schema);
        }
    }
    properties
}

fn describe(en: &str, zh: &str) -> Value {
    json!(format!("{en}\n\n{zh}"))
}

fn shape(shape: &Shape) -> Value {
    match shape {
        Shape::Text | Shape::Template | Shape::File => json!({ "type": "string" }),
        Shape::Regex => json!({ "type": "string", "format": "regex" }),
        Shape::Value | Shape::Json => json!({}),
        Shape::Expr => json!({ "$ref": "#/$defs/expression" }),
        Shape::Exprs => {
            let one = json!({ "$ref": "#/$defs/expression" });
            json!({ "anyOf": [one, { "type": "array", "items": one }] })
        }
        Shape::Duration => json!({ "type": "string", "pattern": DURATION }),
        Shape::Bool => json!({ "type": "boolean" }),
        Shape::Int(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Shape::Number(min, max) => json!({ "type": "number", "minimum": min, "maximum": max }),
        Shape::IntValue(min, max) => {
            let text = json!({ "type": "string", "pattern": r"\{\{" });
            json!({ "anyOf": [{ "type": "integer", "minimum": min, "maximum": max }, text] })
        }
        Shape::CountOrAll => json!({ "anyOf": [{ "type": "integer", "minimum": 0 }, { "const": "all" }] }),
        Shape::Choice(choices) => json!({ "enum": choices }),
        Shape::StepNames => {
            let one = self::shape(&Shape::StepName);
            json!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
        }
        Shape::StepName => {
            json!({ "type": "string", "pattern": "^[a-z][a-z0-9_-]*$", "maxLength": NAME_CHARS_MAX })
        }
        Shape::List(element) => json!({ "type": "array", "items": self::shape(element) }),
        Shape::Map(element) => json!({ "type": "object", "additionalProperties": self::shape(element) }),
        // The two large tables are written once.
        Shape::Table(keys) if std::ptr::eq(*keys, keys::WAIT) => json!({ "$ref": "#/$defs/wait" }),
        Shape::Table(keys) if std::ptr::eq(*keys, keys::TARGET) => json!({ "$ref": "#/$defs/target" }),
        Shape::Table(keys) => table(keys),
        Shape::Target => json!({ "$ref": "#/$defs/target" }),
        Shape::Step { undo } => json!({ "$ref": if *undo { "#/$defs/undo" } else { "#/$defs/step" } }),
        Shape::After => {
            let name = self::shape(&Shape::StepName);
            json!({ "type": "array", "items": { "anyOf": [name, table(keys::AFTER)] } })
        }
        Shape::Manifest => json!({ "type": ["object", "string"] }),
    }
}

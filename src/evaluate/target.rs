//! Which objects a unit reads, and in which order (L3, L4).

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::action::request::ObjectRef;
use crate::action::request::Selector;
use crate::definition::expr::EvalErrorKind;
use crate::definition::expr::Scope;
use crate::definition::model::Namespace;
use crate::definition::model::Select;
use crate::definition::model::Target;
use crate::definition::template::Template;
use crate::engine::unit::UnitId;
use crate::evaluate::Readings;
use crate::evaluate::codes;
use crate::evaluate::rendered;
use crate::evaluate::scope::Wanted;
use crate::evaluate::scope::wanted_by;
use crate::evaluate::scope::with_lets;
use crate::evaluate::text;
use crate::failure::Failure;

/// One object, or list of objects, to be read.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The name that it is bound to.
    pub name: String,
    /// Which.
    pub target: Target,
}

/// All that a unit reads, in an order in which each target names only what was read before it. Needs nothing of the
/// run any more, so that it can be carried out beside it.
#[derive(Debug, Clone, Default)]
pub struct ReadPlan {
    scope: Scope,
    readings: Vec<Reading>,
    again: BTreeMap<UnitId, Self>,
}

impl ReadPlan {
    /// Orders `readings`; `scope` is what their targets may refer to besides each other.
    pub(super) fn new(scope: Scope, mut readings: Vec<Reading>) -> Self {
        let mut ordered: Vec<Reading> = vec![];
        while !readings.is_empty() {
            let open: BTreeSet<&str> = readings.iter().map(|reading| reading.name.as_str()).collect();
            let free = |reading: &Reading| {
                let references = with_lets(wanted_by_target(&reading.target), &[&scope.lets]).0;
                references.iter().all(|name| *name == reading.name || !open.contains(name))
            };
            // Validation refuses cycles; one that slipped through is read in the order as written.
            let next = readings.iter().position(free).unwrap_or(0);
            ordered.push(readings.remove(next));
        }
        Self { scope, readings: ordered, again: BTreeMap::new() }
    }

    /// Also reads again what approvals are about.
    pub(super) fn with_again(self, again: BTreeMap<UnitId, Self>) -> Self {
        Self { again, ..self }
    }

    /// True if there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.readings.is_empty() && self.again.values().all(Self::is_empty)
    }

    /// What approvals are about, each by itself.
    pub fn again(&self) -> &BTreeMap<UnitId, Self> {
        &self.again
    }

    /// What is to be read, in order.
    pub fn readings(&self) -> &[Reading] {
        &self.readings
    }

    /// The objects that `reading` is about, given what was read before it; none for a target that is null (L4).
    pub fn locate(&self, reading: &Reading, before: &Readings) -> Result<Option<ObjectRef>, Failure> {
        let mut scope = self.scope.clone();
        scope.values.extend(before.values.iter().map(|(name, value)| (name.clone(), value.clone())));
        object_ref(&reading.target, &scope)
    }
}

/// Records what was read for `reading`: an empty list is a failure unless it is allowed.
pub fn bind(readings: &mut Readings, reading: &Reading, value: Value) -> Result<(), Failure> {
    let empty = value.as_array().is_some_and(Vec::is_empty);
    if empty && !reading.target.allow_empty {
        return Err(Failure::permanent(codes::NO_OBJECT, format!("`{}` matches no object", reading.name)));
    }
    readings.values.insert(reading.name.clone(), Arc::new(value));
    Ok(())
}

/// The names that a target refers to.
pub(super) fn wanted_by_target(target: &Target) -> Wanted<'_> {
    let namespace = match &target.namespace {
        Namespace::Named(template) => Some(template),
        Namespace::Unset | Namespace::All => None,
    };
    let mut templates: Vec<&Template> = [&target.api, &target.kind].into_iter().chain(namespace).collect();
    match &target.select {
        Select::Name(template) | Select::Names(template) => templates.push(template),
        Select::Match { labels, fields } => templates.extend(labels.iter().chain(fields)),
        Select::All => {}
    }
    wanted_by(templates)
}

/// Renders a target; none if its name is null, or comes from a null object or an absent field.
pub fn object_ref(target: &Target, scope: &Scope) -> Result<Option<ObjectRef>, Failure> {
    let namespace = match &target.namespace {
        Namespace::Named(template) => match nullable(template, scope, "namespace")? {
            Some(value) => Some(full_text(&value, "namespace")?),
            None => return Ok(None),
        },
        Namespace::Unset | Namespace::All => None,
    };
    let select = match &target.select {
        Select::Name(template) => match nullable(template, scope, "name")? {
            Some(value) => Selector::Name(full_text(&value, "name")?),
            None => return Ok(None),
        },
        Select::Names(template) => match nullable(template, scope, "names")? {
            Some(value) => Selector::Names(names(&value)?),
            None => return Ok(None),
        },
        Select::Match { labels, fields } => {
            let selector = |template: &Option<Template>, key| {
                template
                    .as_ref()
                    .map(|template| full_text(&Value::String(text(template, scope, key)?), key))
                    .transpose()
            };
            Selector::Match { labels: selector(labels, "selector")?, fields: selector(fields, "field")? }
        }
        Select::All => Selector::All,
    };
    Ok(Some(ObjectRef {
        api: text(&target.api, scope, "api")?,
        kind: text(&target.kind, scope, "kind")?,
        namespace,
        all_namespaces: matches!(target.namespace, Namespace::All),
        select,
        optional: target.optional,
    }))
}

/// A template's value, where a missing one is no error.
fn nullable(template: &Template, scope: &Scope, key: &str) -> Result<Option<Value>, Failure> {
    match template.render(scope) {
        Ok(value) => Ok(value.filter(|value| !value.is_null())),
        Err(error) if error.kind == EvalErrorKind::NoSuchKey => Ok(None),
        Err(_) => rendered(template, scope, key),
    }
}

/// A text that is not empty: an empty name or selector would mean everything.
fn full_text(value: &Value, key: &str) -> Result<String, Failure> {
    match value.as_str() {
        Some(text) if !text.trim().is_empty() => Ok(text.to_owned()),
        _ => Err(Failure::permanent(
            codes::EMPTY_TARGET,
            format!("`{key}` of a target must be a text that is not empty, it is {value}"),
        )),
    }
}

fn names(value: &Value) -> Result<Vec<String>, Failure> {
    match value.as_array() {
        Some(names) => names.iter().map(|name| full_text(name, "names")).collect(),
        None => Err(Failure::permanent(
            codes::EMPTY_TARGET,
            format!("`names` of a target must be a list, it is {value}"),
        )),
    }
}

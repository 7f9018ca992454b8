//! From what was read to what the engine is told: all expressions of a workflow are evaluated here.
//!
//! Pure: the cluster has been read (see [`Readings`]) and large values are kept elsewhere (see [`Values`]) by the
//! runner. Each function answers one [`crate::engine::Effect`].

mod approval;
pub mod codes;
mod debt;
mod judge;
mod open;
mod prepare;
mod preview;
mod request;
mod scope;
mod target;
mod terms;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::definition::expr::EvalError;
use crate::definition::expr::Expr;
use crate::definition::expr::Scope;
use crate::definition::knowledge::Knowledge;
use crate::definition::model::Step;
use crate::definition::template::Template;
use crate::engine::RunState;
use crate::engine::event::Blob;
use crate::engine::part::Part;
use crate::engine::unit::Block;
use crate::engine::unit::UnitId;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::time::Timestamp;
use crate::time::shorten;

pub use prepare::CREATED;
pub use prepare::Prepared;
pub use prepare::is_child_undo;
pub use prepare::version_of;
pub use preview::Standing;
pub use target::ReadPlan;
pub use target::Reading;
pub use target::bind;
pub use target::object_ref;
pub use terms::Term;
pub use terms::Truth;

/// Where values live that are too large for an event (S5).
pub trait Values {
    /// The value behind a blob.
    fn load(&self, blob: &Blob) -> Result<Arc<Value>, Failure>;

    /// Keeps a value: in the event itself if it is small, else durably in a side file.
    fn keep(&self, value: Arc<Value>) -> Result<Blob, Failure>;
}

/// What was read for a unit: the objects by name, the step's own target as `object`.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    /// An object, a list, or null for what does not exist.
    pub values: BTreeMap<String, Arc<Value>>,
    /// What was read again for approvals that were given (E12).
    pub again: BTreeMap<UnitId, BTreeMap<String, Arc<Value>>>,
    /// Why something could not be read; the values are then incomplete.
    pub unreadable: Option<Failure>,
    /// Texts about the objects that may match a known failure (L5).
    pub evidence: Vec<String>,
}

impl Readings {
    /// Every object that was read, those of lists included.
    pub fn objects(&self) -> impl Iterator<Item = &Value> {
        self.values.values().flat_map(|value| objects_in(value))
    }
}

/// The objects in a value that was read: one, none or a list.
pub fn objects_in(value: &Value) -> impl Iterator<Item = &Value> {
    let all = match value {
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    all.iter().filter(|one| one.is_object())
}

/// Evaluates for one run at one moment.
pub struct Evaluator<'a> {
    /// The plan that the run is pinned to.
    pub plan: &'a Plan,
    /// The run.
    pub run: &'a RunState,
    /// Where large values live.
    pub values: &'a dyn Values,
    /// Known failures.
    pub knowledge: &'a Arc<Knowledge>,
    /// The time now.
    pub now: Timestamp,
    /// How many times shorter durations are than written.
    pub speed: f64,
}

impl Evaluator<'_> {
    /// The step, or the rollback entry, that a block runs.
    fn step(&self, block: &Block) -> Result<&Step, Failure> {
        let unknown = || Failure::permanent(codes::UNKNOWN_STEP, format!("the workflow has no step {block}"));
        Part::of(self.plan, block).map(|part| part.step).ok_or_else(unknown)
    }

    /// A duration as the engine is to count it.
    fn duration(&self, template: &Template, scope: &Scope, key: &str) -> Result<Duration, Failure> {
        let text = text(template, scope, key)?;
        let duration = crate::definition::duration::parse(&text)
            .map_err(|error| Failure::permanent(codes::DURATION, format!("`{key}` is `{text}`: {error}")))?;
        Ok(shorten(duration, self.speed))
    }

    /// The same for a key that may be missing.
    fn optional_duration(
        &self,
        template: Option<&Template>,
        scope: &Scope,
        key: &str,
    ) -> Result<Option<Duration>, Failure> {
        template.map(|template| self.duration(template, scope, key)).transpose()
    }

    /// Durations of a workflow's own: `timeout` and `lock_wait`, for a run that is to be created.
    pub fn workflow_durations(&self) -> Result<(Option<Duration>, Option<Duration>), Failure> {
        let workflow = &self.plan.workflow;
        let scope =
            self.workflow_scope(scope::wanted_by(workflow.timeout.iter().chain(&workflow.lock_wait)))?;
        Ok((
            self.optional_duration(workflow.timeout.as_ref(), &scope, "timeout")?,
            self.optional_duration(workflow.lock_wait.as_ref(), &scope, "lock_wait")?,
        ))
    }

    /// The lock keys of a run, sorted, each once.
    pub fn locks(&self) -> Result<Vec<Arc<str>>, Failure> {
        let locks = &self.plan.workflow.locks;
        let scope = self.workflow_scope(scope::wanted_by(locks))?;
        let mut keys = locks
            .iter()
            .map(|template| text(template, &scope, "lock").map(Into::into))
            .collect::<Result<Vec<Arc<str>>, _>>()?;
        keys.sort();
        keys.dedup();
        Ok(keys)
    }
}

/// How an expression that failed is told.
fn failed(key: &str, source: &str, error: &EvalError) -> Failure {
    Failure::permanent(codes::EXPRESSION, format!("`{key}` cannot be evaluated: {error} in `{source}`"))
}

/// The value of an expression.
fn value(expr: &Expr, scope: &Scope, key: &str) -> Result<Arc<Value>, Failure> {
    expr.eval(scope).map(Arc::new).map_err(|error| failed(key, expr.source(), &error))
}

/// The truth of a condition.
fn truth(expr: &Expr, scope: &Scope, key: &str) -> Result<bool, Failure> {
    expr.eval_bool(scope).map_err(|error| failed(key, expr.source(), &error))
}

/// The value of a template; an absent optional is none.
fn rendered(template: &Template, scope: &Scope, key: &str) -> Result<Option<Value>, Failure> {
    template.render(scope).map_err(|error| {
        Failure::permanent(codes::EXPRESSION, format!("`{key}` cannot be rendered: {error}"))
    })
}

/// The text of a template.
fn text(template: &Template, scope: &Scope, key: &str) -> Result<String, Failure> {
    match rendered(template, scope, key)? {
        Some(Value::String(text)) => Ok(text),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => Ok(value.to_string()),
        other => {
            let found = other.map_or_else(|| "nothing".to_owned(), |value| value.to_string());
            Err(Failure::permanent(codes::EXPRESSION, format!("`{key}` must be a text, it is {found}")))
        }
    }
}

/// A text for people that says so where it cannot be rendered: a message never fails a step.
fn message(template: Option<&Template>, scope: &Scope, fallback: &str) -> String {
    match template {
        None => fallback.to_owned(),
        Some(template) => text(template, scope, "message")
            .unwrap_or_else(|failure| format!("{fallback} ({})", failure.message)),
    }
}

/// The forward unit that an undo unit belongs to, or the unit itself.
fn forward_of(unit: &UnitId) -> UnitId {
    match &unit.block.undo {
        None => unit.clone(),
        Some(undo) => Block::forward(unit.block.step.clone()).unit(undo.item.clone()),
    }
}

//! What the names in an expression stand for.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::action::secret::placeholder;
use crate::action::secret::placeholder_with_hash;
use crate::definition::expr::Expr;
use crate::definition::expr::Naming;
use crate::definition::expr::Scope;
use crate::definition::model::InputKind;
use crate::definition::model::Step;
use crate::definition::template::Template;
use crate::engine::event::AttemptEffect;
use crate::engine::event::Blob;
use crate::engine::state::BlockState;
use crate::engine::state::Phase;
use crate::engine::state::UnitState;
use crate::engine::unit::UnitId;
use crate::evaluate::Evaluator;
use crate::evaluate::Readings;
use crate::evaluate::forward_of;
use crate::failure::Failure;

/// The names that something refers to. Only those are put into a scope: most steps need none of the large ones.
pub(super) type Wanted<'t> = BTreeSet<&'t str>;

/// Expressions by name (`let`).
pub(super) type Lets = BTreeMap<String, Expr>;

/// Those of a step that has no wait.
pub(super) const NO_LETS: &Lets = &Lets::new();

/// The names that templates refer to.
pub(super) fn wanted_by<'t>(templates: impl IntoIterator<Item = &'t Template>) -> Wanted<'t> {
    templates.into_iter().flat_map(Template::references).collect()
}

/// The names that expressions refer to.
pub(super) fn wanted_by_exprs<'e>(exprs: impl IntoIterator<Item = &'e Expr>) -> Wanted<'e> {
    exprs.into_iter().flat_map(Expr::references).map(String::as_str).collect()
}

impl Evaluator<'_> {
    /// The scope of something that belongs to the workflow, not to a step.
    pub(super) fn workflow_scope(&self, wanted: Wanted<'_>) -> Result<Scope, Failure> {
        let (wanted, lets) = with_lets(wanted, &[&self.plan.workflow.lets]);
        let mut scope = self.empty_scope(lets);
        self.bind_run(&mut scope, &wanted)?;
        Ok(scope)
    }

    /// The scope of a unit: `step` is its step or rollback entry, `own_lets` those of its wait.
    pub(super) fn unit_scope(
        &self,
        step: &Step,
        unit: &UnitId,
        readings: &Readings,
        own_lets: &Lets,
        wanted: Wanted<'_>,
    ) -> Result<Scope, Failure> {
        let (wanted, lets) = with_lets(wanted, &self.lets(step, own_lets));
        let mut scope = self.empty_scope(lets);
        // Without an undo between the attempts each one needs an object of its own (E4).
        let per_attempt = step.retry.wait && !step.retry.undo;
        let attempt = self.unit_state(unit).map_or(1, |state| match state.phase {
            Phase::Inherited => state.attempt + 1,
            ref phase if phase.is_before_attempt() => state.attempt + 1,
            _ => state.attempt,
        });
        scope.naming = Some(Naming {
            run: self.run.id.to_string(),
            step: unit.block.to_string(),
            item: unit.item.as_deref().map(str::to_owned),
            attempt: per_attempt.then_some(attempt),
        });
        self.bind_run(&mut scope, &wanted)?;
        self.bind_unit(&mut scope, unit, &wanted)?;
        for (name, value) in &readings.values {
            scope.values.insert(name.clone(), value.clone());
        }
        Ok(scope)
    }

    /// The named expressions that a step sees, the innermost first.
    fn lets<'t>(&'t self, step: &'t Step, own: &'t Lets) -> [&'t Lets; 3] {
        [own, &step.lets, &self.plan.workflow.lets]
    }

    /// `wanted` with all that the named expressions of a step bring with them.
    pub(super) fn expanded<'t>(&'t self, step: &'t Step, own: &'t Lets, wanted: Wanted<'t>) -> Wanted<'t> {
        with_lets(wanted, &self.lets(step, own)).0
    }

    fn empty_scope(&self, lets: Lets) -> Scope {
        Scope {
            lets,
            now: self.now,
            speed: self.speed,
            knowledge: Some(self.knowledge.clone()),
            ..Scope::default()
        }
    }

    fn bind_run(&self, scope: &mut Scope, wanted: &Wanted<'_>) -> Result<(), Failure> {
        if wanted.contains("inputs") {
            scope.values.insert("inputs".to_owned(), self.inputs());
        }
        if wanted.contains("run") {
            let run = json!({ "id": self.run.id.to_string(), "name": self.run.created.workflow.as_str() });
            scope.values.insert("run".to_owned(), Arc::new(run));
        }
        if wanted.contains("steps") {
            scope.values.insert("steps".to_owned(), Arc::new(self.steps()?));
        }
        if wanted.contains("failure") {
            let failure = self.run.rollback.as_ref().and_then(|rollback| rollback.failure.as_ref());
            scope.values.insert("failure".to_owned(), Arc::new(json!(failure)));
        }
        Ok(())
    }

    /// The inputs; a secret one is what stands for its value until the request is sent (L11).
    fn inputs(&self) -> Arc<Value> {
        let inputs = &self.plan.workflow.inputs;
        let mut secret =
            inputs.iter().filter(|(_, input)| matches!(input.kind, InputKind::Secret)).peekable();
        if secret.peek().is_none() {
            return self.run.created.inputs.clone();
        }
        let mut inputs = self.run.created.inputs.as_ref().clone();
        for (name, _) in secret {
            if let Some(Value::String(reference)) = inputs.get_mut(name)
                && !reference.is_empty()
            {
                *reference = match self.run.created.secrets.get(name) {
                    Some(hash) => placeholder_with_hash(reference, hash),
                    None => placeholder(reference),
                };
            }
        }
        Arc::new(inputs)
    }

    fn bind_unit(&self, scope: &mut Scope, unit: &UnitId, wanted: &Wanted<'_>) -> Result<(), Failure> {
        let forward = forward_of(unit);
        for unit in [&forward, unit] {
            if let Some(value) = wanted.contains("item").then(|| self.item(unit)).flatten() {
                scope.values.insert("item".to_owned(), value);
            }
        }
        if wanted.contains("captured") {
            let mut captured = self.captured(&forward)?;
            if unit.block.undo.is_some() {
                captured.extend(self.captured(unit)?);
            }
            scope.values.insert("captured".to_owned(), Arc::new(Value::Object(captured)));
        }
        let Some(state) = self.unit_state(&forward) else { return Ok(()) };
        if let Some(before) =
            state.facts.as_ref().and_then(|facts| facts.before.as_ref()).filter(|_| wanted.contains("before"))
        {
            scope.values.insert("before".to_owned(), self.values.load(before)?);
        }
        if wanted.contains("changed") {
            let changed = state.end.as_ref().is_some_and(|end| end.effect == AttemptEffect::Changed);
            scope.values.insert("changed".to_owned(), Arc::new(Value::Bool(changed)));
        }
        // An undo that failed has no result of its own, and may be tried again.
        let own = self.unit_state(unit).and_then(result_of);
        if let Some(result) = own.or_else(|| result_of(state)).filter(|_| wanted.contains("result")) {
            scope.values.insert("result".to_owned(), self.values.load(result)?);
        }
        Ok(())
    }

    /// The state of a unit that has begun.
    pub(super) fn unit_state(&self, unit: &UnitId) -> Option<&UnitState> {
        self.run.unit(unit)
    }

    fn item(&self, unit: &UnitId) -> Option<Arc<Value>> {
        let key = unit.item.as_ref()?;
        self.run.block(&unit.block)?.item(key).map(|item| item.value.clone())
    }

    fn captured(&self, unit: &UnitId) -> Result<serde_json::Map<String, Value>, Failure> {
        match self.unit_state(unit) {
            Some(state) => self.captures_of(state),
            None => Ok(serde_json::Map::new()),
        }
    }

    fn captures_of(&self, state: &UnitState) -> Result<serde_json::Map<String, Value>, Failure> {
        let load =
            |(name, blob): (&String, &Blob)| Ok((name.clone(), self.values.load(blob)?.as_ref().clone()));
        state.facts.iter().flat_map(|facts| &facts.captured).map(load).collect()
    }

    /// The variable `steps`.
    fn steps(&self) -> Result<Value, Failure> {
        let all = self.plan.workflow.steps.iter().chain(&self.plan.workflow.finally);
        let mut steps = serde_json::Map::new();
        for step in all {
            let block = self.run.steps.get(&step.name);
            let view =
                block.map_or_else(|| Ok(json!({ "state": "Pending" })), |block| self.step_view(block))?;
            steps.insert(step.name.to_string(), view);
        }
        Ok(Value::Object(steps))
    }

    fn step_view(&self, block: &BlockState) -> Result<Value, Failure> {
        if block.skipped.is_some() {
            return Ok(json!({ "state": "Skipped", "changed": false, "outputs": {}, "items": {} }));
        }
        let mut items = serde_json::Map::new();
        for (key, unit) in &block.units {
            let view = json!({
                "state": unit.word(),
                "captured": self.captures_of(unit)?,
                "outputs": unit.outputs.as_deref().unwrap_or(&Value::Null),
            });
            items.insert(key.to_string(), view);
        }
        let changed =
            |unit: &UnitState| unit.end.as_ref().is_some_and(|end| end.effect == AttemptEffect::Changed);
        let verdicts = block.units.values().filter_map(|unit| unit.verdict.as_ref());
        let worst = verdicts.max_by_key(|verdict| verdict.severity);
        let outputs = block.units.get("").and_then(|unit| unit.outputs.as_deref());
        Ok(json!({
            "state": block.word(),
            "changed": block.units.values().any(changed),
            "verdict": worst.map(|verdict| verdict.name.as_str()),
            "outputs": outputs.unwrap_or(&Value::Null),
            "items": items,
        }))
    }
}

/// What the last attempt of a unit gave back.
fn result_of(state: &UnitState) -> Option<&Blob> {
    state.end.as_ref()?.result.as_ref()
}

/// `wanted` with all that the named expressions in it refer to, and those expressions.
pub(super) fn with_lets<'t>(mut wanted: Wanted<'t>, lets: &[&'t Lets]) -> (Wanted<'t>, Lets) {
    let mut open: Vec<&str> = wanted.iter().copied().collect();
    let mut used = Lets::new();
    while let Some(name) = open.pop() {
        let Some(expr) = lets.iter().find_map(|lets| lets.get(name)) else { continue };
        used.insert(name.to_owned(), expr.clone());
        open.extend(expr.references().iter().map(String::as_str).filter(|name| wanted.insert(name)));
    }
    (wanted, used)
}

//! What is to be known before an action starts (E2, 1 to 3).

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::action::request::Request;
use crate::definition::expr::Scope;
use crate::definition::model::ActionKind;
use crate::definition::model::Step;
use crate::definition::model::Target;
use crate::engine::command::DebtDraft;
use crate::engine::command::Go;
use crate::engine::command::Preparation;
use crate::engine::command::Ready;
use crate::engine::event::AttemptEnd;
use crate::engine::event::Facts;
use crate::engine::event::Footprint;
use crate::engine::event::ObjectVersion;
use crate::engine::part::CHILD_UNDO;
use crate::engine::unit::UnitId;
use crate::evaluate::Evaluator;
use crate::evaluate::ReadPlan;
use crate::evaluate::Reading;
use crate::evaluate::Readings;
use crate::evaluate::codes;
use crate::evaluate::forward_of;
use crate::evaluate::message;
use crate::evaluate::request;
use crate::evaluate::scope::NO_LETS;
use crate::evaluate::scope::Wanted;
use crate::evaluate::scope::wanted_by;
use crate::evaluate::scope::wanted_by_exprs;
use crate::evaluate::target::wanted_by_target;
use crate::evaluate::truth;
use crate::evaluate::value;
use crate::failure::Bilingual;
use crate::failure::Failure;

/// What an object that a manifest describes is bound to while its creation is observed. No expression can name it.
pub const CREATED: &str = "created object";

/// The report, and the request that its digest stands for.
#[derive(Debug)]
pub struct Prepared {
    /// What the engine is told.
    pub preparation: Preparation,
    /// What the executor gets if the engine starts the attempt.
    pub request: Option<Request>,
}

impl From<Preparation> for Prepared {
    fn from(preparation: Preparation) -> Self {
        Self { preparation, request: None }
    }
}

impl Evaluator<'_> {
    /// What has to be read before a unit can start; `None` if it is not to start at all (`when` is false).
    pub fn reads_to_prepare(&self, unit: &UnitId) -> Result<Option<ReadPlan>, Failure> {
        if is_child_undo(unit) {
            return Ok(Some(ReadPlan::default()));
        }
        let step = self.step(&unit.block)?;
        // An undo looks at the world first: its `when` sees `object`.
        let asks_when = step.when.is_some() && asks_when(unit) && unit.block.undo.is_none();
        let again = self.reads_of_approvals(step)?;
        if !asks_when && step.reads.is_empty() && self.target_of(unit, step).is_none() {
            return Ok(Some(ReadPlan::default().with_again(again)));
        }
        let (scope, readings) = self.reads(unit, step, None)?;
        if asks_when && !applies(step, &scope)? {
            return Ok(None);
        }
        Ok(Some(ReadPlan::new(scope, readings).with_again(again)))
    }

    /// What has to be read to tell whether an attempt took effect (E3): the same, and the object that it was to create.
    pub fn reads_to_observe(&self, unit: &UnitId) -> Result<ReadPlan, Failure> {
        let step = self.step(&unit.block)?;
        let creates = matches!(step.action.uses, ActionKind::K8sCreate | ActionKind::K8sApply);
        let manifest = step.action.args.get("manifest").filter(|_| creates);
        let (scope, readings) = self.reads(unit, step, manifest.and_then(Target::of_manifest))?;
        Ok(ReadPlan::new(scope, readings))
    }

    /// What a unit reads before its action, and with what its targets are rendered.
    pub(super) fn reads(
        &self,
        unit: &UnitId,
        step: &Step,
        created: Option<Target>,
    ) -> Result<(Scope, Vec<Reading>), Failure> {
        let target = self.target_of(unit, step);
        let mut wanted = wanted_to_prepare(step);
        wanted.extend(step.reads.iter().flat_map(|(_, target)| wanted_by_target(target)));
        let mut wanted = self.expanded(step, NO_LETS, wanted);
        let reads_object = target.is_some() && (needs_object(step.action.uses) || wanted.contains("object"));
        let object = target.filter(|_| reads_object).map(|target| ("object", target));
        let reads = step.reads.iter().map(|(name, target)| (name.as_str(), target));
        let created = created.iter().map(|target| (CREATED, target));
        let readings: Vec<Reading> = object
            .into_iter()
            .chain(reads)
            .chain(created)
            .map(|(name, target)| Reading { name: name.to_owned(), target: target.clone() })
            .collect();
        wanted.extend(readings.iter().flat_map(|reading| wanted_by_target(&reading.target)));
        let scope = self.unit_scope(step, unit, &Readings::default(), NO_LETS, wanted)?;
        Ok((scope, readings))
    }

    /// What the engine is told about a unit that was read.
    pub fn prepare(&self, unit: &UnitId, readings: &Readings) -> Prepared {
        if let Some(failure) = &readings.unreadable {
            return Preparation::Failed(failure.clone()).into();
        }
        if is_child_undo(unit) {
            return child_undo();
        }
        self.try_prepare(unit, readings).unwrap_or_else(|failure| Preparation::Failed(failure).into())
    }

    fn try_prepare(&self, unit: &UnitId, readings: &Readings) -> Result<Prepared, Failure> {
        let step = self.step(&unit.block)?;
        let mut wanted = wanted_to_prepare(step);
        if let Some(target) = self.target_of(unit, step) {
            wanted.extend(wanted_by_target(target));
        }
        let mut scope = self.unit_scope(step, unit, readings, NO_LETS, wanted)?;
        // One that is tried again has been asked: what it did may have made its `when` false.
        let first = self.unit_state(unit).is_none_or(|state| state.attempt == 0);
        if first && asks_when(unit) && unit.block.undo.is_some() && !applies(step, &scope)? {
            return Ok(Preparation::Skip { debt: else_debt(step, &scope) }.into());
        }
        self.check_approvals(step, readings)?;
        let step_timeout = self.optional_duration(step.timeout.as_ref(), &scope, "timeout")?;
        let known = self.unit_state(unit).is_some_and(|state| state.facts.is_some());
        let facts = if known { None } else { Some(self.facts(step, unit, readings, &mut scope)?) };
        let object = readings.values.get("object");
        if let Some(check) = step.check.as_ref().filter(|_| first) {
            match truth(check, &scope, "check") {
                Ok(true) => {
                    let facts = facts.unwrap_or_default();
                    return Ok(Preparation::Unchanged { facts, step_timeout }.into());
                }
                Err(failure) if !object.is_some_and(|object| object.is_null()) => return Err(failure),
                Ok(false) | Err(_) => {}
            }
        }
        if object.is_some_and(|object| object.is_null()) && needs_existing(step.action.uses) {
            return Err(self.missing_target(unit, step, &scope));
        }
        if let Some(unmet) = self.first_unmet(step, &scope)? {
            let (message, wait) = unmet;
            return Ok(Preparation::Unmet { message, wait, step_timeout }.into());
        }
        self.ready(unit, step, &scope, facts, step_timeout)
    }

    fn ready(
        &self,
        unit: &UnitId,
        step: &Step,
        scope: &Scope,
        facts: Option<Facts>,
        step_timeout: Option<Duration>,
    ) -> Result<Prepared, Failure> {
        let target = self.target_of(unit, step);
        let object = scope.values.get("object").filter(|object| !object.is_null()).cloned();
        let mut request = request::render(step, target, object.clone(), scope)?;
        if step.action.uses == ActionKind::K8sRestore {
            request.args["changes"] = self.written_by(&forward_of(unit))?;
        }
        let attempt_timeout = match &step.attempt_timeout {
            Some(template) => self.duration(template, scope, "attempt_timeout")?,
            None => request::attempt_timeout_default(step.action.uses),
        };
        let retry_delays = (
            self.duration(&step.retry.delay, scope, "retry.delay")?,
            self.duration(&step.retry.max_delay, scope, "retry.max_delay")?,
        );
        let ready = Ready {
            facts,
            object: object.as_deref().and_then(version_of),
            request: request::digest(&request),
            attempt_timeout,
            step_timeout,
            retry_delays,
            go: self.go(step, &request, scope)?,
        };
        Ok(Prepared { preparation: Preparation::Ready(Box::new(ready)), request: Some(request) })
    }

    /// The request of the last attempt as it was sent, and the target as it was before; none where what it was made
    /// from is not the same any more.
    pub fn sent(&self, unit: &UnitId, readings: &Readings) -> Result<Option<(Request, Arc<Value>)>, Failure> {
        let step = self.step(&unit.block)?;
        let Some(state) = self.unit_state(unit) else { return Ok(None) };
        let Some(before) = state.facts.as_ref().and_then(|facts| facts.before.as_ref()) else {
            return Ok(None);
        };
        let before = self.values.load(before)?;
        let mut wanted = wanted_to_prepare(step);
        let target = self.target_of(unit, step);
        wanted.extend(target.into_iter().flat_map(wanted_by_target));
        let mut readings = readings.clone();
        readings.values.insert("object".to_owned(), before.clone());
        let scope = self.unit_scope(step, unit, &readings, NO_LETS, wanted)?;
        let request = request::render(step, target, Some(before.clone()), &scope)?;
        let is_same = state.request.as_ref() == Some(&request::digest(&request));
        Ok(is_same.then_some((request, before)))
    }

    /// What a forward step wrote, path by path: what a `k8s.restore` puts back.
    fn written_by(&self, forward: &UnitId) -> Result<Value, Failure> {
        let end = self.unit_state(forward).and_then(|state| state.end.as_ref());
        match end {
            Some(AttemptEnd { changes: Some(changes), .. }) => {
                Ok(self.values.load(changes)?.as_ref().clone())
            }
            Some(end) if end.effect.footprint() < Footprint::Changed => Ok(Value::Array(vec![])),
            _ => {
                let text =
                    format!("it is not known which fields {forward} has written: put them back by hand");
                Err(Failure::permanent(codes::WRITES_UNKNOWN, text))
            }
        }
    }

    /// Evaluates `capture.*` in turn, binds them, and keeps the target if an undo will need it.
    fn facts(
        &self,
        step: &Step,
        unit: &UnitId,
        readings: &Readings,
        scope: &mut Scope,
    ) -> Result<Facts, Failure> {
        let mut facts = Facts::default();
        let mut captured = match scope.values.get("captured").map(AsRef::as_ref) {
            Some(Value::Object(outer)) => outer.clone(),
            _ => serde_json::Map::new(),
        };
        for (name, expr) in &step.captures {
            let found = value(expr, scope, &format!("capture.{name}"))?;
            captured.insert(name.clone(), found.as_ref().clone());
            facts.captured.insert(name.clone(), self.values.keep(found)?);
        }
        scope.values.insert("captured".to_owned(), Arc::new(Value::Object(captured)));
        if forward_of(unit) == *unit && keeps_before(step) {
            if let Some(object) = readings.values.get("object") {
                facts.before = Some(self.values.keep(object.clone())?);
            }
        }
        Ok(facts)
    }

    /// The first precondition that does not hold, and how long it may be waited for.
    fn first_unmet(
        &self,
        step: &Step,
        scope: &Scope,
    ) -> Result<Option<(Bilingual, Option<Duration>)>, Failure> {
        for precondition in &step.preconditions {
            let reason = match precondition.that.eval_bool(scope) {
                Ok(true) => continue,
                Ok(false) => format!("`{}` is false", precondition.that.source()),
                Err(error) => format!("`{}`: {error}", precondition.that.source()),
            };
            let en = message(Some(&precondition.message), scope, &reason);
            let zh = precondition.message_zh.as_ref().map(|zh| message(Some(zh), scope, &reason));
            let wait = self.optional_duration(precondition.wait.as_ref(), scope, "wait")?;
            return Ok(Some((Bilingual { en, zh }, wait)));
        }
        Ok(None)
    }

    /// The object that a step is about: a rollback entry inherits that of its step (L9).
    pub(super) fn target_of<'s>(&'s self, unit: &UnitId, step: &'s Step) -> Option<&'s Target> {
        let inherited = || self.plan.workflow.step(&unit.block.step).and_then(|step| step.target.as_ref());
        step.target.as_ref().or_else(|| unit.block.undo.as_ref().and_then(|_| inherited()))
    }

    fn missing_target(&self, unit: &UnitId, step: &Step, scope: &Scope) -> Failure {
        let target =
            self.target_of(unit, step).map(|target| crate::evaluate::target::object_ref(target, scope));
        let what = match target {
            Some(Ok(Some(object))) => object.describe(),
            _ => "the target (its name has no value)".to_owned(),
        };
        Failure::permanent(
            codes::TARGET_MISSING,
            Bilingual::new(format!("{what} does not exist"), format!("{what} 不存在")),
        )
    }
}

/// True for the undo that a `workflow` step has without writing one: the child's own rollback.
pub fn is_child_undo(unit: &UnitId) -> bool {
    unit.block.undo.as_ref().is_some_and(|undo| undo.entry == CHILD_UNDO)
}

/// Nothing is read for it, and all that it sends is an order to the runner.
fn child_undo() -> Prepared {
    let request = Request { uses: ActionKind::Workflow, target: None, object: None, args: Value::Null };
    let ready = Ready {
        facts: Some(Facts::default()),
        object: None,
        request: request::digest(&request),
        attempt_timeout: request::attempt_timeout_default(ActionKind::Workflow),
        step_timeout: None,
        retry_delays: (Duration::ZERO, Duration::ZERO),
        go: Go::Act,
    };
    Prepared { preparation: Preparation::Ready(Box::new(ready)), request: Some(request) }
}

/// `when`; true if there is none.
fn applies(step: &Step, scope: &Scope) -> Result<bool, Failure> {
    step.when.as_ref().map_or(Ok(true), |when| truth(when, scope, "when"))
}

/// What is left when a rollback entry does not apply.
pub(super) fn else_debt(step: &Step, scope: &Scope) -> Option<DebtDraft> {
    let text = message(Some(step.else_debt.as_ref()?), scope, "something is left");
    Some(DebtDraft { what: Bilingual { en: text, zh: None }, objects: vec![], gone_when: None })
}

/// True for a unit whose `when` was not asked yet: a block with a `for_each` is asked when it is opened.
const fn asks_when(unit: &UnitId) -> bool {
    unit.item.is_none()
}

/// All names that preparing a step may need.
fn wanted_to_prepare(step: &Step) -> Wanted<'_> {
    let debt = step.else_debt.iter();
    let exprs = step.when.iter().chain(step.captures.values()).chain(&step.check).chain(&step.action.that);
    let mut wanted = wanted_by_exprs(exprs.chain(step.preconditions.iter().map(|condition| &condition.that)));
    let messages = step.preconditions.iter().flat_map(|condition| {
        std::iter::once(&condition.message).chain(&condition.message_zh).chain(&condition.wait)
    });
    let limits =
        step.timeout.iter().chain(&step.attempt_timeout).chain([&step.retry.delay, &step.retry.max_delay]);
    wanted.extend(wanted_by(step.action.args.values().chain(messages).chain(limits).chain(debt)));
    wanted
}

/// True for an action that writes to its target: uid and resourceVersion are read first.
const fn needs_object(uses: ActionKind) -> bool {
    needs_existing(uses)
        || matches!(uses, ActionKind::K8sApply | ActionKind::K8sCreate | ActionKind::K8sDryRun)
}

/// True for an action that fails where its target does not exist.
const fn needs_existing(uses: ActionKind) -> bool {
    matches!(
        uses,
        ActionKind::K8sPatch
            | ActionKind::K8sDelete
            | ActionKind::K8sEvict
            | ActionKind::K8sSubresource
            | ActionKind::K8sRestore
    )
}

/// True if an undo will look at the target as it was.
fn keeps_before(step: &Step) -> bool {
    step.rollback.iter().any(|entry| {
        entry.action.uses == ActionKind::K8sRestore || {
            let mut wanted = wanted_to_prepare(entry);
            if let Some(wait) = &entry.wait {
                wanted.extend(wanted_by_exprs(wait.verdicts.iter().map(|verdict| &verdict.when)));
            }
            wanted.contains("before")
        }
    })
}

/// uid and resourceVersion of an object as read.
pub fn version_of(object: &Value) -> Option<ObjectVersion> {
    let text =
        |key: &str| object.pointer(&format!("/metadata/{key}")).and_then(Value::as_str).map(Into::into);
    Some(ObjectVersion { uid: text("uid")?, resource_version: text("resourceVersion")? })
}

//! How each effect is carried out and reported.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::action::Executor;
use crate::action::request::Answer;
use crate::action::request::Origin;
use crate::action::request::Request;
use crate::definition::model::ActionKind;
use crate::engine::Command;
use crate::engine::Effect;
use crate::engine::command::Finding;
use crate::engine::command::Preparation;
use crate::engine::event::AttemptEffect;
use crate::engine::event::AttemptEnd;
use crate::engine::event::ObjectVersion;
use crate::engine::state::Phase;
use crate::engine::unit::UnitId;
use crate::evaluate::ReadPlan;
use crate::evaluate::Readings;
use crate::evaluate::Values;
use crate::failure::Failure;
use crate::runner::observer::Observer;
use crate::runner::run_task::Message;
use crate::runner::run_task::RunTask;

impl RunTask {
    /// What an effect has to know before it can be reported: none for one that does more than read, and the report
    /// itself if not even that can be told.
    pub(super) fn reads_of(&self, effect: &Effect) -> Option<Result<ReadPlan, Command>> {
        let evaluator = self.evaluator();
        let plan = match effect {
            Effect::Open(block) => evaluator.reads_to_open(block),
            Effect::Prepare(unit) => match evaluator.reads_to_prepare(unit) {
                Ok(Some(plan)) => Ok(plan),
                Ok(None) => {
                    return Some(Err(Command::Prepared { unit: unit.clone(), result: Preparation::Skip }));
                }
                Err(failure) => Err(failure),
            },
            Effect::Arm(_) | Effect::Summarize => return Some(Ok(ReadPlan::default())),
            Effect::Conclude(unit) => evaluator.reads_to_conclude(unit),
            Effect::Watch(_) | Effect::Guard(_) | Effect::Act { .. } | Effect::Observe { .. } => return None,
        };
        Some(plan.map_err(|failure| refusal(effect, failure)))
    }

    /// The report of an effect, given what was read for it.
    pub(super) fn answer(&mut self, effect: &Effect, readings: &Readings) -> Option<Command> {
        let evaluator = self.evaluator();
        Some(match effect {
            Effect::Open(block) => Command::Opened { block: block.clone(), result: evaluator.open(block, readings) },
            Effect::Prepare(unit) => {
                let prepared = evaluator.prepare(unit, readings);
                if let Some(request) = prepared.request {
                    self.requests.insert(unit.clone(), request);
                }
                Command::Prepared { unit: unit.clone(), result: prepared.preparation }
            }
            Effect::Arm(unit) => Command::Armed { unit: unit.clone(), result: evaluator.arm(unit) },
            Effect::Watch(unit) => {
                Command::Judged { unit: unit.clone(), report: Box::new(evaluator.judge(unit, readings)) }
            }
            Effect::Conclude(unit) => {
                Command::Concluded { unit: unit.clone(), result: evaluator.conclude(unit, readings) }
            }
            Effect::Summarize => Command::Summarized { result: evaluator.summarize() },
            Effect::Guard(index) => {
                let guard = self.plan.workflow.guards.get(usize::from(*index))?;
                Command::GuardBroken { guard: *index, message: evaluator.broken(guard, readings)? }
            }
            Effect::Observe { unit, attempt } => {
                let finding = self.finding(unit, *attempt, readings);
                Command::Observed { unit: unit.clone(), attempt: *attempt, finding }
            }
            Effect::Act { .. } => return None,
        })
    }

    /// Starts an effect; none if it was reported at once.
    pub(super) fn start(&mut self, effect: &Effect, poke: Arc<Notify>) -> Option<AbortHandle> {
        match effect {
            Effect::Act { unit, attempt } => self.start_act(effect, unit, *attempt),
            Effect::Observe { unit, attempt } => self.start_observe(effect, unit, *attempt),
            Effect::Watch(unit) => {
                let plan = self.evaluator().reads_to_judge(unit);
                self.start_watch(effect, plan, poke)
            }
            Effect::Guard(index) => {
                let guard = self.plan.workflow.guards.get(usize::from(*index))?;
                let plan = self.evaluator().reads_to_guard(guard);
                self.start_watch(effect, plan, poke)
            }
            Effect::Prepare(unit) => {
                let plan = self.evaluator().reads_to_prepare(unit).map(Option::unwrap_or_default);
                self.start_watch(effect, plan, poke)
            }
            Effect::Open(_) | Effect::Conclude(_) | Effect::Arm(_) | Effect::Summarize => {
                let plan = match self.reads_of(effect)? {
                    Ok(plan) => plan,
                    Err(command) => {
                        self.send(Message::Report(effect.clone(), command));
                        return None;
                    }
                };
                let mut observer = self.observer(plan);
                Some(self.spawn(effect, async move |task| {
                    let readings = observer.read().await;
                    task.read(readings);
                }))
            }
        }
    }

    /// Reads again and again, whenever something changed; the run decides when that is enough.
    fn start_watch(
        &self,
        effect: &Effect,
        plan: Result<ReadPlan, Failure>,
        poke: Arc<Notify>,
    ) -> Option<AbortHandle> {
        let plan = match plan {
            Ok(plan) => plan,
            Err(failure) => {
                self.send(Message::Report(effect.clone(), refusal(effect, failure)));
                return None;
            }
        };
        let mut observer = self.observer(plan);
        if matches!(effect, Effect::Guard(_)) {
            observer = observer.with_managed_fields();
        }
        Some(self.spawn(effect, async move |task| {
            loop {
                let readings = observer.watch().await;
                task.read(readings);
                observer.changed(&poke).await;
            }
        }))
    }

    fn start_act(&mut self, effect: &Effect, unit: &UnitId, attempt: u32) -> Option<AbortHandle> {
        let Some(request) = self.requests.get(unit).cloned() else {
            // Only a process that prepared the request may send it; another one observes.
            let failure = Failure::unknown("WR0002", format!("the request of {unit} was not prepared here"));
            self.send(Message::Report(effect.clone(), acted(unit, attempt, failed(failure))));
            return None;
        };
        if request.uses == ActionKind::Workflow {
            return Some(self.start_child(effect, unit, attempt, &request));
        }
        let Some(Phase::Acting { deadline, .. }) = self.phase(unit) else { return None };
        let limit = deadline.since(self.shared.clock.now());
        let origin = self.origin(unit, attempt);
        let executor = self.shared.executor.clone();
        let values = self.shared.values();
        let unit = unit.clone();
        Some(self.spawn(effect, async move |task| {
            let answer = match request.uses {
                ActionKind::Process => task.process(&executor, &origin, &request, limit).await,
                _ => executor.execute(&origin, &request, limit).await,
            };
            task.report(acted(&unit, attempt, end_of(answer, &values)));
        }))
    }

    /// Carries out an extension's action without a task of its own: it is part of this process and does not wait.
    /// True if there was one.
    pub(super) async fn run_inline(&mut self) -> bool {
        if !self.cluster_checked {
            return false;
        }
        let effects = crate::engine::effect::pending_effects(&self.plan, &self.run);
        let mut found = false;
        for effect in effects {
            let Effect::Act { unit, attempt } = &effect else { continue };
            let Some(request) = self.requests.get(unit) else { continue };
            if request.uses == ActionKind::Extension {
                let origin = self.origin(unit, *attempt);
                let answer = self.shared.executor.execute(&origin, request, std::time::Duration::MAX).await;
                let end = end_of(answer, &self.shared.values());
                self.report(acted(unit, *attempt, end));
                found = true;
            }
        }
        found
    }

    fn start_observe(&mut self, effect: &Effect, unit: &UnitId, attempt: u32) -> Option<AbortHandle> {
        let (settle, process) = match self.phase(unit)? {
            Phase::Observing { settle, process } => (*settle, process.clone()),
            _ => return None,
        };
        let step = self.step(unit)?;
        if step.action.uses == ActionKind::Workflow {
            return Some(self.observe_child(effect, unit, attempt));
        }
        if let Some(process) = process {
            return Some(self.observe_process(effect, unit, attempt, process));
        }
        let plan = match self.evaluator().reads_to_prepare(unit) {
            Ok(plan) => plan.unwrap_or_default(),
            Err(failure) => {
                let finding = Finding::CannotTell(failure);
                let command = Command::Observed { unit: unit.clone(), attempt, finding };
                self.send(Message::Report(effect.clone(), command));
                return None;
            }
        };
        let mut observer = self.observer(plan);
        let clock = self.shared.clock.clone();
        Some(self.spawn(effect, async move |task| {
            clock.sleep_until(settle).await;
            let poke = Notify::new();
            let patience = clock.after(OBSERVE_PATIENCE);
            let mut readings = observer.watch().await;
            while readings.unreadable.as_ref().is_some_and(crate::runner::observer::may_pass) && clock.now() < patience {
                observer.changed(&poke).await;
                readings = observer.watch().await;
            }
            task.read(readings);
        }))
    }

    /// Whether an attempt without a result took effect (E3).
    fn finding(&mut self, unit: &UnitId, attempt: u32, readings: &Readings) -> Finding {
        if let Some(failure) = &readings.unreadable {
            return Finding::CannotTell(failure.clone());
        }
        let evaluator = self.evaluator();
        let object = readings.values.get("object");
        let origin = self.origin(unit, attempt);
        let Some(step) = self.step(unit) else {
            return Finding::CannotTell(Failure::permanent("WR0001", format!("the workflow has no step {unit}")));
        };
        let proof = crate::action::proof::of(step.action.uses, &origin, object.map(AsRef::as_ref), self.uid_before(unit));
        let version = object.and_then(|object| crate::evaluate::version_of(object));
        match evaluator.check(unit, readings) {
            Ok(Some(true)) => Finding::Done { ours: proof == Some(true), object: version, result: None },
            Ok(Some(false)) => Finding::NotDone,
            Err(failure) => Finding::CannotTell(failure),
            Ok(None) => match proof {
                Some(true) => Finding::Done { ours: true, object: version, result: None },
                Some(false) => Finding::NotDone,
                None if step.idempotent => Finding::NotDone,
                None => Finding::CannotTell(Failure::unknown(
                    "WR0012",
                    format!("{unit} was interrupted and has neither `check` nor `idempotent = true`"),
                )),
            },
        }
    }

    fn step(&self, unit: &UnitId) -> Option<&crate::definition::model::Step> {
        let step = self.plan.workflow.step(&unit.block.step)?;
        match &unit.block.undo {
            None => Some(step),
            Some(undo) => step.rollback.get(usize::from(undo.entry)),
        }
    }

    fn phase(&self, unit: &UnitId) -> Option<&Phase> {
        let key = unit.item.as_deref().unwrap_or_default();
        Some(&self.run.blocks.get(&unit.block)?.units.get(key)?.phase)
    }

    /// Who acts, in the words of the action module.
    pub(super) fn origin(&self, unit: &UnitId, attempt: u32) -> Origin {
        Origin {
            run: self.run.id.to_string(),
            workflow: self.run.created.workflow.to_string(),
            unit: unit.to_string(),
            attempt,
        }
    }

    fn observer(&self, plan: ReadPlan) -> Observer {
        Observer::new(self.shared.executor.clone(), self.shared.clock.clone(), plan)
    }

    pub(super) fn send(&self, message: Message) {
        // The actor holds the receiver itself.
        drop(self.outbox.send(message));
    }
}

/// How long an interrupted attempt is looked for while the cluster does not answer, before a person is asked.
const OBSERVE_PATIENCE: std::time::Duration = std::time::Duration::from_mins(5);

/// The report of an effect that could not even be prepared.
fn refusal(effect: &Effect, failure: Failure) -> Command {
    match effect.clone() {
        Effect::Open(block) => Command::Opened { block, result: Err(failure) },
        Effect::Prepare(unit) => Command::Prepared { unit, result: Preparation::Failed(failure) },
        Effect::Arm(unit) => Command::Armed { unit, result: Err(failure) },
        Effect::Conclude(unit) => Command::Concluded { unit, result: Err(failure) },
        Effect::Summarize => Command::Summarized { result: Err(failure) },
        Effect::Act { unit, attempt } => acted(&unit, attempt, failed(failure)),
        Effect::Observe { unit, attempt } => {
            Command::Observed { unit, attempt, finding: Finding::CannotTell(failure) }
        }
        Effect::Watch(unit) => {
            let report = crate::engine::command::WaitReport {
                reason: failure.message.clone(),
                unreadable: Some(failure),
                ..Default::default()
            };
            Command::Judged { unit, report: Box::new(report) }
        }
        Effect::Guard(guard) => {
            let message = crate::failure::Bilingual { en: failure.message, zh: None };
            Command::GuardBroken { guard, message }
        }
    }
}

pub(super) fn acted(unit: &UnitId, attempt: u32, end: AttemptEnd) -> Command {
    Command::Acted { unit: unit.clone(), attempt, end }
}

/// The end of an attempt that failed before it was sent.
pub(super) fn failed(failure: Failure) -> AttemptEnd {
    let effect = match failure.class {
        crate::failure::FailureClass::Unknown => AttemptEffect::Unknown(failure),
        crate::failure::FailureClass::Retryable | crate::failure::FailureClass::Permanent => {
            AttemptEffect::Failed(failure)
        }
    };
    AttemptEnd { effect, object: None, result: None, changes: None }
}

/// An executor's answer in the engine's words.
pub(super) fn end_of(answer: Answer, values: &dyn Values) -> AttemptEnd {
    let (changed, object, result, changes) = match answer {
        Answer::Failed(failure) => return failed(failure),
        Answer::Done { changed, object, result, changes } => (changed, object, result, changes),
    };
    let keep = |value: serde_json::Value| values.keep(Arc::new(value));
    let kept = (Some(result).filter(|value| !value.is_null()).map(keep).transpose(), changes.map(keep).transpose());
    match kept {
        (Ok(result), Ok(changes)) => AttemptEnd {
            effect: if changed { AttemptEffect::Changed } else { AttemptEffect::Unchanged },
            object: object.map(|(uid, resource_version)| ObjectVersion { uid, resource_version }),
            result,
            changes,
        },
        // It took effect, but what it gave back is lost: look at the world.
        (Err(failure), _) | (_, Err(failure)) => failed(Failure::unknown(&failure.code, failure.message)),
    }
}


//! How each effect is carried out and reported.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;

use crate::action::proof;
use crate::action::request::Answer;
use crate::action::request::Origin;
use crate::definition::model::ActionKind;
use crate::definition::model::Step;
use crate::engine::Command;
use crate::engine::Effect;
use crate::engine::command::Finding;
use crate::engine::command::Preparation;
use crate::engine::command::WaitReport;
use crate::engine::event::AttemptEffect;
use crate::engine::event::AttemptEnd;
use crate::engine::event::Blob;
use crate::engine::event::ObjectVersion;
use crate::engine::part::Part;
use crate::engine::state::Phase;
use crate::engine::unit::UnitId;
use crate::evaluate::CREATED;
use crate::evaluate::ReadPlan;
use crate::evaluate::Readings;
use crate::evaluate::Values;
use crate::failpoint;
use crate::failpoint::Place;
use crate::failure::Failure;
use crate::failure::FailureClass;
use crate::runner::codes;
use crate::runner::observer::Observer;
use crate::runner::observer::may_pass;
use crate::runner::run_task::RunTask;
use crate::runner::tasks::Reporter;
use crate::runner::tasks::Task;

/// How long a request of a test is on its way before the process ends: a local server has it by then.
const AFTER_SEND: Duration = Duration::from_millis(50);
/// How long an interrupted attempt is looked for while the cluster does not answer, before a person is asked; and how
/// long the outputs of a step that is done wait for it.
const OBSERVE_PATIENCE: Duration = Duration::from_mins(5);

impl RunTask {
    /// What an effect has to know before it can be reported: none for one that does more than read once, and the
    /// report itself where not even that can be told.
    pub(super) fn reads_of(&self, effect: &Effect) -> Option<Result<ReadPlan, Command>> {
        let values = self.shared.values();
        let evaluator = self.evaluator(&values);
        let plan = match effect {
            Effect::Open(block) => evaluator.reads_to_open(block),
            Effect::Prepare(unit) => match evaluator.reads_to_prepare(unit) {
                Ok(Some(plan)) => Ok(plan),
                Ok(None) => {
                    let result = Preparation::Skip { debt: None };
                    return Some(Err(Command::Prepared { unit: unit.clone(), result }));
                }
                Err(failure) => Err(failure),
            },
            Effect::Arm(_) | Effect::Summarize => Ok(ReadPlan::default()),
            Effect::Conclude(unit) => evaluator.reads_to_conclude(unit),
            Effect::Cover(block) => evaluator.reads_to_cover(block),
            Effect::Watch(_)
            | Effect::Guard(_)
            | Effect::Act { .. }
            | Effect::StopChild { .. }
            | Effect::Observe { .. } => return None,
        };
        Some(plan.map_err(|failure| refusal(effect, failure)))
    }

    /// True for a unit whose precondition was found unmet: it is read again when something changes, not at once.
    pub(super) fn is_pending(&self, effect: &Effect) -> bool {
        let Effect::Prepare(unit) = effect else { return false };
        self.run.unit(unit).is_some_and(|state| matches!(state.phase, Phase::Pending { .. }))
    }

    /// The report of an effect, given what was read for it.
    pub(super) fn answer(&mut self, effect: &Effect, readings: &Readings) -> Option<Command> {
        let values = self.shared.values();
        let evaluator = self.evaluator(&values);
        Some(match effect {
            Effect::Open(block) => {
                Command::Opened { block: block.clone(), result: evaluator.open(block, readings) }
            }
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
            Effect::Cover(block) => {
                Command::Covered { block: block.clone(), result: evaluator.cover(block, readings) }
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
            Effect::Act { .. } | Effect::StopChild { .. } => return None,
        })
    }

    /// Starts the task of an effect; the report of one that cannot even start.
    pub(super) fn start(&mut self, effect: &Effect) -> Result<Task, Command> {
        let values = self.shared.values();
        let evaluator = self.evaluator(&values);
        let refused = |failure| refusal(effect, failure);
        match effect {
            Effect::Act { unit, attempt } => self.start_act(effect, unit, *attempt),
            Effect::Observe { unit, attempt } => self.start_observe(effect, unit, *attempt),
            Effect::StopChild { unit, attempt } => {
                self.stop_child(unit, *attempt);
                // Nothing is left to report: the child's end is what its attempt reports.
                Ok(self.spawn(effect, |_| async {}))
            }
            Effect::Watch(unit) => {
                let plan = evaluator.reads_to_judge(unit).map_err(refused)?;
                Ok(self.start_watch(effect, self.observer(plan)))
            }
            Effect::Guard(index) => {
                let missing = || {
                    Failure::permanent(
                        crate::evaluate::codes::UNKNOWN_STEP,
                        format!("the workflow has no guard {index}"),
                    )
                };
                let guard = self.plan.workflow.guards.get(usize::from(*index));
                let guard = guard.ok_or_else(missing).map_err(refused)?;
                let plan = evaluator.reads_to_guard(guard).map_err(refused)?;
                Ok(self.start_watch(effect, self.observer(plan).with_managed_fields()))
            }
            Effect::Prepare(unit) => {
                let plan = evaluator.reads_to_prepare(unit).map_err(refused)?.unwrap_or_default();
                Ok(self.start_watch(effect, self.observer(plan)))
            }
            Effect::Open(_) | Effect::Conclude(_) | Effect::Cover(_) | Effect::Arm(_) | Effect::Summarize => {
                let plan = self.reads_of(effect).unwrap_or_else(|| Ok(ReadPlan::default()))?;
                let (observer, clock) = (self.observer(plan), self.shared.clock.clone());
                // The engine repeats what begins a step; here a cluster that is away for a while is waited for.
                let patience = match effect {
                    Effect::Conclude(_) | Effect::Cover(_) => OBSERVE_PATIENCE,
                    _ => Duration::ZERO,
                };
                Ok(self.spawn(effect, |reporter| async move {
                    let give_up = clock.after(patience);
                    let mut readings = observer.read().await;
                    while readings.unreadable.as_ref().is_some_and(may_pass) && clock.now() < give_up {
                        observer.changed(&reporter.poke).await;
                        readings = observer.read().await;
                    }
                    reporter.read(readings);
                }))
            }
        }
    }

    /// Reads again and again, whenever something changed; the engine decides when that is enough.
    fn start_watch(&mut self, effect: &Effect, mut observer: Observer) -> Task {
        self.spawn(effect, |reporter| async move {
            loop {
                reporter.read(observer.watch().await);
                observer.changed(&reporter.poke).await;
            }
        })
    }

    fn start_act(&mut self, effect: &Effect, unit: &UnitId, attempt: u32) -> Result<Task, Command> {
        let Some(request) = self.requests.get(unit).cloned() else {
            // Only the process that prepared a request may send it; another one observes.
            let failure =
                Failure::unknown(codes::NOT_PREPARED, format!("the request of {unit} was not prepared here"));
            return Err(acted(unit, attempt, failed(failure)));
        };
        if request.uses == ActionKind::Workflow {
            return Ok(self.start_child(effect, unit, attempt, &request));
        }
        let limit = self.time_left(unit);
        let origin = self.origin(unit, attempt);
        if request.uses == ActionKind::Process {
            return Ok(self.start_process(effect, unit, origin, request, limit));
        }
        let (executor, values, unit) = (self.shared.executor.clone(), self.shared.values(), unit.clone());
        Ok(self.spawn(effect, |reporter| async move {
            let request = executor.execute(&origin, &request, limit);
            let answer = failpoint_after_send(request, &origin).await;
            failpoint::reach(Place::AfterAnswer, &origin.workflow, &origin.unit);
            reporter.done(acted(&unit, attempt, end_of(answer, &values)));
        }))
    }

    /// Carries out the actions of extensions without tasks of their own: they are part of this process and answer at
    /// once. Their reports.
    pub(super) async fn run_inline(&mut self, effects: &[Effect]) -> Vec<Command> {
        if self.requests.values().all(|request| request.uses != ActionKind::Extension) {
            return vec![];
        }
        let mut reports = vec![];
        for effect in effects {
            let Effect::Act { unit, attempt } = effect else { continue };
            let Some(request) = self.requests.get(unit) else { continue };
            if request.uses == ActionKind::Extension {
                let origin = self.origin(unit, *attempt);
                let answer = self.shared.executor.execute(&origin, request, self.time_left(unit)).await;
                self.requests.remove(unit);
                reports.push(acted(unit, *attempt, end_of(answer, &self.shared.values())));
            }
        }
        reports
    }

    fn start_observe(&mut self, effect: &Effect, unit: &UnitId, attempt: u32) -> Result<Task, Command> {
        let cannot_tell = |failure| refusal(effect, failure);
        let (settle, process) = match self.run.unit(unit).map(|state| &state.phase) {
            Some(Phase::Observing { settle, process }) => (*settle, process.clone()),
            _ => {
                return Err(cannot_tell(Failure::unknown(
                    codes::NOT_PREPARED,
                    format!("{unit} is not observed"),
                )));
            }
        };
        if self.step(unit).is_some_and(|step| step.action.uses == ActionKind::Workflow) {
            return Ok(self.observe_child(effect, unit, attempt));
        }
        if self.step(unit).is_some_and(|step| step.action.uses == ActionKind::Extension) {
            return Ok(self.observe_extension(effect, unit, attempt));
        }
        if let Some(process) = process {
            return Ok(self.observe_process(effect, unit, attempt, process));
        }
        let values = self.shared.values();
        let plan = self.evaluator(&values).reads_to_observe(unit).map_err(cannot_tell)?;
        let mut observer = self.observer(plan);
        let clock = self.shared.clock.clone();
        Ok(self.spawn(effect, |reporter| async move {
            clock.sleep_until(settle).await;
            let patience = clock.after(OBSERVE_PATIENCE);
            let never = Notify::new();
            let mut readings = observer.watch().await;
            while readings.unreadable.as_ref().is_some_and(may_pass) && clock.now() < patience {
                observer.changed(&never).await;
                readings = observer.watch().await;
            }
            reporter.read(readings);
        }))
    }

    /// Asks an extension whether its attempt took effect; one that cannot tell leaves it to `idempotent` and to people.
    fn observe_extension(&mut self, effect: &Effect, unit: &UnitId, attempt: u32) -> Task {
        let values = self.shared.values();
        let prepared = self.evaluator(&values).prepare(unit, &Readings::default());
        let idempotent = self.step(unit).is_some_and(|step| step.idempotent);
        let (executor, origin, unit) =
            (self.shared.executor.clone(), self.origin(unit, attempt), unit.clone());
        self.spawn(effect, |reporter| async move {
            let answer = match &prepared.request {
                Some(request) => executor.observe(&origin, request).await,
                None => None,
            };
            let finding = match answer {
                Some(true) => Finding::Done { ours: true, object: None, result: None, changes: None },
                Some(false) => Finding::NotDone,
                None if idempotent => Finding::NotDone,
                None => Finding::CannotTell(interrupted(&unit)),
            };
            reporter.done(Command::Observed { unit, attempt, finding });
        })
    }

    /// Whether an attempt without a result took effect (E3).
    fn finding(&self, unit: &UnitId, attempt: u32, readings: &Readings) -> Finding {
        if let Some(failure) = &readings.unreadable {
            return Finding::CannotTell(failure.clone());
        }
        let Some(step) = self.step(unit) else {
            return Finding::CannotTell(Failure::permanent(
                crate::evaluate::codes::UNKNOWN_STEP,
                format!("the workflow has no step {unit}"),
            ));
        };
        let values = self.shared.values();
        let object = readings.values.get(CREATED).or_else(|| readings.values.get("object"));
        let object = object.map(AsRef::as_ref);
        let proof = self.proof(step, unit, attempt, object);
        let done = |ours| match self.traces(step, unit, readings, object) {
            Ok((result, changes)) => {
                Finding::Done { ours, object: object.and_then(crate::evaluate::version_of), result, changes }
            }
            Err(failure) => Finding::CannotTell(failure),
        };
        match (self.evaluator(&values).check(unit, readings), proof) {
            (Ok(Some(true)), proof) => done(proof == Some(true)),
            (Ok(None), Some(true)) => done(true),
            (Ok(Some(false)), _) | (Ok(None), Some(false)) => Finding::NotDone,
            (Ok(None), None) if step.idempotent => Finding::NotDone,
            (Ok(None), None) => Finding::CannotTell(interrupted(unit)),
            (Err(failure), _) => Finding::CannotTell(failure),
        }
    }

    /// What the lost answer would have told of the object that was written: its state, and what changed in it. An undo
    /// needs that.
    fn traces(
        &self,
        step: &Step,
        unit: &UnitId,
        readings: &Readings,
        object: Option<&Value>,
    ) -> Result<(Option<Blob>, Option<Blob>), Failure> {
        let Some(object) = object.filter(|_| proof::writes_object(step.action.uses)) else {
            return Ok((None, None));
        };
        let values = self.shared.values();
        let sent = self.evaluator(&values).sent(unit, readings)?;
        let changes = sent.and_then(|(request, before)| proof::changes(&request, &before, object));
        let changes = changes.map(|changes| values.keep(Arc::new(changes))).transpose()?;
        Ok((Some(values.keep(Arc::new(object.clone()))?), changes))
    }

    /// What the object itself proves: made by this attempt, not made by it, or nothing.
    fn proof(&self, step: &Step, unit: &UnitId, attempt: u32, object: Option<&Value>) -> Option<bool> {
        let before = self.run.unit(unit).and_then(|state| state.object.as_ref());
        let before = before.map(|version| (version.uid.as_ref(), version.resource_version.as_ref()));
        proof::of(step.action.uses, &self.origin(unit, attempt), object, before)
    }

    pub(super) fn step(&self, unit: &UnitId) -> Option<&Step> {
        Part::of(&self.plan, &unit.block).map(|part| part.step)
    }

    /// The time until an attempt is given up.
    fn time_left(&self, unit: &UnitId) -> Duration {
        match self.run.unit(unit).map(|state| &state.phase) {
            Some(Phase::Acting { deadline, .. }) => deadline.since(self.shared.clock.now()),
            _ => Duration::ZERO,
        }
    }

    /// Who acts, in the words of the action module.
    pub(super) fn origin(&self, unit: &impl ToString, attempt: u32) -> Origin {
        Origin {
            run: self.run.id.to_string(),
            workflow: self.run.created.workflow.to_string(),
            unit: unit.to_string(),
            attempt,
        }
    }

    fn observer(&self, plan: ReadPlan) -> Observer {
        self.shared.observer(plan)
    }

    /// Starts `work` as the task of `effect`.
    pub(super) fn spawn<F>(&mut self, effect: &Effect, work: impl FnOnce(Reporter) -> F) -> Task
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks_total += 1;
        Task::spawn(effect, self.tasks_total, self.outbox.clone(), work)
    }
}

/// The report of an effect that could not even start.
fn refusal(effect: &Effect, failure: Failure) -> Command {
    match effect.clone() {
        Effect::Open(block) => Command::Opened { block, result: Err(failure) },
        Effect::Prepare(unit) => Command::Prepared { unit, result: Preparation::Failed(failure) },
        Effect::Arm(unit) => Command::Armed { unit, result: Err(failure) },
        Effect::Conclude(unit) => Command::Concluded { unit, result: Err(failure) },
        Effect::Cover(block) => Command::Covered { block, result: Err(failure) },
        Effect::Summarize => Command::Summarized { result: Err(failure) },
        Effect::Act { unit, attempt } | Effect::StopChild { unit, attempt } => {
            acted(&unit, attempt, failed(failure))
        }
        Effect::Observe { unit, attempt } => {
            Command::Observed { unit, attempt, finding: Finding::CannotTell(failure) }
        }
        Effect::Watch(unit) => Command::Judged { unit, report: Box::new(WaitReport::blind(failure)) },
        Effect::Guard(guard) => Command::GuardBroken { guard, message: failure.text() },
    }
}

/// Carries out a request. For a test the process ends while it is on its way: what was sent takes effect, whatever
/// becomes of the sender.
async fn failpoint_after_send(request: impl Future<Output = Answer>, origin: &Origin) -> Answer {
    if !failpoint::is_armed(Place::AfterSend, &origin.workflow, &origin.unit) {
        return request.await;
    }
    let on_its_way = tokio::time::timeout(AFTER_SEND, request).await;
    failpoint::reach(Place::AfterSend, &origin.workflow, &origin.unit);
    on_its_way.unwrap_or_else(|_| Answer::Failed(interrupted_here()))
}

fn interrupted_here() -> Failure {
    Failure::unknown(crate::engine::codes::CANNOT_TELL, "a test ended the request")
}

fn interrupted(unit: &UnitId) -> Failure {
    let text = format!("{unit} was interrupted, and it has neither `check` nor `idempotent = true`");
    Failure::unknown(crate::engine::codes::CANNOT_TELL, text)
}

/// The report of an attempt.
pub(super) fn acted(unit: &UnitId, attempt: u32, end: AttemptEnd) -> Command {
    Command::Acted { unit: unit.clone(), attempt, end }
}

/// The end of an attempt that failed.
pub(super) fn failed(failure: Failure) -> AttemptEnd {
    let effect = match failure.class {
        FailureClass::Unknown => AttemptEffect::Unknown(failure),
        FailureClass::Retryable | FailureClass::Permanent => AttemptEffect::Failed(failure),
    };
    AttemptEnd::of(effect)
}

/// An executor's answer in the engine's words.
pub(super) fn end_of(answer: Answer, values: &dyn Values) -> AttemptEnd {
    let (changed, object, result, changes) = match answer {
        Answer::Failed(failure) => return failed(failure),
        Answer::Done { changed, object, result, changes } => (changed, object, result, changes),
    };
    let keep = |value: Value| values.keep(Arc::new(value));
    let result = Some(result).filter(|value| !value.is_null()).map(keep).transpose();
    match (result, changes.map(keep).transpose()) {
        (Ok(result), Ok(changes)) => AttemptEnd {
            effect: if changed { AttemptEffect::Changed } else { AttemptEffect::Unchanged },
            object: object.map(|(uid, resource_version)| ObjectVersion { uid, resource_version }),
            result,
            changes,
            verdict: None,
        },
        // It took effect, but what it gave back is lost: look at the world.
        (Err(failure), _) | (_, Err(failure)) => failed(Failure::unknown(&failure.code, failure.text())),
    }
}

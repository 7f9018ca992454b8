//! Runs that are steps of other runs (E9).

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;
use sha2::Digest;
use sha2::Sha256;

use crate::action::request::Request;
use crate::action::secret::reference_of;
use crate::definition::model::ActionKind;
use crate::definition::model::CHILD_DEPTH_MAX;
use crate::definition::model::InputKind;
use crate::definition::model::Outcome;
use crate::engine::Command;
use crate::engine::Effect;
use crate::engine::RunState;
use crate::engine::command::Finding;
use crate::engine::decide::Rejection;
use crate::engine::event::AttemptEffect;
use crate::engine::event::AttemptEnd;
use crate::engine::event::Blob;
use crate::engine::event::Finished;
use crate::engine::event::Footprint;
use crate::engine::event::HeldChild;
use crate::engine::event::RunOutcome;
use crate::engine::event::Trigger;
use crate::engine::event::VerdictReached;
use crate::engine::linked::Kind;
use crate::engine::state::RunStatus;
use crate::engine::unit::Block;
use crate::engine::unit::UnitId;
use crate::evaluate::is_child_undo;
use crate::failure::Bilingual;
use crate::failure::Failure;
use crate::id::RunId;
use crate::plan::Plan;
use crate::runner::Error;
use crate::runner::Host;
use crate::runner::codes;
use crate::runner::effects::acted;
use crate::runner::effects::failed;
use crate::runner::run_task::Message;
use crate::runner::run_task::RunTask;
use crate::runner::start::Start;
use crate::runner::tasks::Reporter;
use crate::runner::tasks::Task;

impl RunTask {
    /// Starts the child of an attempt, or finds it, and waits for its end.
    pub(super) fn start_child(
        &mut self,
        effect: &Effect,
        unit: &UnitId,
        attempt: u32,
        request: &Request,
    ) -> Task {
        let host = Host { shared: self.shared.clone() };
        let start = match is_child_undo(unit) {
            true => self.undo_of_child(&host, unit, attempt),
            false => self.child(unit, attempt, &request.args).map(Some),
        };
        let (unit, told) = (unit.clone(), self.known_as_held(unit));
        self.spawn(effect, |reporter| async move {
            let end = match start {
                Ok(Some(start)) => match host.start(start).await {
                    Ok(child) => host.end_of_child(child, &unit, attempt, told, &reporter).await,
                    Err(error) => failed(Failure::permanent(
                        codes::CHILD_START,
                        format!("the child could not start: {error}"),
                    )),
                },
                Ok(None) => AttemptEnd::unchanged(),
                Err(failure) => failed(failure),
            };
            reporter.done(acted(&unit, attempt, end));
        })
    }

    /// Waits for the child of an interrupted attempt, if there is one.
    pub(super) fn observe_child(&mut self, effect: &Effect, unit: &UnitId, attempt: u32) -> Task {
        let child = child_id(self.run.id, unit, attempt);
        let host = Host { shared: self.shared.clone() };
        let (unit, told) = (unit.clone(), self.known_as_held(unit));
        self.spawn(effect, |reporter| async move {
            let finding = match host.shared.store.summary(child) {
                Ok(Some(_)) => {
                    // It goes on together with its parent (E9).
                    host.shared.deliver(child, Message::Due);
                    Finding::Ended(host.end_of_child(child, &unit, attempt, told, &reporter).await)
                }
                Ok(None) => Finding::NotDone,
                Err(error) => Finding::CannotTell(Failure::unknown(codes::CHILD_UNKNOWN, error.to_string())),
            };
            reporter.done(Command::Observed { unit: unit.clone(), attempt, finding });
        })
    }

    /// What this run knows of a child that waits for a person.
    fn known_as_held(&self, unit: &UnitId) -> Option<HeldChild> {
        self.run.unit(unit).and_then(|state| state.held_child.as_deref().cloned())
    }

    /// Cancels the child of an attempt: the run stops.
    pub(super) fn stop_child(&self, unit: &UnitId, attempt: u32) {
        let child = child_id(self.run.id, unit, attempt);
        let by = self.run.created.by.clone();
        let (reply, _) = tokio::sync::oneshot::channel();
        let command = Command::Cancel { by, reason: Some(format!("run {} stops", self.run.id)) };
        self.shared.deliver(child, Message::Request(command, reply));
    }

    /// The run that undoes what the child of a step did, by the child's own steps; none if there is nothing to undo.
    fn undo_of_child(&self, host: &Host, unit: &UnitId, attempt: u32) -> Result<Option<Start>, Failure> {
        let forward = Block::forward(unit.block.step.clone());
        let forward = forward.unit(unit.block.undo.as_ref().and_then(|undo| undo.item.clone()));
        let attempts = self.run.unit(&forward).map_or(0, |state| state.attempt);
        let child = child_id(self.run.id, &forward, attempts);
        match host.linked(child, Kind::Rollback, self.run.created.by.clone()) {
            Ok(start) => Ok(Some(Start {
                trigger: self.trigger(unit),
                id: Some(child_id(self.run.id, unit, attempt)),
                ..start
            })),
            Err(Error::Rejected(Rejection::NothingToUndo) | Error::UnknownRun(_)) => Ok(None),
            Err(error) => Err(Failure::permanent(codes::CHILD_START, error.to_string())),
        }
    }

    /// Why a child begins: the whole tree is one owner of locks (E8).
    fn trigger(&self, unit: &UnitId) -> Trigger {
        let (root, depth) = match &self.run.created.trigger {
            Trigger::Parent { root, depth, .. } => (*root, depth + 1),
            Trigger::Manual | Trigger::Retry(_) | Trigger::Rollback(_) => (self.run.id, 1),
        };
        Trigger::Parent { run: self.run.id, root, unit: unit.clone(), depth }
    }

    fn child(&self, unit: &UnitId, attempt: u32, args: &Value) -> Result<Start, Failure> {
        let trigger = self.trigger(unit);
        if matches!(trigger, Trigger::Parent { depth, .. } if depth > CHILD_DEPTH_MAX) {
            return Err(Failure::permanent(
                codes::TOO_DEEP,
                format!("workflows call each other more than {CHILD_DEPTH_MAX} deep"),
            ));
        }
        let name = args["name"].as_str().unwrap_or_default();
        let plan = self.plan.children.get(name);
        let plan = plan
            .ok_or_else(|| {
                Failure::permanent(
                    crate::evaluate::codes::UNKNOWN_STEP,
                    format!("there is no workflow `{name}`"),
                )
            })?
            .clone();
        let mut given = args.get("inputs").cloned().unwrap_or_else(|| json!({}));
        for (name, input) in &plan.workflow.inputs {
            // A secret is handed on by its reference.
            let text =
                given.get(name).and_then(Value::as_str).filter(|_| matches!(input.kind, InputKind::Secret));
            if let Some(reference) = text.and_then(reference_of).map(Value::from) {
                given[name] = reference;
            }
        }
        let inputs = plan.workflow.complete_inputs(&given).map_err(|error| {
            Failure::permanent(codes::CHILD_START, format!("the inputs of `{name}`: {error}"))
        })?;
        Ok(Start {
            plan,
            inputs,
            trigger,
            by: self.run.created.by.clone(),
            key: None,
            inherited: None,
            id: Some(child_id(self.run.id, unit, attempt)),
        })
    }
}

impl Host {
    /// Waits until a child is over, and says so in the words of its parent's attempt. While the child waits for a
    /// person the parent is told; `told` is what it knows of that.
    async fn end_of_child(
        &self,
        child: RunId,
        unit: &UnitId,
        attempt: u32,
        mut told: Option<HeldChild>,
        reporter: &Reporter,
    ) -> AttemptEnd {
        let mut updates = self.watch(child);
        loop {
            let held = match self.standing_of(child) {
                Ok(Standing::Over(end)) => return *end,
                Ok(Standing::Held(reason)) => Some(HeldChild { run: child, reason }),
                Ok(Standing::Going) => None,
                Err(error) => {
                    let text = format!("the child {child}: {error}");
                    return failed(Failure::unknown(codes::CHILD_UNKNOWN, text));
                }
            };
            if held != told {
                told.clone_from(&held);
                reporter.request(Command::ChildNoted { unit: unit.clone(), attempt, held }).await;
            }
            // A watcher that fell behind is dropped; the index tells then.
            if updates.recv().await.is_none() {
                updates = self.watch(child);
            }
        }
    }

    fn standing_of(&self, child: RunId) -> Result<Standing, Error> {
        let line = self.shared.store.summary(child)?.ok_or(Error::UnknownRun(child))?;
        if !line.status.is_terminal() && line.status != RunStatus::Held {
            return Ok(Standing::Going);
        }
        let (plan, state, stuck) = self.look(child)?;
        if let Some(error) = stuck {
            return Ok(Standing::Held(Bilingual { en: error.to_string(), zh: None }));
        }
        Ok(match &state.finished {
            Some((_, finished)) => Standing::Over(Box::new(end_of(&plan, &state, finished))),
            None => state.held_reason().map_or(Standing::Going, Standing::Held),
        })
    }
}

/// How a child is.
enum Standing {
    Going,
    /// It waits for a person.
    Held(Bilingual),
    Over(Box<AttemptEnd>),
}

/// The end of a child, as that of its parent's attempt. Its verdict is that of the step (L6).
fn end_of(plan: &Plan, state: &RunState, finished: &Finished) -> AttemptEnd {
    let (child, workflow) = (state.id, &state.created.workflow);
    let failure = match finished.outcome {
        RunOutcome::Succeeded => None,
        RunOutcome::RolledBack if state.is_rollback_only() => None,
        RunOutcome::Failed | RunOutcome::RolledBack | RunOutcome::Cancelled(_) => {
            let own = finished.failure.as_ref();
            let why = own.map_or_else(|| Bilingual::new("it was cancelled", "已被取消"), Failure::text);
            let text = Bilingual::new(
                format!("{workflow} ({child}): {}", why.en),
                format!("{workflow}（{child}）：{}", why.in_chinese()),
            );
            let told = Failure::permanent(codes::CHILD_FAILED, text);
            let cause = own.and_then(|failure| failure.cause.clone());
            Some(Failure { cause, remedy: own.and_then(|failure| failure.remedy.clone()), ..told })
        }
    };
    let verdict = state.verdict(plan).map(|(_, verdict)| VerdictReached {
        outcome: if failure.is_some() { Outcome::Fail } else { Outcome::Succeed },
        evidence: None,
        failure: failure.clone(),
        ..verdict.clone()
    });
    let result = json!({ "run": child.to_string(), "outputs": *finished.outputs });
    AttemptEnd {
        result: Some(Blob::Inline(Arc::new(result))),
        verdict: verdict.map(Box::new),
        ..AttemptEnd::of(match failure {
            None if has_changed_something(state) => AttemptEffect::Changed,
            None => AttemptEffect::Unchanged,
            Some(failure) if finished.left.is_empty() => AttemptEffect::Failed(failure),
            Some(failure) => AttemptEffect::FailedHalfway(failure),
        })
    }
}

/// The runs that the steps of a run have called, as far as they could be started.
pub fn called(plan: &Plan, run: &RunState) -> Vec<RunId> {
    let mut called = vec![];
    for step in plan.workflow.steps.iter().chain(&plan.workflow.finally) {
        if step.action.uses != ActionKind::Workflow {
            continue;
        }
        let block = Block::forward(step.name.clone());
        for (key, state) in run.block(&block).iter().flat_map(|block| &block.units) {
            let unit = block.clone().unit((!key.is_empty()).then(|| key.clone()));
            called.extend((1..=state.attempt).map(|attempt| child_id(run.id, &unit, attempt)));
        }
    }
    called
}

/// False for a run that only looked: there is nothing to undo.
fn has_changed_something(state: &RunState) -> bool {
    let mut units = state.steps.values().flat_map(|block| block.units.values());
    units.any(|unit| unit.left() == Footprint::Changed)
}

/// The id of the child that an attempt starts: always the same one.
pub fn child_id(parent: RunId, unit: &UnitId, attempt: u32) -> RunId {
    let mut hash = Sha256::new();
    hash.update(parent.to_be_bytes());
    hash.update(unit.to_string());
    hash.update(attempt.to_be_bytes());
    let digest = hash.finalize();
    let mut random = [0; 16];
    random.copy_from_slice(&digest[..16]);
    let created_ms = u128::from_be_bytes(parent.to_be_bytes()) >> 80;
    RunId::new(u64::try_from(created_ms).unwrap_or(0), u128::from_be_bytes(random))
}

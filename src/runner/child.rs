//! Runs that are steps of other runs (E9).

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;
use sha2::Digest;
use sha2::Sha256;

use crate::action::request::Request;
use crate::action::secret::reference_of;
use crate::definition::model::InputKind;
use crate::engine::Command;
use crate::engine::Effect;
use crate::engine::command::Finding;
use crate::engine::decide::Rejection;
use crate::engine::event::AttemptEffect;
use crate::engine::event::AttemptEnd;
use crate::engine::event::Blob;
use crate::engine::event::RunOutcome;
use crate::engine::event::Trigger;
use crate::engine::linked::Kind;
use crate::engine::unit::Block;
use crate::engine::unit::UnitId;
use crate::evaluate::is_child_undo;
use crate::failure::Failure;
use crate::id::RunId;
use crate::runner::Error;
use crate::runner::Host;
use crate::runner::codes;
use crate::runner::effects::acted;
use crate::runner::effects::failed;
use crate::runner::run_task::Message;
use crate::runner::run_task::RunTask;
use crate::runner::start::Start;
use crate::runner::tasks::Task;

/// Children of children: as deep as a person can still follow.
pub(super) const DEPTH_MAX: u8 = 8;

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
        let unit = unit.clone();
        self.spawn(effect, |reporter| async move {
            let end = match start {
                Ok(Some(start)) => match host.start(start).await {
                    Ok(child) => host.end_of_child(child).await,
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
        let unit = unit.clone();
        self.spawn(effect, |reporter| async move {
            let finding = match host.shared.store.summary(child) {
                Ok(Some(_)) => {
                    // It goes on together with its parent (E9).
                    host.shared.deliver(child, Message::Due);
                    Finding::Ended(host.end_of_child(child).await)
                }
                Ok(None) => Finding::NotDone,
                Err(error) => Finding::CannotTell(Failure::unknown(codes::CHILD_UNKNOWN, error.to_string())),
            };
            reporter.done(Command::Observed { unit: unit.clone(), attempt, finding });
        })
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
        if matches!(trigger, Trigger::Parent { depth, .. } if depth > DEPTH_MAX) {
            return Err(Failure::permanent(
                codes::TOO_DEEP,
                format!("workflows call each other more than {DEPTH_MAX} deep"),
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
    /// Waits until a child is over, and says so in the words of its parent's attempt.
    async fn end_of_child(&self, child: RunId) -> AttemptEnd {
        match self.finished(child).await {
            Ok(state) => state,
            Err(error) => {
                failed(Failure::unknown(codes::CHILD_UNKNOWN, format!("the child {child}: {error}")))
            }
        }
    }

    async fn finished(&self, child: RunId) -> Result<AttemptEnd, Error> {
        let mut updates = self.watch(child);
        loop {
            let (_, state) = self.load(child)?;
            let Some((_, finished)) = &state.finished else {
                // A watcher that fell behind is dropped; the journal tells then.
                if updates.recv().await.is_none() {
                    updates = self.watch(child);
                }
                continue;
            };
            let result = json!({ "run": child.to_string(), "outputs": *finished.outputs });
            let effect = match finished.outcome {
                RunOutcome::Succeeded => AttemptEffect::Changed,
                RunOutcome::RolledBack if state.is_rollback_only() => AttemptEffect::Changed,
                RunOutcome::Failed | RunOutcome::RolledBack | RunOutcome::Cancelled(_) => {
                    let why =
                        finished.failure.as_ref().map_or("it was cancelled", |failure| &failure.message);
                    let text = format!("{} ({child}): {why}", state.created.workflow);
                    AttemptEffect::Failed(Failure::permanent(codes::CHILD_FAILED, text))
                }
            };
            return Ok(AttemptEnd {
                effect,
                object: None,
                result: Some(Blob::Inline(Arc::new(result))),
                changes: None,
            });
        }
    }
}

/// The id of the child that an attempt starts: always the same one.
fn child_id(parent: RunId, unit: &UnitId, attempt: u32) -> RunId {
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

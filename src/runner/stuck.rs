//! Runs that cannot go on as they are: a record of the journal is bad (S3), or this version refuses the definition that
//! they are pinned to (E10). Each waits for a person, and the others go on.
//!
//! Nothing of such a run is touched until a person answers. Then what is behind the last good record is put aside, the
//! question becomes part of the journal, and the answer with it.

use std::sync::Arc;

use serde_json::Value;

use crate::definition::diagnostic::Diagnostic;
use crate::engine;
use crate::engine::Command;
use crate::engine::Event;
use crate::engine::RunState;
use crate::engine::state::RunStatus;
use crate::failure::Bilingual;
use crate::failure::Failure;
use crate::id::RunId;
use crate::id::Seq;
use crate::journal::store;
use crate::journal::store::Recorded;
use crate::journal::store::Summary;
use crate::plan::Plan;
use crate::plan::WorkflowDigest;
use crate::runner::Error;
use crate::runner::codes;
use crate::runner::host::Shared;
use crate::runner::host::Update;
use crate::runner::run_task::Mailbox;
use crate::runner::run_task::Message;
use crate::runner::run_task::RunTask;

/// A stuck run as far as it can be read, and the question that it asks, which is applied but not recorded.
type Readable = (Arc<Plan>, RunState, Vec<Event>);

impl Shared {
    /// What can be read of a stuck run; none if nothing can.
    pub(super) fn look_at_stuck(&self, run: RunId, error: &Error) -> Option<Readable> {
        let records = match error {
            Error::Store(store::Error::Damaged { good, .. }) => good.clone(),
            Error::Definition(_) => self.store.read(run).ok()?,
            _ => return None,
        };
        let mut state = replay(run, &records)?;
        let plan = self.pinned(&state.created.digest, crate::plan::unvalidated).ok()?;
        let events = match error {
            Error::Store(store::Error::Damaged { after, what, .. }) => {
                engine::decide::ask_about_loss(&plan, &mut state, loss(*after, what), self.clock.now())
            }
            _ => vec![],
        };
        Some((plan, state, events))
    }

    /// The plan of a definition in the store.
    pub(super) fn pinned(
        &self,
        digest: &WorkflowDigest,
        read: impl FnOnce(&Value) -> Result<Arc<Plan>, Vec<Diagnostic>>,
    ) -> Result<Arc<Plan>, Error> {
        let refused = |why: &str| {
            let text = format!("the definition {digest} is not accepted by this version: {why}");
            Error::Definition(Failure::permanent(codes::DEFINITION_REFUSED, text))
        };
        let definition = self.store.definition(digest)?.ok_or_else(|| refused("it is not in the store"))?;
        read(&definition).map_err(|mistakes| refused(mistakes.first().map_or("", |first| &first.message)))
    }

    /// Marks a stuck run as Held in the index.
    pub(super) async fn hold(&self, run: RunId, error: &Error) {
        let code = match error {
            Error::Store(store::Error::Damaged { .. }) => engine::codes::LOST_RECORD,
            Error::Definition(failure) => &failure.code,
            _ => return,
        };
        let Ok(Some(line)) = self.store.summary(run) else { return };
        if line.status.is_terminal() {
            return;
        }
        let held_reason = Some(format!("{code}: {error}"));
        let held =
            Summary { status: RunStatus::Held, held_reason, held_reason_zh: None, due: None, ..line.clone() };
        if held == line {
            return;
        }
        if let Err(error) = self.store.put_summary(held).await {
            tracing::error!(%run, %error, "the index cannot be written");
        }
        // Whoever watches looks at the index.
        let at = self.clock.now();
        self.updates.publish(run, || Update { run, seq: Seq(0), at, events: Arc::default() });
    }

    /// Takes the messages to a stuck run: a person's last word is carried out, everything else refused.
    pub(super) async fn revive_stuck(self: Arc<Self>, run: RunId, error: Error, mut mailbox: Mailbox) {
        tracing::error!(%run, %error, "the run cannot go on");
        self.hold(run, &error).await;
        let mut messages = vec![];
        while let Ok(message) = mailbox.1.try_recv() {
            messages.push(message);
        }
        // Where nothing can be read nothing can be gone on with: such a run can only be ended.
        let answerable =
            matches!(&error, Error::Store(store::Error::Damaged { good, .. }) if !good.is_empty());
        let decides = |message: &Message| match message {
            Message::Request(Command::Terminate { .. }, _) => true,
            Message::Request(Command::Answer { .. }, _) => answerable,
            _ => false,
        };
        let error = match messages.iter().any(decides) {
            true => match self.mend(run, &error).await {
                Ok(Some((plan, state, events))) => {
                    let mut task = RunTask::new(self, plan, state, mailbox, events);
                    task.take_all(messages);
                    return task.run().await;
                }
                Ok(None) => {
                    self.end_unreadable(run, &mut messages).await;
                    Error::UnknownRun(run)
                }
                Err(error) => error,
            },
            false => error,
        };
        self.forget(run);
        messages.into_iter().for_each(|message| refuse(message, &error));
        self.refuse_all(&mut mailbox.1, || error.clone());
    }

    /// Puts the bad end of a journal aside and reads what is left, if anything is.
    async fn mend(&self, run: RunId, error: &Error) -> Result<Option<Readable>, Error> {
        let Error::Store(store::Error::Damaged { after, what, .. }) = error else {
            let (plan, state, events) = self.look_at_stuck(run, error).ok_or_else(|| error.clone())?;
            return Ok(Some((plan, state, events)));
        };
        let after = self.store.cut(run, *after).await?;
        if after == Seq(0) {
            return Ok(None);
        }
        let (plan, mut state) = self.load(run)?;
        let now = self.clock.now();
        let events = engine::decide::ask_about_loss(&plan, &mut state, loss(after, what), now);
        Ok(Some((plan, state, events)))
    }

    /// Ends a run of which nothing but its line in the index can be read: who did it, and why, stands there.
    async fn end_unreadable(self: &Arc<Self>, run: RunId, messages: &mut Vec<Message>) {
        let terminates =
            |message: &Message| matches!(message, Message::Request(Command::Terminate { .. }, _));
        let Some(position) = messages.iter().position(terminates) else { return };
        let Message::Request(Command::Terminate { by, reason }, reply) = messages.remove(position) else {
            return;
        };
        let ended = match self.store.summary(run) {
            Ok(Some(line)) => {
                let why = format!("terminated by {}: {reason}", by.name);
                let held_reason_zh = Some(format!("被 {} 强制结束：{reason}", by.name));
                let finished_at = Some(self.clock.now());
                let (status, held_reason) = (RunStatus::Cancelled, Some(why));
                let line = Summary {
                    status,
                    held_reason,
                    held_reason_zh,
                    overlay: None,
                    finished_at,
                    due: None,
                    ..line
                };
                self.store.put_summary(line).await.map_err(Error::from)
            }
            Ok(None) => Err(Error::UnknownRun(run)),
            Err(error) => Err(error.into()),
        };
        if ended.is_ok() {
            self.updates.publish_end(run, RunStatus::Cancelled);
            self.release_locks(run);
        }
        // Whoever asked may have gone away.
        drop(reply.send(ended));
    }
}

fn replay(run: RunId, records: &[Recorded]) -> Option<RunState> {
    RunState::replay(run, records.iter().map(|record| (record.seq, record.at, &record.event))).ok()
}

/// What is known about a loss, and what each answer does.
fn loss(after: Seq, what: &str) -> Bilingual {
    let en = format!(
        "what the journal says after event {after} is lost ({what}); rollback undoes what is known, skip goes on from \
         there, fail ends the run and undoes nothing"
    );
    let zh = format!(
        "日志在事件 {after} 之后的内容已丢失（{what}）；rollback 撤销已知的改动，skip 从该处继续，fail 结束运行且不撤销"
    );
    Bilingual { en, zh: Some(zh) }
}

fn refuse(message: Message, error: &Error) {
    if let Message::Request(_, reply) = message {
        // Whoever asked may have gone away.
        drop(reply.send(Err(error.clone())));
    }
}

//! Effects under way, each a task that reports to its run.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::engine::Command;
use crate::engine::Effect;
use crate::evaluate::Readings;
use crate::runner::run_task::Message;

/// An effect that is under way. It ends when this is dropped.
pub(super) struct Task {
    /// Tells its reports from those of an earlier task for the same effect.
    pub(super) number: u64,
    abort: AbortHandle,
    /// Makes it read at once.
    poke: Arc<Notify>,
}

/// What a task says.
pub(super) enum Report {
    /// It is done.
    Done(Command),
    /// It has read what its effect has to know.
    Read(Readings),
}

/// How a task speaks to its run.
pub(super) struct Reporter {
    effect: Effect,
    number: u64,
    outbox: mpsc::UnboundedSender<Message>,
    /// Somebody wants a reading now.
    pub(super) poke: Arc<Notify>,
}

impl Reporter {
    /// The last word.
    pub(super) fn done(self, command: Command) {
        self.say(Report::Done(command));
    }

    /// A reading; more may follow.
    pub(super) fn read(&self, readings: Readings) {
        self.say(Report::Read(readings));
    }

    /// Something that is not the effect's own report, for instance that a process exists. True when it is durable.
    pub(super) async fn request(&self, command: Command) -> bool {
        let (reply, answer) = tokio::sync::oneshot::channel();
        let sent = self.outbox.send(Message::Request(command, reply));
        sent.is_ok() && matches!(answer.await, Ok(Ok(())))
    }

    fn say(&self, report: Report) {
        // A run that has ended listens no more.
        drop(self.outbox.send(Message::Effect { effect: self.effect.clone(), number: self.number, report }));
    }
}

impl Task {
    /// Starts `work`.
    pub(super) fn spawn<F>(
        effect: &Effect,
        number: u64,
        outbox: mpsc::UnboundedSender<Message>,
        work: impl FnOnce(Reporter) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let poke = Arc::new(Notify::new());
        let reporter = Reporter { effect: effect.clone(), number, outbox, poke: poke.clone() };
        Self { number, abort: tokio::spawn(work(reporter)).abort_handle(), poke }
    }

    /// Makes it read at once, if it reads at all.
    pub(super) fn poke(&self) {
        self.poke.notify_one();
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

//! The actor that owns one run.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::mpsc;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::action::request::Request;
use crate::engine;
use crate::engine::Command;
use crate::engine::Effect;
use crate::engine::Event;
use crate::engine::RunState;
use crate::engine::effect::next_deadline;
use crate::engine::effect::pending_effects;
use crate::engine::unit::UnitId;
use crate::evaluate::Evaluator;
use crate::evaluate::Readings;
use crate::id::Seq;
use crate::journal::store;
use crate::journal::store::Append;
use crate::plan::Plan;
use crate::runner::Error;
use crate::runner::host::Shared;
use crate::time::Timestamp;

/// What reaches a run.
pub(super) enum Message {
    /// A request from outside, answered when its events are durable.
    Request(Command, oneshot::Sender<Result<(), Error>>),
    /// An effect was carried out.
    Report(Effect, Command),
    /// What an effect has to know was read.
    Read(Effect, Readings),
    /// A parked run is due.
    Due,
}

/// An effect that is under way.
pub(super) struct Task {
    /// Ends it.
    abort: AbortHandle,
    /// Makes an observer read at once.
    poke: Arc<Notify>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

/// One run with something to do.
pub(super) struct RunTask {
    pub(super) shared: Arc<Shared>,
    pub(super) plan: Arc<Plan>,
    pub(super) run: RunState,
    pub(super) outbox: mpsc::UnboundedSender<Message>,
    inbox: mpsc::UnboundedReceiver<Message>,
    tasks: BTreeMap<Effect, Task>,
    /// The requests that were prepared in this process, until their attempts end.
    pub(super) requests: BTreeMap<UnitId, Request>,
    /// What was read last for a unit that is about to conclude.
    readings: BTreeMap<UnitId, Readings>,
    /// Events that are decided and applied but not yet durable.
    unsaved: Vec<Event>,
    /// Who is to be told when they are.
    waiting: Vec<oneshot::Sender<Result<(), Error>>>,
    /// Position of the last durable event.
    durable: Seq,
    /// The index line as it was written last.
    summary: Option<store::Summary>,
    /// Deadlines up to here have been looked at.
    ticked: Timestamp,
    /// The cluster is known to be the one that the run is pinned to (E10), or it needs none.
    pub(super) cluster_checked: bool,
}

/// What becomes of the actor after a message.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Go,
    End,
}

impl RunTask {
    pub(super) fn new(
        shared: Arc<Shared>,
        plan: Arc<Plan>,
        run: RunState,
        channel: (mpsc::UnboundedSender<Message>, mpsc::UnboundedReceiver<Message>),
        unsaved: Vec<Event>,
    ) -> Self {
        let durable = Seq(run.seq.0 - unsaved.len() as u64);
        let cluster_checked = run.created.cluster.is_none() || durable == Seq(0);
        Self {
            shared,
            plan,
            run,
            outbox: channel.0,
            inbox: channel.1,
            tasks: BTreeMap::new(),
            requests: BTreeMap::new(),
            readings: BTreeMap::new(),
            unsaved,
            waiting: vec![],
            durable,
            summary: None,
            ticked: Timestamp::default(),
            cluster_checked,
        }
    }

    /// Tells `reply` when everything decided so far is durable.
    pub(super) fn tell(&mut self, reply: oneshot::Sender<Result<(), Error>>) {
        self.waiting.push(reply);
    }

    /// Runs until the run is over or has nothing to do before some moment.
    pub(super) async fn run(mut self) {
        if !self.cluster_checked {
            self.check_cluster();
        }
        let mut next = self.settle().await;
        while next == Next::Go {
            let message = tokio::select! {
                message = self.inbox.recv() => message,
                () = wait_until(&self.shared, self.next_deadline()) => Some(Message::Due),
            };
            let Some(message) = message else { return };
            self.take(message);
            while let Ok(message) = self.inbox.try_recv() {
                self.take(message);
            }
            next = self.settle().await;
        }
    }

    /// Decides about one message.
    fn take(&mut self, message: Message) {
        match message {
            Message::Request(command, reply) => match self.advance(command) {
                Ok(()) => self.waiting.push(reply),
                Err(error) => drop(reply.send(Err(error))),
            },
            Message::Report(effect, command) => {
                self.tasks.remove(&effect);
                self.report(command);
            }
            Message::Read(effect, readings) => self.read(&effect, &readings),
            Message::Due => {
                self.ticked = self.shared.clock.now();
                self.report(Command::Tick);
                for task in self.tasks.values() {
                    task.poke.notify_one();
                }
            }
        }
    }

    /// Turns what was read for an effect into its report.
    fn read(&mut self, effect: &Effect, readings: &Readings) {
        let is_watch = matches!(effect, Effect::Watch(_) | Effect::Prepare(_) | Effect::Guard(_));
        if !is_watch {
            self.tasks.remove(effect);
        }
        if let Effect::Watch(unit) | Effect::Prepare(unit) = effect {
            self.readings.insert(unit.clone(), readings.clone());
        }
        if let Some(command) = self.answer(effect, readings) {
            self.report(command);
        }
    }

    /// A report that the run does not wait for any more is dropped: that is what rejections of reports mean.
    pub(super) fn report(&mut self, command: Command) {
        if let Err(error) = self.advance(command) {
            tracing::debug!(run = %self.run.id, %error, "report dropped");
        }
    }

    fn advance(&mut self, command: Command) -> Result<(), Error> {
        let events = engine::advance(&self.plan, &mut self.run, command, self.shared.clock.now())?;
        self.unsaved.extend(events);
        Ok(())
    }

    /// Answers every effect that needs nothing from outside, makes the events durable, starts the other effects.
    async fn settle(&mut self) -> Next {
        loop {
            self.answer_what_needs_no_reading();
            if let Err(error) = self.save().await {
                tracing::error!(run = %self.run.id, %error, "the journal cannot be written; the run stops here");
                self.shared.forget(self.run.id);
                return Next::End;
            }
            if self.run.finished.is_some() {
                self.shared.finish(&self.run);
                return Next::End;
            }
            if !self.run_inline().await {
                break;
            }
        }
        self.start_and_stop_tasks();
        if self.tasks.is_empty() && self.inbox.is_empty() && self.cluster_checked {
            return self.park();
        }
        Next::Go
    }

    fn answer_what_needs_no_reading(&mut self) {
        while self.cluster_checked {
            let effects = pending_effects(&self.plan, &self.run);
            let open = effects.iter().filter(|effect| !self.tasks.contains_key(*effect));
            let Some(command) = open.filter_map(|effect| self.answer_now(effect)).next() else { return };
            let before = self.run.seq;
            self.report(command);
            if self.run.seq == before {
                tracing::error!(run = %self.run.id, "an effect was answered and is still pending");
                return;
            }
        }
    }

    /// The report of an effect for which nothing has to be read.
    fn answer_now(&mut self, effect: &Effect) -> Option<Command> {
        match self.reads_of(effect) {
            Some(Ok(plan)) if plan.is_empty() => self.answer(effect, &Readings::default()),
            Some(Ok(_)) => match effect {
                Effect::Conclude(unit) => {
                    let readings = self.readings.get(unit).cloned()?;
                    self.answer(effect, &readings)
                }
                _ => None,
            },
            Some(Err(command)) => Some(command),
            None => None,
        }
    }

    async fn save(&mut self) -> Result<(), store::Error> {
        if !self.unsaved.is_empty() {
            let summary = engine::summary::summary(&self.plan, &self.run);
            let append = Append {
                run: self.run.id,
                expected: self.durable,
                at: self.shared.clock.now(),
                events: self.unsaved.clone(),
                summary: (self.summary.as_ref() != Some(&summary)).then(|| summary.clone()),
            };
            self.durable = self.shared.append(append).await?;
            self.summary = Some(summary);
            self.shared.publish(&self.run, std::mem::take(&mut self.unsaved));
        }
        for reply in self.waiting.drain(..) {
            // Whoever asked may have gone away.
            drop(reply.send(Ok(())));
        }
        Ok(())
    }

    fn start_and_stop_tasks(&mut self) {
        let effects = if self.cluster_checked { pending_effects(&self.plan, &self.run) } else { vec![] };
        self.tasks.retain(|effect, _| effects.contains(effect));
        for effect in effects {
            if !self.tasks.contains_key(&effect) {
                let poke = Arc::new(Notify::new());
                if let Some(abort) = self.start(&effect, poke.clone()) {
                    self.tasks.insert(effect, Task { abort, poke });
                }
            }
        }
        let blocks = &self.run.blocks;
        let alive = |unit: &UnitId| {
            let key = unit.item.as_deref().unwrap_or_default();
            let state = blocks.get(&unit.block).and_then(|block| block.units.get(key));
            state.is_none_or(|state| state.finished_at.is_none())
        };
        self.readings.retain(|unit, _| alive(unit));
        self.requests.retain(|unit, _| alive(unit));
    }

    /// The first deadline that was not looked at yet.
    fn next_deadline(&self) -> Option<Timestamp> {
        next_deadline(&self.plan, &self.run, self.ticked)
    }

    fn park(&mut self) -> Next {
        let due = self.next_deadline();
        if self.shared.park(self.run.id, due, &mut self.inbox) { Next::End } else { Next::Go }
    }

    /// Evaluates for this run, now.
    pub(super) fn evaluator(&self) -> Evaluator<'_> {
        self.shared.evaluator(&self.plan, &self.run)
    }
}

async fn wait_until(shared: &Shared, at: Option<Timestamp>) {
    match at {
        Some(at) => shared.clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

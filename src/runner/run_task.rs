//! The actor that owns one run.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::sync::oneshot;

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
use crate::failpoint;
use crate::failpoint::Place;
use crate::id::Seq;
use crate::journal::store;
use crate::journal::store::Append;
use crate::journal::store::Summary;
use crate::plan::Plan;
use crate::runner::Error;
use crate::runner::evidence::Look;
use crate::runner::host::Shared;
use crate::runner::tasks::Report;
use crate::runner::tasks::Task;
use crate::time::Timestamp;

/// What reaches a run.
pub(super) enum Message {
    /// A request from outside, answered when its events are durable.
    Request(Command, oneshot::Sender<Result<(), Error>>),
    /// A task speaks.
    Effect { effect: Effect, number: u64, report: Report },
    /// The cluster is the one that the run is pinned to (E10).
    ClusterChecked,
    /// Time has passed.
    Due,
    /// The process ends: stop where you are, and say when.
    Stop(oneshot::Sender<()>),
}

/// Both ends of a run's mailbox.
pub(super) type Mailbox = (mpsc::UnboundedSender<Message>, mpsc::UnboundedReceiver<Message>);

/// One run with something to do.
pub(super) struct RunTask {
    pub(super) shared: Arc<Shared>,
    pub(super) plan: Arc<Plan>,
    pub(super) run: RunState,
    pub(super) outbox: mpsc::UnboundedSender<Message>,
    inbox: mpsc::UnboundedReceiver<Message>,
    tasks: BTreeMap<Effect, Task>,
    /// Tasks so far.
    pub(super) tasks_total: u64,
    /// The requests that were prepared in this process, until their units end.
    pub(super) requests: BTreeMap<UnitId, Request>,
    /// What was read last for a unit, until it ends.
    pub(super) looks: BTreeMap<UnitId, Look>,
    /// What was read when a guard was found broken.
    pub(super) guard_readings: BTreeMap<u16, Readings>,
    /// Events that are decided and applied but not yet durable.
    pub(super) unsaved: Vec<Event>,
    /// Who is to be told when they are.
    waiting: Vec<oneshot::Sender<Result<(), Error>>>,
    /// Position of the last durable event.
    durable: Seq,
    /// The index line as it was written last.
    summary: Option<Summary>,
    /// Deadlines up to here have been looked at.
    ticked: Timestamp,
    /// Effects may start: the cluster is the right one, or the run needs none.
    cluster_checked: bool,
}

impl RunTask {
    /// A run whose last events, `unsaved`, are decided but not durable.
    pub(super) fn new(
        shared: Arc<Shared>,
        plan: Arc<Plan>,
        run: RunState,
        mailbox: Mailbox,
        unsaved: Vec<Event>,
    ) -> Self {
        let durable = Seq(run.seq.0 - unsaved.len() as u64);
        // Whoever started the run in this process asked this process's cluster for the pin.
        let cluster_checked = run.created.cluster.is_none() || durable == Seq::default();
        Self {
            shared,
            plan,
            run,
            outbox: mailbox.0,
            inbox: mailbox.1,
            tasks: BTreeMap::new(),
            tasks_total: 0,
            requests: BTreeMap::new(),
            looks: BTreeMap::new(),
            guard_readings: BTreeMap::new(),
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

    /// Runs until the run is over, or has nothing to do before some moment.
    pub(super) async fn run(mut self) {
        let check = if self.cluster_checked { None } else { self.check_cluster() };
        while self.settle().await {
            let due = next_deadline(&self.plan, &self.run, self.ticked);
            let message = tokio::select! {
                message = self.inbox.recv() => message,
                () = self.shared.wait_until(due) => Some(Message::Due),
            };
            let Some(message) = message else { break };
            if let Message::Stop(stopped) = message {
                self.tasks.clear();
                // Nobody has to wait for it.
                stopped.send(()).ok();
                break;
            }
            self.take(message);
        }
        if let Some(check) = check {
            check.abort();
        }
    }

    /// A run that is over takes remarks and the closing of debts; the engine refuses everything else.
    pub(super) async fn epilogue(mut self) {
        loop {
            while let Ok(message) = self.inbox.try_recv() {
                match message {
                    // Nobody has to wait for it.
                    Message::Stop(stopped) => drop(stopped.send(())),
                    message => self.take(message),
                }
            }
            if let Err(error) = self.save(true).await {
                return self.stand_still(&error);
            }
            if self.shared.park(self.run.id, None, &self.inbox) {
                return;
            }
        }
    }

    /// Takes messages that came before the run could take them.
    pub(super) fn take_all(&mut self, messages: Vec<Message>) {
        messages.into_iter().for_each(|message| self.take(message));
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Request(command, reply) => match self.advance(command) {
                Ok(()) => self.waiting.push(reply),
                // Whoever asked may have gone away.
                Err(error) => drop(reply.send(Err(error))),
            },
            Message::Effect { effect, number, report } => {
                // An earlier task's words about an effect that was started anew mean nothing any more.
                if self.tasks.get(&effect).is_some_and(|task| task.number == number) {
                    self.hear(&effect, report);
                }
            }
            // Handled where messages are received.
            Message::Stop(_) => {}
            Message::ClusterChecked => self.cluster_checked = true,
            Message::Due => {
                self.ticked = self.shared.clock.now();
                self.report(Command::Tick);
                self.tasks.values().for_each(Task::poke);
            }
        }
    }

    fn hear(&mut self, effect: &Effect, report: Report) {
        let readings = match report {
            Report::Done(command) => {
                self.tasks.remove(effect);
                return self.report(command);
            }
            Report::Read(readings) => readings,
        };
        let command = self.answer(effect, &readings);
        match effect {
            Effect::Watch(unit) | Effect::Prepare(unit) => {
                let wait = self.wait_of(unit);
                self.looks.insert(unit.clone(), Look { readings, wait });
            }
            Effect::Guard(guard) if command.is_some() => drop(self.guard_readings.insert(*guard, readings)),
            _ => {}
        }
        if let Some(command) = command {
            self.report(command);
        }
        let reads_again = matches!(effect, Effect::Watch(_) | Effect::Prepare(_) | Effect::Guard(_));
        if !reads_again {
            self.tasks.remove(effect);
        }
    }

    /// Gives a report to the engine. One that the run does not wait for any more is dropped.
    pub(super) fn report(&mut self, command: Command) {
        if let Err(error) = self.advance(command) {
            tracing::debug!(run = %self.run.id, %error, "report dropped");
        }
    }

    fn advance(&mut self, command: Command) -> Result<(), Error> {
        self.advance_at(command, self.shared.clock.now())
    }

    /// The same at a moment that is past: what belongs to events that were decided then.
    pub(super) fn advance_at(&mut self, mut command: Command, at: Timestamp) -> Result<(), Error> {
        crate::runner::masking::mask(&mut command, self.shared.executor.secrets());
        crate::runner::explain::explain(&mut command, &self.shared.knowledge);
        let events = engine::decide::advance(&self.plan, &mut self.run, command, at)?;
        self.unsaved.extend(events);
        Ok(())
    }

    /// Answers the effects that need nothing from outside, makes all events durable, then starts the other effects.
    /// False if the run has ended or is parked.
    async fn settle(&mut self) -> bool {
        loop {
            let effects = self.answer_at_once();
            if let Err(error) = self.save(effects.is_empty()).await {
                self.stand_still(&error);
                return false;
            }
            if self.run.finished.is_some() {
                self.shared.finish(&self.run);
                return false;
            }
            let reports = self.run_inline(&effects).await;
            let reports = if reports.is_empty() { self.start_and_stop_tasks(effects) } else { reports };
            if reports.is_empty() {
                break;
            }
            for report in reports {
                self.report(report);
            }
        }
        let idle = self.tasks.is_empty() && self.cluster_checked;
        let due = next_deadline(&self.plan, &self.run, self.ticked);
        !(idle && self.shared.park(self.run.id, due, &self.inbox))
    }

    /// What was decided could not be made durable: whoever waits for it is told so.
    fn stand_still(&mut self, error: &store::Error) {
        tracing::error!(run = %self.run.id, %error, "the journal cannot be written: the run stands still");
        self.shared.give_up(self.run.id);
        for reply in self.waiting.drain(..) {
            // Whoever asked may have gone away.
            drop(reply.send(Err(error.clone().into())));
        }
    }

    /// The effects that are left when those are answered for which nothing has to be read.
    fn answer_at_once(&mut self) -> Vec<Effect> {
        loop {
            let effects = self.effects();
            let Some(command) = effects.iter().find_map(|effect| self.answer_now(effect)) else {
                return effects;
            };
            let before = self.run.seq;
            self.report(command);
            if self.run.seq == before {
                tracing::error!(run = %self.run.id, "a report changed nothing");
                return effects;
            }
        }
    }

    /// What is to be done, as far as this process may do anything.
    fn effects(&self) -> Vec<Effect> {
        if self.cluster_checked {
            pending_effects(&self.plan, &self.run, self.shared.clock.now())
        } else {
            vec![]
        }
    }

    /// The report of an effect for which nothing has to be read (again).
    fn answer_now(&mut self, effect: &Effect) -> Option<Command> {
        if self.tasks.contains_key(effect) {
            return None;
        }
        let plan = match self.reads_of(effect)? {
            Ok(plan) => plan,
            Err(command) => return Some(command),
        };
        let known = match effect {
            Effect::Conclude(unit) => self.looks.get(unit).map(|look| look.readings.clone()),
            _ => None,
        };
        match known {
            Some(readings) => self.answer(effect, &readings),
            None if plan.is_empty() && !self.is_pending(effect) => self.answer(effect, &Readings::default()),
            None => None,
        }
    }

    /// Makes durable what was decided. `idle`: nothing is to be done now, as far as this process may do anything.
    async fn save(&mut self, idle: bool) -> Result<(), store::Error> {
        if !self.unsaved.is_empty() {
            self.keep_evidence().await;
            let idle_at = (idle && self.cluster_checked).then(|| self.shared.clock.now());
            let summary = crate::runner::index::line(&self.plan, &self.run, idle_at);
            let append = Append {
                run: self.run.id,
                expected: self.durable,
                at: self.run.updated_at,
                events: std::mem::take(&mut self.unsaved),
                summary: (self.summary.as_ref() != Some(&summary)).then(|| summary.clone()),
            };
            let intents = intents(&append.events);
            let workflow = self.run.created.workflow.as_str();
            intents.iter().for_each(|unit| failpoint::reach(Place::BeforeAppend, workflow, unit));
            self.durable = self.shared.append(&append).await?;
            intents.iter().for_each(|unit| failpoint::reach(Place::AfterAppend, workflow, unit));
            self.summary = Some(summary);
            self.shared.publish(&self.run, append.events);
        }
        for reply in self.waiting.drain(..) {
            drop(reply.send(Ok(())));
        }
        Ok(())
    }

    /// Ends tasks that are not wanted any more and starts those that are; the reports of effects that ended at once.
    fn start_and_stop_tasks(&mut self, effects: Vec<Effect>) -> Vec<Command> {
        self.tasks.retain(|effect, _| effects.contains(effect));
        let open: std::collections::BTreeSet<UnitId> = self.run.open().map(|(unit, _)| unit).collect();
        self.looks.retain(|unit, _| open.contains(unit));
        self.requests.retain(|unit, _| open.contains(unit));
        let mut reports = vec![];
        for effect in effects {
            if !self.tasks.contains_key(&effect) {
                match self.start(&effect) {
                    Ok(task) => drop(self.tasks.insert(effect, task)),
                    Err(report) => reports.push(report),
                }
            }
        }
        reports
    }

    /// Evaluates for this run, now.
    pub(super) fn evaluator<'a>(&'a self, values: &'a crate::runner::values::SideFiles) -> Evaluator<'a> {
        self.shared.evaluator(&self.plan, &self.run, values)
    }
}

/// The units whose attempts begin with these events, for the failpoints of tests.
fn intents(events: &[Event]) -> Vec<String> {
    if cfg!(not(debug_assertions)) {
        return vec![];
    }
    let unit = |event: &Event| match event {
        Event::AttemptStarted { unit, .. } => Some(unit.to_string()),
        _ => None,
    };
    events.iter().filter_map(unit).collect()
}

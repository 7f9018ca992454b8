//! All runs of a process: which are live, which are parked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;
use tokio::sync::oneshot;

use crate::action::Executor;
use crate::definition::knowledge::Knowledge;
use crate::engine::Command;
use crate::engine::Event;
use crate::engine::RunState;
use crate::engine::decide::Rejection;
use crate::engine::event::Actor;
use crate::engine::event::RunOutcome;
use crate::engine::event::Trigger;
use crate::engine::linked;
use crate::engine::linked::Kind;
use crate::engine::locks::LockTable;
use crate::engine::state::RunStatus;
use crate::evaluate::Evaluator;
use crate::evaluate::ReadPlan;
use crate::id::RunId;
use crate::id::Seq;
use crate::journal::Store;
use crate::journal::store;
use crate::journal::store::Append;
use crate::journal::store::Summary;
use crate::plan::Plan;
use crate::plan::WorkflowDigest;
use crate::runner::Error;
use crate::runner::Start;
use crate::runner::child::child_id;
use crate::runner::observer::Observer;
use crate::runner::run_task::Mailbox;
use crate::runner::run_task::Message;
use crate::runner::run_task::RunTask;
use crate::runner::timers::Timers;
use crate::runner::turns::Turns;
use crate::runner::updates::Updates;
use crate::runner::values::SideFiles;
use crate::time::SharedClock;
use crate::time::Timestamp;

/// The name of the store's setting that stops the starting of anything new.
const PAUSED: &str = "paused";

/// What a host needs. The concrete store, executor and clock are chosen by whoever wires the process.
pub struct Parts {
    /// Where runs are recorded.
    pub store: Arc<dyn Store>,
    /// What carries out actions.
    pub executor: Arc<Executor>,
    /// Where the time comes from.
    pub clock: SharedClock,
    /// What is known about failures.
    pub knowledge: Arc<Knowledge>,
}

/// What all runs share.
pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    pub(super) executor: Arc<Executor>,
    pub(super) clock: SharedClock,
    pub(super) knowledge: Arc<Knowledge>,
    plans: Mutex<BTreeMap<WorkflowDigest, Arc<Plan>>>,
    pub(super) locks: Mutex<LockTable>,
    pub(super) turns: Turns,
    live: Mutex<BTreeMap<RunId, mpsc::UnboundedSender<Message>>>,
    timers: Timers,
    pub(super) updates: Updates,
    pub(super) paused: AtomicBool,
    /// The process is about to end: nothing is started any more.
    stopping: AtomicBool,
    /// Runs that stand still because this process talks to another cluster: expected and found.
    foreign: Mutex<BTreeMap<RunId, (Arc<str>, Arc<str>)>>,
}

/// The runs of a process. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    pub(super) shared: Arc<Shared>,
}

/// What is told to whoever watches a run.
#[derive(Debug, Clone)]
pub struct Update {
    /// The run.
    pub run: RunId,
    /// Position of the last of the events.
    pub seq: Seq,
    /// When they happened.
    pub at: Timestamp,
    /// What happened.
    pub events: Arc<[Event]>,
}

/// Takes a lock that protects data which is whole after every operation, panic or not.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Host {
    /// Takes over the runs of the store: those that have something to do go on, parked ones are armed.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn open(parts: Parts) -> Result<Self, store::Error> {
        let paused = parts.store.setting(PAUSED)?.is_some_and(|value| value == true);
        let shared = Arc::new(Shared {
            knowledge: parts.knowledge,
            store: parts.store,
            executor: parts.executor,
            clock: parts.clock,
            plans: Mutex::default(),
            locks: Mutex::default(),
            turns: Turns::default(),
            live: Mutex::default(),
            timers: Timers::default(),
            updates: Updates::default(),
            paused: AtomicBool::new(paused),
            stopping: AtomicBool::new(false),
            foreign: Mutex::default(),
        });
        shared.rebuild_locks()?;
        tokio::spawn(wake_parked(shared.clone()));
        Ok(Self { shared })
    }

    /// Goes on with every run that an earlier process left open.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn adopt_all(&self) -> Result<(), store::Error> {
        for summary in self.shared.store.open_runs()? {
            let has_turn = summary.status == RunStatus::Queued && self.shared.has_turn(summary.run);
            match summary.due {
                // Nothing to do before that moment: its journal need not even be read.
                Some(due) if !has_turn => self.shared.timers.set(summary.run, due),
                Some(_) | None => self.shared.deliver(summary.run, Message::Due),
            }
        }
        Ok(())
    }

    /// Goes on with one run; an error that it cannot, because it is over or belongs to another cluster.
    ///
    /// # Errors
    /// As [`Host::command`].
    pub async fn adopt(&self, run: RunId) -> Result<(), Error> {
        let (_, state) = match self.load(run) {
            Ok(loaded) => loaded,
            Err(error) => {
                self.shared.hold(run, &error).await;
                return Err(error);
            }
        };
        if state.finished.is_some() {
            return Err(Error::Rejected(finished(&state)));
        }
        if let Some(expected) = &state.created.cluster {
            let found = self.cluster_uid().await?;
            if found != *expected {
                return Err(Error::WrongCluster { run, expected: expected.clone(), found });
            }
        }
        self.shared.deliver(run, Message::Due);
        Ok(())
    }

    /// Ends the actors of all runs. What they have decided is durable; what is in flight will be observed.
    pub async fn park_all(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        let live: Vec<_> = std::mem::take(&mut *lock(&self.shared.live)).into_values().collect();
        for inbox in live {
            let (stopped, done) = oneshot::channel();
            if inbox.send(Message::Stop(stopped)).is_ok() {
                drop(done.await);
            }
        }
    }

    /// The runs that go on in this process, awake or asleep until a moment; some may be over by now.
    pub fn executing(&self) -> Vec<RunId> {
        let mut runs = self.shared.timers.runs();
        runs.extend(lock(&self.shared.live).keys());
        runs.sort();
        runs.dedup();
        runs
    }

    /// The start of a run that continues, or undoes, one that is over (E11).
    ///
    /// # Errors
    /// The run is not over, or there is nothing to do.
    pub fn linked(&self, run: RunId, kind: Kind, by: Actor) -> Result<Start, Error> {
        let (plan, state) = self.load(run)?;
        let inherited = linked::inherited(&plan, &state, kind)?;
        Ok(Start {
            plan,
            inputs: state.created.inputs.as_ref().clone(),
            trigger: match kind {
                Kind::Retry => Trigger::Retry(run),
                Kind::Rollback => Trigger::Rollback(run),
            },
            by,
            key: None,
            inherited: Some(Box::new(inherited)),
            id: None,
        })
    }

    /// Waits until a run is over.
    ///
    /// # Errors
    /// An unknown run, or a store that cannot be read.
    pub async fn end_of(&self, run: RunId) -> Result<RunStatus, Error> {
        let over = self.shared.updates.subscribe_end(run);
        let summary = self.shared.store.summary(run)?.ok_or(Error::UnknownRun(run))?;
        if summary.status.is_terminal() {
            return Ok(summary.status);
        }
        over.await.map_err(|_| store::Error::Unusable("the run stopped".to_owned()).into())
    }

    /// Gives a command to a run and waits until what follows from it is durable.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn command(&self, run: RunId, command: Command) -> Result<(), Error> {
        if self.shared.store.summary(run)?.is_none() {
            return Err(Error::UnknownRun(run));
        }
        let (reply, answer) = oneshot::channel();
        self.shared.deliver(run, Message::Request(command, reply));
        answer.await.unwrap_or_else(|_| {
            Err(store::Error::Unusable("the run stopped before it answered".to_owned()).into())
        })
    }

    /// The state of a run, from its journal.
    ///
    /// # Errors
    /// An unknown run, or a damaged journal.
    pub fn load(&self, run: RunId) -> Result<(Arc<Plan>, RunState), Error> {
        self.shared.load(run)
    }

    /// The same for a run that may be stuck; why it is, if so.
    ///
    /// # Errors
    /// An unknown run, or one of which nothing can be read.
    pub fn look(&self, run: RunId) -> Result<(Arc<Plan>, RunState, Option<Error>), Error> {
        match self.shared.load(run) {
            Ok((plan, state)) => Ok((plan, state, None)),
            Err(error) => {
                let (plan, state, _) = self.shared.look_at_stuck(run, &error).ok_or_else(|| error.clone())?;
                Ok((plan, state, Some(error)))
            }
        }
    }

    /// Runs that stand still because this process talks to another cluster.
    pub fn foreign(&self, run: RunId) -> Option<Error> {
        let foreign = lock(&self.shared.foreign);
        let (expected, found) = foreign.get(&run)?.clone();
        Some(Error::WrongCluster { run, expected, found })
    }

    /// What happens to a run from now on.
    pub fn watch(&self, run: RunId) -> mpsc::Receiver<Update> {
        self.shared.updates.subscribe(run)
    }

    /// Stops, or allows again, the starting of anything new, durably.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub async fn pause_all(&self, paused: bool) -> Result<(), store::Error> {
        self.shared.store.put_setting(PAUSED, paused.then(|| true.into())).await?;
        self.shared.paused.store(paused, Ordering::Release);
        Ok(())
    }

    /// True if nothing new is started.
    pub fn all_paused(&self) -> bool {
        self.shared.paused.load(Ordering::Acquire)
    }

    /// Evaluates for a run, now.
    pub fn evaluate<T>(&self, plan: &Plan, run: &RunState, with: impl FnOnce(Evaluator<'_>) -> T) -> T {
        let values = self.shared.values();
        with(self.shared.evaluator(plan, run, &values))
    }
}

/// A finished run takes no commands.
fn finished(run: &RunState) -> Rejection {
    let outcome = run.finished.as_ref().map(|(at, finished)| (*at, finished.outcome));
    let (at, outcome) = outcome.unwrap_or((run.updated_at, RunOutcome::Failed));
    Rejection::Finished { at, outcome }
}

/// The end of a run that `caller`, which was terminated, had called.
fn terminated(caller: RunId, run: &RunState) -> Command {
    let reason = format!("run {caller}, which had called it, was terminated");
    Command::Terminate { by: run.created.by.clone(), reason }
}

/// Wakes parked runs as they become due.
async fn wake_parked(shared: Arc<Shared>) {
    loop {
        for run in shared.timers.next_due(&shared.clock).await {
            shared.deliver(run, Message::Due);
        }
    }
}

impl Shared {
    pub(super) fn values(&self) -> SideFiles {
        SideFiles { store: self.store.clone(), secrets: self.executor.secrets().clone() }
    }

    pub(super) fn evaluator<'a>(
        &'a self,
        plan: &'a Plan,
        run: &'a RunState,
        values: &'a SideFiles,
    ) -> Evaluator<'a> {
        let (now, speed) = (self.clock.now(), self.clock.speed());
        Evaluator { plan, run, values, knowledge: &self.knowledge, now, speed }
    }

    pub(super) fn observer(&self, plan: ReadPlan) -> Observer {
        Observer::new(self.executor.clone(), self.clock.clone(), plan)
    }

    /// Waits for a moment; for ever if there is none.
    pub(super) async fn wait_until(&self, at: Option<Timestamp>) {
        match at {
            Some(at) => self.clock.sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Gives a message to a run; a parked one is brought back from its journal.
    pub(super) fn deliver(self: &Arc<Self>, run: RunId, message: Message) {
        let mut live = lock(&self.live);
        let undelivered = match live.get(&run) {
            Some(inbox) => inbox.send(message).err().map(|error| error.0),
            None => Some(message),
        };
        if self.stopping.load(Ordering::Acquire) {
            return;
        }
        if let Some(message) = undelivered {
            let (inbox, channel) = mpsc::unbounded_channel();
            // The receiver is at hand: this cannot fail.
            drop(inbox.send(message));
            live.insert(run, inbox.clone());
            tokio::spawn(self.clone().revive(run, (inbox, channel)));
        }
    }

    /// Puts a new run, whose first events are decided but not durable, into the hands of an actor.
    pub(super) fn begin(
        self: &Arc<Self>,
        plan: Arc<Plan>,
        run: RunState,
        events: Vec<Event>,
        reply: oneshot::Sender<Result<(), Error>>,
    ) {
        let (inbox, channel) = mpsc::unbounded_channel();
        lock(&self.live).insert(run.id, inbox.clone());
        let mut task = RunTask::new(self.clone(), plan, run, (inbox, channel), events);
        task.tell(reply);
        tokio::spawn(task.run());
    }

    async fn revive(self: Arc<Self>, run: RunId, mailbox: Mailbox) {
        match self.load(run) {
            Ok((plan, state)) if state.finished.is_some() => {
                RunTask::new(self, plan, state, mailbox, vec![]).epilogue().await;
            }
            Ok((plan, state)) => {
                let caller = self.go_on_with_caller(&state);
                let mut task = RunTask::new(self, plan, state, mailbox, vec![]);
                task.recover();
                if task.run.granted.is_none() && task.shared.has_turn(run) {
                    task.report(Command::GrantLocks);
                }
                if let Some(over) = caller {
                    task.report(terminated(over, &task.run));
                }
                task.run().await;
            }
            Err(error) => self.revive_stuck(run, error, mailbox).await,
        }
    }

    /// A called run goes on together with the one that called it (E9). That one, if it is over: it was terminated.
    fn go_on_with_caller(self: &Arc<Self>, run: &RunState) -> Option<RunId> {
        let Trigger::Parent { run: caller, .. } = run.created.trigger else { return None };
        let over =
            self.store.summary(caller).is_ok_and(|line| line.is_some_and(|line| line.status.is_terminal()));
        if !over {
            self.deliver(caller, Message::Due);
        }
        over.then_some(caller)
    }

    /// Ends what a run had called when it was terminated.
    fn end_children(self: &Arc<Self>, run: &RunState) {
        for (unit, state) in run.open() {
            let child = child_id(run.id, &unit, state.attempt);
            let open = |line: Summary| !line.status.is_terminal();
            if let Ok(true) = self.store.summary(child).map(|line| line.is_some_and(open)) {
                let (reply, _) = oneshot::channel();
                self.deliver(child, Message::Request(terminated(run.id, run), reply));
            }
        }
    }

    pub(super) fn refuse_all(&self, inbox: &mut mpsc::UnboundedReceiver<Message>, error: impl Fn() -> Error) {
        inbox.close();
        while let Ok(message) = inbox.try_recv() {
            if let Message::Request(_, reply) = message {
                drop(reply.send(Err(error())));
            }
        }
    }

    /// Replays a run's journal.
    pub(super) fn load(&self, run: RunId) -> Result<(Arc<Plan>, RunState), Error> {
        let records = self.store.read(run)?;
        if records.is_empty() {
            return Err(Error::UnknownRun(run));
        }
        let journal = records.iter().map(|record| (record.seq, record.at, &record.event));
        let mut state = RunState::replay(run, journal).map_err(|illegal| {
            let good = records.iter().take_while(|record| record.seq < illegal.seq).cloned().collect();
            store::Error::Damaged { run, after: Seq(illegal.seq.0 - 1), what: illegal.to_string(), good }
        })?;
        let plan = self.plan(&state.created.digest)?;
        crate::engine::decide::refresh(&plan, &mut state);
        Ok((plan, state))
    }

    /// The plan that a run is pinned to (E10): from memory, else from the definition in the store.
    pub(super) fn plan(&self, digest: &WorkflowDigest) -> Result<Arc<Plan>, Error> {
        if let Some(plan) = lock(&self.plans).get(digest) {
            return Ok(plan.clone());
        }
        let plan = self.pinned(digest, crate::plan::from_normalised)?;
        lock(&self.plans).insert(digest.clone(), plan.clone());
        Ok(plan)
    }

    /// Remembers a plan whose definition is in the store; false if it was known already.
    pub(super) fn remember_plan(&self, plan: &Arc<Plan>) -> bool {
        lock(&self.plans).insert(plan.digest.clone(), plan.clone()).is_none()
    }

    /// Makes events durable. While the disk is full a run waits for room: what was decided must not be lost. A new one
    /// is refused (S3).
    pub(super) async fn append(&self, append: &Append) -> Result<Seq, store::Error> {
        loop {
            match self.store.append(append).await {
                Err(store::Error::Full) if append.expected > Seq(0) => {
                    tracing::warn!(run = %append.run, "the disk is full; waiting for room");
                    self.clock.sleep(FULL_BEAT).await;
                }
                result => return result,
            }
        }
    }

    pub(super) fn publish(&self, run: &RunState, events: Vec<Event>) {
        self.updates.publish(run.id, || Update {
            run: run.id,
            seq: run.seq,
            at: self.clock.now(),
            events: events.into(),
        });
    }

    /// Frees what a finished run held, and lets those go on that waited for it.
    pub(super) fn finish(self: &Arc<Self>, run: &RunState) {
        self.forget(run.id);
        self.updates.publish_end(run.id, run.status());
        self.executor.forget_processes(&run.id.to_string());
        self.end_children(run);
        self.release_locks(run.id);
    }

    /// Ends the actor of a run whose journal cannot be written. A run that was never recorded holds nothing.
    pub(super) fn give_up(self: &Arc<Self>, run: RunId) {
        self.forget(run);
        if matches!(self.store.summary(run), Ok(None)) {
            self.release_locks(run);
        }
    }

    /// Ends the actor of a run that has nothing to do, unless a message came in the meantime. True if it may end.
    pub(super) fn park(
        &self,
        run: RunId,
        due: Option<Timestamp>,
        inbox: &mpsc::UnboundedReceiver<Message>,
    ) -> bool {
        let mut live = lock(&self.live);
        // Messages are sent under the same lock: none can slip in between.
        if !inbox.is_empty() {
            return false;
        }
        live.remove(&run);
        drop(live);
        if let Some(due) = due {
            self.timers.set(run, due);
        }
        true
    }

    pub(super) fn forget(&self, run: RunId) {
        lock(&self.live).remove(&run);
    }

    pub(super) fn set_foreign(&self, run: RunId, expected: Arc<str>, found: Arc<str>) {
        lock(&self.foreign).insert(run, (expected, found));
    }
}

/// How often a full disk is tried again.
const FULL_BEAT: std::time::Duration = std::time::Duration::from_secs(1);

//! The one interface that all surfaces use: command line, socket, later API, page and chat.

pub mod client;
pub mod codes;
pub mod operation;
pub mod socket;
mod unit_name;
pub mod view;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use serde_json::Value;
use serde_json::json;
use tokio::sync::mpsc;

use crate::definition::Library;
use crate::engine::Command;
use crate::engine::RunState;
use crate::engine::codes::LOST_RECORD;
use crate::engine::event::Actor;
use crate::engine::event::Trigger;
use crate::engine::linked::Kind;
use crate::engine::locks::LockView;
use crate::engine::state::RunStatus;
use crate::engine::unit::UnitId;
use crate::failure::Failure;
use crate::id::RunId;
use crate::id::Seq;
use crate::journal::Store;
use crate::journal::store;
use crate::journal::store::Summary;
use crate::plan::Plan;
use crate::runner::Error;
use crate::runner::Host;
use crate::runner::Start;
use crate::service::operation::Change;
use crate::service::operation::Filter;
use crate::service::operation::Operation;
use crate::service::operation::Problem;
use crate::service::operation::ProblemKind;
use crate::service::operation::Reply;
use crate::service::operation::Verb;

/// The most lines of one page: a page is one message on the socket.
const PAGE_MAX: usize = 1000;
/// Lines of the index that are read at once while filtering.
const SCAN: usize = 256;

/// The service of the process that owns the store. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    host: Host,
    store: Arc<dyn Store>,
    library: Arc<Library>,
    /// Those that were started: making one reads the whole definition again.
    plans: Arc<Mutex<BTreeMap<String, Arc<Plan>>>>,
}

impl Handle {
    /// The service of `host`, which keeps its runs in `store` and takes its workflows from `library`.
    pub fn new(host: Host, store: Arc<dyn Store>, library: Arc<Library>) -> Self {
        Self { host, store, library, plans: Arc::default() }
    }

    /// Does what `by` asks; on return it is durable.
    ///
    /// # Errors
    /// See [`ProblemKind`].
    pub async fn call(&self, operation: Operation, by: Actor) -> Result<Reply, Problem> {
        match operation {
            Operation::Start { workflow, inputs, key } => {
                self.start(&workflow, &Value::Object(inputs), key, by).await
            }
            Operation::Resume { run } => self.resume(run).await,
            Operation::Command { run, verb: Verb::BreakLock { key, reason } } => {
                self.host.break_lock(run, key, by, reason).await?;
                Ok(Reply::Done)
            }
            Operation::Command { run, verb } => {
                let mut command = command(verb, by)?;
                let Command::Answer { unit, .. } = &mut command else {
                    self.host.command(run, command).await?;
                    return Ok(Reply::Done);
                };
                let run = self.asking(run, unit)?;
                self.host.command(run, command).await?;
                Ok(Reply::Answered { run })
            }
            Operation::Runs { filter, before, limit } => self.runs(&filter, before, limit),
            Operation::Show { run, events } => self.show(run, events),
            Operation::Evidence { run, file } => self.evidence(run, &file),
            Operation::Retry { run } => self.link(run, Kind::Retry, by).await,
            Operation::Rollback { run } => self.link(run, Kind::Rollback, by).await,
            Operation::PauseAll { paused } => {
                self.host.pause_all(paused).await.map_err(Error::from)?;
                Ok(Reply::Done)
            }
            Operation::Locks => {
                let row =
                    |lock: &LockView| json!({ "key": lock.key, "holder": lock.holder, "queue": lock.queue });
                Ok(Reply::Rows { rows: self.host.locks().iter().map(row).collect() })
            }
            Operation::Find { key } => {
                let run = self.store.run_of_key(&key).map_err(Error::from)?;
                let line = run.map(|run| self.store.summary(run)).transpose().map_err(Error::from)?.flatten();
                Ok(Reply::Found { run, status: line.map(|line| line.status) })
            }
            Operation::Debts => self.debts(),
        }
    }

    /// The run now, then each change of it, and of the runs that it has called, until it is over.
    ///
    /// # Errors
    /// An unknown run.
    pub fn watch(&self, run: RunId) -> Result<mpsc::Receiver<Change>, Problem> {
        watch::start(self, run)
    }

    /// Waits until a run is over. Cheaper than [`Handle::watch`]: only the end is looked at.
    ///
    /// # Errors
    /// An unknown run.
    pub async fn end_of(&self, run: RunId) -> Result<RunStatus, Problem> {
        Ok(self.host.end_of(run).await?)
    }

    /// How far a run is, how it is to be shown, and whether that lasts. Of one of which nothing can be read, its line in
    /// the index tells.
    fn look(&self, run: RunId) -> Result<(Seq, Value, bool), Problem> {
        match self.host.look(run) {
            Ok((plan, state, stuck)) => {
                let lasts = state.finished.is_some() || stuck.is_some();
                Ok((state.seq, self.view(&plan, &state, stuck.as_ref()), lasts))
            }
            Err(error) => {
                let line = self.store.summary(run).map_err(Error::from)?.ok_or_else(|| error.clone())?;
                Ok((Seq(0), view::line(&line, &error.to_string()), true))
            }
        }
    }

    /// A run as it is shown, with the questions of the runs that it has called.
    /// One that is stuck is Held, whatever its journal says.
    fn view(&self, plan: &Plan, state: &RunState, stuck: Option<&Error>) -> Value {
        let mut view = view::run(plan, state);
        if let Some(error) = stuck.filter(|_| state.finished.is_none()) {
            view["state"] = json!(RunStatus::Held.word());
            (view["held_reason"], view["held_reason_zh"]) = (json!(error.to_string()), Value::Null);
        }
        let mut asks = view::asks(state);
        let mut needs_somebody = stuck.is_some() || !asks.is_empty();
        let mut held = children_of(state);
        while let Some(child) = held.pop() {
            // One that cannot be read says so itself.
            let Ok((_, state, stuck)) = self.host.look(child) else { continue };
            needs_somebody |= stuck.is_some() || !state.asks.is_empty();
            asks.extend(view::asks(&state));
            held.extend(children_of(&state));
        }
        // A child that was answered a moment ago: its caller is about to hear of it.
        if state.status() == RunStatus::Held && !needs_somebody {
            view["state"] = json!(RunStatus::Running.word());
            (view["held_reason"], view["held_reason_zh"]) = (Value::Null, Value::Null);
        }
        view["asks"] = json!(asks);
        for row in view["steps"].as_array_mut().into_iter().flatten() {
            if let Some(child) = view::running_child(row) {
                row["waiting"] = self.progress_of(child);
            }
        }
        view
    }

    /// What a run that another one has called is busy with.
    fn progress_of(&self, child: RunId) -> Value {
        // One that cannot be read says so itself.
        let Ok((plan, state, None)) = self.host.look(child) else { return Value::Null };
        view::progress(&self.view(&plan, &state, None))
    }

    /// Whom an answer is for: the run that it was given to, or one that this run has called and that asks. `unit` may be
    /// the step that called it; then it is forgotten on the way.
    fn asking(&self, run: RunId, unit: &mut Option<UnitId>) -> Result<RunId, Problem> {
        let (_, state, _) = self.host.look(run)?;
        let asks_itself = match &unit {
            Some(unit) => state.ask_of(unit).is_some(),
            None => !state.asks.is_empty(),
        };
        if asks_itself {
            return Ok(run);
        }
        let mut children = children_of(&state);
        if let Some((_, child)) = state.held_children().find(|(caller, _)| unit.as_ref() == Some(caller)) {
            (children, *unit) = (vec![child.run], None);
        }
        match children.as_slice() {
            [] => Ok(run),
            [child] => self.asking(*child, unit),
            several => {
                let names: Vec<_> = several.iter().map(ToString::to_string).collect();
                let text = format!("several runs that it has called ask: answer one of {}", names.join(", "));
                Err(Problem { kind: ProblemKind::Refused, failure: Failure::permanent("rejected", text) })
            }
        }
    }

    async fn start(
        &self,
        workflow: &str,
        inputs: &Value,
        key: Option<Arc<str>>,
        by: Actor,
    ) -> Result<Reply, Problem> {
        let plan = self.plan(workflow)?;
        let inputs = plan
            .workflow
            .complete_inputs(inputs)
            .map_err(|error| Problem::usage(Failure::permanent(codes::BAD_INPUTS, error.to_string())))?;
        let start = Start { plan, inputs, trigger: Trigger::Manual, by, key, inherited: None, id: None };
        Ok(Reply::Started { run: self.host.start(start).await? })
    }

    /// The plan of a workflow that can be started.
    fn plan(&self, workflow: &str) -> Result<Arc<Plan>, Problem> {
        // Nothing panics while it is held; a map is whole after every call anyway.
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = plans.get(workflow) {
            return Ok(plan.clone());
        }
        let name = workflow.parse().ok();
        let plan = name.and_then(|name| crate::plan::from_library(&self.library, &name));
        let plan = plan.ok_or_else(|| {
            let text = format!("there is no workflow `{workflow}` without mistakes");
            Problem::usage(Failure::permanent(codes::UNKNOWN_WORKFLOW, text))
        })?;
        plans.insert(workflow.to_owned(), plan.clone());
        Ok(plan)
    }

    async fn resume(&self, run: Option<RunId>) -> Result<Reply, Problem> {
        let Some(run) = run else {
            self.host.adopt_all().map_err(Error::from)?;
            return Ok(Reply::Done);
        };
        self.host.adopt(run).await?;
        Ok(Reply::Started { run })
    }

    /// A new run that continues, or undoes, a terminal one (E11).
    async fn link(&self, run: RunId, kind: Kind, by: Actor) -> Result<Reply, Problem> {
        let start = self.host.linked(run, kind, by)?;
        Ok(Reply::Started { run: self.host.start(start).await? })
    }

    /// Only what the run itself names: other side files hold what an undo needs.
    fn evidence(&self, run: RunId, file: &str) -> Result<Reply, Problem> {
        let (_, state, _) = self.host.look(run)?;
        if !state.evidence.iter().any(|(_, evidence)| *evidence.file == *file) {
            let text = format!("run {run} has kept no evidence `{file}`");
            return Err(Problem::usage(Failure::permanent(codes::NO_EVIDENCE, text)));
        }
        let bytes = self.store.blob(file).map_err(Error::from)?;
        let document = serde_json::from_slice(&bytes).map_err(|error| {
            Error::Store(store::Error::Blob { digest: file.into(), what: format!("is no JSON: {error}") })
        })?;
        Ok(Reply::Evidence { document })
    }

    fn show(&self, run: RunId, events: bool) -> Result<Reply, Problem> {
        let (_, mut view, _) = self.look(run)?;
        if events {
            let records = match self.store.read(run) {
                Err(store::Error::Damaged { good, .. }) => good,
                records => records.map_err(Error::from)?,
            };
            view["events"] = records.iter().map(view::event).collect();
        }
        Ok(Reply::Run { view })
    }

    fn runs(&self, filter: &Filter, mut before: Option<RunId>, limit: usize) -> Result<Reply, Problem> {
        let limit = limit.clamp(1, PAGE_MAX);
        let all_paused = self.host.all_paused();
        let mut found = vec![];
        loop {
            let lines = self.store.runs(before, SCAN).map_err(Error::from)?;
            let last = lines.len() < SCAN;
            for line in lines {
                before = Some(line.run);
                if matches(filter, &line) {
                    found.push(line);
                }
                if found.len() == limit {
                    return Ok(Reply::Runs { runs: found, next: before, all_paused });
                }
            }
            if last {
                return Ok(Reply::Runs { runs: found, next: None, all_paused });
            }
        }
    }

    fn debts(&self) -> Result<Reply, Problem> {
        let mut rows = vec![];
        let mut before = None;
        loop {
            let lines = self.store.runs(before, SCAN).map_err(Error::from)?;
            for line in lines.iter().filter(|line| line.debts > 0) {
                let row = |debt: Value| json!({ "run": line.run, "workflow": line.workflow, "debt": debt });
                match self.host.load(line.run) {
                    Ok((_, state)) => rows.extend(state.debts.iter().map(|debt| row(json!(debt)))),
                    // One bad run hides nothing of the others.
                    Err(error) => rows.push(row(json!({ "what": { "en": error.to_string() } }))),
                }
            }
            match lines.last().filter(|_| lines.len() == SCAN) {
                Some(last) => before = Some(last.run),
                None => return Ok(Reply::Rows { rows }),
            }
        }
    }
}

fn matches(filter: &Filter, line: &Summary) -> bool {
    filter.workflow.as_ref().is_none_or(|name| name == line.workflow.as_str())
        && filter.state.as_ref().is_none_or(|state| state.eq_ignore_ascii_case(line.status.word()))
        && (!filter.needs_me || line.status == RunStatus::Held)
        && (!filter.open || !line.status.is_terminal())
}

/// The runs that it has called and that wait for a person.
fn children_of(state: &RunState) -> Vec<RunId> {
    state.held_children().map(|(_, child)| child.run).collect()
}

/// A verb in the engine's words.
fn command(verb: Verb, by: Actor) -> Result<Command, Problem> {
    Ok(match verb {
        Verb::Cancel { reason } => Command::Cancel { by, reason },
        Verb::Terminate { reason } => Command::Terminate { by, reason },
        Verb::Pause => Command::Pause { by },
        Verb::Unpause => Command::Unpause { by },
        Verb::Answer { step, choice, reason } => {
            let unit = step.as_deref().map(unit_name::parse).transpose().map_err(Problem::usage)?;
            Command::Answer { unit, choice, by, reason }
        }
        Verb::Note { text } => Command::Note { by, text },
        Verb::BreakLock { key, reason } => Command::BreakLock { key, by, reason },
        Verb::CloseDebt { id, reason } => Command::CloseDebt { id, by: Some(by), reason },
    })
}

impl Problem {
    /// The request makes no sense.
    pub fn usage(failure: Failure) -> Self {
        Self { kind: ProblemKind::Usage, failure }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let (kind, failure) = match error {
            Error::Rejected(_) => (ProblemKind::Refused, Failure::permanent(codes::REJECTED, text)),
            Error::Refused(failure) => (ProblemKind::Refused, failure),
            Error::Definition(failure) => (ProblemKind::Unusable, failure),
            Error::UnknownRun(_) => (ProblemKind::Usage, Failure::permanent(codes::UNKNOWN_RUN, text)),
            Error::Cluster(failure) => (ProblemKind::Unusable, failure),
            Error::Store(store::Error::Damaged { .. }) => {
                (ProblemKind::Unusable, Failure::permanent(LOST_RECORD, text))
            }
            Error::Store(_) => (ProblemKind::Unusable, Failure::permanent(codes::STORE, text)),
            Error::WrongCluster { .. } => {
                (ProblemKind::Unusable, Failure::permanent(codes::WRONG_CLUSTER, text))
            }
        };
        Self { kind, failure }
    }
}

//! One run of a workflow on a cluster of its own, from its start to its end, through failures and deaths.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use windrow::definition::Library;
use windrow::definition::model::Commit;
use windrow::definition::model::Rehearsal;
use windrow::engine::Command;
use windrow::engine::ask::AskReason;
use windrow::engine::ask::Choice;
use windrow::engine::event::Actor;
use windrow::engine::event::Trigger;
use windrow::engine::state::RunStatus;
use windrow::id::WorkflowName;
use windrow::plan;
use windrow::plan::Plan;
use windrow::runner::Start;
use windrow::sim::equal::differences_except;

use super::process::Death;
use super::process::Process;
use super::spot::Sabotage;
use super::spot::Spot;
use super::world::Log;
use super::world::World;

/// How long a run may take by its own clock.
const LIMIT: Duration = Duration::from_hours(12);
/// How long what a run has set going may take to end.
const SETTLE: Duration = Duration::from_mins(1);
/// Annotations that tell who wrote last, and mean nothing when a write is undone.
const MARKS: &[&str] = &["windrow.io/"];

/// Every shipped workflow.
pub(crate) static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("workflows");
    Library::load_only(&[folder])
});

/// A rehearsal with what goes wrong in it.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) workflow: WorkflowName,
    pub(crate) case: Rehearsal,
    pub(crate) sabotages: Vec<Sabotage>,
    pub(crate) plan: Arc<Plan>,
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.workflow, self.case.name)?;
        self.sabotages.iter().try_for_each(|sabotage| write!(f, ", {sabotage}"))
    }
}

/// How a scene ended.
pub(crate) struct Ending {
    pub(crate) status: RunStatus,
    pub(super) log: Log,
    /// What the run says that it left.
    pub(super) left: Vec<String>,
    /// How many debts it has made.
    pub(super) debts: usize,
    /// What differs from before (R5).
    pub(super) differences: Vec<String>,
    pub(super) objects: Vec<Value>,
    pub(super) writes: BTreeMap<String, usize>,
    /// The journal of the root, for whoever has to find out.
    pub(super) story: String,
}

impl Scene {
    pub(crate) fn new(workflow: &WorkflowName, case: &Rehearsal) -> Self {
        let plan = plan::from_library(&LIBRARY, workflow).unwrap();
        Self { workflow: workflow.clone(), case: case.clone(), sabotages: vec![], plan }
    }

    /// The same with one more thing that goes wrong.
    pub(super) fn with(&self, sabotage: Sabotage) -> Self {
        let mut document = self.plan.normalised().as_ref().clone();
        sabotage.plant(&self.plan, &mut document);
        let plan = plan::from_normalised(&document).unwrap_or_else(|found| panic!("{sabotage}: {found:?}"));
        let sabotages = self.sabotages.iter().cloned().chain([sabotage]).collect();
        Self { sabotages, plan, ..self.clone() }
    }

    /// The plan and those of the children that its steps call. What an undo entry calls commits to nothing.
    fn forward_plans(&self) -> Vec<&Plan> {
        let mut plans = vec![&*self.plan];
        let mut next = 0;
        while let Some(plan) = plans.get(next).copied() {
            let called = plan.workflow.steps.iter().filter_map(|step| step.action.child());
            let called: Vec<&Plan> =
                called.filter_map(|name| self.plan.children.get(&name)).map(|plan| &**plan).collect();
            plans.extend(called);
            next += 1;
        }
        plans
    }

    /// True if a commit point was reached: from there on nothing is undone (E6).
    pub(super) fn is_committed(&self, log: &Log) -> bool {
        self.forward_plans()
            .into_iter()
            .flat_map(|plan| plan.workflow.steps.iter().map(move |step| (&plan.workflow.name, step)))
            .any(|(workflow, step)| {
                let is_it = |spot: &Spot| {
                    !spot.is_undo() && spot.workflow == *workflow && spot.block.step == step.name
                };
                match step.commit {
                    None => false,
                    Some(Commit::OnStart) => log.attempted.iter().any(is_it),
                    Some(Commit::OnSuccess) => log.succeeded.iter().any(is_it),
                }
            })
    }

    /// Plays it on a paused clock. A process that dies is followed by one that lives; a run that is held because an
    /// undo was sabotaged is told to try again, now in peace.
    pub(super) fn play(&self, death: Option<Death>) -> Ending {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(self.act(death))
    }

    async fn act(&self, death: Option<Death>) -> Ending {
        let refusal = |sabotage: &Sabotage| Some((sabotage.spot.clone(), sabotage.refusal(&self.plan)?));
        let world =
            Arc::new(World::new(&self.case, self.sabotages.iter().filter_map(refusal).collect()).await);
        let before = world.objects();
        let process = self.run(&world, death).await;
        world.clock.sleep(SETTLE).await;
        world.cluster.settled().await;
        let (_, state) = process.host.load(world.root).unwrap();
        let objects = world.objects();
        Ending {
            status: state.status(),
            log: world.log().clone(),
            left: state.finished.iter().flat_map(|(_, finished)| finished.left.clone()).collect(),
            debts: state.debts.len(),
            differences: differences_except(&before, &objects, MARKS),
            objects,
            writes: world.writes(),
            story: world.story(),
        }
    }

    /// The last process that works on the run.
    async fn run(&self, world: &Arc<World>, death: Option<Death>) -> Process {
        let mut process = Process::start(world, LIBRARY.knowledge(), death);
        // It may die before it can answer.
        let (host, start) = (process.host.clone(), self.start(world));
        drop(tokio::spawn(async move { host.start(start).await.unwrap() }));
        let mut undo_fails = self.sabotages.iter().any(|sabotage| sabotage.spot.is_undo());
        loop {
            let held = self.rest(&process, world).await;
            if process.is_dead() {
                process = Process::start(world, LIBRARY.knowledge(), None);
                process.host.adopt_all().unwrap();
                continue;
            }
            let Some(run) = held else { break };
            let (_, state) = process.host.load(run).unwrap();
            let choice = match state.asks[0].reason {
                AskReason::FailedUndo if undo_fails => {
                    world.end_sabotage().await;
                    undo_fails = false;
                    Choice::Retry
                }
                // Whoever died cannot prove that it was it (E3); this person knows.
                AskReason::Unattributed => Choice::Rollback,
                AskReason::Approval(_) if self.case.approve => Choice::Approve,
                _ => break,
            };
            let answer = Command::Answer { unit: None, choice, by: person(), reason: None };
            tokio::select! {
                answered = process.host.command(run, answer) => answered.unwrap(),
                () = process.death() => {}
            }
        }
        assert!(!undo_fails, "{self}: the undo did not fail\n{}", world.story());
        process
    }

    async fn rest(&self, process: &Process, world: &World) -> Option<windrow::id::RunId> {
        let rest = tokio::time::timeout(LIMIT, process.rest()).await;
        rest.unwrap_or_else(|_| panic!("{self} does not end\n{}", world.story()))
    }

    fn start(&self, world: &World) -> Start {
        let given = self.case.inputs.clone().into_iter().collect();
        Start {
            plan: self.plan.clone(),
            inputs: self.plan.workflow.complete_inputs(&Value::Object(given)).unwrap(),
            trigger: Trigger::Manual,
            by: actor(),
            key: None,
            inherited: None,
            id: Some(world.root),
        }
    }
}

impl Ending {
    /// In what it is not the same end.
    pub(super) fn differs_from(&self, other: &Self) -> Vec<String> {
        let mut differences = differences_except(&other.objects, &self.objects, MARKS);
        if self.status != other.status {
            differences.push(format!("the run is {}, not {}", self.status.word(), other.status.word()));
        }
        differences
    }
}

/// Who answers: approvals are not given by whoever started the run.
fn person() -> Actor {
    Actor { name: "person".into() }
}

fn actor() -> Actor {
    Actor { name: "harness".into() }
}

/// As many jobs at once as there are processors.
pub(crate) fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Does all jobs, so many at once; the results in the order of the jobs.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    workers: usize,
    jobs: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let (next, results) = (Mutex::new(jobs.iter().enumerate()), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let Some((number, job)) = next.lock().unwrap().next() else { return };
                    let result = work(job);
                    results.lock().unwrap().insert(number, result);
                }
            });
        }
    });
    results.into_inner().unwrap().into_values().collect()
}

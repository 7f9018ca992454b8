//! What outlives a process: the cluster, the journal, and what the journal has seen.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::sync::watch;
use windrow::definition::model::Rehearsal;
use windrow::engine::Event;
use windrow::engine::state::RunStatus;
use windrow::engine::unit::UnitId;
use windrow::id::RunId;
use windrow::id::WorkflowName;
use windrow::journal::MemoryStore;
use windrow::journal::Store;
use windrow::journal::store::Append;
use windrow::journal::store::Recorded;
use windrow::sim;
use windrow::sim::equal::without_uids;
use windrow::time::SharedClock;
use windrow::time::SystemClock;
use windrow::time::Timestamp;

use super::spot::Refusal;
use super::spot::Spot;
use super::spot::TRAP;
use super::spot::TRAP_PATH;

/// A cluster, a journal, and the sabotage of both.
pub(super) struct World {
    pub(super) cluster: sim::Cluster,
    pub(super) store: Arc<MemoryStore>,
    pub(super) clock: SharedClock,
    pub(super) root: RunId,
    refusals: Vec<(Spot, Refusal)>,
    sabotaged: AtomicBool,
    log: Mutex<Log>,
    /// Rings at each change of the log.
    pub(super) news: watch::Sender<()>,
}

/// What the journal of all runs has seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    pub(super) events: usize,
    /// How many events there were after each append, and who was about to act then.
    pub(super) appends: BTreeMap<usize, Option<Spot>>,
    /// Those that acted.
    pub(super) attempted: BTreeSet<Spot>,
    pub(super) succeeded: BTreeSet<Spot>,
    pub(super) failed: BTreeSet<Spot>,
    pub(super) statuses: BTreeMap<RunId, RunStatus>,
    in_flight: BTreeMap<(RunId, UnitId), Spot>,
    workflows: BTreeMap<RunId, WorkflowName>,
}

impl World {
    /// The cluster of a rehearsal, come to rest.
    pub(super) async fn new(case: &Rehearsal, refusals: Vec<(Spot, Refusal)>) -> Self {
        let start = Timestamp::from_millis(1_800_000_000_000);
        let clock: SharedClock = Arc::new(SystemClock::starting_at(start, 1.0));
        let known = sim::list_faults();
        let fault = |name: &String| *known.iter().find(|fault| fault.name == name).unwrap();
        let options = sim::Options {
            seed: 1,
            faults: case.faults.iter().map(fault).collect(),
            already: case.already.iter().map(fault).collect(),
            fixtures: case.fixture.iter().cloned().chain([TRAP.to_owned()]).collect(),
            ..sim::Options::default()
        };
        let cluster = sim::Cluster::start(options, clock.clone()).unwrap();
        cluster.settled().await;
        Self {
            cluster,
            store: Arc::new(MemoryStore::new()),
            clock,
            // The same in every play: delays are drawn from it.
            root: RunId::new(1_800_000_000_000, 1),
            refusals,
            sabotaged: AtomicBool::new(true),
            log: Mutex::default(),
            news: watch::Sender::new(()),
        }
    }

    pub(super) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap()
    }

    /// Every object but the trap.
    pub(super) fn objects(&self) -> Vec<Value> {
        let all = self.cluster.objects().into_iter().map(|(_, object)| Arc::unwrap_or_clone(object));
        all.filter(|object| object["metadata"]["name"] != "trap").collect()
    }

    /// How often each object was written by windrow, by each of its steps.
    pub(super) fn writes(&self) -> BTreeMap<String, usize> {
        let mut writes = BTreeMap::new();
        for entry in self.cluster.audit().into_iter().filter(|entry| entry.manager.starts_with("windrow-")) {
            let name = without_uids(&entry.name);
            let what =
                [entry.verb, &entry.resource, &name, &entry.subresource, "by", &entry.manager].join(" ");
            *writes.entry(what).or_default() += 1;
        }
        writes
    }

    /// The journals of all runs, a line for each event.
    pub(super) fn story(&self) -> String {
        let runs = self.store.runs(None, 100).unwrap();
        let mut records: Vec<_> = runs.iter().flat_map(|line| self.store.read(line.run).unwrap()).collect();
        records.sort_by_key(|record| record.at);
        let line = |record: &Recorded| format!("    {} {:.300}\n", record.at, format!("{:?}", record.event));
        records.iter().map(line).collect()
    }

    /// From now on nothing fails any more.
    pub(super) async fn end_sabotage(&self) {
        self.sabotaged.store(false, Ordering::Release);
        let request = http::Request::delete(TRAP_PATH).body(String::new()).unwrap();
        let response = tower::ServiceExt::oneshot(self.cluster.service(), request).await.unwrap();
        assert!(response.status().is_success(), "the trap cannot be removed: {response:?}");
    }

    /// True if the API refuses a request of whoever acts now.
    pub(super) fn refuses<B>(&self, request: &http::Request<B>) -> bool {
        let log = self.log();
        let acts = |spot: &Spot| log.in_flight.values().any(|acting| acting == spot);
        self.sabotaged.load(Ordering::Acquire)
            && self.refusals.iter().any(|(spot, refusal)| acts(spot) && refusal.concerns(request))
    }

    /// What acted in a process that is gone acts no more.
    pub(super) fn new_process(&self) {
        self.log().in_flight.clear();
    }

    /// Reads along what has become durable.
    pub(super) fn note(&self, append: &Append) {
        let mut log = self.log();
        for event in &append.events {
            log.note(append.run, event);
        }
        let acts = append.events.iter().find_map(|event| match event {
            Event::AttemptStarted { unit, .. } => Some(Spot::new(&log.workflows[&append.run], &unit.block)),
            _ => None,
        });
        let events = log.events;
        log.appends.insert(events, acts);
        if let Some(summary) = &append.summary {
            log.statuses.insert(append.run, summary.status);
        }
        drop(log);
        self.news.send_replace(());
    }
}

impl Log {
    fn note(&mut self, run: RunId, event: &Event) {
        self.events += 1;
        if let Event::Created(created) = event {
            self.workflows.insert(run, created.workflow.clone());
        }
        let workflow = self.workflows[&run].clone();
        let spot = |unit: &UnitId| Spot::new(&workflow, &unit.block);
        match event {
            Event::AttemptStarted { unit, .. } => {
                self.attempted.insert(spot(unit));
                self.in_flight.insert((run, unit.clone()), spot(unit));
            }
            Event::AttemptFinished { unit, .. } => drop(self.in_flight.remove(&(run, unit.clone()))),
            Event::Succeeded { unit, .. } => drop(self.succeeded.insert(spot(unit))),
            Event::Failed { unit, .. } => drop(self.failed.insert(spot(unit))),
            _ => {}
        }
    }
}

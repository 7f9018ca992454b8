//! Deadlines over the downtime of the agent, over a wall clock that was set back, and over an API that is away (E7).

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::Patch;
use kube::api::PatchParams;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use tower::ServiceExt;
use windrow::action::Executor;
use windrow::action::k8s::client::Cluster;
use windrow::action::secret::Secrets;
use windrow::definition::Library;
use windrow::engine::ask::Choice;
use windrow::engine::event::Actor;
use windrow::id::RunId;
use windrow::journal::Store;
use windrow::journal::memory::MemoryStore;
use windrow::runner::Host;
use windrow::runner::host::Parts;
use windrow::service::Handle;
use windrow::service::operation::Operation;
use windrow::service::operation::Reply;
use windrow::service::operation::Verb;
use windrow::sim;
use windrow::time::SharedClock;
use windrow::time::SystemClock;
use windrow::time::Timestamp;

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const MINUTE: Duration = Duration::from_mins(1);
/// The wait below ends this long after the start.
const DEADLINE: Duration = Duration::from_mins(10);
/// What a run that is due may take by its own clock: some reads and their beat.
const SOON: Duration = Duration::from_mins(2);

const SIGNAL: &str = "
apiVersion: v1
kind: ConfigMap
metadata: { name: signal, namespace: default }
";

const WAITS: &str = r#"
schema = 1
name = "waits"
title = "Wait for a signal"
title_zh = "等待信号"
[steps.signal]
title = "Wait for the label"
title_zh = "等待标签"
uses = "k8s.wait"
target = { api = "v1", kind = "ConfigMap", namespace = "default", name = "signal" }
until = 'object.metadata.?labels.?done.orValue("") == "yes"'
timeout = "10m"
"#;

/// A cluster that outlives the processes which use it, and a store that does too.
struct World {
    cluster: sim::Cluster,
    store: Arc<MemoryStore>,
    /// The API does not answer Windrow.
    away: Arc<AtomicBool>,
}

/// What a process has of Windrow.
struct Process {
    host: Host,
    handle: Handle,
    clock: SharedClock,
}

impl World {
    async fn new() -> Self {
        let options = sim::Options { fixtures: vec![SIGNAL.to_owned()], empty: true, ..Default::default() };
        let clock = Arc::new(SystemClock::starting_at(START, 1.0));
        let cluster = sim::Cluster::start(options, clock).unwrap();
        cluster.settled().await;
        Self { cluster, store: Arc::new(MemoryStore::new()), away: Arc::default() }
    }

    /// A process whose wall clock says `wall` when it starts.
    fn process(&self, wall: Timestamp) -> Process {
        let store: Arc<dyn Store> = self.store.clone();
        let clock: SharedClock = Arc::new(windrow::agent::clock(wall, store.as_ref()).unwrap());
        let library = Library::from_texts([("waits.toml", WAITS)]);
        assert!(library.diagnostics().is_empty(), "{:?}", library.diagnostics());
        let library = Arc::new(library);
        let (inner, away) = (self.cluster.service(), self.away.clone());
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (inner, away) = (inner.clone(), away.load(Ordering::SeqCst));
            async move {
                if away {
                    let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
                    return Err(tower::BoxError::from(refused));
                }
                inner.oneshot(request).await.map_err(tower::BoxError::from)
            }
        });
        let api = Cluster::of_client(kube::Client::new(service, "default"), clock.clone());
        let parts = Parts {
            store: store.clone(),
            executor: Arc::new(Executor::new(Secrets::new(None)).with_cluster(api)),
            clock: clock.clone(),
            knowledge: library.knowledge(),
        };
        let host = Host::open(parts).unwrap();
        host.adopt_all().unwrap();
        Process { handle: Handle::new(host.clone(), store, library), host, clock }
    }

    async fn give_the_signal(&self) {
        let api: Api<ConfigMap> =
            Api::default_namespaced(kube::Client::new(self.cluster.service(), "default"));
        let label = json!({ "metadata": { "labels": { "done": "yes" } } });
        api.patch("signal", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    }
}

impl Process {
    async fn call(&self, operation: Operation) -> Reply {
        self.handle.call(operation, Actor { name: "tester".into() }).await.unwrap()
    }

    async fn start(&self) -> RunId {
        let start = Operation::Start { workflow: "waits".to_owned(), inputs: Map::new(), key: None };
        let Reply::Started { run } = self.call(start).await else { panic!("not started") };
        self.reach(run, "Waiting").await;
        run
    }

    /// The run's view when it has come to that state.
    async fn reach(&self, run: RunId, state: &str) -> Value {
        let mut changes = self.handle.watch(run).unwrap();
        let mut view = Value::Null;
        let reached = async {
            while view["state"] != state {
                view = changes.recv().await.unwrap().view;
            }
        };
        assert!(tokio::time::timeout(4 * DEADLINE, reached).await.is_ok(), "not {state}: {view:#}");
        view
    }

    async fn end(self) {
        self.host.park_all().await;
    }
}

fn finished_at(view: &Value) -> Timestamp {
    view["finished_at"].as_str().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_passed_while_nobody_looked_is_decided_by_one_look() {
    for (signalled, state) in [(true, "Succeeded"), (false, "Failed")] {
        let world = World::new().await;
        let before = world.process(START);
        let run = before.start().await;
        before.end().await;
        if signalled {
            world.give_the_signal().await;
        }
        let back = START + Duration::from_hours(2);
        let view = world.process(back).reach(run, state).await;
        assert!(finished_at(&view) < back + SOON, "{view:#}");
        let code = view["failure"]["code"].as_str();
        assert_eq!(code, if signalled { None } else { Some("wait-timeout") });
    }
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_was_set_back_moves_no_deadline() {
    let world = World::new().await;
    let before = world.process(START);
    let run = before.start().await;
    before.clock.sleep(9 * MINUTE).await;
    before.end().await;
    let after = world.process(START + 9 * MINUTE - Duration::from_hours(2));
    let asked = after.clock.now();
    let view = after.reach(run, "Failed").await;
    assert_eq!(view["failure"]["code"], "wait-timeout");
    assert!(finished_at(&view) >= START + DEADLINE, "{view:#}");
    // The store's last record is the latest moment that is known to have passed.
    assert!(after.clock.now().since(asked) < DEADLINE + SOON, "{view:#}");
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_was_set_forward_makes_a_deadline_due_and_one_look_decides() {
    for (signalled, state) in [(true, "Succeeded"), (false, "Failed")] {
        let world = World::new().await;
        let before = world.process(START);
        let run = before.start().await;
        before.clock.sleep(MINUTE).await;
        before.end().await;
        if signalled {
            world.give_the_signal().await;
        }
        let jumped = START + MINUTE + Duration::from_hours(2);
        let after = world.process(jumped);
        let view = after.reach(run, state).await;
        assert!((jumped..jumped + SOON).contains(&finished_at(&view)), "{view:#}");
        after.end().await;
        // Set right again, it does not take back what is recorded: nothing happens before what it follows.
        let put_right = world.process(START + 2 * MINUTE);
        assert!(put_right.clock.now() >= finished_at(&view), "{view:#}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_that_is_away_at_the_deadline_is_a_question_and_no_failure() {
    let world = World::new().await;
    let process = world.process(START);
    let run = process.start().await;
    world.away.store(true, Ordering::SeqCst);
    let view = process.reach(run, "Held").await;
    assert!(process.clock.now() >= START + DEADLINE, "{view:#}");
    assert_eq!(view["asks"][0]["reason"], "unobserved", "{view:#}");
    world.away.store(false, Ordering::SeqCst);
    world.give_the_signal().await;
    let verb = Verb::Answer { step: None, choice: Choice::Wait(MINUTE), reason: None };
    process.call(Operation::Command { run, verb }).await;
    process.reach(run, "Succeeded").await;
}

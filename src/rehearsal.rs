//! A workflow's own tests (L15): a run on the rehearsal cluster, and whether it came out as the workflow says.

use std::sync::Arc;

use serde_json::Value;

use crate::action::Executor;
use crate::action::k8s::client::Cluster as Api;
use crate::action::secret::Secrets;
use crate::definition::Library;
use crate::definition::model::Expectation;
use crate::definition::model::Rehearsal;
use crate::engine::event::Actor;
use crate::failure::Failure;
use crate::id::RunId;
use crate::journal::Store;
use crate::runner::Host;
use crate::runner::host::Parts;
use crate::service::Handle;
use crate::service::operation::Operation;
use crate::service::operation::Problem;
use crate::service::operation::Reply;
use crate::sim;
use crate::time::SharedClock;

/// A cluster with a service that talks to it and to nothing else.
pub struct Stage {
    /// The cluster.
    pub cluster: sim::Cluster,
    /// The service.
    pub handle: Handle,
    before: Vec<Value>,
}

/// The signature of a write tells who wrote last. It stays when the write is undone, and means nothing then.
const MARK: &str = "annotations.windrow.io/last-write";

/// Where a rehearsal came out.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Judgement {
    /// What differs from the expectation, one sentence each; empty if nothing does.
    pub mismatches: Vec<String>,
    /// The objects that differ from before the run (R5).
    pub left: Vec<String>,
}

impl Stage {
    /// Sets up the cluster of `case` and a service on `store`.
    ///
    /// # Errors
    /// An unknown fault, a fixture that the cluster refuses, a store that cannot be read.
    pub async fn set(
        case: &Rehearsal,
        library: Arc<Library>,
        store: Arc<dyn Store>,
        secrets: Secrets,
        clock: SharedClock,
        seed: u64,
    ) -> Result<Self, Failure> {
        let known = sim::list_faults();
        let fault = |name: &String| {
            let found = known.iter().find(|fault| fault.name == name).copied();
            found.ok_or_else(|| Failure::permanent("unknown-fault", format!("there is no fault `{name}`")))
        };
        let options = sim::Options {
            seed,
            faults: case.faults.iter().map(fault).collect::<Result<_, _>>()?,
            fixtures: case.fixture.iter().cloned().collect(),
            ..sim::Options::default()
        };
        let refused =
            |error: &dyn std::error::Error| Failure::permanent("rehearsal-setup", error.to_string());
        let cluster = sim::Cluster::start(options, clock.clone()).map_err(|error| refused(&error))?;
        cluster.settled().await;
        let before = objects(&cluster);
        let client = kube::Client::new(cluster.service(), "default");
        let executor = Executor::new(secrets).with_cluster(Api::of_client(client, clock.clone()));
        let parts = Parts {
            store: store.clone(),
            executor: Arc::new(executor),
            clock,
            knowledge: library.knowledge(),
        };
        let host = Host::open(parts).map_err(|error| refused(&error))?;
        Ok(Self { cluster, handle: Handle::new(host, store, library), before })
    }

    /// Starts the run of `case`.
    ///
    /// # Errors
    /// If the service refuses it.
    pub async fn start(&self, workflow: &str, case: &Rehearsal) -> Result<RunId, Problem> {
        let inputs = case.inputs.clone().into_iter().collect();
        let start = Operation::Start { workflow: workflow.to_owned(), inputs, key: None };
        match self.handle.call(start, Actor { name: "rehearsal".into() }).await? {
            Reply::Started { run } => Ok(run),
            other => {
                Err(Problem::usage(Failure::permanent("rehearsal-setup", format!("unexpected {other:?}"))))
            }
        }
    }

    /// Compares a run that is over, or that waits for a person, with what was expected.
    pub async fn judge(&self, view: &Value, expect: &Expectation) -> Judgement {
        self.cluster.settled().await;
        let mut left = sim::equal::differences(&self.before, &objects(&self.cluster));
        left.retain(|line| !line.contains(MARK));
        let mut mismatches = vec![];
        let severity = expect.severity.map(|severity| serde_json::to_value(severity).unwrap_or_default());
        let pairs = [
            ("state", expect.state.clone().map(Value::from), "/state"),
            ("verdict", expect.verdict.clone().map(Value::from), "/verdict/name"),
            ("code", expect.code.clone().map(Value::from), "/failure/code"),
            ("severity", severity, "/verdict/severity"),
        ];
        for (what, expected, pointer) in pairs {
            let found = view.pointer(pointer).unwrap_or(&Value::Null);
            if let Some(expected) = expected.filter(|expected| expected != found) {
                mismatches.push(format!("{what} is {found}, expected {expected}"));
            }
        }
        if let Some(expected) = &expect.left {
            let found =
                left.iter().filter(|line| !expected.iter().any(|object| line.starts_with(object.as_str())));
            mismatches.extend(found.map(|line| format!("left behind: {line}")));
            let missing =
                expected.iter().filter(|object| !left.iter().any(|line| line.starts_with(object.as_str())));
            mismatches.extend(missing.map(|object| format!("{object} was expected to differ, it does not")));
        }
        Judgement { mismatches, left }
    }
}

fn objects(cluster: &sim::Cluster) -> Vec<Value> {
    cluster.objects().into_iter().map(|(_, object)| Arc::unwrap_or_clone(object)).collect()
}

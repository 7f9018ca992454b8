//! A workflow's own tests (L15): a run on the rehearsal cluster, and whether it came out as the workflow says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::action::Executor;
use crate::action::k8s::client::Cluster as Api;
use crate::action::secret::Secrets;
use crate::definition::Library;
use crate::definition::model::Expectation;
use crate::definition::model::Rehearsal;
use crate::engine::ask::Choice;
use crate::engine::event::Actor;
use crate::failure::Failure;
use crate::id::RunId;
use crate::journal::Store;
use crate::runner::Host;
use crate::runner::host::Parts;
use crate::service::Handle;
use crate::service::codes;
use crate::service::operation::Operation;
use crate::service::operation::Problem;
use crate::service::operation::Reply;
use crate::service::operation::Verb;
use crate::sim;
use crate::time::SharedClock;

/// A cluster with a service that talks to it and to nothing else.
pub struct Stage {
    /// The cluster.
    pub cluster: sim::Cluster,
    /// The service.
    pub handle: Handle,
    clock: SharedClock,
    before: Vec<Value>,
}

/// How annotations begin that tell who wrote last. They stay when a write is undone, and mean nothing then.
const MARKS: &str = "windrow.io/";
/// Who gives approvals: another one than who starts the run (E12).
const APPROVER: &str = "approver";
/// How long the cluster gets after a run, so that what the run set going has ended: a start, a shutdown.
const SETTLE: Duration = Duration::from_mins(1);

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
            found.ok_or_else(|| {
                Failure::permanent(codes::UNKNOWN_FAULT, format!("there is no fault `{name}`"))
            })
        };
        let options = sim::Options {
            seed,
            faults: case.faults.iter().map(fault).collect::<Result<_, _>>()?,
            already: case.already.iter().map(fault).collect::<Result<_, _>>()?,
            fixtures: case.fixture.iter().cloned().collect(),
            ..sim::Options::default()
        };
        let refused =
            |error: &dyn std::error::Error| Failure::permanent(codes::REHEARSAL_SETUP, error.to_string());
        let cluster = sim::Cluster::start(options, clock.clone()).map_err(|error| refused(&error))?;
        cluster.settled().await;
        let before = objects(&cluster);
        let client = kube::Client::new(cluster.service(), "default");
        let handle = serve(client, library, store, secrets, clock.clone())?;
        Ok(Self { cluster, handle, clock, before })
    }

    /// As [`start`].
    ///
    /// # Errors
    /// If the service refuses it.
    pub async fn start(&self, workflow: &str, case: &Rehearsal) -> Result<RunId, Problem> {
        start(&self.handle, workflow, case).await
    }

    /// As [`attend`].
    ///
    /// # Errors
    /// If the service does not know the run, or refuses an answer.
    pub async fn attend(
        &self,
        run: RunId,
        case: &Rehearsal,
        show: impl FnMut(&Value),
    ) -> Result<Value, Problem> {
        attend(&self.handle, run, case, show).await
    }

    /// Compares a run that is over, or that waits for a person, with what was expected. What the run has set going in
    /// the cluster gets time to end first.
    pub async fn judge(&self, view: &Value, expect: &Expectation) -> Judgement {
        self.clock.sleep(SETTLE).await;
        self.cluster.settled().await;
        let left = sim::equal::differences_except(&self.before, &objects(&self.cluster), &[MARKS]);
        let mut mismatches = mismatches(view, expect);
        if let Some(expected) = &expect.left {
            let unexpected = left.iter().filter(|line| !expected.contains(&object_of(line)));
            mismatches.extend(unexpected.map(|line| format!("left behind: {line}")));
            let missing =
                expected.iter().filter(|object| !left.iter().any(|line| object_of(line) == **object));
            mismatches.extend(missing.map(|object| format!("{object} was expected to differ, it does not")));
        }
        Judgement { mismatches, left }
    }
}

/// A service on `store` that talks to the cluster behind `client` and to nothing else.
///
/// # Errors
/// A store that cannot be read.
pub fn serve(
    client: kube::Client,
    library: Arc<Library>,
    store: Arc<dyn Store>,
    secrets: Secrets,
    clock: SharedClock,
) -> Result<Handle, Failure> {
    let executor = Executor::new(secrets).with_cluster(Api::of_client(client, clock.clone()));
    let parts =
        Parts { store: store.clone(), executor: Arc::new(executor), clock, knowledge: library.knowledge() };
    let host =
        Host::open(parts).map_err(|error| Failure::permanent(codes::REHEARSAL_SETUP, error.to_string()))?;
    Ok(Handle::new(host, store, library))
}

/// Starts the run of `case`.
///
/// # Errors
/// If the service refuses it.
pub async fn start(handle: &Handle, workflow: &str, case: &Rehearsal) -> Result<RunId, Problem> {
    let inputs = case.inputs.clone().into_iter().collect();
    let start = Operation::Start { workflow: workflow.to_owned(), inputs, key: None };
    match handle.call(start, Actor { name: "rehearsal".into() }).await? {
        Reply::Started { run } => Ok(run),
        other => {
            Err(Problem::usage(Failure::permanent(codes::REHEARSAL_SETUP, format!("unexpected {other:?}"))))
        }
    }
}

/// Looks on until the run is over, or waits for a person whose part the case does not play: how it is then. `show`
/// gets every change.
///
/// # Errors
/// If the service does not know the run, or refuses an answer.
pub async fn attend(
    handle: &Handle,
    run: RunId,
    case: &Rehearsal,
    mut show: impl FnMut(&Value),
) -> Result<Value, Problem> {
    let mut changes = handle.watch(run)?;
    let mut answered = BTreeSet::new();
    let mut last = Value::Null;
    while let Some(change) = changes.recv().await {
        show(&change.view);
        last = change.view;
        if last["state"] != "Held" {
            continue;
        }
        let ask = &last["asks"][0];
        if !case.approve || ask.pointer("/reason/approval").is_none() {
            break;
        }
        if answered.insert(ask["id"].to_string()) {
            let verb = Verb::Answer { step: None, choice: Choice::Approve, reason: None };
            handle.call(Operation::Command { run, verb }, Actor { name: APPROVER.into() }).await?;
        }
    }
    Ok(last)
}

/// Where a run came out differently from what was expected of it, one sentence each; what is left in the cluster is not
/// looked at.
pub fn mismatches(view: &Value, expect: &Expectation) -> Vec<String> {
    let severity = expect.severity.map(|severity| serde_json::to_value(severity).unwrap_or_default());
    let pairs = [
        ("state", expect.state.clone().map(Value::from), found(view, "/state")),
        ("verdict", expect.verdict.clone().map(Value::from), found(view, "/verdict/name")),
        ("code", expect.code.clone().map(Value::from), found(view, "/failure/code")),
        ("severity", severity, found(view, "/verdict/severity")),
    ];
    let wrong = pairs.into_iter().filter_map(|(what, expected, found)| {
        expected
            .filter(|expected| *expected != found)
            .map(|expected| format!("{what} is {found}, expected {expected}"))
    });
    wrong.collect()
}

fn found(view: &Value, pointer: &str) -> Value {
    view.pointer(pointer).cloned().unwrap_or_default()
}

/// The object that a line of differences is about, as a rehearsal names it: `Kind namespace/name`, without the group.
fn object_of(line: &str) -> String {
    let mut words = line.split(' ');
    let kind = words.next().and_then(|kind| kind.split('.').next()).unwrap_or_default();
    let name = words.next().unwrap_or_default().trim_end_matches(':');
    format!("{kind} {name}")
}

fn objects(cluster: &sim::Cluster) -> Vec<Value> {
    cluster.objects().into_iter().map(|(_, object)| Arc::unwrap_or_clone(object)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_named_as_in_a_rehearsal() {
        for (line, object) in [
            (
                "VirtualMachine.kubevirt.io default/demo: strategy was Always, is Halted",
                "VirtualMachine default/demo",
            ),
            ("VirtualMachine.kubevirt.io default/demo is gone", "VirtualMachine default/demo"),
            ("Node node-1: cordoned was false, is true", "Node node-1"),
        ] {
            assert_eq!(object_of(line), object);
        }
    }
}

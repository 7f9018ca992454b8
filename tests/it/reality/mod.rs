//! The shipped workflows on a real kube-apiserver. The platform behind it is that of the rehearsal cluster: its
//! controllers see what the server has through watches and write through its API, and the server prunes what is not on
//! the list of paths. KubeVirt's subresources are answered in front of the server; the webhooks of KubeVirt and Harvester
//! are left out.

mod front;
mod platform;
mod server;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use windrow::action::secret::Secrets;
use windrow::definition::Library;
use windrow::definition::Workflow;
use windrow::definition::model::Rehearsal;
use windrow::journal::memory::MemoryStore;
use windrow::rehearsal;
use windrow::time::Clock;
use windrow::time::SharedClock;
use windrow::time::SystemClock;

use crate::reality::platform::Platform;
use crate::reality::server::Server;
use crate::support::controlplane::ControlPlane;

/// How many times shorter durations are.
const SPEED: f64 = 20.0;
/// How long a run may take. The longest one waits for half an hour of the platform's time.
const LIMIT: Duration = Duration::from_mins(3);
/// With this variable only one workflow is played, as in the rehearsals.
const ONLY: &str = "WINDROW_REHEARSE";

/// The workflows that do not come out here as they do in their rehearsal, and why.
const EXCEPT: &[(&str, &str)] = &[];

#[test]
fn every_shipped_workflow_comes_out_on_a_real_server_too() {
    let Some(plane) = ControlPlane::own() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let wrong = runtime.block_on(async {
        let server = Server::set_up(plane.admin().await).await;
        let library = Arc::new(Library::load(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("workflows")]));
        let only = std::env::var(ONLY).ok();
        let (clock, mut wrong) = (SystemClock::new(), vec![]);
        for workflow in
            library.workflows().filter(|w| only.as_deref().is_none_or(|only| only == w.name.as_str()))
        {
            let Some(case) = first_that_ends_well(workflow) else { continue };
            let begun = clock.now();
            let mismatches = play(&server, &library, workflow, case).await;
            let took = clock.now().since(begun);
            eprintln!("{} {}: {took:?} {mismatches:?}", workflow.name, case.name);
            let is_excepted = EXCEPT.iter().any(|(name, _)| *name == workflow.name.as_str());
            if is_excepted == mismatches.is_empty() {
                let why =
                    if is_excepted { "it comes out well now".to_owned() } else { mismatches.join("; ") };
                wrong.push(format!("{} {}: {why}", workflow.name, case.name));
            }
        }
        wrong
    });
    assert!(wrong.is_empty(), "\n  {}", wrong.join("\n  "));
}

/// The case that is played: the platform's troubles are there as well, those of the API server are not.
fn first_that_ends_well(workflow: &Workflow) -> Option<&Rehearsal> {
    let of_server = |fault: &String| API_FAULTS.contains(&fault.as_str());
    workflow
        .rehearsals
        .iter()
        .find(|case| case.expect.state.as_deref() == Some("Succeeded") && !case.faults.iter().any(of_server))
}

/// The faults that the simulated API server has and a real one has not.
const API_FAULTS: &[&str] = &[
    "api-unready",
    "apiserver-restart",
    "conflict-storm",
    "list-denied",
    "rbac-denied",
    "virt-api-restart",
    "watch-gone",
    "watch-lag",
    "watch-silent",
    "webhook-down",
];

/// Runs a case from its fixture to its verdict: what differs from what it expects.
async fn play(server: &Server, library: &Arc<Library>, workflow: &Workflow, case: &Rehearsal) -> Vec<String> {
    server.wipe().await;
    let clock: SharedClock = Arc::new(SystemClock::at_speed(SPEED));
    let platform = Platform::found(server.client.clone(), case, clock.clone()).await;
    platform.settled().await;
    let client = front::client(server.client.clone(), &platform);
    let store = Arc::new(MemoryStore::new());
    let handle = rehearsal::serve(client, library.clone(), store, Secrets::new(None), clock).unwrap();
    let run = match rehearsal::start(&handle, workflow.name.as_str(), case).await {
        Ok(run) => run,
        Err(problem) => return vec![format!("it does not start: {problem:?}")],
    };
    let mut last = Value::Null;
    let end =
        tokio::time::timeout(LIMIT, rehearsal::attend(&handle, run, case, |view| last = view.clone())).await;
    match end {
        Ok(view) => {
            let view = view.unwrap();
            let mut mismatches = rehearsal::mismatches(&view, &case.expect);
            if !mismatches.is_empty() {
                mismatches.push(view["failure"]["message"].to_string());
            }
            mismatches
        }
        Err(_) => vec![format!("it does not end within {LIMIT:?}: {}", waiting(&last))],
    }
}

/// What a run that does not end is at.
fn waiting(view: &Value) -> String {
    let steps = view["steps"].as_array().into_iter().flatten();
    let open = steps
        .filter(|step| !["Succeeded", "Skipped", "Pending"].contains(&step["state"].as_str().unwrap_or("")));
    open.map(Value::to_string).collect::<Vec<_>>().join("\n")
}

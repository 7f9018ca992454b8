//! What a host does with all of its runs: starting one twice, tidying, taking over what an earlier process left.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use windrow::action::Executor;
use windrow::action::secret::Secrets;
use windrow::definition::Library;
use windrow::engine::event::Actor;
use windrow::engine::event::Created;
use windrow::engine::event::Event;
use windrow::engine::event::Trigger;
use windrow::engine::state::RunStatus;
use windrow::id::RunId;
use windrow::id::Seq;
use windrow::journal::MemoryStore;
use windrow::journal::Store;
use windrow::journal::store::Append;
use windrow::journal::store::Summary;
use windrow::plan::WorkflowDigest;
use windrow::runner::Host;
use windrow::runner::Start;
use windrow::runner::host::Parts;
use windrow::service::Handle;
use windrow::service::operation::Operation;
use windrow::service::operation::Reply;
use windrow::service::operation::Verb;
use windrow::time::SystemClock;
use windrow::time::Timestamp;

use super::support::chain;

const WORKFLOW: &str = r#"
schema = 1
name = "once"
title = "Wants a lock at once"
lock = ["slot"]
lock_wait = "0s"
[steps.rest]
uses = "sleep"
duration = "1h"
"#;

/// A host and its service, on a clock that the test moves.
fn service(store: Arc<dyn Store>) -> (Host, Handle) {
    let library = Arc::new(Library::from_texts([("once.toml", WORKFLOW)]));
    let parts = Parts {
        store: store.clone(),
        executor: Arc::new(Executor::new(Secrets::new(None))),
        clock: Arc::new(SystemClock::at_speed(1.0)),
        knowledge: library.knowledge(),
    };
    let host = Host::open(parts).unwrap();
    (host.clone(), Handle::new(host, store, library))
}

#[tokio::test(start_paused = true)]
async fn whoever_starts_with_the_same_key_at_the_same_time_gets_the_same_run() {
    let store = Arc::new(MemoryStore::new());
    let (host, handle) = service(store.clone());
    let by = Actor { name: "a".into() };
    let start = |key: &str| {
        let start = Operation::Start {
            workflow: "once".to_owned(),
            inputs: serde_json::Map::new(),
            key: Some(key.into()),
        };
        handle.call(start, by.clone())
    };
    let replies = futures::future::join_all((0..100).map(|_| start("nightly"))).await;
    let runs = store.runs(None, 1000).unwrap();
    assert_eq!(runs.len(), 1, "{:?}", replies.first());
    for reply in replies {
        assert_eq!(reply, Ok(Reply::Started { run: runs[0].run }));
    }
    // Who did not get to start holds nothing: the lock is the run's, and free after it.
    let refused = start("another").await.unwrap_err();
    assert_eq!(refused.failure.code, "lock-held");
    assert_eq!(host.end_of(runs[0].run).await.unwrap(), RunStatus::Succeeded);
    assert_eq!(host.locks(), []);
    assert!(matches!(start("another").await, Ok(Reply::Started { run }) if run != runs[0].run));
}

#[tokio::test(start_paused = true)]
async fn old_runs_are_removed_while_a_process_serves() {
    let store = Arc::new(MemoryStore::new());
    let (host, handle) = service(store.clone());
    host.tidy();
    let by = Actor { name: "a".into() };
    let start =
        || Operation::Start { workflow: "once".to_owned(), inputs: serde_json::Map::new(), key: None };
    let mut runs = vec![];
    for days in [0, 60, 60] {
        tokio::time::advance(Duration::from_hours(24 * days)).await;
        let Reply::Started { run } = handle.call(start(), by.clone()).await.unwrap() else {
            panic!("no run")
        };
        host.end_of(run).await.unwrap();
        runs.push(run);
    }
    // The first is 120 days old by now, the second 60.
    while store.summary(runs[0]).unwrap().is_some() {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.runs(None, 10).unwrap().len(), 2);
    assert!(store.summary(runs[1]).unwrap().is_some() && store.summary(runs[2]).unwrap().is_some());
}

/// A run that a version before this one has begun, pinned to a definition that this one refuses.
async fn begin_with_refused_definition(store: &MemoryStore) -> RunId {
    let library = Library::from_texts([("once.toml", WORKFLOW)]);
    let name: windrow::id::WorkflowName = "once".parse().unwrap();
    let mut definition = windrow::plan::from_library(&library, &name).unwrap().normalised().as_ref().clone();
    definition["workflows"]["once"]["tree"]["steps"]["rest"]["after"] = json!(["nowhere"]);
    let digest = WorkflowDigest::from_hex(&"5e".repeat(32));
    store.put_definition(&digest, &definition).await.unwrap();
    let (run, at) = (RunId::new(1, 1), Timestamp::from_millis(1));
    let created = Created {
        workflow: name.clone(),
        digest,
        cluster: None,
        inputs: json!({}).into(),
        secrets: std::collections::BTreeMap::new(),
        trigger: Trigger::Manual,
        by: Actor { name: "a".into() },
        key: None,
        locks: vec![],
        lock_deadline: None,
        timeout_ms: None,
        inherited: None,
    };
    let summary = Summary {
        run,
        workflow: name,
        status: RunStatus::Running,
        held_reason: None,
        held_reason_zh: None,
        overlay: None,
        created_at: at,
        finished_at: None,
        due: None,
        root: None,
        key: None,
        locks: vec![],
        debts: 0,
    };
    let events = vec![Event::Created(Box::new(created))];
    let append = Append { run, expected: Seq(0), at, events, summary: Some(summary) };
    store.append(&append).await.unwrap();
    run
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_definition_is_refused_by_this_version_is_held_and_the_others_go_on() {
    let store = Arc::new(MemoryStore::new());
    let refused = begin_with_refused_definition(&store).await;
    let (host, handle) = service(store.clone());
    let by = Actor { name: "a".into() };
    let start = Operation::Start { workflow: "once".to_owned(), inputs: serde_json::Map::new(), key: None };
    let Reply::Started { run: good } = handle.call(start, by.clone()).await.unwrap() else {
        panic!("no run")
    };
    host.adopt_all().unwrap();
    assert_eq!(host.end_of(good).await.unwrap(), RunStatus::Succeeded);

    let line = store.summary(refused).unwrap().unwrap();
    let reason = line.held_reason.unwrap();
    assert_eq!(line.status, RunStatus::Held);
    assert!(reason.starts_with("definition-refused: ") && reason.contains("nowhere"), "{reason}");
    let show = Operation::Show { run: refused, events: true };
    let Reply::Run { view } = handle.call(show.clone(), by.clone()).await.unwrap() else { panic!("no view") };
    assert_eq!(view["state"], "Held", "{view:#}");
    assert!(view["held_reason"].as_str().unwrap().contains("nowhere"), "{view:#}");

    let say = |verb| handle.call(Operation::Command { run: refused, verb }, by.clone());
    let problem = say(Verb::Cancel { reason: None }).await.unwrap_err();
    assert_eq!(problem.failure.code, "definition-refused");
    say(Verb::Terminate { reason: "start again".to_owned() }).await.unwrap();
    let Reply::Run { view } = handle.call(show, by.clone()).await.unwrap() else { panic!("no view") };
    assert_eq!(view["state"], "Cancelled", "{view:#}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_would_be_the_ninth_below_its_root_is_not_started() {
    // No such plan comes from the library, which refuses it.
    let texts = chain(8);
    let library = Library::from_texts(texts.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    let plan = windrow::plan::from_library(&library, &"w0".parse().unwrap()).unwrap();
    let mut definition = plan.normalised().as_ref().clone();
    let workflows = &mut definition["workflows"];
    workflows["w9"] = workflows["w8"].clone();
    workflows["w9"]["tree"]["name"] = json!("w9");
    workflows["w8"]["tree"]["steps"]["go"] = json!({ "uses": "workflow", "name": "w9" });
    let store = Arc::new(MemoryStore::new());
    let (host, _) = service(store.clone());
    let start = |plan| Start {
        plan,
        inputs: json!({}),
        trigger: Trigger::Manual,
        by: Actor { name: "a".into() },
        key: None,
        inherited: None,
        id: None,
    };
    let deepest = host.start(start(plan)).await.unwrap();
    assert_eq!(host.end_of(deepest).await.unwrap(), RunStatus::Succeeded);
    assert_eq!(store.runs(None, 100).unwrap().len(), 9);

    let deeper = host.start(start(windrow::plan::unvalidated(&definition).unwrap())).await.unwrap();
    // There was nothing to undo in any of them.
    assert_eq!(host.end_of(deeper).await.unwrap(), RunStatus::RolledBack);
    assert_eq!(store.runs(None, 100).unwrap().len(), 18, "nine more, and no tenth");
    let last =
        store.runs(None, 100).unwrap().into_iter().find(|line| line.workflow.as_str() == "w8").unwrap();
    let (_, state) = host.load(last.run).unwrap();
    let failure = state.finished.and_then(|(_, finished)| finished.failure).unwrap();
    assert_eq!(failure.code, "too-deep", "{failure:?}");
}

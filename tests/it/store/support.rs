//! Runs, events and summaries to put into a store.

use std::path::Path;

use serde_json::json;
use windrow::engine::event::Actor;
use windrow::engine::event::Created;
use windrow::engine::event::Event;
use windrow::engine::event::Finished;
use windrow::engine::event::RunOutcome;
use windrow::engine::event::Trigger;
use windrow::engine::state::RunStatus;
use windrow::id::RunId;
use windrow::id::Seq;
use windrow::journal::Error;
use windrow::journal::Options;
use windrow::journal::SledStore;
use windrow::journal::Store;
use windrow::journal::store::Append;
use windrow::journal::store::Summary;
use windrow::plan::WorkflowDigest;
use windrow::time::Timestamp;

/// Small, so that a test does not take 64 MiB of the disk.
pub(super) const OPTIONS: Options = Options { cache_bytes: 4 << 20, reserve_bytes: 1 << 20 };

pub(super) fn open(dir: &Path) -> SledStore {
    SledStore::open(dir, &OPTIONS).unwrap()
}

pub(super) fn run(n: u64) -> RunId {
    RunId::new(n, u128::from(n))
}

pub(super) fn at(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

pub(super) fn summary(run: RunId, status: RunStatus) -> Summary {
    Summary {
        run,
        workflow: "vm-stop".parse().unwrap(),
        status,
        held_reason: None,
        created_at: at(1),
        finished_at: status.is_terminal().then(|| at(2)),
        due: None,
        root: None,
        key: None,
        locks: vec!["vm/default/demo".into()],
        debts: 0,
    }
}

pub(super) fn created(key: Option<&str>) -> Event {
    Event::Created(Box::new(Created {
        workflow: "vm-stop".parse().unwrap(),
        digest: WorkflowDigest::from_hex(&"5e".repeat(32)),
        cluster: Some("0cc175b9".into()),
        inputs: json!({ "vm": "default/demo", "grace": 180, "list": [1, 2.5, null, "中文"] }).into(),
        trigger: Trigger::Manual,
        by: Actor { name: "ana".into() },
        key: key.map(Into::into),
        locks: vec!["vm/default/demo".into()],
        lock_deadline: None,
        timeout_ms: Some(3_600_000),
        inherited: None,
    }))
}

pub(super) fn noted(text: impl Into<String>) -> Event {
    Event::Noted { by: Actor { name: "ana".into() }, text: text.into() }
}

pub(super) fn finished() -> Event {
    let outputs = json!({ "was_on": true }).into();
    Event::Finished(Box::new(Finished {
        outcome: RunOutcome::Succeeded,
        failure: None,
        outputs,
        left: vec![],
    }))
}

/// The append that makes a run.
pub(super) fn start(run: RunId) -> Append {
    append(run, 0, vec![created(None)], Some(summary(run, RunStatus::Running)))
}

pub(super) fn append(run: RunId, expected: u64, events: Vec<Event>, summary: Option<Summary>) -> Append {
    Append { run, expected: Seq(expected), at: at(i64::try_from(expected).unwrap()), events, summary }
}

/// The append of one remark.
pub(super) fn note(run: RunId, expected: u64, text: &str) -> Append {
    append(run, expected, vec![noted(text)], None)
}

/// The append that ends a run.
pub(super) fn end(run: RunId, expected: u64) -> Append {
    append(run, expected, vec![finished()], Some(summary(run, RunStatus::Succeeded)))
}

/// The events of a run, good ones only.
pub(super) fn events(store: &dyn Store, run: RunId) -> Vec<Event> {
    match store.read(run) {
        Ok(good) | Err(Error::Damaged { good, .. }) => {
            good.into_iter().map(|recorded| recorded.event).collect()
        }
        Err(other) => panic!("{other}"),
    }
}

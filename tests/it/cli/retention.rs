//! Old runs go, on the real binary (S4).

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use windrow::engine::event::Actor;
use windrow::engine::event::Created;
use windrow::engine::event::Event;
use windrow::engine::event::Trigger;
use windrow::engine::state::RunStatus;
use windrow::id::RunId;
use windrow::id::Seq;
use windrow::journal::Options;
use windrow::journal::SledStore;
use windrow::journal::Store;
use windrow::journal::store::Append;
use windrow::journal::store::Summary;
use windrow::plan::WorkflowDigest;
use windrow::time::Timestamp;

use super::site::Site;
use super::site::until;

/// New Year of 2020: long ago for every test.
const LONG_AGO_MS: i64 = 1_577_836_800_000;

/// A run of long ago, with a remark that names a side file.
async fn record(store: &SledStore, number: u64, status: RunStatus, debts: u32, side_file: &str) -> RunId {
    let ms = LONG_AGO_MS + i64::try_from(number).unwrap();
    let (run, at) = (RunId::new(ms.unsigned_abs(), number.into()), Timestamp::from_millis(ms));
    let (workflow, by) = ("old".parse().unwrap(), Actor { name: "ann".into() });
    let created = Created {
        workflow,
        digest: WorkflowDigest::from_hex(&"5e".repeat(32)),
        cluster: None,
        inputs: json!({}).into(),
        secrets: std::collections::BTreeMap::new(),
        trigger: Trigger::Manual,
        by: by.clone(),
        key: None,
        locks: vec![],
        lock_deadline: None,
        timeout_ms: None,
        inherited: None,
    };
    let summary = Summary {
        run,
        workflow: created.workflow.clone(),
        status,
        held_reason: None,
        held_reason_zh: None,
        overlay: None,
        created_at: at,
        finished_at: status.is_terminal().then_some(at),
        due: None,
        root: None,
        key: None,
        locks: vec![],
        debts,
    };
    let events = vec![Event::Created(Box::new(created)), Event::Noted { by, text: side_file.to_owned() }];
    let append = Append { run, expected: Seq(0), at, events, summary: Some(summary) };
    store.append(&append).await.unwrap();
    run
}

/// A side file that was made two days ago.
fn old_side_file(store: &SledStore, state: &Path, content: &str) -> (String, std::path::PathBuf) {
    let digest = store.put_blob(content.as_bytes()).unwrap().to_string();
    let path = state.join("blobs").join(&digest[..2]).join(&digest);
    let file = std::fs::File::options().append(true).open(&path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.set_modified(modified - Duration::from_hours(48)).unwrap();
    (digest, path)
}

#[tokio::test]
async fn old_runs_go_with_their_side_files_and_those_that_are_open_or_owe_stay() {
    let site = Site::new();
    let (state, mut kept) = (site.path("state"), vec![]);
    let store = SledStore::open(&state, &Options::default()).unwrap();
    let (named, stays) = old_side_file(&store, &state, "of a run that owes");
    let (unnamed, goes) = old_side_file(&store, &state, "of a run that ended long ago");
    record(&store, 1, RunStatus::Succeeded, 0, &unnamed).await;
    kept.push(record(&store, 2, RunStatus::Succeeded, 1, &named).await.to_string());
    kept.push(record(&store, 3, RunStatus::Held, 0, "").await.to_string());
    drop(store);

    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    kept.push(site.newest("keep").await);
    until("the old run is removed", async || {
        let lines = site.expect(0, &["runs", "--output", "json"]).await.json();
        let left: Vec<_> = lines.as_array()?.iter().filter_map(|line| line["run"].as_str()).collect();
        assert!(kept.iter().all(|run| left.contains(&run.as_str())), "{left:?}");
        (left.len() == kept.len() && !goes.exists()).then_some(())
    })
    .await;
    assert!(stays.exists(), "a run names it");
    site.write("go", "");
    assert_eq!(owner.ended().await.0, 0);
    site.expect(0, &["store", "check"]).await;

    let before = site.show(&kept[2]).await;
    let said = site.expect(0, &["store", "compact"]).await;
    assert!(said.err.contains(" -> "), "{said:?}");
    site.expect(0, &["store", "check"]).await;
    assert_eq!(site.show(&kept[2]).await, before, "a compacted store is the same");
}

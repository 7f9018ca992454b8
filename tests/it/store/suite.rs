//! What every backend promises.

use std::time::Duration;

use serde_json::json;
use windrow::engine::state::RunStatus;
use windrow::id::Seq;
use windrow::journal::Error;
use windrow::journal::Store;
use windrow::journal::store::Keep;
use windrow::journal::store::Summary;
use windrow::plan::WorkflowDigest;

use super::support::append;
use super::support::at;
use super::support::created;
use super::support::end;
use super::support::events;
use super::support::finished;
use super::support::note;
use super::support::noted;
use super::support::open;
use super::support::run;
use super::support::start;
use super::support::summary;

/// Makes a test of every promise for every backend.
macro_rules! promises {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&windrow::journal::MemoryStore::new()).await;
            })*
        }

        mod disk {
            $(#[tokio::test]
            async fn $name() {
                let dir = tempfile::tempdir().unwrap();
                super::$name(&super::open(dir.path())).await;
                // What it wrote is in order for the next process as well.
                drop(super::open(dir.path()));
            })*
        }
    };
}

promises!(
    events_come_back_in_order_with_their_times,
    an_append_that_expects_another_place_is_a_conflict,
    what_breaks_the_contract_is_refused,
    an_event_larger_than_a_row_comes_back_whole,
    the_index_lists_newest_first_and_open_runs_apart,
    a_summary_of_any_size_replaces_the_one_before,
    a_line_can_be_changed_without_an_event,
    a_journal_is_cut_at_the_end_of_a_record,
    a_key_belongs_to_the_first_run,
    definitions_settings_and_side_files_come_back,
    the_newest_time_never_falls,
    retention_keeps_what_is_open_owes_or_is_part_of_an_open_tree,
    retention_by_count_keeps_the_newest,
);

async fn events_come_back_in_order_with_their_times(store: &dyn Store) {
    assert_eq!(store.read(run(1)).unwrap(), []);
    assert_eq!(store.append(&start(run(1))).await.unwrap(), Seq(1));
    store.append(&start(run(2))).await.unwrap();
    let more = vec![noted("a"), noted("b")];
    assert_eq!(store.append(&append(run(1), 1, more.clone(), None)).await.unwrap(), Seq(3));
    assert_eq!(store.append(&end(run(1), 3)).await.unwrap(), Seq(4));
    // A remark after the end is taken.
    assert_eq!(store.append(&note(run(1), 4, "late")).await.unwrap(), Seq(5));
    let read = store.read(run(1)).unwrap();
    let places: Vec<_> = read.iter().map(|r| (r.seq.0, r.at)).collect();
    assert_eq!(places, [(1, at(0)), (2, at(1)), (3, at(1)), (4, at(3)), (5, at(4))]);
    let expected = [vec![created(None)], more, vec![finished(), noted("late")]].concat();
    assert_eq!(events(store, run(1)), expected);
    assert_eq!(events(store, run(2)), [created(None)]);
}

async fn an_append_that_expects_another_place_is_a_conflict(store: &dyn Store) {
    store.append(&start(run(1))).await.unwrap();
    for expected in [0, 2, u64::MAX] {
        let mut append = note(run(1), 1, "x");
        append.expected = Seq(expected);
        append.summary = Some(summary(run(1), RunStatus::Failed));
        let error = store.append(&append).await.unwrap_err();
        let ours = matches!(error, Error::Conflict { run: id, expected: Seq(e), found: Seq(1) } if id == run(1) && e == expected);
        assert!(ours, "{error}");
    }
    let error = store.append(&note(run(2), 3, "x")).await.unwrap_err();
    assert!(matches!(error, Error::Conflict { found: Seq(0), .. }), "{error}");
    assert_eq!(events(store, run(1)), [created(None)]);
    assert_eq!(store.summary(run(1)).unwrap().unwrap().status, RunStatus::Running);
}

async fn what_breaks_the_contract_is_refused(store: &dyn Store) {
    for bad in [
        append(run(1), 0, vec![], Some(summary(run(1), RunStatus::Running))),
        append(run(1), 0, vec![created(None)], None),
        append(run(1), 0, vec![created(None)], Some(summary(run(2), RunStatus::Running))),
    ] {
        let error = store.append(&bad).await.unwrap_err();
        assert!(matches!(error, Error::Misused(_)), "{error}");
    }
    let long = Summary { key: Some("k".repeat(300).into()), ..summary(run(1), RunStatus::Running) };
    let error = store.append(&append(run(1), 0, vec![created(None)], Some(long))).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { bytes: 300, .. }), "{error}");
    let line = Some(summary(run(1), RunStatus::Running));
    let large = append(run(1), 0, vec![noted("x".repeat(17 << 20))], line);
    assert!(matches!(store.append(&large).await.unwrap_err(), Error::TooLarge { .. }));
    assert_eq!(store.runs(None, 10).unwrap(), []);
    assert_eq!(store.newest().unwrap(), None);
}

async fn an_event_larger_than_a_row_comes_back_whole(store: &dyn Store) {
    store.append(&start(run(1))).await.unwrap();
    let large = vec![noted("x".repeat(300_000)), noted("y"), noted("z".repeat(6_100))];
    store.append(&append(run(1), 1, large.clone(), None)).await.unwrap();
    store.append(&note(run(1), 4, "after")).await.unwrap();
    assert_eq!(events(store, run(1))[1..], [large, vec![noted("after")]].concat());
}

async fn the_index_lists_newest_first_and_open_runs_apart(store: &dyn Store) {
    for n in [3, 1, 4, 2, 5] {
        store.append(&start(run(n))).await.unwrap();
    }
    store.append(&end(run(2), 1)).await.unwrap();
    store.append(&end(run(4), 1)).await.unwrap();
    let ids = |lines: Vec<Summary>| lines.into_iter().map(|line| line.run).collect::<Vec<_>>();
    assert_eq!(ids(store.runs(None, 10).unwrap()), [5, 4, 3, 2, 1].map(run));
    assert_eq!(ids(store.runs(Some(run(4)), 2).unwrap()), [3, 2].map(run));
    assert_eq!(ids(store.runs(Some(run(1)), 2).unwrap()), []);
    assert_eq!(ids(store.open_runs().unwrap()), [1, 3, 5].map(run));
    assert_eq!(store.summary(run(4)).unwrap(), Some(summary(run(4), RunStatus::Succeeded)));
    assert_eq!(store.summary(run(6)).unwrap(), None);
}

async fn a_summary_of_any_size_replaces_the_one_before(store: &dyn Store) {
    store.append(&start(run(1))).await.unwrap();
    for (expected, locks) in [(1, 1), (2, 2_000), (3, 0), (4, 400)] {
        let locks = (0..locks).map(|n| format!("vm/default/demo-{n}").into()).collect();
        let line = Summary { locks, ..summary(run(1), RunStatus::Waiting) };
        store.append(&append(run(1), expected, vec![noted("x")], Some(line.clone()))).await.unwrap();
        assert_eq!(store.summary(run(1)).unwrap(), Some(line.clone()));
        assert_eq!(store.runs(None, 1).unwrap(), [line]);
    }
}

async fn a_line_can_be_changed_without_an_event(store: &dyn Store) {
    let held = Summary { held_reason: Some("lost".to_owned()), ..summary(run(1), RunStatus::Held) };
    let error = store.put_summary(held.clone()).await.unwrap_err();
    assert!(matches!(error, Error::Misused(_)), "{error}");
    store.append(&start(run(1))).await.unwrap();
    store.put_summary(held.clone()).await.unwrap();
    assert_eq!(store.open_runs().unwrap(), [held]);
    store.put_summary(summary(run(1), RunStatus::Failed)).await.unwrap();
    assert_eq!(store.open_runs().unwrap(), []);
    assert_eq!(store.append(&note(run(1), 1, "x")).await.unwrap(), Seq(2));
}

async fn a_journal_is_cut_at_the_end_of_a_record(store: &dyn Store) {
    store.append(&start(run(1))).await.unwrap();
    for expected in 1..4 {
        store.append(&note(run(1), expected, &format!("{expected}"))).await.unwrap();
    }
    assert_eq!(store.cut(run(1), Seq(2)).await.unwrap(), Seq(2));
    assert_eq!(events(store, run(1)), [created(None), noted("1")]);
    store.append(&note(run(1), 2, "again")).await.unwrap();
    assert_eq!(events(store, run(1))[2..], [noted("again")]);
    assert!(matches!(store.cut(run(9), Seq(1)).await, Err(Error::Misused(_))));
}

async fn a_key_belongs_to_the_first_run(store: &dyn Store) {
    let keyed = |n, key: &str| {
        let line = Summary { key: Some(key.into()), ..summary(run(n), RunStatus::Running) };
        append(run(n), 0, vec![created(Some(key))], Some(line))
    };
    assert_eq!(store.run_of_key("nightly").unwrap(), None);
    store.append(&keyed(1, "nightly")).await.unwrap();
    store.append(&keyed(2, "night")).await.unwrap();
    let error = store.append(&keyed(3, "nightly")).await.unwrap_err();
    assert!(matches!(error, Error::KeyTaken { run: owner } if owner == run(1)), "{error}");
    assert_eq!(store.run_of_key("nightly").unwrap(), Some(run(1)));
    assert_eq!(store.run_of_key("night").unwrap(), Some(run(2)));
    assert_eq!(store.read(run(3)).unwrap(), []);
    // Two at once: one of them gets it.
    let (one, other) = (keyed(4, "once"), keyed(5, "once"));
    let (a, b) = tokio::join!(store.append(&one), store.append(&other));
    assert_eq!(
        [&a, &b].iter().filter(|answer| matches!(answer, Err(Error::KeyTaken { .. }))).count(),
        1,
        "{a:?} {b:?}"
    );
}

async fn definitions_settings_and_side_files_come_back(store: &dyn Store) {
    let digest = WorkflowDigest::from_hex(&"ab".repeat(32));
    let definition = json!({ "name": "vm-stop", "steps": vec!["x".repeat(100); 500] });
    assert_eq!(store.definition(&digest).unwrap(), None);
    for _ in 0..2 {
        store.put_definition(&digest, &definition).await.unwrap();
        assert_eq!(store.definition(&digest).unwrap().as_ref(), Some(&definition));
    }
    store.put_setting("paused", Some(json!({ "by": "ana" }))).await.unwrap();
    store.put_setting("paused-longer", Some(json!(1))).await.unwrap();
    store.put_setting("paused", Some(json!(true))).await.unwrap();
    assert_eq!(store.setting("paused").unwrap(), Some(json!(true)));
    store.put_setting("paused", None).await.unwrap();
    assert_eq!(store.setting("paused").unwrap(), None);
    assert_eq!(store.setting("paused-longer").unwrap(), Some(json!(1)));
    let error = store.put_setting("large", Some(json!("x".repeat(7_000)))).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
    let blob = store.put_blob(b"before").unwrap();
    assert_eq!(store.put_blob(b"before").unwrap(), blob);
    assert_eq!(store.blob(&blob).unwrap(), b"before");
    assert!(matches!(store.blob(&"0".repeat(64)), Err(Error::Blob { .. })));
    assert!(matches!(store.put_blob(&vec![0; 9 << 20]), Err(Error::TooLarge { .. })));
}

async fn the_newest_time_never_falls(store: &dyn Store) {
    let mut first = start(run(1));
    first.at = at(500);
    store.append(&first).await.unwrap();
    let mut earlier = start(run(2));
    earlier.at = at(400);
    store.append(&earlier).await.unwrap();
    assert_eq!(store.newest().unwrap(), Some(at(500)));
}

async fn retention_keeps_what_is_open_owes_or_is_part_of_an_open_tree(store: &dyn Store) {
    let finish = |n, line: Summary| append(run(n), 1, vec![finished()], Some(line));
    for n in 1..=6 {
        store.append(&start(run(n))).await.unwrap();
    }
    let ended = |n, ms| Summary { finished_at: Some(at(ms)), ..summary(run(n), RunStatus::Failed) };
    store.append(&finish(1, Summary { debts: 1, ..ended(1, 10) })).await.unwrap();
    store.append(&finish(2, Summary { root: Some(run(5)), ..ended(2, 10) })).await.unwrap();
    store
        .append(&finish(3, Summary { root: Some(run(1)), key: Some("k".into()), ..ended(3, 10) }))
        .await
        .unwrap();
    store.append(&finish(4, ended(4, 1_000))).await.unwrap();
    store.append(&finish(6, ended(6, 10))).await.unwrap();
    let many = (0..1_000).map(|n| noted(format!("{n:>6000}"))).collect();
    store.append(&append(run(6), 2, many, None)).await.unwrap();
    let keep = Keep { age: Duration::from_millis(100), runs: 100, at_once: usize::MAX };
    let removed = store.retain(keep, at(1_050)).await.unwrap();
    assert_eq!(removed.runs, 2);
    let left: Vec<_> = store.runs(None, 10).unwrap().into_iter().map(|line| line.run).collect();
    assert_eq!(left, [5, 4, 2, 1].map(run));
    assert_eq!(store.read(run(3)).unwrap(), []);
    assert_eq!(store.read(run(6)).unwrap(), []);
    let error = store.append(&note(run(6), 3, "x")).await.unwrap_err();
    assert!(matches!(error, Error::Conflict { found: Seq(0), .. }), "{error}");
    assert_eq!(store.retain(keep, at(1_050)).await.unwrap().runs, 0);
}

async fn retention_by_count_keeps_the_newest(store: &dyn Store) {
    for n in 1..=6 {
        let key = format!("key {n}");
        let line = |status| Summary { key: Some(key.as_str().into()), ..summary(run(n), status) };
        store.append(&append(run(n), 0, vec![created(None)], Some(line(RunStatus::Running)))).await.unwrap();
        if n != 5 {
            store
                .append(&append(run(n), 1, vec![finished()], Some(line(RunStatus::Cancelled))))
                .await
                .unwrap();
        }
    }
    let keep = Keep { age: Duration::from_hours(1), runs: 2, at_once: usize::MAX };
    for removed in [2, 1, 0] {
        let keep = Keep { at_once: 2, ..keep };
        assert_eq!(store.retain(keep, at(5)).await.unwrap().runs, removed, "a call removes two at most");
    }
    let left: Vec<_> = store.runs(None, 10).unwrap().into_iter().map(|line| line.run).collect();
    assert_eq!(left, [6, 5, 4].map(run));
    assert_eq!(store.run_of_key("key 3").unwrap(), None);
    assert_eq!(store.run_of_key("key 4").unwrap(), Some(run(4)));
}

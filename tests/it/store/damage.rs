//! A damaged store tells what is wrong, serves what is whole, and never passes off less for all.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use windrow::engine::state::RunStatus;
use windrow::id::Seq;
use windrow::journal;
use windrow::journal::Error;
use windrow::journal::Store;

use super::support::OPTIONS;
use super::support::Rng;
use super::support::content;
use super::support::copy;
use super::support::end;
use super::support::events;
use super::support::fast_dir;
use super::support::files;
use super::support::note;
use super::support::open;
use super::support::refusal;
use super::support::run;
use super::support::start;
use super::support::tamper;

/// Makes a store with three runs of six events; run 2 has ended.
async fn make(dir: &Path) {
    let store = open(dir);
    for n in 1..=3 {
        store.append(&start(run(n))).await.unwrap();
        for expected in 1..5 {
            store
                .append(&note(run(n), expected, &format!("{n}/{expected} {}", "x".repeat(300))))
                .await
                .unwrap();
        }
    }
    store.append(&end(run(2), 5)).await.unwrap();
    store.put_blob(&[7; 5_000]).unwrap();
}

/// The rows of a run's journal.
fn rows_of(tree: &sled::Db, n: u64) -> Vec<(sled::IVec, sled::IVec)> {
    let prefix = [&b"j"[..], &run(n).to_be_bytes()].concat();
    tree.scan_prefix(prefix).map(Result::unwrap).collect()
}

fn assert_refused(dir: &Path, reasons: &[&str]) {
    let error = refusal(dir);
    assert!(matches!(error, Error::Unusable(_)), "{error}");
    let text = error.to_string();
    for reason in reasons.iter().chain(&[&*dir.to_string_lossy()]) {
        assert!(text.contains(reason), "`{reason}` is not in: {text}");
    }
}

#[tokio::test]
async fn one_bad_record_stops_its_run_and_no_other() {
    let dir = fast_dir();
    make(dir.path()).await;
    tamper(dir.path(), |tree| {
        let (key, mut row) = rows_of(tree, 1).remove(3);
        row[40] ^= 1;
        tree.insert(key, row).unwrap();
    });
    let store = open(dir.path());
    let error = store.read(run(1)).unwrap_err();
    let Error::Damaged { run: id, after, what, good } = &error else { panic!("{error}") };
    assert_eq!((*id, after.0, good.len()), (run(1), 3, 3));
    assert_eq!(what, "the checksum is wrong");
    for n in [2, 3] {
        assert_eq!(events(&store, run(n)).len(), if n == 2 { 6 } else { 5 });
    }
    store.append(&note(run(3), 5, "goes on")).await.unwrap();
    let mut held = store.summary(run(1)).unwrap().unwrap();
    held.status = RunStatus::Held;
    store.put_summary(held.clone()).await.unwrap();
    assert_eq!(store.open_runs().unwrap()[0], held);
    let report = store.check().unwrap();
    assert_eq!((report.runs, report.findings_total), (3, 1), "{report:?}");
    assert_eq!(report.findings[0].run, Some(run(1)));
}

#[tokio::test]
async fn a_missing_record_stops_its_run_and_no_other() {
    let dir = fast_dir();
    make(dir.path()).await;
    tamper(dir.path(), |tree| drop(tree.remove(&rows_of(tree, 3)[2].0).unwrap()));
    let store = open(dir.path());
    let error = store.read(run(3)).unwrap_err();
    assert!(matches!(&error, Error::Damaged { after, .. } if after.0 == 2), "{error}");
    assert_eq!(events(&store, run(1)).len(), 5);
}

#[tokio::test]
async fn a_bad_last_record_takes_no_further_events() {
    let dir = fast_dir();
    make(dir.path()).await;
    tamper(dir.path(), |tree| {
        let (key, mut row) = rows_of(tree, 1).pop().unwrap();
        row[20] ^= 0x80;
        tree.insert(key, row).unwrap();
    });
    let error = open(dir.path()).append(&note(run(1), 5, "x")).await.unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

#[tokio::test]
async fn a_damaged_journal_goes_on_behind_its_last_good_record_once_its_end_is_put_aside() {
    let dir = fast_dir();
    make(dir.path()).await;
    // A flipped bit in one run, a row that vanished from another.
    tamper(dir.path(), |tree| {
        let (key, mut row) = rows_of(tree, 1)[2].clone();
        row[50] ^= 1;
        tree.insert(key, row).unwrap();
        tree.remove(&rows_of(tree, 3)[3].0).unwrap();
    });
    let store = open(dir.path());
    let whole = events(&store, run(2));
    for (n, after) in [(1, 2), (3, 3)] {
        let good = events(&store, run(n));
        assert_eq!(good.len(), after, "run {n}");
        assert_eq!(store.cut(run(n), Seq(after as u64)).await.unwrap(), Seq(after as u64));
        assert_eq!(store.read(run(n)).unwrap().len(), after);
        store.append(&note(run(n), after as u64, "on it goes")).await.unwrap();
        assert_eq!(events(&store, run(n))[..after], good);
        let aside = fs::read_to_string(dir.path().join("lost").join(run(n).to_string())).unwrap();
        assert_eq!(aside.lines().count(), if n == 1 { 3 } else { 1 }, "nothing is thrown away");
    }
    assert_eq!(store.cut(run(2), Seq(6)).await.unwrap(), Seq(6), "nothing is behind its end");
    assert_eq!(events(&store, run(2)), whole);
    assert_eq!(store.check().unwrap().findings, []);
    drop(store);
    assert_eq!(open(dir.path()).check().unwrap().findings, [], "also when it is opened again");
}

#[tokio::test]
async fn a_bad_line_of_the_index_is_replaced_by_what_the_journal_tells() {
    let dir = fast_dir();
    make(dir.path()).await;
    tamper(dir.path(), |tree| {
        let key = [&b"s"[..], &run(1).to_be_bytes(), &[0, 0]].concat();
        let mut row = tree.get(&key).unwrap().unwrap();
        row[30] ^= 1;
        tree.insert(key, row).unwrap();
    });
    let store = open(dir.path());
    let line = store.open_runs().unwrap().remove(0);
    assert_eq!((line.run, line.status), (run(1), RunStatus::Held));
    assert_eq!((line.workflow.as_str(), line.locks.len()), ("vm-stop", 1));
    assert!(line.held_reason.unwrap().contains("index"));
    assert_eq!(store.runs(None, 9).unwrap().len(), 3);
    assert_eq!(store.check().unwrap().findings[0].run, Some(run(1)));
}

#[tokio::test]
async fn rows_that_vanished_without_a_trace_are_noticed_by_their_number() {
    let dir = fast_dir();
    make(dir.path()).await;
    // The last record of an open run: its chain is whole without it.
    tamper(dir.path(), |tree| drop(tree.remove(&rows_of(tree, 1)[4].0).unwrap()));
    assert_refused(dir.path(), &["15 records instead of 16", "windrow store import"]);
    tamper(dir.path(), |tree| {
        for row in rows_of(tree, 3) {
            tree.remove(row.0).unwrap();
        }
        tree.remove([&b"s"[..], &run(3).to_be_bytes(), &[0, 0]].concat()).unwrap();
    });
    assert_refused(dir.path(), &["2 runs instead of 3"]);
    let report = journal::check(dir.path(), &OPTIONS).unwrap();
    assert!(report.findings_total >= 2, "{report:?}");
}

#[tokio::test]
async fn a_store_behind_its_head_file_is_refused_untouched() {
    let dir = fast_dir();
    make(dir.path()).await;
    let old = fast_dir();
    copy(&dir.path().join("sled"), old.path());
    let store = open(dir.path());
    store.append(&note(run(1), 5, "newer")).await.unwrap();
    drop(store);
    fs::remove_dir_all(dir.path().join("sled")).unwrap();
    copy(old.path(), &dir.path().join("sled"));
    assert_refused(dir.path(), &["lost commits 17 to 17", "windrow store import", "windrow store export"]);
    let report = journal::check(dir.path(), &OPTIONS).unwrap();
    assert_eq!(report.findings[0].what, "commits 17 to 17 are lost");
    // It stays refused, and what is left can be taken out.
    assert_refused(dir.path(), &["lost commits"]);
    let file = old.path().join("rest.export");
    let exported = journal::export(dir.path(), &file, &OPTIONS).unwrap();
    assert_eq!((exported.runs, exported.rows, exported.missing.len()), (3, 16, 0));
}

#[tokio::test]
async fn what_is_missing_is_never_made_anew() {
    for missing in ["head", "format", "sled", "sled/db"] {
        let dir = fast_dir();
        make(dir.path()).await;
        let path = dir.path().join(missing);
        if path.is_dir() {
            fs::remove_dir_all(&path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        assert_refused(dir.path(), &["windrow store import"]);
        assert!(!path.exists(), "{missing} was made");
    }
}

#[tokio::test]
async fn a_snapshot_that_an_interrupted_open_left_is_no_damage() {
    let dir = fast_dir();
    make(dir.path()).await;
    for left in [&b""[..], b"half of it"] {
        fs::write(dir.path().join("sled/snap.FFFFFFFFFFFFFFFF.generating"), left).unwrap();
        assert_eq!(content(&open(dir.path())).len(), 3);
    }
}

#[tokio::test]
async fn files_of_two_stores_do_not_mix() {
    let (one, two) = (fast_dir(), fast_dir());
    make(one.path()).await;
    make(two.path()).await;
    fs::copy(two.path().join("head"), one.path().join("head")).unwrap();
    assert_refused(one.path(), &["belong to different stores"]);
}

#[tokio::test]
async fn a_newer_store_is_refused_untouched() {
    let dir = fast_dir();
    make(dir.path()).await;
    let format = fs::read_to_string(dir.path().join("format")).unwrap();
    fs::write(dir.path().join("format"), format.replace("store 1", "store 2")).unwrap();
    let before = files(dir.path());
    assert_refused(dir.path(), &["format 2", "newer windrow"]);
    assert!(files(dir.path()) == before, "something was touched");
}

#[tokio::test]
async fn a_store_whose_making_was_interrupted_is_made_to_the_end() {
    let dir = fast_dir();
    drop(open(dir.path()));
    fs::remove_file(dir.path().join("format")).unwrap();
    fs::write(dir.path().join("sled/conf"), [0; 60]).unwrap();
    make(dir.path()).await;
    assert_eq!(content(&open(dir.path())).len(), 3);
}

#[tokio::test]
async fn a_flipped_bit_or_a_cut_file_never_goes_unnoticed() {
    let seed = std::process::id().into();
    let (made, trial) = (fast_dir(), fast_dir());
    make(made.path()).await;
    // Not closed in order: the log has a tail that no snapshot covers.
    let store = open(made.path());
    for expected in 5..30 {
        store.append(&note(run(1), expected, &"y".repeat(100))).await.unwrap();
    }
    store.append(&end(run(3), 5)).await.unwrap();
    let whole = content(&store);
    let digest = store.put_blob(&[7; 5_000]).unwrap();
    // The head file follows by itself when nothing comes.
    let head = made.path().join("head");
    let before = fs::read(&head).unwrap();
    while fs::read(&head).unwrap() == before {
        tokio::task::yield_now().await;
    }
    copy(made.path(), &trial.path().join("0"));
    drop(store);
    let mut rng = Rng::new(seed);
    let mut noticed = 0;
    for n in 1..=200 {
        let (from, dir) = (trial.path().join("0"), trial.path().join("1"));
        copy(&from, &dir);
        let paths: Vec<_> = files(&dir)
            .into_iter()
            .filter(|(path, bytes)| {
                !bytes.is_empty() && !path.ends_with("reserve") && !path.ends_with("lock")
            })
            .collect();
        let (path, bytes) = &paths[usize::try_from(rng.below(paths.len() as u64)).unwrap()];
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64 + 1;
        let place = rng.below(used);
        let file = fs::File::options().write(true).open(path).unwrap();
        match rng.below(3) {
            0 => file.set_len(place).unwrap(),
            _ => file
                .write_all_at(&[bytes[usize::try_from(place).unwrap()] ^ 1 << rng.below(8)], place)
                .unwrap(),
        }
        match journal::SledStore::open(&dir, &OPTIONS) {
            Err(_) => noticed += 1,
            Ok(store) => {
                let flawed = store.check().unwrap().findings_total > 0;
                noticed += u32::from(flawed);
                let what = format!("seed {seed}, trial {n}, {} at {place}", path.display());
                for (line, journal) in &whole {
                    match store.read(line.run) {
                        Ok(read) => assert!(read == *journal, "{what}: run {} lost events", line.run),
                        Err(e) => assert!(flawed, "{what}: {e}"),
                    }
                }
                assert!(
                    flawed
                        || store.runs(None, 99).unwrap()
                            == whole.iter().map(|(line, _)| line.clone()).collect::<Vec<_>>(),
                    "{what}"
                );
                assert!(flawed || store.blob(&digest).is_ok(), "{what}");
            }
        }
        fs::remove_dir_all(&dir).unwrap();
    }
    assert!(noticed > 50, "only {noticed} of 200 damages mattered: is anything damaged at all? seed {seed}");
}

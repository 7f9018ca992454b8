//! Export, import and compaction: the copy is the same store.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use windrow::engine::event::Actor;
use windrow::engine::event::Event;
use windrow::engine::state::RunStatus;
use windrow::failure::Failure;
use windrow::id::Seq;
use windrow::journal;
use windrow::journal::Error;
use windrow::journal::MemoryStore;
use windrow::journal::Store;
use windrow::journal::store::Append;
use windrow::journal::store::Keep;
use windrow::journal::store::Summary;

use super::support::OPTIONS;
use super::support::append;
use super::support::at;
use super::support::content;
use super::support::created;
use super::support::end;
use super::support::fast_dir;
use super::support::files;
use super::support::note;
use super::support::noted;
use super::support::open;
use super::support::run;
use super::support::start;
use super::support::summary;

async fn make(dir: &Path) {
    let store = open(dir);
    for n in 1..=4 {
        store.append(&start(run(n))).await.unwrap();
        store.append(&append(run(n), 1, vec![noted("x".repeat(9_000)), noted("y")], None)).await.unwrap();
    }
    store.append(&end(run(2), 3)).await.unwrap();
    store.put_setting("paused", Some(true.into())).await.unwrap();
    store.put_blob(b"before").unwrap();
}

#[tokio::test]
async fn an_imported_export_is_the_same_store() {
    let (dir, copy) = (fast_dir(), fast_dir());
    make(dir.path()).await;
    let store = open(dir.path());
    let file = copy.path().join("all.export");
    let exported = store.export(&file).unwrap();
    assert_eq!((exported.g, exported.runs, exported.blobs), (10, 4, 1));
    assert_eq!(exported.missing, Vec::<String>::new());
    let target = copy.path().join("store");
    let report = journal::import(&file, &target, at(0), &OPTIONS).unwrap();
    assert_eq!((report.runs, report.findings_total), (4, 0));
    let imported = open(&target);
    assert_eq!(content(&imported), content(&store));
    assert_eq!(imported.setting("paused").unwrap(), Some(true.into()));
    let digest = store.put_blob(b"before").unwrap();
    assert_eq!(imported.blob(&digest).unwrap(), b"before");
    assert_eq!(imported.append(&note(run(1), 3, "goes on")).await.unwrap(), Seq(4));
    assert_eq!(imported.check().unwrap().findings, []);
    // An export never overwrites a file.
    assert!(store.export(&file).is_err());
}

#[tokio::test]
async fn an_import_moves_the_store_before_it_aside() {
    let (dir, other) = (fast_dir(), fast_dir());
    make(dir.path()).await;
    let file = other.path().join("all.export");
    journal::export(dir.path(), &file, &OPTIONS).unwrap();
    fs::write(dir.path().join("sled/db"), b"destroyed").unwrap();
    let now = "2026-09-06T01:02:03Z".parse().unwrap();
    journal::import(&file, dir.path(), now, &OPTIONS).unwrap();
    let aside = dir.path().join("sled.replaced-2026-09-06T01-02-03.000Z");
    assert_eq!(fs::read(aside.join("db")).unwrap(), b"destroyed");
    assert_eq!(content(&open(dir.path())).len(), 4);
}

#[tokio::test]
async fn a_damaged_export_is_refused_before_anything_is_touched() {
    let (dir, other) = (fast_dir(), fast_dir());
    make(dir.path()).await;
    let file = other.path().join("all.export");
    journal::export(dir.path(), &file, &OPTIONS).unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    let before = files(dir.path());
    let error = journal::import(&file, dir.path(), at(0), &OPTIONS).unwrap_err();
    assert!(matches!(error, Error::Unusable(_)) && error.to_string().contains("damaged"), "{error}");
    assert!(files(dir.path()) == before, "something was touched");
}

#[tokio::test]
async fn a_compacted_store_is_the_same_and_smaller() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path()).await;
    let store = open(dir.path());
    let text = "z".repeat(2_000);
    for n in 100..140 {
        store.append(&start(run(n))).await.unwrap();
        let notes = (0..20).map(|_| noted(&*text)).collect();
        store.append(&append(run(n), 1, notes, None)).await.unwrap();
        store.append(&end(run(n), 21)).await.unwrap();
    }
    let keep = Keep { age: Duration::from_hours(1), runs: 1, at_once: usize::MAX };
    store.retain(keep, at(2)).await.unwrap();
    let before = content(&store);
    assert!(matches!(journal::compact(dir.path(), &OPTIONS), Err(Error::InUse { .. })));
    drop(store);
    let (old, new) = journal::compact(dir.path(), &OPTIONS).unwrap();
    assert!(new < old, "{old} -> {new}");
    let store = open(dir.path());
    assert_eq!(content(&store), before);
    assert_eq!(store.check().unwrap().findings, []);
    assert_eq!(
        fs::read_dir(dir.path())
            .unwrap()
            .filter(|e| e.as_ref().unwrap().path().ends_with("sled.new"))
            .count(),
        0
    );
}

/// What stands in tests/fixtures/journals/v1: a run of every kind of record.
fn fixture() -> Vec<Append> {
    let failure = Failure::retryable("conflict", "somebody else wrote first");
    let by = Actor { name: "ana".into() };
    let events = vec![
        Event::LocksGranted { deadline: Some(at(9)) },
        Event::Warned { step: Some("halt".parse().unwrap()), failure: failure.clone() },
        Event::Paused { by: by.clone() },
        Event::Unpaused { by, shift_ms: 5 },
        Event::RollbackStarted { failure: Some(failure) },
        noted("large ".repeat(3_000)),
    ];
    let keyed = Summary { key: Some("nightly".into()), ..summary(run(1), RunStatus::Running) };
    vec![
        append(run(1), 0, vec![created(Some("nightly"))], Some(keyed.clone())),
        append(run(1), 1, events, None),
        end(run(1), 7),
        start(run(2)),
    ]
    .into_iter()
    .map(|mut append| {
        let key = keyed.key.clone().filter(|_| append.run == run(1));
        append.summary = append.summary.map(|line| Summary { key, ..line });
        append
    })
    .collect()
}

fn fixture_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/journals/v1/all.seg")
}

#[tokio::test]
#[ignore = "writes the fixture of the current format; a released one is never written again"]
async fn write_the_fixture() {
    let dir = fast_dir();
    let store = open(dir.path());
    for append in fixture() {
        store.append(&append).await.unwrap();
    }
    store.put_blob(b"before").unwrap();
    fs::create_dir_all(fixture_path().parent().unwrap()).unwrap();
    drop(fs::remove_file(fixture_path()));
    store.export(&fixture_path()).unwrap();
}

#[tokio::test]
async fn the_first_format_can_still_be_read() {
    let (dir, expected) = (fast_dir(), MemoryStore::new());
    for append in fixture() {
        expected.append(&append).await.unwrap();
    }
    let report = journal::import(&fixture_path(), dir.path(), at(0), &OPTIONS).unwrap();
    assert_eq!(report.findings, []);
    let store = open(dir.path());
    assert_eq!(content(&store), content(&expected));
    assert_eq!(store.run_of_key("nightly").unwrap(), Some(run(1)));
    let digest = expected.put_blob(b"before").unwrap();
    assert_eq!(store.blob(&digest).unwrap(), b"before");
}

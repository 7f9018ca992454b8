//! Runs, events and summaries to put into a store.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;

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
use windrow::journal::store::Recorded;
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
        held_reason_zh: None,
        overlay: None,
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
        secrets: BTreeMap::new(),
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

/// What kept a store from being opened.
pub(super) fn refusal(dir: &Path) -> Error {
    SledStore::open(dir, &OPTIONS).map(drop).unwrap_err()
}

/// Everything that callers can see of a store: its lines and its journals.
pub(super) fn content(store: &dyn Store) -> Vec<(Summary, Vec<Recorded>)> {
    let lines = store.runs(None, usize::MAX).unwrap();
    lines.into_iter().map(|line| (line.clone(), store.read(line.run).unwrap())).collect()
}

/// Makes a directory the copy of another.
pub(super) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// All files of a directory, with their content.
pub(super) fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), std::fs::read(path).unwrap());
        }
    }
    found
}

/// Changes the rows of a closed store behind its back.
pub(crate) fn tamper(dir: &Path, change: impl FnOnce(&sled::Db)) {
    // Threads of sled may hold the file a little longer than its last handle lives.
    let file = std::fs::File::open(dir.join("sled/db")).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    drop(file);
    let tree = sled::Config::new().path(dir.join("sled")).open().unwrap();
    change(&tree);
    tree.flush().unwrap();
}

/// A temporary directory in memory, where there is one: thousands of syncs cost nothing there.
pub(super) fn fast_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Random numbers from a seed that a failing test can be given again.
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end` (SplitMix64).
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

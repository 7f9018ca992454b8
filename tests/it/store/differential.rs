//! Random histories on a store in memory and on one on a disk that is opened again and again: no caller can tell them
//! apart.

use std::fmt::Debug;
use std::time::Duration;

use proptest::prelude::*;
use windrow::engine::state::RunStatus;
use windrow::id::Seq;
use windrow::journal::MemoryStore;
use windrow::journal::Store;
use windrow::journal::store::Append;
use windrow::journal::store::Keep;
use windrow::journal::store::Summary;

use super::support::append;
use super::support::at;
use super::support::content;
use super::support::created;
use super::support::fast_dir;
use super::support::finished;
use super::support::noted;
use super::support::open;
use super::support::run;
use super::support::summary;

/// Something that a caller may do.
#[derive(Debug, Clone)]
enum Op {
    /// Append so many events of that size; `off` from the place that is right.
    Append { run: u64, off: u64, count: usize, size: usize, ends: bool, debts: u32, key: Option<u8> },
    /// Change a line alone.
    Line { run: u64, status: RunStatus },
    /// A setting.
    Set { name: u8, value: Option<u32> },
    /// Retention.
    Retain { age_ms: u64, runs: usize },
    /// Close and open the one on the disk.
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let size = prop_oneof![4 => 0..200_usize, 1 => 5_900..6_200_usize, 1 => 10_000..30_000_usize];
    let off = prop_oneof![8 => Just(0_u64), 1 => 1..3_u64];
    let debts = prop_oneof![3 => Just(0_u32), 1 => 1..3_u32];
    let key = proptest::option::weighted(0.3, 0..4_u8);
    let append = (1..8_u64, off, 1..4_usize, size, proptest::bool::weighted(0.2), debts, key).prop_map(
        |(run, off, count, size, ends, debts, key)| Op::Append { run, off, count, size, ends, debts, key },
    );
    let status = prop_oneof![Just(RunStatus::Held), Just(RunStatus::Waiting), Just(RunStatus::Failed)];
    prop_oneof![
        12 => append,
        2 => (1..8_u64, status).prop_map(|(run, status)| Op::Line { run, status }),
        1 => (0..3_u8, proptest::option::of(any::<u32>())).prop_map(|(name, value)| Op::Set { name, value }),
        1 => (0..40_u64, 0..6_usize).prop_map(|(age_ms, runs)| Op::Retain { age_ms, runs }),
        2 => Just(Op::Reopen),
    ]
}

/// The append that an op means on that store; both stores are at the same place or the test has failed already.
fn append_of(store: &dyn Store, step: usize, op: &Op) -> Option<Append> {
    let Op::Append { run: n, off, count, size, ends, debts, key } = op else { return None };
    let length = store.read(run(*n)).unwrap().len() as u64;
    let key = key.map(|key| format!("key {key}"));
    let mut events = vec![noted(format!("{step} {}", "x".repeat(*size))); *count];
    if length == 0 {
        events.insert(0, created(key.as_deref()));
    }
    if *ends {
        events.push(finished());
    }
    let status = if *ends { RunStatus::Succeeded } else { RunStatus::Running };
    // An ended run stays ended and a key stays, as the engine sees to it.
    let before = store.summary(run(*n)).unwrap();
    let was_open = before.as_ref().is_none_or(|line| !line.status.is_terminal());
    let key = before.map_or(key.map(Into::into), |line| line.key);
    let line = Summary { key, debts: *debts, ..summary(run(*n), status) };
    let line = (was_open && (length == 0 || *ends)).then_some(line);
    let mut append = append(run(*n), length + off, events, line);
    append.at = at(i64::try_from(step).unwrap());
    Some(append)
}

/// What came of it, without what may differ: the texts of errors.
fn outcome<T: Debug>(result: Result<T, windrow::journal::Error>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(e) => format!("{e:?}"),
    }
}

async fn perform(store: &dyn Store, step: usize, op: &Op) -> String {
    match op {
        Op::Append { .. } => {
            let append = append_of(store, step, op).unwrap();
            outcome::<Seq>(store.append(&append).await)
        }
        Op::Line { run: n, status } => {
            let ended = store.summary(run(*n)).unwrap().is_some_and(|line| line.status.is_terminal());
            let key = store.summary(run(*n)).unwrap().and_then(|line| line.key);
            if ended {
                String::new()
            } else {
                outcome(store.put_summary(Summary { key, ..summary(run(*n), *status) }).await)
            }
        }
        Op::Set { name, value } => outcome(store.put_setting(&name.to_string(), value.map(Into::into)).await),
        Op::Retain { age_ms, runs } => {
            let keep = Keep { age: Duration::from_millis(*age_ms), runs: *runs, at_once: usize::MAX };
            outcome(store.retain(keep, at(i64::try_from(step).unwrap())).await)
        }
        Op::Reopen => String::new(),
    }
}

/// Everything that can be asked.
fn view(store: &dyn Store) -> String {
    let keys: Vec<_> = (0..4).map(|key| store.run_of_key(&format!("key {key}")).unwrap()).collect();
    let settings: Vec<_> = (0..3).map(|name| store.setting(&name.to_string()).unwrap()).collect();
    format!("{:?}", (content(store), store.open_runs().unwrap(), keys, settings, store.newest().unwrap()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_stores_answer_alike(ops in proptest::collection::vec(op(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (memory, dir) = (MemoryStore::new(), fast_dir());
            let mut disk = open(dir.path());
            for (step, op) in ops.iter().enumerate() {
                if matches!(op, Op::Reopen) {
                    drop(disk);
                    disk = open(dir.path());
                    prop_assert_eq!(view(&memory), view(&disk), "after step {}", step);
                }
                prop_assert_eq!(perform(&memory, step, op).await, perform(&disk, step, op).await, "step {}", step);
            }
            prop_assert_eq!(view(&memory), view(&disk));
            prop_assert_eq!(disk.check().unwrap().findings, vec![]);
            Ok(())
        })?;
    }
}

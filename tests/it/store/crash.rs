//! What was acknowledged survives kill -9, and one process at a time has the store.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;
use std::sync::Arc;

use windrow::engine::event::Event;
use windrow::id::Seq;
use windrow::journal::Error;
use windrow::journal::Store;

use super::support::Rng;
use super::support::append;
use super::support::events;
use super::support::noted;
use super::support::open;
use super::support::refusal;
use super::support::run;
use super::support::start;

/// Tells the child where its store is.
const DIR: &str = "WINDROW_TEST_STORE";
/// Runs that the child appends to at the same time.
const RUNS: u64 = 8;

/// This binary again, to run [`child_that_appends_until_it_is_killed`].
pub(super) fn child(dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "store::crash::child_that_appends_until_it_is_killed",
        "--exact",
        "--ignored",
        "--nocapture",
    ]);
    command.env(DIR, dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// The text of an event, from which it can be told that it is the right one.
fn text(n: u64, seq: u64) -> String {
    format!("run {n} event {seq} {}", "x".repeat(usize::try_from(n * seq * 37 % 900).unwrap()))
}

#[tokio::test]
#[ignore = "the other tests start it as a process of its own"]
async fn child_that_appends_until_it_is_killed() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let store = Arc::new(open(Path::new(&dir)));
    say(format_args!("open"));
    let mut tasks = tokio::task::JoinSet::new();
    for n in 1..=RUNS {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let mut seq = store.read(run(n)).unwrap().len() as u64;
            if seq == 0 {
                store.append(&start(run(n))).await.unwrap();
                seq = 1;
            }
            loop {
                let count = 1 + seq % 3;
                let events = (0..count).map(|i| noted(text(n, seq + 1 + i))).collect();
                let last = store.append(&append(run(n), seq, events, None)).await.unwrap();
                seq += count;
                assert_eq!(last, Seq(seq));
                say(format_args!("{n} {seq}"));
            }
        });
    }
    let ended: Option<Result<(), _>> = tasks.join_next().await;
    panic!("a run stopped appending: {ended:?}");
}

/// Prints a line at once, past the test harness.
fn say(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "@ {line}").and_then(|()| out.flush()).unwrap();
}

/// Checks that the events of a run are the ones that the child appended, in their places.
pub(super) fn assert_true(n: u64, events: &[Event]) {
    for (seq, event) in (1..).zip(events).skip(1) {
        let Event::Noted { text: found, .. } = event else { panic!("{event:?}") };
        assert_eq!(*found, text(n, seq));
    }
}

#[test]
fn no_acknowledged_event_is_lost_to_kill_9() {
    let seed = u64::from(std::process::id());
    let mut rng = Rng::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged: BTreeMap<u64, u64> = BTreeMap::new();
    for cycle in 0..12 {
        let mut child = child(dir.path()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut said = lines.filter_map(|line| line.split_once("@ ").map(|(_, said)| said.to_owned()));
        assert_eq!(said.next().as_deref(), Some("open"), "cycle {cycle}, seed {seed}");
        let mut left = rng.below(120);
        for line in said {
            if left == 0 {
                // SIGKILL; what is still in the pipe was acknowledged and is read to its end.
                child.kill().unwrap();
            }
            left = left.saturating_sub(1);
            let (n, seq) = line.split_once(' ').unwrap();
            let (n, seq) = (n.parse().unwrap(), seq.parse().unwrap());
            let before = acknowledged.insert(n, seq);
            assert!(before < Some(seq), "cycle {cycle}, seed {seed}");
        }
        child.wait().unwrap();
        let store = open(dir.path());
        for (n, seq) in &acknowledged {
            let events = events(&store, run(*n));
            assert!(events.len() as u64 >= *seq, "run {n} lost events: cycle {cycle}, seed {seed}");
            assert_true(*n, &events);
        }
    }
    assert_eq!(acknowledged.len() as u64, RUNS, "seed {seed}");
    assert_eq!(open(dir.path()).check().unwrap().findings, []);
}

#[test]
fn a_second_process_is_told_who_has_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = child(dir.path()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.ends_with("@ open")));
    let error = refusal(dir.path());
    assert!(matches!(error, Error::InUse { pid } if pid == child.id()), "{error}");
    child.kill().unwrap();
    child.wait().unwrap();
    drop(open(dir.path()));
}

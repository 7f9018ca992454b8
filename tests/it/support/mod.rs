//! What several integration tests share.

use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use windrow::action::secret::Secrets;
use windrow::definition::Library;
use windrow::definition::model::Rehearsal;
use windrow::journal::memory::MemoryStore;
use windrow::rehearsal::Stage;
use windrow::time::SystemClock;
use windrow::time::Timestamp;
use windrow::time::wall_now;

pub(crate) mod certificates;
pub(crate) mod controlplane;

/// The seed of a test that draws: `WINDROW_SEED`, or another one in each run. It is printed, so that the same can be drawn
/// again.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("WINDROW_SEED").ok().map(|text| text.parse().unwrap());
    let seed = given.unwrap_or_else(|| u64::try_from(wall_now().as_millis()).unwrap());
    eprintln!("SEED={seed}");
    seed
}

/// A library to be preloaded into a process, from its C source; none if there is no compiler, which is said.
pub(crate) fn preloaded(dir: &Path, source: &str, what_for: &str) -> Option<PathBuf> {
    let (file, shim) = (dir.join("shim.c"), dir.join("shim.so"));
    std::fs::write(&file, source).unwrap();
    let built = Command::new("gcc").args(["-shared", "-fPIC", "-O1", "-o"]).args([&shim, &file]).output();
    match built {
        Ok(done) => {
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            Some(shim)
        }
        Err(e) => {
            let mut loud = std::io::stderr();
            writeln!(loud, "NOT TESTED: {what_for}, because gcc does not run here: {e}").unwrap();
            None
        }
    }
}

/// Workflows of which each calls the next: `w0`, which is so many calls above the last one. Names of files and texts.
pub(crate) fn chain(calls: usize) -> Vec<(String, String)> {
    let head =
        |i: usize| format!("schema = 1\nname = \"w{i}\"\ntitle = \"W\"\ntitle_zh = \"W\"\n[steps.go]\n");
    let calling = (0..calls).map(|i| head(i) + &format!("uses = \"workflow\"\nname = \"w{}\"\n", i + 1));
    let texts = calling.chain([head(calls) + "uses = \"sleep\"\nduration = \"1s\"\n"]);
    texts.enumerate().map(|(i, text)| (format!("w{i}.toml"), text)).collect()
}

/// When the clocks of stages start.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// The cluster of a rehearsal at a fixed moment, with a service that keeps its runs in memory. Durations are `speed` times
/// shorter.
pub(crate) async fn stage(library: &Arc<Library>, case: &Rehearsal, speed: f64) -> Stage {
    let clock = Arc::new(SystemClock::starting_at(START, speed));
    let store = Arc::new(MemoryStore::new());
    Stage::set(case, library.clone(), store, Secrets::new(None), clock, 1).await.unwrap()
}

//! A full disk: nothing acknowledged is lost, open runs can end, and it heals by itself.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use windrow::id::Seq;
use windrow::journal::Error;
use windrow::journal::Options;
use windrow::journal::SledStore;
use windrow::journal::Store;

use super::support::append;
use super::support::end;
use super::support::events;
use super::support::noted;
use super::support::run;
use super::support::start;

/// A file system of 24 MiB; unmounted at the end.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"]).arg(dir.path()).output();
        if mounted.is_ok_and(|done| done.status.success()) {
            return Some(Self(dir));
        }
        let mut loud = std::io::stderr();
        writeln!(loud, "NOT TESTED: a full disk, because `mount -t tmpfs` is refused here (be root)")
            .unwrap();
        None
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Fills the disk but for so many bytes.
    fn fill_up_to(&self, left: u64) {
        let space = rustix::fs::statvfs(self.0.path()).unwrap();
        let ballast = (space.f_bavail * space.f_frsize).saturating_sub(left);
        fs::write(self.path("ballast"), vec![1; usize::try_from(ballast).unwrap()]).unwrap();
    }

    fn empty(&self) {
        fs::remove_file(self.path("ballast")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, as a failed test may still have the store open.
        assert!(Command::new("umount").arg("-l").arg(self.0.path()).status().unwrap().success());
    }
}

const OPTIONS: Options = Options { cache_bytes: 4 << 20, reserve_bytes: 4 << 20 };

fn open(dir: &Path) -> SledStore {
    SledStore::open(dir, &OPTIONS).unwrap()
}

/// Appends remarks to a run until the disk is full; gives the number of events that were acknowledged.
async fn fill_run(store: &SledStore, n: u64, mut seq: u64) -> u64 {
    loop {
        match store.append(&append(run(n), seq, vec![noted("x".repeat(40_000))], None)).await {
            Ok(last) => seq = last.0,
            Err(Error::Full) => return seq,
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn a_full_disk_loses_nothing_ends_open_runs_and_heals() {
    let Some(disk) = SmallDisk::mount() else { return };
    let store = open(&disk.path("store"));
    for n in 1..=2 {
        store.append(&start(run(n))).await.unwrap();
    }
    disk.fill_up_to(3 << 20);
    let kept = fill_run(&store, 1, 1).await;
    assert!(kept > 5);

    // Read, end what is open, and start nothing new.
    assert!(events(&store, run(1)).len() as u64 >= kept);
    let error = store.append(&start(run(3))).await.unwrap_err();
    assert!(matches!(error, Error::Full), "{error}");
    assert!(matches!(store.revive().await, Err(Error::Full)));
    assert_eq!(store.append(&end(run(2), 1)).await.unwrap(), Seq(2));

    // Room again: no restart is needed.
    disk.empty();
    store.revive().await.unwrap();
    store.append(&start(run(3))).await.unwrap();
    drop(store);
    let store = open(&disk.path("store"));
    assert!(events(&store, run(1)).len() as u64 >= kept);
    assert_eq!(store.runs(None, 9).unwrap().len(), 3);
    assert_eq!(store.check().unwrap().findings, []);
}

#[tokio::test]
async fn a_disk_without_even_a_reserve_loses_nothing_and_heals() {
    let Some(disk) = SmallDisk::mount() else { return };
    let store = open(&disk.path("store"));
    store.append(&start(run(1))).await.unwrap();
    disk.fill_up_to(2 << 20);
    fill_run(&store, 1, 1).await;
    // Now the reserve is used up by others, and then by us.
    let rest = disk.path("others");
    let space = rustix::fs::statvfs(disk.0.path()).unwrap();
    fs::write(&rest, vec![1; usize::try_from(space.f_bavail * space.f_frsize).unwrap()]).unwrap();
    let mut kept = events(&store, run(1)).len() as u64;
    kept = fill_run(&store, 1, kept).await;
    let error = store.append(&start(run(2))).await.unwrap_err();
    assert!(matches!(error, Error::Full), "{error}");

    disk.empty();
    fs::remove_file(rest).unwrap();
    store.append(&start(run(2))).await.unwrap();
    assert!(events(&store, run(1)).len() as u64 >= kept);
    drop(store);
    assert_eq!(open(&disk.path("store")).check().unwrap().findings, []);
}

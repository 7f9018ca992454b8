//! The power fails: only what was synced is sure to be there, and everything acknowledged was synced.
//!
//! A child appends with a shim preloaded that records its writes. The record is cut at a random place; from then on
//! every page that was not synced is there or not at random, a size that was not synced is the old or the new one, and
//! names are those of a random point after the last sync, as a journalling file system keeps their order.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::path::Path;
use std::path::PathBuf;

use windrow::journal::SledStore;

use super::crash;
use super::support::OPTIONS;
use super::support::Rng;
use super::support::events;
use super::support::fast_dir;
use super::support::run;
use crate::support::preloaded;

/// How often the power fails.
const TRIALS: usize = 200;
/// What a disk writes as a whole.
const PAGE: usize = 4096;

/// Something that the child did.
struct Op {
    kind: u8,
    path: PathBuf,
    data: Vec<u8>,
    offset: usize,
}

/// A file as the child sees it, and as it is on the disk for sure.
#[derive(Clone, Default)]
struct Inode {
    live: Vec<u8>,
    synced: Vec<u8>,
}

/// A disk that remembers what of it is sure.
#[derive(Default)]
struct Disk {
    inodes: Vec<Inode>,
    /// Names now: none is a directory.
    names: BTreeMap<PathBuf, Option<usize>>,
    /// Names at the last sync and after each change since then.
    history: Vec<BTreeMap<PathBuf, Option<usize>>>,
}

impl Disk {
    fn perform(&mut self, op: &Op) {
        match op.kind {
            b'W' | b'T' | b'S' => match self.names.get(&op.path).copied().flatten() {
                Some(inode) => self.write(inode, op),
                None if op.kind == b'S' => self.history.clear(),
                None => panic!("{} is written but has no name", op.path.display()),
            },
            b'C' => {
                self.inodes.push(Inode::default());
                self.names.insert(op.path.clone(), Some(self.inodes.len() - 1));
            }
            b'D' => drop(self.names.insert(op.path.clone(), None)),
            b'U' => drop(self.names.remove(&op.path)),
            b'R' => {
                let inode = self.names.remove(&op.path).unwrap();
                self.names.insert(PathBuf::from(std::str::from_utf8(&op.data).unwrap()), inode);
            }
            _ => return,
        }
        if op.kind != b'W' {
            self.history.push(self.names.clone());
        }
    }

    fn write(&mut self, inode: usize, op: &Op) {
        let inode = &mut self.inodes[inode];
        match op.kind {
            b'T' => inode.live.resize(op.offset, 0),
            b'S' => {
                inode.synced.clone_from(&inode.live);
                self.history.clear();
            }
            _ => {
                let end = op.offset + op.data.len();
                inode.live.resize(inode.live.len().max(end), 0);
                inode.live[op.offset..end].copy_from_slice(&op.data);
            }
        }
    }

    /// What is found when the power is back.
    fn fail(&self, rng: &mut Rng, dir: &Path) {
        let names = match self.history.len() as u64 {
            0 => &self.names,
            n => &self.history[usize::try_from(rng.below(n)).unwrap()],
        };
        for (name, inode) in names {
            match inode {
                None => fs::create_dir_all(dir.join(name)).unwrap(),
                Some(inode) => fs::write(dir.join(name), survivor(&self.inodes[*inode], rng)).unwrap(),
            }
        }
    }
}

/// A file of which each page that was not synced is there or not.
fn survivor(inode: &Inode, rng: &mut Rng) -> Vec<u8> {
    let Inode { live, synced } = inode;
    let mut bytes = synced.clone();
    if rng.below(2) == 0 {
        bytes.resize(live.len(), 0);
    }
    for start in (0..bytes.len().min(live.len())).step_by(PAGE) {
        let end = (start + PAGE).min(bytes.len()).min(live.len());
        if rng.below(2) == 0 {
            bytes[start..end].copy_from_slice(&live[start..end]);
        }
    }
    bytes
}

/// Reads what the shim wrote. The last operation may be cut off.
fn parse(mut log: &[u8]) -> Vec<Op> {
    let mut ops = vec![];
    while let Some((head, rest)) = log.split_first_chunk::<25>() {
        let number =
            |i: usize| usize::try_from(u64::from_ne_bytes(head[i..i + 8].try_into().unwrap())).unwrap();
        let (path, data) = (number(1), number(9));
        if rest.len() < path + data {
            break;
        }
        ops.push(Op {
            kind: head[0],
            path: PathBuf::from(std::str::from_utf8(&rest[..path]).unwrap()),
            data: rest[path..path + data].to_vec(),
            offset: number(17),
        });
        log = &rest[path + data..];
    }
    ops
}

/// Lets a child append until it has said `lines` lines. Gives everything that was ever done to the store.
fn record(work: &Path, shim: &Path, lines: usize) -> Vec<Op> {
    let (store, log) = (work.join("store"), work.join("log"));
    let mut command = crash::child(&store);
    command.env("LD_PRELOAD", shim).env("WINDROW_SHIM_LOG", &log).env("WINDROW_SHIM_ROOT", &store);
    let mut child = command.spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).take(lines).count();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(said, lines, "the child ended by itself");
    parse(&fs::read(log).unwrap())
}

#[test]
fn no_acknowledged_event_is_lost_to_a_power_failure() {
    let seed = u64::from(std::process::id());
    let mut rng = Rng::new(seed);
    let work = fast_dir();
    let shim = preloaded(work.path(), include_str!("power_loss.c"), "a power failure");
    let Some(shim) = shim else { return };
    // Two lives of one store: the second begins with the recovery of the first.
    let first = record(work.path(), &shim, 150).len();
    let ops = record(work.path(), &shim, 150);
    assert!(ops.len() > first && ops.iter().filter(|op| op.kind == b'S').count() > 50);

    let mut cuts: Vec<_> =
        (0..TRIALS).map(|_| usize::try_from(rng.below(ops.len() as u64)).unwrap()).collect();
    cuts.sort_unstable();
    let (mut disk, mut done) = (Disk::default(), 0);
    let mut acknowledged: BTreeMap<u64, u64> = BTreeMap::new();
    for cut in cuts {
        for op in &ops[done..cut] {
            disk.perform(op);
            let said = String::from_utf8_lossy(&op.data);
            if let (b'A', Some((_, line))) = (op.kind, said.split_once("@ ")) {
                let pair = line.trim_end().split_once(' ').map(|(n, seq)| (n.parse(), seq.parse()));
                if let Some((Ok(n), Ok(seq))) = pair {
                    acknowledged.insert(n, seq);
                }
            }
        }
        done = cut;
        let dir = work.path().join("after");
        fs::create_dir_all(&dir).unwrap();
        disk.fail(&mut rng, &dir);
        for _ in 0..2 {
            let opened = SledStore::open(&dir, &OPTIONS);
            let store = opened.unwrap_or_else(|e| panic!("seed {seed}, cut at {cut} of {}: {e}", ops.len()));
            for (n, seq) in &acknowledged {
                let events = events(&store, run(*n));
                assert!(events.len() as u64 >= *seq, "run {n} lost events: seed {seed}, cut at {cut}");
                crash::assert_true(*n, &events);
            }
            assert_eq!(store.check().unwrap().findings, [], "seed {seed}, cut at {cut}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}

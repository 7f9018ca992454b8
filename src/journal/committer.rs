//! The one thread that writes. It takes everything that waits, makes one batch of it, makes the batch durable, and
//! answers. Nobody waits for a timer: while one batch is being synced the next one gathers.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::RwLock;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::oneshot;

use crate::id::RunId;
use crate::id::Seq;
use crate::journal::disk::Disk;
use crate::journal::group::End;
use crate::journal::group::Group;
use crate::journal::head::Head;
use crate::journal::index::Meta;
use crate::journal::keys;
use crate::journal::parts::Rows;
use crate::journal::record::Draft;
use crate::journal::reserve::Reserve;
use crate::journal::sled::Settled;
use crate::journal::store::Error;
use crate::journal::store::Summary;
use crate::journal::view::View;
use crate::journal::walk::Tail;
use crate::time::Timestamp;

/// The head file is written after so many commits under load: one fdatasync in 32 costs 3 %, and no more commits than
/// these could be lost without being noticed.
const HEAD_COMMITS: u64 = 32;
/// And when nothing came for so long.
const HEAD_IDLE: Duration = Duration::from_millis(50);
/// Jobs that share a batch, and places in the channel.
pub(super) const GROUP_MAX: usize = 4096;
/// Tails that are remembered: those of the runs that append often. Parked ones are looked up when they wake.
const TAILS_MAX: usize = 4096;

/// What readers and the committer share.
pub(super) struct Shared {
    pub(super) disk: Disk,
    /// The tree, or why there is none at the moment.
    tree: RwLock<Result<::sled::Db, Error>>,
    /// Held during a commit, and by whoever needs the store to stand still.
    still: Mutex<()>,
}

impl Shared {
    pub(super) fn new(disk: Disk, tree: ::sled::Db) -> Self {
        Self { disk, tree: RwLock::new(Ok(tree)), still: Mutex::new(()) }
    }

    /// Reads from the tree.
    pub(super) fn view<T>(&self, read: impl FnOnce(View<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let tree = self.tree.read().unwrap_or_else(PoisonError::into_inner);
        read(View { tree: tree.as_ref().map_err(Clone::clone)?, disk: &self.disk })
    }

    /// Keeps commits from happening as long as the guard lives.
    pub(super) fn still(&self) -> MutexGuard<'_, ()> {
        self.still.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace(&self, tree: Result<::sled::Db, Error>) {
        *self.tree.write().unwrap_or_else(PoisonError::into_inner) = tree;
    }
}

/// What the committer is asked to do.
pub(super) enum Work {
    /// Events of a run. Answered with the last of them.
    Append { run: RunId, expected: Seq, at: Timestamp, draft: Draft, summary: Option<Summary> },
    /// A line of the index alone.
    Summary(Summary),
    /// Rows of neither journal nor index.
    Rows(Rows),
    /// The next rows of an ended run. Answered with 0 when nothing of it is left.
    Remove(RunId),
    /// The end of a damaged journal is taken away. Answered with the last event that is left.
    Cut { run: RunId, after: Seq },
    /// Nothing; but a full disk is looked at again.
    Revive,
}

/// Work and who waits for it.
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) waiter: Waiter,
}

/// Who waits for an answer.
pub(super) struct Waiter {
    pub(super) reply: oneshot::Sender<Result<Seq, Error>>,
    /// A place in the channel, given back with the answer.
    pub(super) place: OwnedSemaphorePermit,
}

impl Waiter {
    fn answer(self, answer: Result<Seq, Error>) {
        drop(self.place);
        // Whoever gave up waiting will read the run again.
        drop(self.reply.send(answer));
    }
}

/// Whether the store takes what it is given.
enum Mode {
    /// It does.
    Normal,
    /// The reserve is given up: no new runs.
    Low,
    /// Not even the reserve was enough.
    Full,
    /// A commit failed in a way that only a person can mend.
    Broken(Error),
}

/// The thread's state.
pub(super) struct Committer {
    shared: Arc<Shared>,
    cache_bytes: u64,
    jobs: Receiver<Vec<Job>>,
    /// sled syncs its file without the size; this second handle does it properly.
    file: File,
    head: Head,
    reserve: Reserve,
    meta: Meta,
    tails: Tails,
    mode: Mode,
}

impl Committer {
    pub(super) fn new(
        shared: Arc<Shared>,
        cache_bytes: u64,
        jobs: Receiver<Vec<Job>>,
        file: File,
        head: Head,
        reserve: Reserve,
        meta: Meta,
    ) -> Self {
        let mode = if reserve.is_held() { Mode::Normal } else { Mode::Low };
        Self { shared, cache_bytes, jobs, file, head, reserve, meta, tails: Tails::default(), mode }
    }

    /// Works until nobody can send any more.
    pub(super) fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        while let Some(jobs) = self.next() {
            let still = shared.still();
            if matches!(self.mode, Mode::Full) {
                self.reopen();
            }
            let mut group = Group::new(self.meta);
            jobs.into_iter().for_each(|job| self.take(job, &mut group));
            while group.answers.len() < GROUP_MAX {
                let Ok(jobs) = self.jobs.try_recv() else { break };
                jobs.into_iter().for_each(|job| self.take(job, &mut group));
            }
            if !group.answers.is_empty() {
                self.commit(group);
            }
            drop(still);
        }
        self.write_head();
        shared.replace(Err(shared.disk.unusable("it was closed")));
    }

    /// The next jobs. Brings the head file up to date when nothing comes.
    fn next(&mut self) -> Option<Vec<Job>> {
        if self.head.newest().g < self.meta.g {
            match self.jobs.recv_timeout(HEAD_IDLE) {
                Ok(jobs) => return Some(jobs),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => self.write_head(),
            }
        }
        self.jobs.recv().ok()
    }

    fn write_head(&mut self) {
        if self.head.newest().g >= self.meta.g || matches!(self.mode, Mode::Broken(_)) {
            return;
        }
        if let Err(e) = self.head.write(self.meta) {
            // The store is whole, but from here on losses would go unnoticed.
            self.mode =
                Mode::Broken(self.shared.disk.unusable(format_args!("writing its head file failed: {e}")));
        }
    }

    /// Puts a job into the group, or answers it at once.
    fn take(&mut self, job: Job, group: &mut Group) {
        let placed = self.ready(&job.work).and_then(|()| {
            let tails = &self.tails;
            self.shared.view(|view| group.place(view, tails, job.work))
        });
        match placed {
            Ok(seq) => group.answers.push((job.waiter, seq)),
            Err(e) => job.waiter.answer(Err(e)),
        }
    }

    /// Whether the store takes such work now.
    fn ready(&mut self, work: &Work) -> Result<(), Error> {
        let needs_room = matches!(work, Work::Revive | Work::Append { expected: Seq(0), .. });
        match &self.mode {
            Mode::Low if needs_room => {
                self.reserve.take().map_err(|e| self.shared.disk.failed("taking its reserve", &e))?;
                self.mode = Mode::Normal;
                Ok(())
            }
            Mode::Normal | Mode::Low => Ok(()),
            Mode::Full => Err(Error::Full),
            Mode::Broken(e) => Err(e.clone()),
        }
    }

    fn commit(&mut self, group: Group) {
        let Group { mut batch, mut meta, tails, answers, .. } = group;
        meta.g += 1;
        batch.insert(&keys::META, meta.seal());
        let file = &self.file;
        let done = self.shared.view(|view| {
            let written = view.tree.apply_batch(batch).and_then(|()| view.tree.flush());
            written.map_err(|e| view.disk.tree_failed("writing to it", e))?;
            file.sync_data().map_err(|e| view.disk.failed("syncing it", &e))
        });
        if let Err(e) = done {
            self.give_up(&e);
            for (waiter, _) in answers {
                waiter.answer(Err(e.clone()));
            }
            return;
        }
        for (waiter, seq) in answers {
            waiter.answer(Ok(seq));
        }
        self.meta = meta;
        for (run, end) in tails {
            self.tails.set(run, end);
        }
        if meta.g - self.head.newest().g >= HEAD_COMMITS {
            self.write_head();
        }
    }

    /// After a failed commit the tree takes nothing any more, whatever the reason. If the disk is full it is opened
    /// again in the room of the reserve.
    fn give_up(&mut self, error: &Error) {
        match error {
            Error::Full => self.reopen(),
            other => self.mode = Mode::Broken(other.clone()),
        }
    }

    fn reopen(&mut self) {
        self.mode = Mode::Full;
        // Every handle must be gone before the tree can be opened again.
        self.shared.replace(Err(Error::Full));
        self.tails = Tails::default();
        let released = self.reserve.release();
        let released = released.map_err(|e| self.shared.disk.failed("giving up its reserve", &e));
        let disk = self.shared.disk.clone();
        let open = |()| self.shared.disk.guarded(self.cache_bytes, move |tree| disk.settle(tree));
        match released.and_then(open) {
            Ok(Settled { tree, file, meta: Some(meta) }) if meta.g >= self.meta.g => {
                (self.file, self.meta) = (file, meta);
                self.shared.replace(Ok(tree));
                self.mode = Mode::Low;
            }
            Ok(_) => {
                self.mode = Mode::Broken(self.shared.disk.damaged("it lost commits when the disk was full"));
            }
            Err(Error::Full) => {}
            Err(e) => self.mode = Mode::Broken(e),
        }
    }
}

/// The ends of the journals that were appended to lately. Two generations: when the young one is full it becomes the
/// old one, and what was not used since is forgotten.
#[derive(Debug, Default)]
pub(super) struct Tails {
    young: BTreeMap<RunId, Tail>,
    old: BTreeMap<RunId, Tail>,
}

impl Tails {
    pub(super) fn get(&self, run: RunId) -> Option<Tail> {
        self.young.get(&run).or_else(|| self.old.get(&run)).copied()
    }

    fn set(&mut self, run: RunId, end: End) {
        self.old.remove(&run);
        match end {
            End::Open(tail) => self.young.insert(run, tail),
            End::Ended(_) | End::Removed => self.young.remove(&run),
        };
        if self.young.len() >= TAILS_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tails_remembered_are_bounded_and_the_busy_ones_stay() {
        let mut tails = Tails::default();
        let busy = RunId::new(0, 0);
        for n in 1..20_000_u64 {
            tails.set(RunId::new(n, 0), End::Open(Tail::default()));
            tails.set(busy, End::Open(Tail { seq: Seq(n), crc: 0 }));
            assert!(tails.young.len() + tails.old.len() <= TAILS_MAX);
            assert_eq!(tails.get(busy).map(|tail| tail.seq), Some(Seq(n)));
        }
        tails.set(busy, End::Ended(Tail::default()));
        assert_eq!(tails.get(busy), None);
    }
}

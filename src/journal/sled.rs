//! The store on a disk: sled 0.34.7 in the shape that was measured never to lose an acknowledged event
//! (dependencies.md §1.2, §1.3).

use std::fs;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::sync::oneshot;

use crate::id::RunId;
use crate::id::Seq;
use crate::journal::committer::Committer;
use crate::journal::committer::GROUP_MAX;
use crate::journal::committer::Job;
use crate::journal::committer::Shared;
use crate::journal::committer::Waiter;
use crate::journal::committer::Work;
use crate::journal::disk;
use crate::journal::disk::Disk;
use crate::journal::disk::Lock;
use crate::journal::export;
use crate::journal::export::Exported;
use crate::journal::gathering::Gathering;
use crate::journal::head::Head;
use crate::journal::index::Meta;
use crate::journal::index::StoreId;
use crate::journal::keys;
use crate::journal::keys::Table;
use crate::journal::parts;
use crate::journal::record;
use crate::journal::record::Draft;
use crate::journal::reserve::Reserve;
use crate::journal::retention;
use crate::journal::retention::Retention;
use crate::journal::side::SideFiles;
use crate::journal::store;
use crate::journal::store::Append;
use crate::journal::store::Error;
use crate::journal::store::Keep;
use crate::journal::store::Pending;
use crate::journal::store::Recorded;
use crate::journal::store::Removed;
use crate::journal::store::Store;
use crate::journal::store::Summary;
use crate::journal::verify;
use crate::journal::verify::Report;
use crate::journal::view::View;
use crate::plan::WorkflowDigest;
use crate::time::Timestamp;

/// Summaries that retention looks at before it goes on to the next: keeps its memory small.
const RETAIN_PAGE: usize = 256;

/// How a store uses the machine.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Memory for sled's pages, in bytes. 500 runs that are being appended to fill about 4 MiB; a larger cache is filled
    /// by parked runs, which do not need it.
    pub cache_bytes: u64,
    /// Disk space kept for the moment when there is none left.
    pub reserve_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_bytes: 4 << 20, reserve_bytes: 64 << 20 }
    }
}

/// A store in a directory.
pub struct SledStore {
    shared: Arc<Shared>,
    side: Arc<SideFiles>,
    places: Arc<Semaphore>,
    jobs: Option<Gathering>,
    thread: Option<JoinHandle<()>>,
    _lock: Lock,
}

/// A tree that was opened and whose state was read.
pub(super) struct Settled {
    pub(super) tree: ::sled::Db,
    pub(super) file: File,
    pub(super) meta: Option<Meta>,
}

impl Disk {
    /// Reads the state of a tree that was just opened.
    pub(super) fn settle(&self, tree: ::sled::Db) -> Result<Settled, Error> {
        let meta = View { tree: &tree, disk: self }.meta()?;
        let file = File::open(self.tree().join("db")).map_err(|e| self.failed("opening it", &e))?;
        Ok(Settled { tree, file, meta })
    }
}

impl SledStore {
    /// Opens the store in a directory, or makes one there. Blocks while it goes through every row.
    ///
    /// # Errors
    /// [`Error::InUse`] if another process has it, [`Error::Full`] if not even the reserve leaves room to open it,
    /// [`Error::Unusable`] if its format is newer or anything that was acknowledged is missing. It is then left as it is.
    pub fn open(dir: &Path, options: &Options) -> Result<Self, Error> {
        let disk = Disk::new(dir);
        disk.format()?;
        disk.create()?;
        let lock = disk.lock()?;
        let reserve = Reserve::new(disk.reserve(), options.reserve_bytes);
        let (head, Settled { tree, file, meta }) = match disk.format()? {
            Some(id) => open_existing(&disk, id, options, &reserve)?,
            None => create(&disk, options)?,
        };
        let Some(meta) = meta else { return Err(disk.damaged("its state is missing")) };
        let side = SideFiles::new(disk.clone());
        side.tidy().map_err(|e| disk.failed("tidying its side files", &e))?;
        match reserve.take() {
            Err(e) if !disk::is_full(&e) => return Err(disk.failed("taking its reserve", &e)),
            _ => {}
        }
        let (jobs, received) = Gathering::new();
        let shared = Arc::new(Shared::new(disk.clone(), tree));
        let committer =
            Committer::new(Arc::clone(&shared), options.cache_bytes, received, file, head, reserve, meta);
        let thread =
            std::thread::Builder::new().name("store-commit".to_owned()).spawn(move || committer.run());
        let thread = thread.map_err(|e| disk.failed("starting a thread", &e))?;
        let places = Arc::new(Semaphore::new(GROUP_MAX));

        Ok(Self { shared, side: Arc::new(side), places, jobs: Some(jobs), thread: Some(thread), _lock: lock })
    }

    /// Checks everything that is stored, while commits wait.
    pub fn check(&self) -> Result<Report, Error> {
        let _still = self.shared.still();
        self.shared.view(|view| {
            let meta = view.meta()?.ok_or_else(|| view.disk.damaged("its state is missing"))?;
            verify::check_tree(view, meta.store, &self.side)
        })
    }

    /// Writes everything that is stored to a new file, while commits wait.
    pub fn export(&self, file: &Path) -> Result<Exported, Error> {
        let _still = self.shared.still();
        self.shared.view(|view| {
            let meta = view.meta()?.ok_or_else(|| view.disk.damaged("its state is missing"))?;
            export::write_file(view, meta, &self.side, file)
        })
    }

    async fn ask(&self, work: Work) -> Result<Seq, Error> {
        let gone = || self.shared.disk.unusable("its committer has ended");
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| gone())?;
        let (reply, answer) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or_else(gone)?;
        jobs.send(Job { work, waiter: Waiter { reply, place } }).await;
        answer.await.map_err(|_| gone())?
    }

    fn decode(&self, what: &str, bytes: &[u8]) -> Result<Value, Error> {
        rmp_serde::from_slice(bytes).map_err(|e| self.bad_value(what, &e))
    }

    fn bad_value(&self, what: &str, why: &dyn std::fmt::Display) -> Error {
        self.shared.disk.unusable(format_args!("{what} cannot be read: {why}"))
    }

    async fn remove(&self, run: RunId) -> Result<(), Error> {
        while self.ask(Work::Remove(run)).await? != Seq(0) {}
        Ok(())
    }

    async fn remove_runs(&self, keep: Keep, now: Timestamp) -> Result<usize, Error> {
        for run in self.shared.view(|view| view.runs_in(Table::Leaving).collect::<Result<Vec<_>, _>>())? {
            self.remove(run).await?;
        }
        let (mut before, mut retention, mut removed) = (None, Retention::new(keep, now), 0);
        loop {
            let page = self.runs(before, RETAIN_PAGE)?;
            let Some(last) = page.last().filter(|_| !retention.is_spent()) else { return Ok(removed) };
            before = Some(last.run);
            for summary in &page {
                let root = summary.root.map(|root| self.summary(root)).transpose()?.flatten();
                if retention.removes(summary, root.is_some_and(|root| !root.status.is_terminal())) {
                    self.remove(summary.run).await?;
                    removed += 1;
                }
            }
            // Runs that share the thread go on between two pages.
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the committer was answered with errors long ago.
            drop(thread.join());
        }
    }
}

/// Opens a tree that was there before, and checks it against the head file.
fn open_existing(
    disk: &Disk,
    id: StoreId,
    options: &Options,
    reserve: &Reserve,
) -> Result<(Head, Settled), Error> {
    let head = Head::open(&disk.head()).map_err(|e| disk.failed("reading its head file", &e))?;
    let head = head.ok_or_else(|| disk.damaged("its head file is missing or damaged"))?;
    if !disk.tree().join("db").exists() {
        return Err(disk.damaged("its directory `sled` is missing"));
    }
    let newest = head.newest();
    let open = || {
        let on_thread = disk.clone();
        disk.guarded(options.cache_bytes, move |tree| {
            let settled = on_thread.settle(tree)?;
            verify::admit(View { tree: &settled.tree, disk: &on_thread }, settled.meta, id, newest)?;
            Ok(settled)
        })
    };
    let settled = match open() {
        Err(Error::Full) => {
            reserve.release().map_err(|e| disk.failed("giving up its reserve", &e))?;
            open()?
        }
        other => other?,
    };
    Ok((head, settled))
}

/// Makes a store. The file `format` comes last: until it is there, nothing was acknowledged.
pub(super) fn create(disk: &Disk, options: &Options) -> Result<(Head, Settled), Error> {
    let failed = |e: io::Error| disk.failed("making it", &e);
    let old = Head::open(&disk.head()).map_err(failed)?.map(|head| head.newest());
    let begun = old.is_some_and(|old| old.g == 0);
    if !begun && (old.is_some() || disk.tree().exists()) {
        return Err(disk.damaged("it holds data but its file `format` is missing"));
    }
    // What an interrupted making left was never a store, and sled may be unable to read it.
    match fs::remove_dir_all(disk.tree()) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    let mut id = StoreId::default();
    getrandom::fill(&mut id).map_err(|e| disk.unusable(format_args!("no random number for its id: {e}")))?;
    let meta = Meta::new(id);
    let head = Head::create(&disk.head(), meta).map_err(failed)?;
    // Before the tree: a tree without a head file is one that lost it.
    disk::sync_dir(&disk.dir).map_err(failed)?;
    let on_thread = disk.clone();
    let settled = disk.guarded(options.cache_bytes, move |tree| {
        let written = tree.insert(keys::META, meta.seal()).and_then(|_| tree.flush());
        written.map_err(|e| on_thread.tree_failed("making it", e))?;
        on_thread.settle(tree)
    })?;
    settled.file.sync_data().map_err(failed)?;
    disk.write_format(id).map_err(failed)?;
    Ok((head, settled))
}

impl Store for SledStore {
    fn append<'a>(&'a self, append: &'a Append) -> Pending<'a, Seq> {
        // Encoded here, not on the committer's thread, which everybody waits for.
        let draft = store::admit(append).and_then(|()| Draft::new(append.at, &append.events));
        let (run, expected, at, summary) = (append.run, append.expected, append.at, append.summary.clone());
        Box::pin(async move { self.ask(Work::Append { run, expected, at, draft: draft?, summary }).await })
    }

    fn read(&self, run: RunId) -> Result<Vec<Recorded>, Error> {
        self.shared.view(|view| match view.row(&keys::of_run(Table::Leaving, run))? {
            Some(_) => Ok(vec![]),
            None => view.read(run),
        })
    }

    fn runs(&self, before: Option<RunId>, limit: usize) -> Result<Vec<Summary>, Error> {
        self.shared.view(|view| view.runs(before, limit))
    }

    fn open_runs(&self) -> Result<Vec<Summary>, Error> {
        self.shared.view(|view| {
            let summaries = view.runs_in(Table::Open).map(|run| view.summary(run?));
            summaries.filter_map(Result::transpose).collect()
        })
    }

    fn summary(&self, run: RunId) -> Result<Option<Summary>, Error> {
        self.shared.view(|view| view.summary(run))
    }

    fn put_summary(&self, summary: Summary) -> Pending<'_, ()> {
        Box::pin(async move { self.ask(Work::Summary(summary)).await.map(drop) })
    }

    fn cut(&self, run: RunId, after: Seq) -> Pending<'_, Seq> {
        Box::pin(self.ask(Work::Cut { run, after }))
    }

    fn run_of_key(&self, key: &str) -> Result<Option<RunId>, Error> {
        self.shared.view(|view| view.run_of_key(key))
    }

    fn put_definition(&self, digest: &WorkflowDigest, definition: &Value) -> Pending<'_, ()> {
        let key = keys::named(Table::Definition, digest.as_str());
        let mut rows = vec![];
        let split =
            store::encode(definition).and_then(|value| parts::split("a definition", &key, &value, &mut rows));
        Box::pin(async move {
            split?;
            // Definitions are found by their digest: one that is there is the same one.
            if self.shared.view(|view| view.value(&key))?.is_some() {
                return Ok(());
            }
            self.ask(Work::Rows(rows)).await.map(drop)
        })
    }

    fn definition(&self, digest: &WorkflowDigest) -> Result<Option<Value>, Error> {
        let key = keys::named(Table::Definition, digest.as_str());
        let value = self.shared.view(|view| view.value(&key))?;
        value.map(|bytes| self.decode("a definition", &bytes)).transpose()
    }

    fn setting(&self, name: &str) -> Result<Option<Value>, Error> {
        let key = keys::named(Table::Setting, name);
        let row = self.shared.view(|view| view.row(&key))?;
        let Some(row) = row else { return Ok(None) };
        let payload = record::unseal(&key, &row).map_err(|e| self.bad_value("a setting", &e))?;
        self.decode("a setting", payload).map(Some)
    }

    fn put_setting(&self, name: &str, value: Option<Value>) -> Pending<'_, ()> {
        let key = keys::named(Table::Setting, name);
        let row = value.map(|value| store::encode_setting(name, &value)).transpose();
        Box::pin(async move {
            let row = row?.map(|payload| record::seal(&key, &[&payload]));
            self.ask(Work::Rows(vec![(key, row)])).await.map(drop)
        })
    }

    fn put_blob(&self, bytes: &[u8]) -> Result<Arc<str>, Error> {
        self.side.put(bytes)
    }

    fn blob(&self, digest: &str) -> Result<Vec<u8>, Error> {
        self.side.get(digest)
    }

    fn newest(&self) -> Result<Option<Timestamp>, Error> {
        self.shared.view(|view| Ok(view.meta()?.and_then(|meta| meta.newest)))
    }

    fn revive(&self) -> Pending<'_, ()> {
        Box::pin(async move { self.ask(Work::Revive).await.map(drop) })
    }

    fn retain(&self, keep: Keep, now: Timestamp) -> Pending<'_, Removed> {
        Box::pin(async move {
            let runs = self.remove_runs(keep, now).await?;
            if runs == 0 {
                return Ok(Removed::default());
            }
            let (shared, side) = (Arc::clone(&self.shared), Arc::clone(&self.side));
            let swept = tokio::task::spawn_blocking(move || retention::sweep(&shared, &side)).await;
            let blobs =
                swept.map_err(|e| self.shared.disk.unusable(format_args!("sweeping failed: {e}")))??;
            Ok(Removed { runs, blobs })
        })
    }
}

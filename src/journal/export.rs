//! Copies of a store: out to one file, in from one, and into a fresh tree.

use std::fs;
use std::fs::File;
use std::io;
use std::io::BufReader;
use std::io::BufWriter;
use std::io::Write;
use std::ops::Bound;
use std::path::Path;

use rustix::fs::CWD;
use rustix::fs::RenameFlags;

use crate::journal::disk;
use crate::journal::disk::Disk;
use crate::journal::head::Head;
use crate::journal::index::Meta;
use crate::journal::keys;
use crate::journal::keys::Table;
use crate::journal::segment::BLOB;
use crate::journal::segment::Reader;
use crate::journal::segment::Writer;
use crate::journal::side::SideFiles;
use crate::journal::sled::Options;
use crate::journal::sled::Settled;
use crate::journal::store::Error;
use crate::journal::verify;
use crate::journal::verify::Depth;
use crate::journal::verify::Report;
use crate::journal::view::View;
use crate::time::Timestamp;

/// Rows that are written to a new tree in one batch.
const BATCH_ROWS: usize = 1024;
/// The tree in the making.
const NEW_TREE: &str = "sled.new";

/// What an export holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exported {
    /// Commits up to which it goes.
    pub g: u64,
    /// Runs.
    pub runs: u64,
    /// Journal rows.
    pub rows: u64,
    /// Side files.
    pub blobs: u64,
    /// What could not be read and is missing in it.
    pub missing: Vec<String>,
}

/// Writes everything that can be read of the store in `dir` to a new file. Works on a store that is refused, too: what
/// is missing is then told. The store must not be open; an open one has [`crate::journal::SledStore::export`].
pub fn export(dir: &Path, file: &Path, options: &Options) -> Result<Exported, Error> {
    let disk = Disk::new(dir);
    let id = disk.format()?.ok_or_else(|| disk.unusable("there is none"))?;
    let _lock = disk.lock()?;
    let (on_thread, file) = (disk.clone(), file.to_owned());
    disk.guarded(options.cache_bytes, move |tree| {
        let view = View { tree: &tree, disk: &on_thread };
        let meta = view.meta().ok().flatten().unwrap_or(Meta::new(id));
        write_file(view, meta, &SideFiles::new(on_thread.clone()), &file)
    })
}

/// The part of an export that happens while the store stands still.
pub(super) fn write_file(
    view: View<'_>,
    meta: Meta,
    side: &SideFiles,
    file: &Path,
) -> Result<Exported, Error> {
    let failed = |e: io::Error| Error::Unusable(format!("writing {} failed: {e}", file.display()));
    let mut new = disk::private();
    let to = new.create_new(true).open(file).map_err(failed)?;
    let (exported, to) = write_rows(view, meta, side, BufWriter::new(to)).map_err(failed)?;
    to.into_inner().map_err(|e| failed(e.into_error()))?.sync_all().map_err(failed)?;
    let parent = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    disk::sync_dir(parent).map_err(failed)?;
    Ok(exported)
}

fn write_rows<W: Write>(view: View<'_>, meta: Meta, side: &SideFiles, to: W) -> io::Result<(Exported, W)> {
    let mut writer = Writer::new(to, meta)?;
    let mut exported = Exported { g: meta.g, ..Exported::default() };
    let mut row = |key: &[u8], value: &[u8], exported: &mut Exported| {
        match key.first() {
            Some(first) if *first == Table::Journal as u8 => exported.rows += 1,
            Some(first) if *first == Table::Summary as u8 && keys::part_of(key) == Some(0) => {
                exported.runs += 1;
            }
            Some(first) if *first == Table::Meta as u8 => return Ok(()),
            _ => {}
        }
        writer.row(key, value)
    };
    let mut last = vec![];
    let mut broken = None;
    for entry in view.tree {
        match entry {
            Ok((key, value)) => {
                row(&key, &value, &mut exported)?;
                last = key.to_vec();
            }
            Err(e) => {
                broken = Some(e);
                break;
            }
        }
    }
    if let Some(e) = broken {
        exported.missing.push(format!("rows from `{}` on: {e}", last.escape_ascii()));
        // What is behind the gap can be reached from the other end.
        let behind = (Bound::Excluded(last.as_slice()), Bound::Unbounded);
        for (key, value) in view.tree.range::<&[u8], _>(behind).rev().map_while(Result::ok) {
            row(&key, &value, &mut exported)?;
        }
    }
    for digest in side.list()? {
        match side.get(&disk::hex(&digest)) {
            Ok(bytes) => {
                writer.row(&[&[BLOB], &digest[..]].concat(), &bytes)?;
                exported.blobs += 1;
            }
            Err(e) => exported.missing.push(e.to_string()),
        }
    }
    let meta = Meta { rows: exported.rows, runs: exported.runs, ..meta };
    Ok((exported, writer.finish(meta)?))
}

/// Makes the store in `dir` from an export, which is checked to its end first. A store that is there already is moved
/// aside, its files under their names and `.replaced-<now>`; side files stay, as they are found by their content.
pub fn import(file: &Path, dir: &Path, now: Timestamp, options: &Options) -> Result<Report, Error> {
    let failed = |e: io::Error| Error::Unusable(format!("{} cannot be imported: {e}", file.display()));
    let open = || File::open(file).and_then(|file| Reader::new(BufReader::new(file)));
    let mut checked = open().map_err(failed)?;
    while checked.next().map_err(failed)?.is_some() {}
    let meta = checked.meta().ok_or_else(|| failed(io::ErrorKind::UnexpectedEof.into()))?;

    let disk = Disk::new(dir);
    disk.create()?;
    let _lock = disk.lock()?;
    let side = SideFiles::new(disk.clone());
    let mut reader = open().map_err(failed)?;
    let name = file.display().to_string();
    let failed_again = move |e: io::Error| Error::Unusable(format!("reading {name} again failed: {e}"));
    let report = fill(&disk, options, meta, move |batch| {
        let mut blobs = 0;
        while let Some((key, value)) = reader.next().map_err(&failed_again)? {
            match key.split_first() {
                Some((&BLOB, _)) => {
                    side.put(value)?;
                    blobs += 1;
                }
                _ => batch.add(key, value)?,
            }
        }
        Ok(blobs)
    })?;
    let swap = || -> io::Result<()> {
        move_aside(&disk, now)?;
        fs::rename(disk.dir.join(NEW_TREE), disk.tree())?;
        Head::create(&disk.head(), meta)?;
        disk::sync_dir(&disk.dir)?;
        disk.write_format(meta.store)
    };
    swap().map_err(|e| disk.failed("putting the import in its place", &e))?;
    Ok(report)
}

/// Renames what makes `dir` a store. The format goes first: without it nothing serves what is half moved.
fn move_aside(disk: &Disk, now: Timestamp) -> io::Result<()> {
    let suffix = format!("replaced-{}", now.to_string().replace(':', "-"));
    for name in ["format", "head", "sled"] {
        match fs::rename(disk.dir.join(name), disk.dir.join(format!("{name}.{suffix}"))) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    disk::sync_dir(&disk.dir)
}

/// Writes the rows of the store in `dir` into a fresh tree, which takes the place of the old one in one step. The store
/// must be sound and not open. Gives the bytes on disk before and after.
pub fn compact(dir: &Path, options: &Options) -> Result<(u64, u64), Error> {
    let disk = Disk::new(dir);
    disk.format()?.ok_or_else(|| disk.unusable("there is none"))?;
    let _lock = disk.lock()?;
    let on_thread = disk.clone();
    let report = verify::check_locked(&disk, options)?;
    if report.findings_total > 0 {
        return Err(disk.damaged(format_args!("it has {} flaws", report.findings_total)));
    }
    let options = *options;
    disk.guarded(options.cache_bytes, move |tree| {
        let view = View { tree: &tree, disk: &on_thread };
        let meta = view.meta()?.ok_or_else(|| on_thread.damaged("its state is missing"))?;
        let copied = tree.clone();
        fill(&on_thread, &options, meta, move |batch| {
            for entry in copied.iter() {
                let (key, value) = entry.map_err(|e| batch.disk.tree_failed("reading it", e))?;
                batch.add(&key, &value)?;
            }
            Ok(0)
        })
    })?;
    let (old, new) = (disk.tree(), disk.dir.join(NEW_TREE));
    let swap = || -> io::Result<(u64, u64)> {
        let sizes = (size(&old)?, size(&new)?);
        rustix::fs::renameat_with(CWD, &new, CWD, &old, RenameFlags::EXCHANGE)?;
        disk::sync_dir(&disk.dir)?;
        fs::remove_dir_all(&new)?;
        Ok(sizes)
    };
    swap().map_err(|e| disk.failed("putting the compacted tree in its place", &e))
}

/// Bytes of the files directly in a directory.
fn size(dir: &Path) -> io::Result<u64> {
    fs::read_dir(dir)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}

/// Rows on their way into a new tree.
struct Batch<'a> {
    tree: &'a ::sled::Tree,
    disk: &'a Disk,
    rows: ::sled::Batch,
    waiting: usize,
}

impl Batch<'_> {
    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.rows.insert(key, value);
        self.waiting += 1;
        if self.waiting < BATCH_ROWS {
            return Ok(());
        }
        self.write()
    }

    fn write(&mut self) -> Result<(), Error> {
        self.waiting = 0;
        let rows = std::mem::take(&mut self.rows);
        self.tree.apply_batch(rows).map_err(|e| self.disk.tree_failed("writing to it", e))
    }
}

/// Makes [`NEW_TREE`] from what `rows` adds, durable, closed and checked. `rows` gives the number of side files that it
/// has put down.
fn fill(
    disk: &Disk,
    options: &Options,
    meta: Meta,
    rows: impl FnOnce(&mut Batch<'_>) -> Result<u64, Error> + Send + 'static,
) -> Result<Report, Error> {
    let new = Disk { tree: NEW_TREE, ..disk.clone() };
    match fs::remove_dir_all(new.tree()) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(disk.failed("removing an unfinished copy", &e));
        }
        _ => {}
    }
    let on_thread = new.clone();
    new.guarded(options.cache_bytes, move |tree| {
        let mut batch = Batch { tree: &tree, disk: &on_thread, rows: ::sled::Batch::default(), waiting: 0 };
        let blobs = rows(&mut batch)?;
        batch.add(&keys::META, &meta.seal())?;
        batch.write()?;
        tree.flush().map_err(|e| on_thread.tree_failed("writing to it", e))?;
        let Settled { file, tree, .. } = on_thread.settle(tree)?;
        file.sync_all().map_err(|e| on_thread.failed("syncing it", &e))?;
        let report = verify::scan(View { tree: &tree, disk: &on_thread }, Depth::Content)?;
        Ok(Report { blobs, ..report })
    })
}

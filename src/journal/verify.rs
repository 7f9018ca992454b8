//! Whether a store is what was written: every row, every chain, the index, and the counts that were committed.

use std::fmt::Display;
use std::path::Path;

use serde_json::Value;

use crate::id::RunId;
use crate::id::Seq;
use crate::journal::disk;
use crate::journal::disk::Disk;
use crate::journal::head::Head;
use crate::journal::index::Line;
use crate::journal::index::Meta;
use crate::journal::index::StoreId;
use crate::journal::keys;
use crate::journal::keys::Table;
use crate::journal::parts::Join;
use crate::journal::record;
use crate::journal::record::Body;
use crate::journal::record::Flaw;
use crate::journal::side::SideFiles;
use crate::journal::sled::Options;
use crate::journal::store::Error;
use crate::journal::view::View;
use crate::journal::walk::Walk;

/// Findings that are listed; the others are counted.
pub const FINDINGS_MAX: usize = 1000;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Runs in the index.
    pub runs: u64,
    /// Rows in the journal.
    pub rows: u64,
    /// Events that could be read.
    pub events: u64,
    /// Side files.
    pub blobs: u64,
    /// What is wrong, at most [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// How much is wrong.
    pub findings_total: u64,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The run that is concerned; none if it is the store as a whole.
    pub run: Option<RunId>,
    /// What.
    pub what: String,
}

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// Checksums, chains and counts: before a store is served.
    Rows,
    /// The meaning of each row as well.
    Content,
}

impl Report {
    pub(super) fn add(&mut self, run: Option<RunId>, what: impl Display) {
        self.findings_total += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { run, what: format!("{what}") });
        }
    }
}

/// Checks the store in `dir`, which must not be open; an open one has [`crate::journal::SledStore::check`]. Changes
/// nothing but what opening changes.
///
/// # Errors
/// Those of opening it. What is wrong with its content is told in the report.
pub fn check(dir: &Path, options: &Options) -> Result<Report, Error> {
    let disk = Disk::new(dir);
    disk.format()?;
    let _lock = disk.lock()?;
    check_locked(&disk, options)
}

/// The same, by whoever holds the lock.
pub(super) fn check_locked(disk: &Disk, options: &Options) -> Result<Report, Error> {
    let id = disk.format()?.ok_or_else(|| disk.unusable("there is none"))?;
    let on_thread = disk.clone();
    disk.guarded(options.cache_bytes, move |tree| {
        check_tree(View { tree: &tree, disk: &on_thread }, id, &SideFiles::new(on_thread.clone()))
    })
}

/// Checks everything that there is to check.
pub(super) fn check_tree(view: View<'_>, id: StoreId, side: &SideFiles) -> Result<Report, Error> {
    let failed = |e| view.disk.failed("reading it", &e);
    let mut report = scan(view, Depth::Content)?;
    match view.meta() {
        Ok(Some(meta)) => {
            if meta.store != id {
                report.add(None, "the tree belongs to another store");
            }
            if (meta.runs, meta.rows) != (report.runs, report.rows) {
                let (runs, rows) = (report.runs, report.rows);
                let Meta { runs: runs_due, rows: rows_due, .. } = meta;
                report.add(
                    None,
                    format_args!("{runs} runs and {rows} records instead of {runs_due} and {rows_due}"),
                );
            }
            match Head::open(&view.disk.head()).map_err(failed)?.map(|head| head.newest()) {
                None => report.add(None, "the head file is missing or damaged"),
                Some(head) if head.store != id => report.add(None, "the head file belongs to another store"),
                Some(head) if head.g > meta.g => {
                    report.add(None, format_args!("commits {} to {} are lost", meta.g + 1, head.g));
                }
                Some(_) => {}
            }
        }
        Ok(None) => report.add(None, "the row of its state is missing"),
        Err(e) => report.add(None, e),
    }
    scan_others(view, &mut report)?;
    for digest in side.list().map_err(failed)? {
        report.blobs += 1;
        if let Err(e) = side.get(&disk::hex(&digest)) {
            report.add(None, e);
        }
    }
    Ok(report)
}

/// Refuses a tree that is behind its head file, belongs to another store, or misses rows that no damaged run explains.
pub(super) fn admit(view: View<'_>, meta: Option<Meta>, id: StoreId, head: Meta) -> Result<(), Error> {
    let meta =
        meta.ok_or_else(|| view.disk.damaged(format_args!("it lost all of its {} commits", head.g)))?;
    if meta.store != id || head.store != id {
        return Err(view.disk.damaged("its files belong to different stores"));
    }
    if meta.g < head.g {
        return Err(view.disk.damaged(format_args!("it lost commits {} to {}", meta.g + 1, head.g)));
    }
    let report = scan(view, Depth::Rows)?;
    if report.runs != meta.runs {
        return Err(view.disk.damaged(format_args!("it has {} runs instead of {}", report.runs, meta.runs)));
    }
    if report.rows != meta.rows && report.findings.is_empty() {
        return Err(view
            .disk
            .damaged(format_args!("it has {} records instead of {}", report.rows, meta.rows)));
    }
    Ok(())
}

/// Goes through all runs.
pub(super) fn scan(view: View<'_>, depth: Depth) -> Result<Report, Error> {
    let mut report = Report::default();
    for key in view.tree.scan_prefix([Table::Summary as u8]).keys() {
        let key = key.map_err(|e| view.failed(e))?;
        if keys::part_of(&key) != Some(0) {
            continue;
        }
        let Some(run) = keys::run_of(&key) else {
            report.add(None, format_args!("key `{}` means nothing", key.escape_ascii()));
            continue;
        };
        report.runs += 1;
        let least = match scan_line(view, run, depth)? {
            Ok(seq) => seq,
            Err(flaw) => {
                report.add(Some(run), format_args!("its line in the index: {flaw}"));
                Seq(0)
            }
        };
        scan_journal(view, run, least, depth, &mut report)?;
    }
    for run in view.runs_in(Table::Leaving) {
        for row in view.tree.scan_prefix(keys::of_run(Table::Journal, run?)) {
            row.map_err(|e| view.failed(e))?;
            report.rows += 1;
        }
    }
    Ok(report)
}

/// Checks a run's line against what else finds the run. Gives the number of events that there are at least.
fn scan_line(view: View<'_>, run: RunId, depth: Depth) -> Result<Result<Seq, Flaw>, Error> {
    let line = match view.value(&keys::of_run(Table::Summary, run)) {
        Ok(line) => line.unwrap_or_default(),
        Err(e) => return Ok(Err(Flaw::Content(e.to_string()))),
    };
    let (open, seq) = match Line::peek(&line) {
        Ok(head) => head,
        Err(flaw) => return Ok(Err(flaw)),
    };
    if view.row(&keys::of_run(Table::Open, run))?.is_some() != open {
        return Ok(Err(Flaw::Chain("the list of open runs says otherwise")));
    }
    if depth == Depth::Rows {
        return Ok(Ok(seq));
    }
    let summary = match Line::decode(&line) {
        Ok(line) => line.summary,
        Err(flaw) => return Ok(Err(flaw)),
    };
    match summary.key.as_ref().map(|key| view.run_of_key(key)).transpose() {
        Ok(None) => Ok(Ok(seq)),
        Ok(Some(owner)) if owner == Some(run) => Ok(Ok(seq)),
        Ok(Some(_)) => Ok(Err(Flaw::Chain("its idempotency key does not lead to it"))),
        Err(e) => Ok(Err(Flaw::Content(e.to_string()))),
    }
}

fn scan_journal(
    view: View<'_>,
    run: RunId,
    least: Seq,
    depth: Depth,
    report: &mut Report,
) -> Result<(), Error> {
    let mut walk = Walk::default();
    let mut flaw = None;
    for entry in view.tree.scan_prefix(keys::of_run(Table::Journal, run)) {
        let (key, row) = entry.map_err(|e| view.failed(e))?;
        report.rows += 1;
        if flaw.is_some() {
            continue;
        }
        let read = walk.row(&key, &row).and_then(|record| match record {
            Some(record) if depth == Depth::Content => Body::decode(walk.body(), record.count).map(drop),
            _ => Ok(()),
        });
        flaw = read.err();
    }
    report.events += walk.last().0;
    let flaw = flaw.or_else(|| match walk.finish() {
        Ok(tail) if tail.seq < least => Some(Flaw::Chain("its last events are missing")),
        other => other.err(),
    });
    if let Some(flaw) = flaw {
        report.add(Some(run), format_args!("after event {}: {flaw}", walk.last()));
    }
    Ok(())
}

/// Checks the rows that no run's line leads to.
fn scan_others(view: View<'_>, report: &mut Report) -> Result<(), Error> {
    let mut definition = Join::default();
    for entry in view.tree {
        let (key, row) = entry.map_err(|e| view.failed(e))?;
        let table = key.first().and_then(|byte| Table::of(*byte));
        let flaw = match table {
            // These were gone through run by run.
            Some(Table::Journal | Table::Summary | Table::Meta) => continue,
            Some(Table::Definition) => match definition.push(&key, &row) {
                Ok(None) => continue,
                Ok(Some(value)) => {
                    definition = Join::default();
                    rmp_serde::from_slice::<Value>(&value).err().map(|e| Flaw::Content(e.to_string()))
                }
                Err(flaw) => Some(flaw),
            },
            Some(Table::Open) => owner_flaw(view, keys::run_of(&key))?,
            Some(Table::Key) => {
                let id = record::unseal(&key, &row).ok().and_then(|id| id.try_into().ok());
                owner_flaw(view, id.map(RunId::from_be_bytes))?
            }
            Some(Table::Setting | Table::Leaving) => record::unseal(&key, &row).err(),
            None => Some(Flaw::Chain("no table has such keys")),
        };
        if let Some(flaw) = flaw {
            report.add(None, format_args!("the row of `{}`: {flaw}", key.escape_ascii()));
        }
    }
    Ok(())
}

/// What is wrong with a row that leads to a run.
fn owner_flaw(view: View<'_>, run: Option<RunId>) -> Result<Option<Flaw>, Error> {
    let Some(run) = run else { return Ok(Some(Flaw::Chain("it leads to no run"))) };
    let line = keys::part(&keys::of_run(Table::Summary, run), 0);
    Ok(view.row(&line)?.is_none().then_some(Flaw::Chain("it leads to a run that is not there")))
}

//! Whether a store is what was written: every row, every chain, the index, and the counts that were committed.

use std::fmt::Display;

use crate::id::RunId;
use crate::id::Seq;
use crate::journal::index::Line;
use crate::journal::index::Meta;
use crate::journal::index::StoreId;
use crate::journal::keys;
use crate::journal::keys::Table;
use crate::journal::record::Body;
use crate::journal::record::Flaw;
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

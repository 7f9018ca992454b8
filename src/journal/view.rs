//! What the rows of a tree say. Reading only.

use crate::engine::event::Event;
use crate::engine::state::RunStatus;
use crate::id::RunId;
use crate::id::Seq;
use crate::journal::disk::Disk;
use crate::journal::index::Line;
use crate::journal::index::Meta;
use crate::journal::keys;
use crate::journal::keys::Table;
use crate::journal::parts::Join;
use crate::journal::record;
use crate::journal::record::Body;
use crate::journal::record::Flaw;
use crate::journal::store::Error;
use crate::journal::store::Recorded;
use crate::journal::store::Summary;
use crate::journal::walk::Tail;
use crate::journal::walk::Walk;

/// A tree, and the disk to name in errors.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) tree: &'a ::sled::Tree,
    pub(super) disk: &'a Disk,
}

impl View<'_> {
    /// An error of sled while reading.
    pub(super) fn failed(self, error: ::sled::Error) -> Error {
        self.disk.tree_failed("reading it", error)
    }

    /// The row of a key.
    pub(super) fn row(self, key: &[u8]) -> Result<Option<::sled::IVec>, Error> {
        self.tree.get(key).map_err(|e| self.failed(e))
    }

    /// How far the store is; none if nothing was ever committed.
    pub(super) fn meta(self) -> Result<Option<Meta>, Error> {
        let Some(row) = self.row(&keys::META)? else { return Ok(None) };
        Meta::unseal(&row)
            .map(Some)
            .map_err(|e| self.disk.damaged(format_args!("the row of its state is bad: {e}")))
    }

    /// A run's events, or the good ones with an error.
    pub(super) fn read(self, run: RunId) -> Result<Vec<Recorded>, Error> {
        let (mut walk, mut good) = (Walk::default(), vec![]);
        for entry in self.tree.scan_prefix(keys::of_run(Table::Journal, run)) {
            let (key, row) = entry.map_err(|e| self.failed(e))?;
            if let Err(flaw) = decode(&mut walk, &key, &row, &mut good) {
                return Err(damaged_run(run, &flaw, good));
            }
        }
        match walk.finish() {
            Ok(_) => Ok(good),
            Err(flaw) => Err(damaged_run(run, &flaw, good)),
        }
    }

    /// Where a run's journal ends; at 0 if it has none.
    pub(super) fn tail(self, run: RunId) -> Result<Tail, Error> {
        let last = self.tree.scan_prefix(keys::of_run(Table::Journal, run)).next_back();
        let Some((key, row)) = last.transpose().map_err(|e| self.failed(e))? else {
            return Ok(Tail::default());
        };
        Tail::of(&key, &row).map_err(|flaw| damaged_run(run, &flaw, vec![]))
    }

    /// A value in parts.
    pub(super) fn value(self, whole: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut join = Join::default();
        let mut rows = self.tree.scan_prefix(whole).peekable();
        if rows.peek().is_none() {
            return Ok(None);
        }
        for entry in rows {
            let (key, row) = entry.map_err(|e| self.failed(e))?;
            match join.push(&key, &row) {
                Ok(None) => {}
                Ok(Some(value)) => return Ok(Some(value)),
                Err(flaw) => return Err(self.bad_value(whole, &flaw)),
            }
        }
        Err(self.bad_value(whole, &Flaw::Chain("the last part is missing")))
    }

    fn bad_value(self, whole: &[u8], flaw: &Flaw) -> Error {
        self.disk.unusable(format_args!("the value of `{}` is bad: {flaw}", whole.escape_ascii()))
    }

    /// A run's line in the index.
    pub(super) fn line(self, run: RunId) -> Result<Option<Line>, Flaw> {
        let value =
            self.value(&keys::of_run(Table::Summary, run)).map_err(|e| Flaw::Content(e.to_string()))?;
        value.map(|bytes| Line::decode(&bytes)).transpose()
    }

    /// A run's summary. If its line is bad, what its journal still tells, as Held.
    pub(super) fn summary(self, run: RunId) -> Result<Option<Summary>, Error> {
        match self.line(run) {
            Ok(line) => Ok(line.map(|line| line.summary)),
            Err(flaw) => self.makeshift_summary(run, &flaw).map(Some),
        }
    }

    fn makeshift_summary(self, run: RunId, flaw: &Flaw) -> Result<Summary, Error> {
        let good = match self.read(run) {
            Ok(good) | Err(Error::Damaged { good, .. }) => good,
            Err(other) => return Err(other),
        };
        let Some(Recorded { at, event: Event::Created(created), .. }) = good.into_iter().next() else {
            return Err(self
                .disk
                .damaged(format_args!("both journal and index line of run {run} are bad: {flaw}")));
        };
        Ok(Summary {
            run,
            workflow: created.workflow,
            status: RunStatus::Held,
            held_reason: Some(format!("its line in the store's index is bad: {flaw}")),
            held_reason_zh: None,
            overlay: None,
            created_at: at,
            finished_at: None,
            due: None,
            root: None,
            key: created.key,
            locks: created.locks,
            debts: 0,
        })
    }

    /// Summaries below `before`, newest first.
    pub(super) fn runs(self, before: Option<RunId>, limit: usize) -> Result<Vec<Summary>, Error> {
        let first = [Table::Summary as u8];
        let end = before
            .map_or_else(|| vec![Table::Summary as u8 + 1], |run| keys::of_run(Table::Summary, run).to_vec());
        let mut found = vec![];
        for entry in self.tree.range(&first[..]..&end[..]).rev() {
            if found.len() == limit {
                break;
            }
            let (key, _) = entry.map_err(|e| self.failed(e))?;
            if keys::part_of(&key) == Some(0) {
                let run = keys::run_of(&key).ok_or_else(|| self.strange(&key))?;
                found.extend(self.summary(run)?);
            }
        }
        Ok(found)
    }

    /// The runs of a table with one row per run.
    pub(super) fn runs_in(self, table: Table) -> impl Iterator<Item = Result<RunId, Error>> {
        self.tree.scan_prefix([table as u8]).keys().map(move |key| {
            let key = key.map_err(|e| self.failed(e))?;
            keys::run_of(&key).ok_or_else(|| self.strange(&key))
        })
    }

    /// The run of an idempotency key.
    pub(super) fn run_of_key(self, key: &str) -> Result<Option<RunId>, Error> {
        let key = keys::named(Table::Key, key);
        let Some(row) = self.row(&key)? else { return Ok(None) };
        let run =
            record::unseal(&key, &row).and_then(|id| id.try_into().map_err(|_| Flaw::Length(row.len())));
        run.map(|id| Some(RunId::from_be_bytes(id))).map_err(|flaw| self.bad_value(&key, &flaw))
    }

    fn strange(self, key: &[u8]) -> Error {
        self.disk.damaged(format_args!("it has a key that means nothing: `{}`", key.escape_ascii()))
    }
}

/// Walks on and decodes what becomes complete.
pub(super) fn decode(walk: &mut Walk, key: &[u8], row: &[u8], good: &mut Vec<Recorded>) -> Result<(), Flaw> {
    let Some(record) = walk.row(key, row)? else { return Ok(()) };
    let body = Body::decode(walk.body(), record.count)?;
    let seqs = (record.first.0..).map(Seq);
    good.extend(seqs.zip(body.events).map(|(seq, event)| Recorded { seq, at: body.at, event }));
    Ok(())
}

/// The error for a run with a flaw behind its good events.
pub(super) fn damaged_run(run: RunId, flaw: &Flaw, good: Vec<Recorded>) -> Error {
    let after = good.last().map_or(Seq(0), |last| last.seq);
    Error::Damaged { run, after, what: flaw.to_string(), good }
}

//! One batch in the making: what its jobs become as rows, each seeing what the ones before it will have written.

use std::collections::BTreeMap;

use crate::id::RunId;
use crate::id::Seq;
use crate::journal::committer::Tails;
use crate::journal::committer::Waiter;
use crate::journal::committer::Work;
use crate::journal::cut;
use crate::journal::cut::Divided;
use crate::journal::index::Line;
use crate::journal::index::Meta;
use crate::journal::keys;
use crate::journal::keys::Table;
use crate::journal::parts;
use crate::journal::record;
use crate::journal::record::Draft;
use crate::journal::store::Error;
use crate::journal::store::Summary;
use crate::journal::view::View;
use crate::journal::walk::Tail;
use crate::time::Timestamp;

/// Journal rows that one commit of retention removes: about what a commit under load writes.
const REMOVE_ROWS: usize = 256;

/// Where a run's journal ends after the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// There, and more is to be expected.
    Open(Tail),
    /// There, and little will follow.
    Ended(Tail),
    /// Nowhere: retention is removing it.
    Removed,
}

/// The batch.
pub(super) struct Group {
    pub(super) batch: ::sled::Batch,
    /// The state of the store after it.
    pub(super) meta: Meta,
    pub(super) tails: BTreeMap<RunId, End>,
    /// Who is answered when it is durable.
    pub(super) answers: Vec<(Waiter, Seq)>,
    keys: BTreeMap<Vec<u8>, RunId>,
}

impl Group {
    pub(super) fn new(meta: Meta) -> Self {
        let (batch, tails) = (::sled::Batch::default(), BTreeMap::new());
        Self { batch, meta, tails, answers: vec![], keys: BTreeMap::new() }
    }

    /// Adds the rows of a job. On an error nothing was added.
    pub(super) fn place(&mut self, view: View<'_>, tails: &Tails, work: Work) -> Result<Seq, Error> {
        match work {
            Work::Append { run, expected, at, draft, summary } => {
                let tail = self.tail(view, tails, run)?;
                if tail.seq != expected {
                    return Err(Error::Conflict { run, expected, found: tail.seq });
                }
                let last = Seq(tail.seq.0 + u64::from(draft.count()));
                let ends = summary.as_ref().is_some_and(|line| line.status.is_terminal());
                if let Some(summary) = summary {
                    self.summarize(view, expected == Seq(0), last, &summary)?;
                }
                self.append(run, tail, last, at, draft, ends);
                Ok(last)
            }
            Work::Summary(summary) => {
                let seq = match self.tails.get(&summary.run) {
                    Some(End::Open(tail) | End::Ended(tail)) => tail.seq,
                    Some(End::Removed) => return Err(Error::Misused("there is no such run")),
                    // A bad line is about to be replaced; its journal is at least as long as nothing.
                    None => match view.line(summary.run) {
                        Ok(line) => line.ok_or(Error::Misused("there is no such run"))?.seq,
                        Err(_) => Seq(0),
                    },
                };
                self.summarize(view, false, seq, &summary)?;
                if !summary.status.is_terminal() {
                    self.mark_open(summary.run);
                }
                Ok(seq)
            }
            Work::Rows(rows) => {
                self.write(rows);
                Ok(Seq(0))
            }
            Work::Remove(run) => self.remove(view, run),
            Work::Cut { run, after } => self.cut(view, run, after),
            Work::Revive => Ok(Seq(0)),
        }
    }

    fn tail(&self, view: View<'_>, tails: &Tails, run: RunId) -> Result<Tail, Error> {
        match self.tails.get(&run) {
            Some(End::Open(tail) | End::Ended(tail)) => return Ok(*tail),
            Some(End::Removed) => return Ok(Tail::default()),
            None => {}
        }
        match tails.get(run) {
            Some(tail) => Ok(tail),
            None if view.row(&keys::of_run(Table::Leaving, run))?.is_some() => Ok(Tail::default()),
            None => view.tail(run),
        }
    }

    fn append(&mut self, run: RunId, tail: Tail, last: Seq, at: Timestamp, draft: Draft, ends: bool) {
        let batch = &mut self.batch;
        let (crc, rows) = draft.place(run, tail.seq.next(), tail.crc, |key, row| batch.insert(key, row));
        self.meta.rows += u64::from(rows);
        self.meta.newest = self.meta.newest.max(Some(at));
        let tail = Tail { seq: last, crc };
        self.tails.insert(run, if ends { End::Ended(tail) } else { End::Open(tail) });
    }

    /// Writes a run's line, and for a new run what else finds it.
    fn summarize(&mut self, view: View<'_>, new: bool, seq: Seq, summary: &Summary) -> Result<(), Error> {
        let run = summary.run;
        let mut rows = vec![];
        let line = Line::encode(seq, summary)?;
        parts::split("a summary", &keys::of_run(Table::Summary, run), &line, &mut rows)?;
        if new {
            if let Some(key) = &summary.key {
                let row_key = keys::named(Table::Key, key);
                let owner = self
                    .keys
                    .get(&row_key)
                    .copied()
                    .map_or_else(|| view.run_of_key(key), |run| Ok(Some(run)))?;
                if let Some(owner) = owner {
                    return Err(Error::KeyTaken { run: owner });
                }
                rows.push((row_key.clone(), Some(record::seal(&row_key, &[&run.to_be_bytes()]))));
                self.keys.insert(row_key, run);
            }
            self.meta.runs += 1;
        }
        self.write(rows);
        if summary.status.is_terminal() {
            self.batch.remove(&keys::of_run(Table::Open, run));
        } else if new {
            self.mark_open(run);
        }
        Ok(())
    }

    fn mark_open(&mut self, run: RunId) {
        let key = keys::of_run(Table::Open, run);
        self.batch.insert(&key, record::seal(&key, &[]));
    }

    /// Removes an ended run: what finds it first, then its journal in steps. The mark in [`Table::Leaving`] says until
    /// the end that what is left of it is no damage.
    fn remove(&mut self, view: View<'_>, run: RunId) -> Result<Seq, Error> {
        if self.tails.contains_key(&run) {
            return Ok(Seq(1));
        }
        let mut rows = vec![];
        let mark = keys::of_run(Table::Leaving, run).to_vec();
        let mut runs = 0;
        if view.row(&mark)?.is_none() {
            let line = view.line(run).map_err(|_| Error::Misused("a run with a bad line is kept"))?;
            let summary = line.ok_or(Error::Misused("there is no such run"))?.summary;
            if !summary.status.is_terminal() || summary.debts > 0 {
                return Err(Error::Misused("an open run, or one with debts, is kept"));
            }
            for key in view.tree.scan_prefix(keys::of_run(Table::Summary, run)).keys() {
                rows.push((key.map_err(|e| view.failed(e))?.to_vec(), None));
            }
            if let Some(key) =
                summary.key.filter(|key| view.run_of_key(key).is_ok_and(|owner| owner == Some(run)))
            {
                rows.push((keys::named(Table::Key, &key), None));
            }
            rows.push((mark.clone(), Some(record::seal(&mark, &[]))));
            runs = 1;
        }
        let mut removed = 0;
        for key in view.tree.scan_prefix(keys::of_run(Table::Journal, run)).keys().take(REMOVE_ROWS) {
            rows.push((key.map_err(|e| view.failed(e))?.to_vec(), None));
            removed += 1;
        }
        let done = removed < REMOVE_ROWS;
        if done {
            rows.push((mark, None));
        }
        self.meta.runs -= runs;
        self.meta.rows -= removed as u64;
        self.tails.insert(run, End::Removed);
        self.write(rows);
        Ok(Seq(u64::from(!done)))
    }

    /// Takes away the end of a damaged journal. What was missing before is no longer counted.
    fn cut(&mut self, view: View<'_>, run: RunId, after: Seq) -> Result<Seq, Error> {
        let summary = view.summary(run)?.ok_or(Error::Misused("there is no such run"))?;
        if self.tails.contains_key(&run) {
            return Err(Error::Misused("a run is not cut while it is written"));
        }
        let Divided { tail, rest } = cut::divide(view, run, after)?;
        cut::keep(view, run, &rest)?;
        let counted = view.meta()?.map_or(0, |meta| meta.rows);
        let there = view.tree.scan_prefix([Table::Journal as u8]).keys().count() as u64;
        self.meta.rows -= counted.saturating_sub(there) + rest.len() as u64;
        self.write(rest.into_iter().map(|(key, _)| (key, None)).collect());
        self.summarize(view, false, tail.seq, &summary)?;
        self.tails.insert(run, End::Open(tail));
        Ok(tail.seq)
    }

    fn write(&mut self, rows: parts::Rows) {
        for (key, row) in rows {
            match row {
                Some(row) => self.batch.insert(key, row),
                None => self.batch.remove(key),
            }
        }
    }
}

//! Which runs are no longer to be kept, and which side files.

use crate::journal::committer::Shared;
use crate::journal::keys;
use crate::journal::keys::Table;
use crate::journal::side;
use crate::journal::side::SideFiles;
use crate::journal::store::Error;
use crate::journal::store::Keep;
use crate::journal::store::Summary;
use crate::journal::walk::Walk;
use crate::time::Timestamp;

/// Side files that are removed while commits wait: a few milliseconds of a slow disk.
const SWEEP_AT_ONCE: usize = 64;

/// Goes through the index from the newest run to the oldest.
#[derive(Debug)]
pub(super) struct Retention {
    keep: Keep,
    now: Timestamp,
    ended: usize,
    removed: usize,
}

impl Retention {
    pub(super) fn new(keep: Keep, now: Timestamp) -> Self {
        Self { keep, now, ended: 0, removed: 0 }
    }

    /// True if this call has removed as much as it may.
    pub(super) const fn is_spent(&self) -> bool {
        self.removed >= self.keep.at_once
    }

    /// True if the next older run is to be removed. `root_open`: the tree that it is a part of has not ended.
    pub(super) fn removes(&mut self, summary: &Summary, root_open: bool) -> bool {
        if !summary.status.is_terminal() || self.is_spent() {
            return false;
        }
        self.ended += 1;
        let ended_at = summary.finished_at.unwrap_or(summary.created_at);
        let too_old = self.now.since(ended_at) > self.keep.age;
        let goes = summary.debts == 0 && !root_open && (too_old || self.ended > self.keep.runs);
        self.removed += usize::from(goes);
        goes
    }
}

/// Removes the side files that no record names. Says how many.
pub(super) fn sweep(shared: &Shared, side: &SideFiles) -> Result<usize, Error> {
    let failed = |e| shared.disk.failed("sweeping its side files", &e);
    let mut unnamed = side.list().map_err(failed)?;
    if unnamed.is_empty() {
        return Ok(0);
    }
    let whole = shared.view(|view| {
        let (mut run, mut walk) = (None, Walk::default());
        for entry in view.tree.scan_prefix([Table::Journal as u8]) {
            let (key, row) = entry.map_err(|e| view.failed(e))?;
            if keys::run_of(&key) != run {
                (run, walk) = (keys::run_of(&key), Walk::default());
            }
            match walk.row(&key, &row) {
                Ok(None) => {}
                Ok(Some(_)) => side::digests_in(walk.body(), |digest| {
                    unnamed.remove(&digest);
                }),
                // What a damaged run names is not known.
                Err(_) => return Ok(false),
            }
        }
        Ok(true)
    })?;
    let unnamed: Vec<_> = unnamed.into_iter().filter(|_| whole).collect();
    let mut removed = 0;
    for some in unnamed.chunks(SWEEP_AT_ONCE) {
        // An export must not find a side file gone that it has listed.
        let _still = shared.still();
        for digest in some {
            removed += usize::from(side.remove_old(digest).map_err(failed)?);
        }
    }
    Ok(removed)
}

//! What a wait remembers, folded.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::engine::event::Sight;
use crate::engine::event::WaitLimits;
use crate::engine::event::WaitNote;
use crate::engine::state::WaitState;
use crate::failure::Bilingual;
use crate::time::Timestamp;

impl WaitState {
    pub(super) fn new(at: Timestamp, deadline: Timestamp, limits: WaitLimits) -> Self {
        Self {
            since: at,
            deadline,
            limits,
            tracks: BTreeMap::new(),
            progress: vec![],
            best: vec![],
            progress_at: at,
            seen: BTreeMap::new(),
            reason: Bilingual::default(),
            noted_at: at,
            applies: None,
            lost_at: None,
            quiet: false,
        }
    }

    pub(super) fn fold(&mut self, at: Timestamp, note: &WaitNote) {
        self.noted_at = at;
        self.tracks.extend(note.tracks.iter().map(|(name, track)| (name.clone(), track.clone())));
        self.seen.extend(note.seen.iter().map(|(name, uid)| (name.clone(), uid.clone())));
        if let Some(numbers) = &note.progress {
            self.fold_progress(at, numbers);
        }
        if let Some(reason) = &note.reason {
            self.reason.clone_from(reason);
        }
        if let Some(applies) = &note.applies {
            self.applies = applies.verdict.is_some().then(|| applies.clone());
        }
        match note.sight {
            Some(Sight::Lost(since)) => {
                self.lost_at.get_or_insert(since);
                // "Without a break" cannot be said of what nobody saw.
                self.applies = None;
            }
            Some(Sight::Regained) => {
                if let Some(lost_at) = self.lost_at.take() {
                    self.progress_at = self.progress_at + at.since(lost_at);
                }
            }
            None => {}
        }
    }

    fn fold_progress(&mut self, at: Timestamp, numbers: &[Option<f64>]) {
        self.best.resize(numbers.len(), None);
        for (best, number) in self.best.iter_mut().zip(numbers) {
            if rises(*best, *number) {
                *best = *number;
                self.progress_at = at;
            }
        }
        self.progress = numbers.to_vec();
    }

    /// Moves all its clocks.
    pub(super) fn shift(&mut self, by: Duration) {
        self.deadline = self.deadline + by;
        self.progress_at = self.progress_at + by;
    }
}

/// True if `now` is progress over the best so far. Falling back and rising again below the best is none: a
/// download that starts over and over would never stall.
pub(in crate::engine) fn rises(best: Option<f64>, now: Option<f64>) -> bool {
    match (best, now) {
        (None, Some(_)) => true,
        (Some(best), Some(now)) => now > best,
        (_, None) => false,
    }
}

//! The one word for each state, as design.md section 2 has it: in the journal, on the command line, everywhere.

use crate::engine::event::SkipReason;
use crate::engine::state::BlockState;
use crate::engine::state::Phase;
use crate::engine::state::RunState;
use crate::engine::state::RunStatus;
use crate::engine::state::UnitOutcome;
use crate::engine::state::UnitState;
use crate::engine::unit::UnitId;
use crate::failure::Bilingual;

impl RunStatus {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Queued => "Queued",
            Self::Running => "Running",
            Self::Waiting => "Waiting",
            Self::Held => "Held",
            Self::RollingBack => "RollingBack",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::RolledBack => "RolledBack",
            Self::Cancelled => "Cancelled",
        }
    }
}

impl UnitState {
    /// The word for it, its undo left out.
    pub const fn word(&self) -> &'static str {
        match &self.phase {
            Phase::Preparing => "Preparing",
            Phase::Inherited => "Pending",
            Phase::Acting { .. }
            | Phase::Observing { .. }
            | Phase::Acted
            | Phase::Failing
            | Phase::Concluding => "Running",
            Phase::Backoff { .. } => "Backoff",
            Phase::Pending { .. } | Phase::Sleeping { .. } | Phase::Waiting(_) => "Waiting",
            Phase::Asking { .. } => "Asking",
            Phase::Done(UnitOutcome::Succeeded) => "Succeeded",
            Phase::Done(UnitOutcome::Failed) => "Failed",
            Phase::Done(UnitOutcome::Skipped) => "Skipped",
            Phase::Done(UnitOutcome::Cancelled) => "Cancelled",
        }
    }
}

impl BlockState {
    /// The word for all of its units together: the one that most needs to be looked at.
    pub fn word(&self) -> &'static str {
        const BY_WEIGHT: [&str; 9] = [
            "Asking",
            "Running",
            "Preparing",
            "Backoff",
            "Waiting",
            "Failed",
            "Cancelled",
            "Skipped",
            "Succeeded",
        ];
        if self.skipped.is_some() {
            return "Skipped";
        }
        if matches!(self.covered, Some(Err(_))) {
            return "Failed";
        }
        let pending = self.items.as_ref().is_some_and(|items| self.next < items.len());
        let words: Vec<_> = self.units.values().map(UnitState::word).collect();
        let heaviest = BY_WEIGHT.into_iter().find(|word| words.contains(word));
        match heaviest {
            Some(word) if pending && matches!(word, "Succeeded" | "Skipped") => "Running",
            Some(word) => word,
            None if self.items.as_ref().is_some_and(Vec::is_empty) => "Succeeded",
            None => "Pending",
        }
    }
}

impl RunState {
    /// Where the undo of a step's item is: none while the run goes forward or if there is nothing to undo.
    pub fn undo_word(&self, unit: &UnitId) -> Option<&'static str> {
        match self.rollback.as_ref()?.undone.get(unit) {
            Some(None) => Some("Compensated"),
            Some(Some(_)) => Some("NotCompensated"),
            None => {
                let begun = |undo: &crate::engine::unit::Undo| undo.item.is_none() || undo.item == unit.item;
                let mut undos = self.undos.keys().filter(|block| block.step == unit.block.step);
                undos.any(|block| block.undo.as_ref().is_some_and(begun)).then_some("Compensating")
            }
        }
    }
}

impl SkipReason {
    /// Why, in a few words.
    pub fn words(self) -> Bilingual {
        let (en, zh) = match self {
            Self::When => ("its condition is false", "条件不成立"),
            Self::Declined => ("an approval was declined", "审批未通过"),
            Self::Decided => ("somebody decided so", "人工决定"),
            Self::Unreachable => ("a step before it did not succeed", "之前的步骤没有成功"),
            Self::Inherited => ("it succeeded in the run before", "在之前的运行中已成功"),
        };
        Bilingual { en: en.to_owned(), zh: Some(zh.to_owned()) }
    }
}

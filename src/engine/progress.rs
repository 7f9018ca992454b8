//! Which part of its life a run is in, and which blocks may move in it.

use crate::definition::model::Step;
use crate::engine::case::Case;
use crate::engine::part::Part;
use crate::engine::part::Role;
use crate::engine::rollback;
use crate::engine::rollback::Undoing;
use crate::engine::standing;
use crate::engine::standing::Readiness;
use crate::engine::unit::Block;

/// The parts of a run's life, in order.
#[derive(Debug)]
pub(super) enum Progress<'p> {
    /// It queues for its locks.
    Queued,
    /// It goes through its steps.
    Forward,
    /// What is in flight ends.
    Halting,
    /// It goes backwards: this is next.
    Undoing(Undoing),
    /// This finally step is next, or runs.
    Finally(&'p Step),
    /// Everything is done; the outputs of the workflow are missing.
    Summarizing,
    /// Everything is done.
    Over,
}

impl<'a> Case<'a> {
    /// Where the run is now.
    pub(super) fn progress(self) -> Progress<'a> {
        let run = self.run;
        if run.granted.is_none() {
            return if run.rollback.is_some() { Progress::Over } else { Progress::Queued };
        }
        if run.rollback.is_some() {
            if self.run.open().any(|(unit, _)| self.is_forward(&unit.block)) {
                return Progress::Halting;
            }
            match rollback::next(self) {
                // An undo between two attempts was under way when the run failed: it comes to its end first.
                Some(Undoing::Run(block)) if run.open_units > 0 && run.block(&block).is_none() => {
                    return Progress::Halting;
                }
                Some(undoing) => return Progress::Undoing(undoing),
                None => {}
            }
        } else if run.cancel.is_some() || run.is_rollback_only() || !self.frontier().is_empty() {
            return Progress::Forward;
        }
        match self.next_finally() {
            Some(step) => Progress::Finally(step),
            None if run.rollback.is_some() || self.plan.workflow.outputs.is_empty() => Progress::Over,
            None => Progress::Summarizing,
        }
    }

    /// The steps of the graph that are not over and may have begun or be about to, each after those before it; empty
    /// only if all are over. A step has one before it in the depth above its own, so the search ends with the first
    /// depth of which nothing is over.
    pub(super) fn frontier(self) -> Vec<&'a Step> {
        let mut frontier = vec![];
        let mut passed = 0;
        for group in self.plan.graph.groups() {
            passed += group.len();
            if passed <= self.run.over {
                continue;
            }
            let before = frontier.len();
            let open =
                group.iter().filter(|name| standing::step_outcome(self.plan, self.run, name).is_none());
            frontier.extend(open.filter_map(|name| standing::step(self.plan, name)));
            if frontier.len() - before == group.len() {
                break;
            }
        }
        frontier
    }

    fn is_forward(self, block: &Block) -> bool {
        Part::of(self.plan, block).is_some_and(|part| part.role == Role::Forward)
    }

    /// Finally steps run one after the other, each behind those that it is `after`, else in the order of the file; not
    /// again for an earlier run's sake.
    fn next_finally(self) -> Option<&'a Step> {
        if self.run.is_rollback_only() {
            return None;
        }
        self.plan.workflow.finally.iter().find(|step| {
            standing::finally_outcome(self.plan, self.run, &step.name).is_none()
                && standing::finally_readiness(self.plan, self.run, step) != Readiness::Blocked
        })
    }
}

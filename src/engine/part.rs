//! What the plan says about a block: one view for steps, rollback entries and finally steps.

use crate::definition::model::ActionKind;
use crate::definition::model::ForEach;
use crate::definition::model::Guard;
use crate::definition::model::Step;
use crate::definition::model::Wait;
use crate::engine::standing;
use crate::engine::unit::Block;
use crate::engine::unit::UnitId;
use crate::plan::Plan;

/// The rollback entry that a `workflow` step has without writing one: undo the child by its own steps (E9).
pub const CHILD_UNDO: u16 = u16::MAX;

/// A block's place in the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A step of the graph.
    Forward,
    /// A finally step.
    Finally,
    /// A rollback entry.
    Undo,
    /// [`CHILD_UNDO`]: of the step's keys only its action counts.
    ChildUndo,
}

/// A block's definition. For a rollback entry `step` is the entry, for [`Role::ChildUndo`] the step itself.
#[derive(Debug, Clone, Copy)]
pub struct Part<'p> {
    /// The keys.
    pub step: &'p Step,
    /// The place.
    pub role: Role,
}

impl<'p> Part<'p> {
    /// The definition of `block`; none if the plan has no such block.
    pub fn of(plan: &'p Plan, block: &Block) -> Option<Self> {
        let (step, role) = match standing::step(plan, &block.step) {
            Some(step) => (step, Role::Forward),
            None => (plan.workflow.finally.iter().find(|step| step.name == block.step)?, Role::Finally),
        };
        match block.undo.as_ref().map(|undo| undo.entry) {
            None => Some(Self { step, role }),
            Some(CHILD_UNDO) => Some(Self { step, role: Role::ChildUndo }),
            Some(entry) => {
                let step = step.rollback.get(usize::from(entry))?;
                Some(Self { step, role: Role::Undo })
            }
        }
    }

    /// True for whatever runs backwards.
    pub const fn is_undo(self) -> bool {
        matches!(self.role, Role::Undo | Role::ChildUndo)
    }

    /// Its repetition over a list.
    pub const fn for_each(self) -> Option<&'p ForEach> {
        match self.role {
            Role::ChildUndo => None,
            Role::Forward | Role::Finally | Role::Undo => self.step.for_each.as_ref(),
        }
    }

    /// True if its items are looked at as a whole in the end.
    pub const fn covers(self) -> bool {
        self.for_each().is_some() && self.step.covers.is_some()
    }

    /// What must become true after its action.
    pub const fn wait(self) -> Option<&'p Wait> {
        match self.role {
            Role::ChildUndo => None,
            Role::Forward | Role::Finally | Role::Undo => self.step.wait.as_ref(),
        }
    }

    /// Attempts that its retry policy allows.
    pub const fn attempts(self) -> u32 {
        match self.role {
            Role::ChildUndo => 1,
            Role::Forward | Role::Finally | Role::Undo => self.step.retry.attempts,
        }
    }

    /// True if something is to be evaluated once all is well.
    pub fn has_outputs(self) -> bool {
        self.role != Role::ChildUndo && !self.step.outputs.is_empty()
    }

    /// True if the run goes on when it failed.
    pub const fn continues_on_error(self) -> bool {
        match self.role {
            Role::ChildUndo => false,
            Role::Forward | Role::Undo => self.step.continue_on_error,
            Role::Finally => true,
        }
    }

    /// True if the engine carries the action out by itself: nothing can be in flight after a crash.
    pub const fn is_internal(self) -> bool {
        matches!(
            self.step.action.uses,
            ActionKind::Sleep
                | ActionKind::Approval
                | ActionKind::Assert
                | ActionKind::Debt
                | ActionKind::K8sWait
        )
    }

    /// True if the rollback entries run between two attempts.
    pub fn undoes_between_attempts(self) -> bool {
        self.role == Role::Forward && self.step.retry.undo
    }

    /// Positions of the rollback entries of a step, in the order in which they run.
    pub fn undo_entries(self) -> Vec<u16> {
        let count = u16::try_from(self.step.rollback.len()).unwrap_or(CHILD_UNDO - 1);
        if count == 0 && self.step.action.uses == ActionKind::Workflow {
            return vec![CHILD_UNDO];
        }
        (0..count).collect()
    }

    /// True if that rollback entry runs once for a whole `for_each` step, because it has a list of its own.
    pub fn runs_once(self, entry: u16) -> bool {
        self.step.rollback.get(usize::from(entry)).is_some_and(|undo| undo.for_each.is_some())
    }
}

/// The guard with that index.
pub fn guard(plan: &Plan, index: u16) -> Option<&Guard> {
    plan.workflow.guards.iter().find(|guard| guard.index == index)
}

/// The step's unit that an undo unit belongs to.
pub fn undone_by(unit: &UnitId) -> Option<UnitId> {
    let undo = unit.block.undo.as_ref()?;
    Some(Block::forward(unit.block.step.clone()).unit(undo.item.clone()))
}

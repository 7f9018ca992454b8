//! Where each expression of a workflow stands: what it may name depends on that.

use std::ops::Range;

use crate::definition::expr::Expr;
use crate::definition::node::Place;

/// An expression and its place in the file and in the workflow.
#[derive(Debug, Clone)]
pub(in crate::definition) struct Site {
    pub(in crate::definition) expr: Expr,
    pub(in crate::definition) origin: Origin,
    pub(in crate::definition) owner: Owner,
    pub(in crate::definition) phase: Phase,
    /// Where a target of `[objects]` is used, if the expression is part of one: its text stands at `origin` all the same.
    pub(in crate::definition) used_at: Option<Place>,
}

/// Where the text of an expression stands.
#[derive(Debug, Clone)]
pub(in crate::definition) struct Origin {
    /// The whole value.
    pub(in crate::definition) place: Place,
    /// Byte of the file where the expression begins, if the file holds it without escapes.
    pub(in crate::definition) start: Option<usize>,
}

impl Origin {
    /// The place of some bytes of the expression.
    pub(in crate::definition) fn part(&self, part: Range<usize>) -> Place {
        match self.start {
            Some(start) => Place { file: self.place.file, range: start + part.start..start + part.end },
            None => self.place.clone(),
        }
    }
}

/// Whose expression it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::definition) enum Owner {
    Workflow,
    Step(usize),
    /// Entry of a step's rollback list.
    Undo(usize, usize),
    Finally(usize),
    Guard(usize),
}

/// When it is evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::definition) enum Phase {
    /// Before a run begins: locks, limits of the workflow.
    Start,
    /// Where it is used.
    Let,
    /// The same, of a target of `[objects]`.
    Named,
    When,
    ForEach,
    ItemKey,
    Covers,
    Target,
    Capture,
    Check,
    Precondition,
    Act,
    /// Limits and delays of the action.
    Limits,
    WaitTarget,
    /// Limits of the wait, when it is armed.
    Arm,
    Wait,
    Outputs,
    ElseDebt,
    GoneWhen,
    /// Outputs of the workflow.
    Summary,
    GuardTarget,
    Guard,
}

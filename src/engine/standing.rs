//! Where a block stands, derived from the state of the block and of those before it.

use crate::definition::model::MaxFailures;
use crate::definition::model::Step;
use crate::engine::event::SkipReason;
use crate::engine::part::Part;
use crate::engine::part::Role;
use crate::engine::state::BlockState;
use crate::engine::state::RunState;
use crate::engine::state::UnitOutcome;
use crate::engine::state::UnitState;
use crate::failure::Failure;
use crate::id::StepName;
use crate::plan::Plan;

/// How a block ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockOutcome {
    /// It did what it should; of a `for_each`, no more items failed than may.
    Succeeded,
    /// It was not run, or a person went on without it.
    Skipped(SkipReason),
    /// It failed or was stopped.
    Failed,
}

/// Whether a step that has not begun may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// A step before it is not over.
    Blocked,
    /// It may.
    Ready,
    /// It never will.
    Skip(SkipReason),
}

/// How the block ended; none if it has not.
pub fn outcome(part: Part<'_>, block: &BlockState) -> Option<BlockOutcome> {
    if let Some(reason) = block.skipped {
        return Some(BlockOutcome::Skipped(reason));
    }
    match (&block.items, part.for_each()) {
        (Some(items), Some(_)) => match block.open {
            0 if has_failed(part, block) => Some(BlockOutcome::Failed),
            0 if block.next >= items.len() && !wants_cover(part, block) => Some(BlockOutcome::Succeeded),
            _ => None,
        },
        (None, for_each) => match block.units.get("")?.outcome()? {
            // A list is opened by another event than the success of a unit.
            UnitOutcome::Succeeded => for_each.is_none().then_some(BlockOutcome::Succeeded),
            UnitOutcome::Skipped => Some(BlockOutcome::Skipped(SkipReason::Decided)),
            UnitOutcome::Failed | UnitOutcome::Cancelled => Some(BlockOutcome::Failed),
        },
        (Some(_), None) => None,
    }
}

/// True as soon as it is certain that the block fails, even while items of it still run.
pub fn has_failed(part: Part<'_>, block: &BlockState) -> bool {
    let allowed = match part.for_each().map(|for_each| for_each.max_failures) {
        Some(MaxFailures::All) if block.items.is_some() => u32::MAX,
        Some(MaxFailures::Count(count)) if block.items.is_some() => count,
        Some(_) | None => 0,
    };
    block.failed > allowed || matches!(block.covered, Some(Err(_)))
}

/// True if all items are over and only `covers` is to be looked at.
pub fn wants_cover(part: Part<'_>, block: &BlockState) -> bool {
    let over = || block.open == 0 && block.items.as_ref().is_some_and(|items| block.next >= items.len());
    part.covers() && block.covered.is_none() && over() && !has_failed(part, block)
}

/// The failure of the block as a whole, else that of the item that failed first.
pub fn first_failure(block: &BlockState) -> Option<&Failure> {
    if let Some(Err(failure)) = &block.covered {
        return Some(failure.as_ref());
    }
    let failed = block.units.values().filter(|unit| unit.outcome() == Some(UnitOutcome::Failed));
    failed.min_by_key(|unit| unit.finished_at).and_then(|unit| unit.failure.as_ref())
}

/// The step's state, if this run has begun or skipped it; what an earlier run did does not count.
pub fn begun<'r>(run: &'r RunState, step: &StepName) -> Option<&'r BlockState> {
    run.steps.get(step).filter(|block| {
        let first = || block.units.get("").is_some_and(UnitState::has_begun_here);
        block.skipped.is_some() || block.items.is_some() || first()
    })
}

/// How a step of the graph ended; none if it has not.
pub fn step_outcome(plan: &Plan, run: &RunState, name: &StepName) -> Option<BlockOutcome> {
    let block = run.steps.get(name)?;
    if block.open > 0 {
        return None;
    }
    outcome(Part { step: step(plan, name)?, role: Role::Forward }, block)
}

/// The step of the graph with that name.
pub fn step<'p>(plan: &'p Plan, name: &StepName) -> Option<&'p Step> {
    plan.workflow.steps.get(plan.graph.index(name)?)
}

/// How a finally step ended; none if it has not.
pub fn finally_outcome(plan: &Plan, run: &RunState, name: &StepName) -> Option<BlockOutcome> {
    let step = plan.workflow.finally.iter().find(|step| step.name == *name)?;
    outcome(Part { step, role: Role::Finally }, run.steps.get(name)?)
}

/// Whether a step that has not begun may begin, by the steps before it.
pub fn readiness(plan: &Plan, run: &RunState, step: &Step) -> Readiness {
    readiness_behind(step, |before| step_outcome(plan, run, before))
}

/// The same for a finally step, which is only behind other finally steps.
pub fn finally_readiness(plan: &Plan, run: &RunState, step: &Step) -> Readiness {
    readiness_behind(step, |before| finally_outcome(plan, run, before))
}

fn readiness_behind(step: &Step, ended: impl Fn(&StepName) -> Option<BlockOutcome>) -> Readiness {
    let mut skip = None;
    for after in &step.after {
        let reason = match ended(&after.step) {
            None => return Readiness::Blocked,
            Some(BlockOutcome::Skipped(SkipReason::Declined)) => SkipReason::Declined,
            Some(BlockOutcome::Failed | BlockOutcome::Skipped(SkipReason::Unreachable)) if !after.on_any => {
                SkipReason::Unreachable
            }
            Some(_) => continue,
        };
        // A refusal by a person says more than an unreachable step.
        if skip != Some(SkipReason::Declined) {
            skip = Some(reason);
        }
    }
    skip.map_or(Readiness::Ready, Readiness::Skip)
}

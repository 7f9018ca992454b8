//! The transition table: which event may happen when.

use crate::engine::ask::Ask;
use crate::engine::ask::AskReason;
use crate::engine::event::Event;
use crate::engine::state::BlockState;
use crate::engine::state::Phase;
use crate::engine::state::RunState;
use crate::engine::state::UnitState;
use crate::engine::unit::Block;
use crate::engine::unit::UnitId;
use crate::id::StepName;

/// What a state says against an event.
type Objection = String;

/// Objects to `event` if it cannot happen in this state.
pub(super) fn check(run: &RunState, event: &Event) -> Result<(), Objection> {
    let remark = matches!(event, Event::DebtClosed { .. } | Event::Noted { .. } | Event::EvidenceKept(_));
    if run.finished.is_some() && !remark {
        return Err("the run is finished".to_owned());
    }
    match event {
        Event::Created(_) => Err("the run exists".to_owned()),
        Event::LocksGranted { .. } => refuse_if(run.granted.is_some(), "the run has its locks"),
        Event::Opened { block, .. } => opening(run, block),
        Event::Covered { block, .. } => {
            let fits = run.block(block).is_some_and(|state| state.items.is_some() && state.covered.is_none());
            refuse_if(!fits, "the block is not to be looked at as a whole")
        }
        Event::Skipped { block, .. } => match run.block(block) {
            None => Ok(()),
            Some(state) => refuse_if(state.skipped.is_some() || has_begun(state), "the block has begun"),
        },
        Event::Compensated { step, item } | Event::NotCompensated { step, item, .. } => {
            undoable(run, step, &Block::forward(step.clone()).unit(item.clone()))
        }
        Event::AskOpened(ask) => asking(run, ask),
        Event::AskAnswered { id, choice, .. } => {
            let ask = run.asks.iter().find(|ask| ask.id == *id).ok_or("there is no such question")?;
            refuse_if(!ask.offers(*choice), "the question has no such answer")
        }
        Event::CancelRequested { .. } => refuse_if(run.is_stopping(), "the run is stopping"),
        Event::RollbackStarted { .. } => refuse_if(run.rollback.is_some(), "the run rolls back"),
        Event::Paused { .. } => refuse_if(run.paused_at.is_some(), "the run is paused"),
        Event::Unpaused { .. } => refuse_if(run.paused_at.is_none(), "the run is not paused"),
        Event::DebtOpened(debt) => refuse_if(debt.id != run.debts_total + 1, "the debt has a wrong number"),
        Event::DebtClosed { id, .. } => {
            refuse_if(!run.debts.iter().any(|debt| debt.id == *id), "there is no such debt")
        }
        Event::LockBroken { .. }
        | Event::GuardBroken { .. }
        | Event::Noted { .. }
        | Event::Warned { .. }
        | Event::EvidenceKept(_)
        | Event::Finished(_) => Ok(()),
        Event::AttemptStarted { unit, attempt, .. } => {
            let last = run.unit(unit).map_or(0, |state| state.attempt);
            refuse_if(*attempt != last + 1, "the attempt has a wrong number")?;
            in_phase(run, unit, event)
        }
        Event::ProcessStarted { unit, attempt, .. }
        | Event::Interrupted { unit, attempt, .. }
        | Event::ChildNoted { unit, attempt, .. }
        | Event::AttemptFinished { unit, attempt, .. } => {
            let last = run.unit(unit).map_or(0, |state| state.attempt);
            refuse_if(*attempt != last, "it is about another attempt")?;
            in_phase(run, unit, event)
        }
        Event::PreconditionPending { unit, .. }
        | Event::Unchanged { unit, .. }
        | Event::RetryScheduled { unit, .. }
        | Event::SleepStarted { unit, .. }
        | Event::WaitStarted { unit, .. }
        | Event::WaitNoted { unit, .. }
        | Event::VerdictReached { unit, .. }
        | Event::Succeeded { unit, .. }
        | Event::Failed { unit, .. }
        | Event::Cancelled { unit } => in_phase(run, unit, event),
    }
}

/// The rows of the table that concern a unit: true if `event` may happen in `phase`.
const fn fits(phase: &Phase, event: &Event) -> bool {
    use Phase as P;
    match event {
        Event::PreconditionPending { .. } | Event::Unchanged { .. } | Event::AttemptStarted { .. } => {
            matches!(phase, P::Inherited | P::Preparing | P::Pending { .. } | P::Backoff { .. })
        }
        Event::RetryScheduled { .. } => {
            matches!(phase, P::Inherited | P::Preparing | P::Pending { .. } | P::Backoff { .. } | P::Failing)
        }
        Event::ProcessStarted { .. } | Event::Interrupted { .. } | Event::SleepStarted { .. } => {
            matches!(phase, P::Acting { .. })
        }
        Event::ChildNoted { .. } => matches!(phase, P::Acting { .. } | P::Observing { .. }),
        Event::AttemptFinished { .. } => {
            matches!(phase, P::Acting { .. } | P::Observing { .. } | P::Sleeping { .. })
        }
        Event::WaitStarted { .. } => matches!(phase, P::Acted),
        Event::WaitNoted { .. } | Event::VerdictReached { .. } => matches!(phase, P::Waiting(_)),
        Event::Succeeded { .. } => matches!(phase, P::Acted | P::Concluding),
        // What is in flight is never given up: its result comes first, even if it is "unknown".
        Event::Failed { .. } => {
            !matches!(phase, P::Acting { .. } | P::Observing { .. } | P::Asking { .. } | P::Done(_))
        }
        Event::Cancelled { .. } => {
            !matches!(phase, P::Acting { .. } | P::Observing { .. } | P::Done(_) | P::Inherited)
        }
        Event::Created(_)
        | Event::LocksGranted { .. }
        | Event::LockBroken { .. }
        | Event::Opened { .. }
        | Event::Covered { .. }
        | Event::Skipped { .. }
        | Event::Compensated { .. }
        | Event::NotCompensated { .. }
        | Event::AskOpened(_)
        | Event::AskAnswered { .. }
        | Event::GuardBroken { .. }
        | Event::CancelRequested { .. }
        | Event::RollbackStarted { .. }
        | Event::Paused { .. }
        | Event::Unpaused { .. }
        | Event::DebtOpened(_)
        | Event::DebtClosed { .. }
        | Event::Noted { .. }
        | Event::Warned { .. }
        | Event::EvidenceKept(_)
        | Event::Finished(_) => true,
    }
}

fn in_phase(run: &RunState, unit: &UnitId, event: &Event) -> Result<(), Objection> {
    if run.block(&unit.block).is_some_and(|block| block.skipped.is_some()) {
        return Err(format!("{} is skipped", unit.block));
    }
    let phase = run.unit(unit).map_or(&Phase::Preparing, |state| &state.phase);
    let unknown = run.unit(unit).is_none() && matches!(event, Event::Cancelled { .. });
    if fits(phase, event) && !unknown { Ok(()) } else { Err(format!("{unit} is {}", phase.name())) }
}

fn asking(run: &RunState, ask: &Ask) -> Result<(), Objection> {
    refuse_if(ask.id != run.asks_total + 1, "the question has a wrong number")?;
    refuse_if(ask.choices.is_empty(), "the question has no answers")?;
    let Some(unit) = &ask.unit else { return Ok(()) };
    let phase = run.unit(unit).map_or(&Phase::Preparing, |state| &state.phase);
    let fits = match &ask.reason {
        AskReason::Approval(_) => matches!(phase, Phase::Acting { .. }),
        AskReason::CannotTell => matches!(phase, Phase::Observing { .. }),
        AskReason::Verdict | AskReason::Stalled => matches!(phase, Phase::Waiting(_)),
        AskReason::Unobserved => matches!(phase, Phase::Waiting(_) | Phase::Pending { .. }),
        AskReason::Unattributed => matches!(phase, Phase::Done(_) | Phase::Inherited),
        AskReason::FailedUndo | AskReason::ChangedByOthers => !matches!(
            phase,
            Phase::Done(_) | Phase::Asking { .. } | Phase::Acting { .. } | Phase::Observing { .. }
        ),
        AskReason::GuardBroken | AskReason::LockBroken | AskReason::LostRecord => false,
    };
    let free = run.ask_of(unit).is_none();
    if fits && free { Ok(()) } else { Err(format!("{unit} is {}", phase.name())) }
}

fn opening(run: &RunState, block: &Block) -> Result<(), Objection> {
    let Some(state) = run.block(block) else { return Ok(()) };
    refuse_if(state.skipped.is_some() || state.items.is_some(), "the block has begun")?;
    let tried = state.units.get("").map(|unit| &unit.phase);
    let blocked = tried.is_some_and(|phase| !matches!(phase, Phase::Backoff { .. } | Phase::Preparing));
    refuse_if(blocked, "the block cannot be opened now")
}

fn undoable(run: &RunState, step: &StepName, unit: &UnitId) -> Result<(), Objection> {
    let Some(rollback) = &run.rollback else { return Err("the run goes forward".to_owned()) };
    refuse_if(!run.steps.contains_key(step), "the step has not begun")?;
    refuse_if(rollback.undone.contains_key(unit), "that is done already")
}

/// True if more was done than to read: until then `when` may still say "skip".
fn has_begun(block: &BlockState) -> bool {
    let only_read = |unit: &UnitState| unit.attempt == 0 && unit.phase.is_before_attempt();
    block.items.is_some() || block.units.values().any(|unit| unit.has_begun_here() && !only_read(unit))
}

fn refuse_if(wrong: bool, why: &str) -> Result<(), Objection> {
    if wrong { Err(why.to_owned()) } else { Ok(()) }
}

//! Reports of an action, of its observation (E3), and of the outputs.

use std::sync::Arc;

use serde_json::Value;

use crate::engine::Event;
use crate::engine::ask::AskReason;
use crate::engine::case::Case;
use crate::engine::command::Finding;
use crate::engine::decide::Rejection;
use crate::engine::decide::prepare::stale;
use crate::engine::event::AttemptEffect;
use crate::engine::event::AttemptEnd;
use crate::engine::event::HeldChild;
use crate::engine::event::ProcessMark;
use crate::engine::part::Part;
use crate::engine::state::Phase;
use crate::engine::state::UnitState;
use crate::engine::unit::UnitId;
use crate::failure::Bilingual;
use crate::failure::Failure;
use crate::failure::FailureClass;

/// The process behind an attempt exists and waits at its gate.
pub(super) fn process_started(
    case: Case<'_>,
    unit: UnitId,
    attempt: u32,
    process: ProcessMark,
) -> Result<Vec<Event>, Rejection> {
    let (_, state) = known(case, &unit)?;
    if !matches!(state.phase, Phase::Acting { process: None, .. }) || state.attempt != attempt {
        return Err(other(&unit, state));
    }
    Ok(vec![Event::ProcessStarted { unit, attempt, process }])
}

/// The action ended.
pub(super) fn acted(
    case: Case<'_>,
    unit: UnitId,
    attempt: u32,
    end: AttemptEnd,
) -> Result<Vec<Event>, Rejection> {
    let (_, state) = known(case, &unit)?;
    if !matches!(state.phase, Phase::Acting { .. }) || state.attempt != attempt {
        return Err(other(&unit, state));
    }
    Ok(finished(case, unit, attempt, honest(end)))
}

/// The result, and the warning that belongs to its verdict.
pub(super) fn finished(case: Case<'_>, unit: UnitId, attempt: u32, end: AttemptEnd) -> Vec<Event> {
    let warning = end.verdict.as_ref().and_then(|verdict| case.warning(&unit, verdict));
    [Event::AttemptFinished { unit, attempt, end }].into_iter().chain(warning).collect()
}

/// What the workflow that an attempt called needs.
pub(super) fn child_noted(
    case: Case<'_>,
    unit: UnitId,
    attempt: u32,
    held: Option<HeldChild>,
) -> Result<Vec<Event>, Rejection> {
    let (_, state) = known(case, &unit)?;
    if !matches!(state.phase, Phase::Acting { .. } | Phase::Observing { .. }) || state.attempt != attempt {
        return Err(other(&unit, state));
    }
    let news = state.held_child.as_deref() != held.as_ref();
    Ok(news.then_some(Event::ChildNoted { unit, attempt, held }).into_iter().collect())
}

/// Nobody may call an attempt failed and not know whether it had an effect.
fn honest(end: AttemptEnd) -> AttemptEnd {
    if let AttemptEffect::Failed(failure) = &end.effect
        && failure.class == FailureClass::Unknown
    {
        return AttemptEnd { effect: AttemptEffect::Unknown(failure.clone()), ..end };
    }
    end
}

/// The world was looked at. The runner repeats reads that fail for a while before it says that it cannot tell.
pub(super) fn observed(
    case: Case<'_>,
    unit: UnitId,
    attempt: u32,
    finding: Finding,
) -> Result<Vec<Event>, Rejection> {
    let (part, state) = known(case, &unit)?;
    if !matches!(state.phase, Phase::Observing { .. }) || state.attempt != attempt {
        return Err(other(&unit, state));
    }
    let end = match finding {
        Finding::Done { ours, object, result, changes } => {
            let effect = if ours { AttemptEffect::Changed } else { AttemptEffect::Unattributed };
            AttemptEnd { object, result, changes, ..AttemptEnd::of(effect) }
        }
        Finding::NotDone => not_done(state),
        Finding::CannotTell(failure)
        | Finding::Ended(AttemptEnd { effect: AttemptEffect::Unknown(failure), .. })
            if case.is_halting(part) =>
        {
            AttemptEnd::of(AttemptEffect::Unknown(failure))
        }
        Finding::CannotTell(failure)
        | Finding::Ended(AttemptEnd { effect: AttemptEffect::Unknown(failure), .. }) => {
            let en = format!("it cannot be told whether {unit} took effect: {}", failure.message);
            let zh = Some(format!("无法判断 {unit} 是否已生效:{}", failure.text().in_chinese()));
            return Ok(vec![case.ask(part, Some(&unit), AskReason::CannotTell, Bilingual { en, zh })]);
        }
        Finding::Ended(end) => end,
    };
    Ok(finished(case, unit, attempt, end))
}

/// The end of an attempt that turned out to have had no effect. If a crash interrupted it, nobody is to blame and it
/// is simply repeated; if the action itself was in doubt, its failure counts for the retry policy.
fn not_done(state: &UnitState) -> AttemptEnd {
    match state.end.as_ref().map(|end| &end.effect) {
        Some(AttemptEffect::Unknown(failure)) => {
            let failure = Failure { class: FailureClass::Retryable, ..failure.clone() };
            AttemptEnd::failed(failure)
        }
        Some(_) | None => AttemptEnd::of(AttemptEffect::NotDone),
    }
}

/// The outputs were evaluated.
pub(super) fn concluded(
    case: Case<'_>,
    unit: UnitId,
    result: Result<Arc<Value>, Failure>,
) -> Result<Vec<Event>, Rejection> {
    let (part, state) = known(case, &unit)?;
    let acted = matches!(state.phase, Phase::Acted) && part.wait().is_none();
    if !acted && !matches!(state.phase, Phase::Concluding) {
        return Err(other(&unit, state));
    }
    Ok(vec![match result {
        Ok(outputs) => Event::Succeeded { unit, outputs },
        Err(failure) => case.fail(part, &unit, failure),
    }])
}

/// The unit, which must have begun.
pub(super) fn known<'a>(case: Case<'a>, unit: &UnitId) -> Result<(Part<'a>, &'a UnitState), Rejection> {
    let part = Part::of(case.plan, &unit.block);
    part.zip(case.run.unit(unit)).ok_or_else(|| stale(format!("{unit} has not begun")))
}

pub(super) fn other(unit: &UnitId, state: &UnitState) -> Rejection {
    stale(format!("{unit} is {} in attempt {}", state.phase.name(), state.attempt))
}

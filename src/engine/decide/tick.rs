//! Time has passed.

use crate::engine::Event;
use crate::engine::case::Case;
use crate::engine::codes;
use crate::engine::event::AttemptEffect;
use crate::engine::event::AttemptEnd;
use crate::engine::limits;
use crate::engine::part::Part;
use crate::engine::progress::Progress;
use crate::engine::state::Phase;
use crate::engine::state::UnitState;
use crate::engine::unit::UnitId;
use crate::failure::Bilingual;
use crate::failure::Failure;
use crate::time::Timestamp;

/// What is due. Nothing, if the clock was wrong: a tick too early or too often is harmless. At most one question
/// comes of it; another tick is due at once then.
pub(super) fn tick(case: Case<'_>) -> Vec<Event> {
    if let Some(event) = run_timeout(case) {
        return vec![event];
    }
    let expired = case.run.asks.iter().find(|ask| ask.expires.is_some_and(|at| at <= case.now));
    if let Some((ask, default)) = expired.and_then(|ask| Some((ask, *ask.choices.first()?))) {
        return vec![Event::AskAnswered { id: ask.id, choice: default, by: None, reason: None }];
    }
    let mut events = vec![];
    for (unit, state) in case.run.open() {
        let Some(part) = Part::of(case.plan, &unit.block) else { continue };
        events.extend(tick_unit(case, part, unit, state));
        if matches!(events.last(), Some(Event::AskOpened(_))) {
            break;
        }
    }
    events
}

fn run_timeout(case: Case<'_>) -> Option<Event> {
    let run = case.run;
    if run.is_stopping() {
        return None;
    }
    let failure = match run.granted {
        None => {
            let deadline = run.created.lock_deadline.filter(|deadline| *deadline <= case.now)?;
            let locks = run.created.locks.join(", ");
            let text = Bilingual::new(
                format!("the locks {locks} were not free until {deadline}"),
                format!("锁 {locks} 到 {deadline} 仍未空闲"),
            );
            Failure::permanent(codes::LOCK_TIMEOUT, text)
        }
        Some((_, deadline)) => {
            let deadline = deadline.filter(|deadline| *deadline <= case.now && run.stopped_at.is_none())?;
            if !matches!(case.progress(), Progress::Forward) {
                return None;
            }
            let text = Bilingual::new(
                format!("the run was not done at {deadline}"),
                format!("运行到 {deadline} 仍未完成"),
            );
            Failure::permanent(codes::RUN_TIMEOUT, text)
        }
    };
    Some(Event::RollbackStarted { failure: Some(failure) })
}

fn tick_unit(case: Case<'_>, part: Part<'_>, unit: UnitId, state: &UnitState) -> Option<Event> {
    let attempt = state.attempt;
    match &state.phase {
        Phase::Acting { deadline, .. }
            if !part.is_internal() && case.now >= *deadline + limits::REPORT_GRACE =>
        {
            let text =
                Bilingual::new(format!("{unit} gave no answer in time"), format!("{unit} 未在时限内应答"));
            let failure = Failure::unknown(codes::ATTEMPT_TIMEOUT, text);
            let end = AttemptEnd::of(AttemptEffect::Unknown(failure));
            Some(Event::AttemptFinished { unit, attempt, end })
        }
        Phase::Sleeping { due } if *due <= case.now => {
            Some(Event::AttemptFinished { unit, attempt, end: AttemptEnd::unchanged() })
        }
        Phase::Preparing | Phase::Backoff { .. } | Phase::Sleeping { .. } => {
            let deadline = state.step_deadline?;
            let late = case.run.paused_at.is_none() && deadline <= case.now;
            late.then(|| {
                let failure = Failure::permanent(codes::STEP_TIMEOUT, not_done(&unit, deadline, state));
                case.fail(part, &unit, failure)
            })
        }
        Phase::Inherited
        | Phase::Pending { .. }
        | Phase::Acting { .. }
        | Phase::Observing { .. }
        | Phase::Failing
        | Phase::Acted
        | Phase::Waiting(_)
        | Phase::Asking { .. }
        | Phase::Concluding
        | Phase::Done(_) => None,
    }
}

/// That a step has no time left, and how its last attempt failed.
fn not_done(unit: &UnitId, deadline: Timestamp, state: &UnitState) -> Bilingual {
    let en = format!("{unit} was not done at {deadline}");
    let zh = format!("{unit} 到 {deadline} 仍未完成");
    match state.failure.as_ref().map(Failure::text) {
        None => Bilingual::new(en, zh),
        Some(last) => Bilingual::new(
            format!("{en}; last failure: {}", last.en),
            format!("{zh}；上次失败：{}", last.in_chinese()),
        ),
    }
}

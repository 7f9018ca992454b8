//! Commands of people and of the runner that concern a run as a whole.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Event;
use crate::engine::ask::Choice;
use crate::engine::case::Case;
use crate::engine::codes;
use crate::engine::decide::Rejection;
use crate::engine::decide::prepare::stale;
use crate::engine::effect;
use crate::engine::effect::Effect;
use crate::engine::event::Actor;
use crate::engine::event::Evidence;
use crate::engine::event::Finished;
use crate::engine::event::RolledBack;
use crate::engine::event::RunOutcome;
use crate::engine::limits;
use crate::engine::progress::Progress;
use crate::engine::summary;
use crate::failure::Bilingual;
use crate::failure::Failure;

/// The run's turn for its locks has come: its clock starts.
pub(super) fn grant_locks(case: Case<'_>) -> Result<Vec<Event>, Rejection> {
    if case.run.granted.is_some() {
        return Err(Rejection::HasLocks);
    }
    let timeout = case.run.created.timeout_ms.map(Duration::from_millis);
    Ok(vec![Event::LocksGranted { deadline: timeout.map(|timeout| case.now + timeout) }])
}

/// Stop in order. A run that is paused goes on for it.
pub(super) fn cancel(case: Case<'_>, by: Actor, reason: Option<String>) -> Result<Vec<Event>, Rejection> {
    if case.run.cancel.is_some() {
        return Err(Rejection::CancelledAlready);
    }
    match case.progress() {
        Progress::Queued | Progress::Forward => {}
        Progress::Halting | Progress::Undoing(_) => return Err(Rejection::RollingBack),
        Progress::Finally(_) | Progress::Summarizing | Progress::Over => return Err(Rejection::Finishing),
    }
    let unpaused = unpaused(case, by.clone());
    bounded(reason.as_deref().unwrap_or_default())?;
    Ok(unpaused.into_iter().chain([Event::CancelRequested { by, reason }]).collect())
}

/// End at once.
pub(super) fn terminate(case: Case<'_>, by: &Actor, reason: &str) -> Result<Vec<Event>, Rejection> {
    bounded(reason)?;
    let text = format!("terminated by {}: {reason}", by.name);
    let left = summary::left(case.plan, case.run);
    let undone =
        case.run.rollback.as_ref().is_some_and(|rollback| rollback.undone.values().any(Option::is_none));
    let outcome = match (summary::failure(case.run), left.is_empty(), undone) {
        (Some(_), _, _) => RunOutcome::Failed,
        (None, true, _) => RunOutcome::Cancelled(RolledBack::Yes),
        (None, false, true) => RunOutcome::Cancelled(RolledBack::Partly),
        (None, false, false) => RunOutcome::Cancelled(RolledBack::No),
    };
    let failure = summary::failure(case.run).cloned();
    let zh = format!("被 {} 强制结束：{reason}", by.name);
    let told = Bilingual::new(text.clone(), zh);
    let failure = failure.unwrap_or_else(|| Failure::permanent(codes::TERMINATED, told));
    let outputs = Arc::new(serde_json::Value::Null);
    let finished = Finished { outcome, failure: Some(failure), outputs, left };
    Ok(vec![Event::Noted { by: by.clone(), text }, Event::Finished(Box::new(finished))])
}

/// Start nothing new.
pub(super) fn pause(case: Case<'_>, by: Actor) -> Result<Vec<Event>, Rejection> {
    match case.run.paused_at {
        Some(_) => Err(Rejection::PausedAlready),
        None => Ok(vec![Event::Paused { by }]),
    }
}

/// Go on.
pub(super) fn unpause(case: Case<'_>, by: Actor) -> Result<Vec<Event>, Rejection> {
    unpaused(case, by).map(|event| vec![event]).ok_or(Rejection::NotPaused)
}

fn unpaused(case: Case<'_>, by: Actor) -> Option<Event> {
    let shift = case.now.since(case.run.paused_at?);
    Some(Event::Unpaused { by, shift_ms: u64::try_from(shift.as_millis()).unwrap_or(u64::MAX) })
}

/// A remark; also on a run that is over.
pub(super) fn note(case: Case<'_>, by: Actor, text: String) -> Result<Vec<Event>, Rejection> {
    bounded(&text)?;
    if case.run.notes.len() >= limits::NOTES_MAX {
        return Err(Rejection::TooManyNotes { max: limits::NOTES_MAX });
    }
    Ok(vec![Event::Noted { by, text }])
}

/// What was kept in a moment of trouble; also of a run that is over by it. It decides nothing.
pub(super) fn keep_evidence(case: Case<'_>, evidence: Evidence) -> Vec<Event> {
    let full = case.run.evidence.len() >= limits::EVIDENCE_MAX;
    if full { vec![] } else { vec![Event::EvidenceKept(Box::new(evidence))] }
}

/// A lock is taken away; a question follows.
pub(super) fn break_lock(
    case: Case<'_>,
    key: Arc<str>,
    by: Actor,
    reason: String,
) -> Result<Vec<Event>, Rejection> {
    bounded(&reason)?;
    let gone = case.run.broken_locks.iter().any(|lock| lock.what == key);
    if case.run.granted.is_none() || gone || !case.run.created.locks.contains(&key) {
        return Err(Rejection::NoSuchLock { key: key.to_string() });
    }
    Ok(vec![Event::LockBroken { key, by, reason }])
}

/// A debt is gone; also of a run that is over.
pub(super) fn close_debt(
    case: Case<'_>,
    id: u32,
    by: Option<Actor>,
    reason: String,
) -> Result<Vec<Event>, Rejection> {
    bounded(&reason)?;
    if !case.run.debts.iter().any(|debt| debt.id == id) {
        return Err(Rejection::NoSuchDebt { id });
    }
    Ok(vec![Event::DebtClosed { id, by, reason }])
}

/// A guard does not hold; a question or the rollback follows.
pub(super) fn guard_broken(case: Case<'_>, guard: u16, message: Bilingual) -> Result<Vec<Event>, Rejection> {
    if !effect::is_pending(case, &Effect::Guard(guard)) {
        return Err(stale(format!("guard {guard} is not watched")));
    }
    Ok(vec![Event::GuardBroken { guard, message }])
}

pub(super) const fn bounded(text: &str) -> Result<(), Rejection> {
    if text.len() > limits::TEXT_BYTES_MAX {
        return Err(Rejection::TextTooLong { max: limits::TEXT_BYTES_MAX });
    }
    Ok(())
}

/// The answers, for people.
pub(super) fn offered(choices: &[Choice]) -> String {
    choices.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

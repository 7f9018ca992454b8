//! What follows from the state alone. Asked again and again until nothing does.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::definition::model::Step;
use crate::engine::Event;
use crate::engine::RunState;
use crate::engine::ask::AskReason;
use crate::engine::case::Case;
use crate::engine::codes;
use crate::engine::command::DebtDraft;
use crate::engine::decide::Rejection;
use crate::engine::decide::prepare::stale;
use crate::engine::event::AttemptEffect;
use crate::engine::event::AttemptEnd;
use crate::engine::event::Finished;
use crate::engine::event::RetryDelays;
use crate::engine::event::RunOutcome;
use crate::engine::limits;
use crate::engine::part;
use crate::engine::part::Part;
use crate::engine::part::Role;
use crate::engine::progress::Progress;
use crate::engine::retry;
use crate::engine::rollback;
use crate::engine::standing;
use crate::engine::standing::Readiness;
use crate::engine::state::Phase;
use crate::engine::state::UnitState;
use crate::engine::summary;
use crate::engine::unit::Block;
use crate::engine::unit::UnitId;
use crate::failure::Bilingual;
use crate::failure::Failure;
use crate::failure::FailureClass;
use crate::plan::Plan;
use crate::time::Timestamp;

/// The next events that follow from the state, at least one unless nothing follows.
pub fn follow_up(plan: &Plan, run: &RunState, now: Timestamp) -> Vec<Event> {
    let case = Case { plan, run, now };
    if run.finished.is_some() {
        return vec![];
    }
    for rule in [units, breaches, warnings, turn, skips] {
        let events = rule(case);
        if !events.is_empty() {
            return events;
        }
    }
    match case.progress() {
        Progress::Undoing(undoing) if !run.asks_as_a_whole() => rollback::follow_up(case, undoing),
        Progress::Finally(step) => {
            skipped(step, standing::finally_readiness(plan, run, step)).into_iter().collect()
        }
        Progress::Over => vec![finished(case, Arc::new(Value::Null))],
        Progress::Queued
        | Progress::Forward
        | Progress::Halting
        | Progress::Undoing(_)
        | Progress::Summarizing => vec![],
    }
}

/// The outputs of the workflow were evaluated. Everything is done by then: a failure changes no outcome.
pub(super) fn summarized(
    case: Case<'_>,
    result: Result<Arc<Value>, Failure>,
) -> Result<Vec<Event>, Rejection> {
    if !matches!(case.progress(), Progress::Summarizing) {
        return Err(stale("the run is not to be summarized".to_owned()));
    }
    Ok(match result {
        Ok(outputs) => vec![finished(case, outputs)],
        Err(failure) => {
            vec![Event::Warned { step: None, failure }, finished(case, Arc::new(Value::Null))]
        }
    })
}

/// Units that need nobody to go on.
fn units(case: Case<'_>) -> Vec<Event> {
    let mut events = vec![];
    for (unit, state) in case.run.open() {
        let Some(part) = Part::of(case.plan, &unit.block) else { continue };
        events.extend(unit_goes_on(case, part, unit, state));
        // Questions are numbered one by one.
        if matches!(events.last(), Some(Event::AskOpened(_))) {
            break;
        }
    }
    events
}

fn unit_goes_on(case: Case<'_>, part: Part<'_>, unit: UnitId, state: &UnitState) -> Option<Event> {
    match &state.phase {
        Phase::Failing => Some(after_failure(case, part, unit, state)),
        Phase::Acted if part.wait().is_none() && !part.has_outputs() => {
            Some(Event::Succeeded { unit, outputs: Arc::new(Value::Null) })
        }
        // What is in flight is awaited.
        Phase::Acting { .. } if part.is_internal() && case.is_halting(part) => {
            let end = AttemptEnd::of(AttemptEffect::NotDone);
            Some(Event::AttemptFinished { unit, attempt: state.attempt, end })
        }
        Phase::Acting { .. } | Phase::Observing { .. } | Phase::Done(_) | Phase::Inherited => None,
        Phase::Pending { .. }
        | Phase::Preparing
        | Phase::Backoff { .. }
        | Phase::Sleeping { .. }
        | Phase::Acted
        | Phase::Waiting(_)
        | Phase::Asking { .. }
        | Phase::Concluding => case.is_halting(part).then_some(Event::Cancelled { unit }),
    }
}

/// Another try, by the policy, or the end.
fn after_failure(case: Case<'_>, part: Part<'_>, unit: UnitId, state: &UnitState) -> Event {
    let unexplained = || {
        Failure::permanent(codes::VERDICT, Bilingual::new(format!("{unit} failed"), format!("{unit} 失败")))
    };
    let failure = state.failure.clone().unwrap_or_else(unexplained);
    if case.is_halting(part) {
        return Event::Failed { unit, failure };
    }
    let tries = state.retries + 1;
    let longest = failure.give_up_after_ms.map(Duration::from_millis);
    let lasts = state.failing_since.map(|since| case.now.since(since));
    let hopeless = longest.zip(lasts).is_some_and(|(longest, lasts)| lasts >= longest);
    let repeatable = failure.class != FailureClass::Permanent && tries < part.attempts() && !hopeless;
    if !repeatable {
        return case.fail(part, &unit, failure);
    }
    // A wait without an attempt before it has no delays of its own.
    let delays = state.retry.unwrap_or_else(|| RetryDelays::new(limits::READ_DELAY, limits::READ_DELAY_MAX));
    let policy = &part.step.retry;
    let due = retry::due(case.run.id, &unit, tries, policy, delays, &failure, case.now);
    if state.step_deadline.is_some_and(|deadline| deadline <= due) {
        return case.fail(part, &unit, failure);
    }
    Event::RetryScheduled { unit, attempt: state.attempt, due, failure }
}

/// Guards and locks that broke.
fn breaches(case: Case<'_>) -> Vec<Event> {
    let run = case.run;
    if let Some(lock) = run.broken_locks.iter().find(|lock| !lock.handled) {
        return vec![case.ask_as_a_whole(AskReason::LockBroken, lock.message.clone())];
    }
    let Some(broken) = run.broken_guards.iter().find(|guard| !guard.handled) else { return vec![] };
    if run.is_stopping() {
        return vec![];
    }
    if part::guard(case.plan, broken.what).is_some_and(|guard| guard.asks) {
        return vec![case.ask_as_a_whole(AskReason::GuardBroken, broken.message.clone())];
    }
    let failure = Failure::permanent(codes::GUARD_BROKEN, broken.message.clone());
    vec![Event::RollbackStarted { failure: Some(failure) }]
}

/// Failures that do not stop the run are said once, when their step is over.
fn warnings(case: Case<'_>) -> Vec<Event> {
    let failed = case.run.steps.iter().filter(|(_, block)| block.is_marred() && block.open == 0);
    for (name, block) in failed {
        let part = Part::of(case.plan, &Block::forward(name.clone()));
        let (Some(part), Some(failure)) = (part, standing::first_failure(block)) else { continue };
        let warned =
            case.run.warnings.iter().any(|(step, said)| step.as_ref() == Some(name) && said == failure);
        let tolerated = part.continues_on_error() || !standing::has_failed(part, block);
        if warned || !tolerated || standing::outcome(part, block).is_none() {
            continue;
        }
        let warning = Event::Warned { step: Some(name.clone()), failure: failure.clone() };
        let draft = (part.role == Role::Finally).then(|| DebtDraft {
            what: Bilingual {
                en: format!("the finally step {name} failed: {}", failure.message),
                zh: Some(format!("收尾步骤 {name} 失败:{}", failure.text().in_chinese())),
            },
            objects: vec![],
            gone_when: None,
        });
        let debt = draft.and_then(|draft| case.debt(&Block::forward(name.clone()).unit(None), draft));
        return debt.into_iter().chain([warning]).collect();
    }
    vec![]
}

/// The turn from forward to backward.
fn turn(case: Case<'_>) -> Vec<Event> {
    let run = case.run;
    if run.rollback.is_some() {
        return vec![];
    }
    if let Some(abandoned) = &run.abandoned {
        return vec![Event::RollbackStarted { failure: Some(abandoned.failure.clone()) }];
    }
    if run.cancel.is_some() || (run.is_rollback_only() && run.granted.is_some()) {
        return vec![Event::RollbackStarted { failure: None }];
    }
    let failed = run.steps.iter().filter(|(_, block)| block.is_marred());
    let fatal = failed.filter_map(|(name, block)| {
        let part = Part::of(case.plan, &Block::forward(name.clone()))?;
        let fatal =
            part.role == Role::Forward && !part.continues_on_error() && standing::has_failed(part, block);
        fatal.then(|| standing::first_failure(block).cloned())
    });
    fatal.take(1).map(|failure| Event::RollbackStarted { failure }).collect()
}

/// Steps that will never run.
fn skips(case: Case<'_>) -> Vec<Event> {
    if case.run.is_stopping() || case.run.granted.is_none() {
        return vec![];
    }
    let waiting = case.frontier().into_iter().filter(|step| standing::begun(case.run, &step.name).is_none());
    waiting.filter_map(|step| skipped(step, standing::readiness(case.plan, case.run, step))).collect()
}

fn skipped(step: &Step, readiness: Readiness) -> Option<Event> {
    match readiness {
        Readiness::Skip(reason) => Some(Event::Skipped { block: Block::forward(step.name.clone()), reason }),
        Readiness::Blocked | Readiness::Ready => None,
    }
}

/// The last event.
pub(super) fn finished(case: Case<'_>, outputs: Arc<Value>) -> Event {
    let (outcome, left) = summary::result(case.plan, case.run);
    let failure = summary::failure(case.run).cloned();
    let failure = failure.filter(|_| outcome != RunOutcome::Succeeded);
    Event::Finished(Box::new(Finished { outcome, failure, outputs, left }))
}

//! Reports of what was found before an action (E2, 1 to 4).

use std::time::Duration;

use crate::definition::model::ActionKind;
use crate::engine::Event;
use crate::engine::ask::AskReason;
use crate::engine::ask::Choice;
use crate::engine::case::Case;
use crate::engine::codes;
use crate::engine::command::DebtDraft;
use crate::engine::command::Go;
use crate::engine::command::Opening;
use crate::engine::command::Preparation;
use crate::engine::command::Ready;
use crate::engine::decide::Rejection;
use crate::engine::decide::attempt;
use crate::engine::effect;
use crate::engine::effect::Effect;
use crate::engine::event::AttemptEnd;
use crate::engine::event::RetryDelays;
use crate::engine::event::SkipReason;
use crate::engine::limits;
use crate::engine::part::Part;
use crate::engine::retry;
use crate::engine::state::Phase;
use crate::engine::state::UnitState;
use crate::engine::unit::Block;
use crate::engine::unit::UnitId;
use crate::failure::Bilingual;
use crate::failure::Failure;
use crate::failure::FailureClass;
use crate::time::Timestamp;

/// A `for_each` block's list was evaluated.
pub(super) fn opened(
    case: Case<'_>,
    block: &Block,
    result: Result<Opening, Failure>,
) -> Result<Vec<Event>, Rejection> {
    let part = expected(case, block, &Effect::Open(block.clone()))?;
    let unit = block.clone().unit(None);
    let items = match result {
        Ok(Opening::Skip { debt }) => return Ok(skip(case, &unit, debt)),
        Ok(Opening::Items(items)) => items,
        Err(failure) => return Ok(unreadable(case, part, &unit, failure)),
    };
    let may_be_empty = part.for_each().is_some_and(|for_each| for_each.allow_empty);
    if items.is_empty() && !may_be_empty {
        let text = Bilingual::new(format!("the list of {block} is empty"), format!("{block} 的列表为空"));
        let failure = Failure::permanent(codes::EMPTY_LIST, text);
        return Ok(vec![case.fail(part, &unit, failure)]);
    }
    if items.len() > limits::ITEMS_MAX {
        let (found, max) = (items.len(), limits::ITEMS_MAX);
        let text = Bilingual::new(
            format!("the list of {block} has {found} items, {max} are allowed"),
            format!("{block} 的列表有 {found} 项，最多允许 {max} 项"),
        );
        return Ok(vec![case.fail(part, &unit, Failure::permanent(codes::LIST_TOO_LONG, text))]);
    }
    Ok(vec![Event::Opened { block: block.clone(), items }])
}

/// The items of a block that are over were looked at as a whole.
pub(super) fn covered(
    case: Case<'_>,
    block: Block,
    result: Result<(), Failure>,
) -> Result<Vec<Event>, Rejection> {
    expected(case, &block, &Effect::Cover(block.clone()))?;
    Ok(vec![Event::Covered { block, failure: result.err() }])
}

/// The target was read, the conditions evaluated, the request rendered.
pub(super) fn prepared(case: Case<'_>, unit: &UnitId, result: Preparation) -> Result<Vec<Event>, Rejection> {
    let part = expected(case, &unit.block, &Effect::Prepare(unit.clone()))?;
    let state = case.run.unit(unit);
    Ok(match result {
        // `when` is asked before the first attempt; that of a list, when the list is opened.
        Preparation::Skip { .. } if state.is_some_and(|state| state.attempt > 0) || unit.item.is_some() => {
            return Err(stale(format!("{unit} has begun")));
        }
        Preparation::Skip { debt } => skip(case, unit, debt),
        Preparation::Unchanged { facts, step_timeout } => {
            let step_deadline = step_deadline(case, state, step_timeout);
            vec![Event::Unchanged { unit: unit.clone(), facts, step_deadline }]
        }
        Preparation::Unmet { message, wait, step_timeout } => {
            let step_deadline = step_deadline(case, state, step_timeout);
            unmet(case, part, unit, message, wait, step_deadline)
        }
        Preparation::Ready(ready) => start(case, part, unit, *ready),
        Preparation::Failed(failure) => unreadable(case, part, unit, failure),
    })
}

/// The block's part, if the run waits for the report of `effect`.
fn expected<'p>(case: Case<'p>, block: &Block, effect: &Effect) -> Result<Part<'p>, Rejection> {
    let part = Part::of(case.plan, block).filter(|_| effect::is_pending(case, effect));
    part.ok_or_else(|| stale(format!("{block} is not to be prepared")))
}

pub(super) const fn stale(what: String) -> Rejection {
    Rejection::Stale { what }
}

fn skip(case: Case<'_>, unit: &UnitId, debt: Option<DebtDraft>) -> Vec<Event> {
    let debt = debt.and_then(|draft| case.debt(unit, draft));
    let skipped = Event::Skipped { block: unit.block.clone(), reason: SkipReason::When };
    debt.into_iter().chain([skipped]).collect()
}

fn step_deadline(case: Case<'_>, state: Option<&UnitState>, timeout: Option<Duration>) -> Option<Timestamp> {
    let known = state.and_then(|state| state.step_deadline);
    known.or_else(|| timeout.map(|timeout| case.now + timeout))
}

fn unmet(
    case: Case<'_>,
    part: Part<'_>,
    unit: &UnitId,
    message: Bilingual,
    wait: Option<Duration>,
    step_deadline: Option<Timestamp>,
) -> Vec<Event> {
    let pending = match case.run.unit(unit).map(|state| &state.phase) {
        Some(Phase::Pending { deadline, message }) => Some((*deadline, message)),
        Some(_) | None => None,
    };
    let deadline = pending.map_or_else(
        || wait.map(|wait| step_deadline.map_or(case.now + wait, |limit| limit.min(case.now + wait))),
        |(deadline, _)| Some(deadline),
    );
    let Some(deadline) = deadline else {
        let failure = Failure::permanent(codes::PRECONDITION, message);
        return vec![case.fail(part, unit, failure)];
    };
    if case.now >= deadline {
        let text = Bilingual {
            en: format!("not met in time: {}", message.en),
            zh: message.zh.map(|zh| format!("未在时限内满足：{zh}")),
        };
        let failure = Failure::permanent(codes::PRECONDITION_TIMEOUT, text);
        return vec![case.fail(part, unit, failure)];
    }
    if pending.is_some_and(|(_, before)| *before == message) {
        return vec![];
    }
    vec![Event::PreconditionPending { unit: unit.clone(), deadline, step_deadline, message }]
}

/// Reads before an attempt failed. They change nothing, so they are repeated even without a retry policy.
fn unreadable(case: Case<'_>, part: Part<'_>, unit: &UnitId, failure: Failure) -> Vec<Event> {
    let state = case.run.unit(unit);
    let lasting = failure.class == FailureClass::Permanent;
    if let Some(Phase::Pending { deadline, .. }) = state.map(|state| &state.phase)
        && !lasting
    {
        if case.now < *deadline {
            return vec![];
        }
        let en = format!("{unit}: the precondition cannot be read: {}", failure.message);
        let zh = Some(format!("{unit}:无法读取前置条件:{}", failure.text().in_chinese()));
        return vec![case.ask(part, Some(unit), AskReason::Unobserved, Bilingual { en, zh })];
    }
    let tries = state.map_or(0, |state| state.retries) + 1;
    if lasting || tries >= part.attempts().max(limits::READ_TRIES) {
        return vec![case.fail(part, unit, failure)];
    }
    let due = retry::due_read(case.run.id, unit, tries, &failure, case.now);
    if state.and_then(|state| state.step_deadline).is_some_and(|deadline| deadline <= due) {
        return vec![case.fail(part, unit, failure)];
    }
    let attempt = state.map_or(0, |state| state.attempt);
    vec![Event::RetryScheduled { unit: unit.clone(), attempt, due, failure }]
}

fn start(case: Case<'_>, part: Part<'_>, unit: &UnitId, ready: Ready) -> Vec<Event> {
    let state = case.run.unit(unit);
    let number = state.map_or(0, |state| state.attempt) + 1;
    if number > limits::ATTEMPTS_MAX {
        let max = limits::ATTEMPTS_MAX;
        let text =
            Bilingual::new(format!("{unit} was attempted {max} times"), format!("{unit} 已尝试 {max} 次"));
        return vec![case.fail(part, unit, Failure::permanent(codes::TOO_MANY_ATTEMPTS, text))];
    }
    let known = state.is_some_and(|state| state.facts.is_some());
    let step_deadline = step_deadline(case, state, ready.step_timeout);
    // An action that may take longer than its step has left ends with the step. A child has limits of its own.
    let own = case.now + ready.attempt_timeout;
    let limit = step_deadline.filter(|_| part.step.action.uses != ActionKind::Workflow);
    let started = Event::AttemptStarted {
        unit: unit.clone(),
        attempt: number,
        facts: (!known).then(|| ready.facts.unwrap_or_default()),
        object: ready.object,
        request: ready.request,
        deadline: limit.map_or(own, |limit| limit.min(own)),
        step_deadline,
        retry: (part.attempts() > 1).then(|| RetryDelays::new(ready.retry_delays.0, ready.retry_delays.1)),
    };
    let finished = |end| attempt::finished(case, unit.clone(), number, end);
    match ready.go {
        Go::Act => vec![started],
        Go::Done(end) => [started].into_iter().chain(finished(end)).collect(),
        Go::Debt(draft) => {
            let debt = case.debt(unit, draft);
            [started].into_iter().chain(debt).chain(finished(AttemptEnd::unchanged())).collect()
        }
        Go::Sleep(duration) => {
            vec![started, Event::SleepStarted { unit: unit.clone(), due: case.now + duration }]
        }
        Go::Ask { approval, message, expires } => {
            let reason = AskReason::Approval(Box::new(approval));
            let choices = vec![Choice::Reject, Choice::Approve];
            vec![started, case.ask_with(Some(unit), reason, message, choices, expires)]
        }
    }
}

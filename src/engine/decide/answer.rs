//! A person answers a question. The first answer wins.

use crate::engine::Event;
use crate::engine::ask::Ask;
use crate::engine::ask::AskReason;
use crate::engine::ask::Choice;
use crate::engine::case::Case;
use crate::engine::decide::Rejection;
use crate::engine::decide::control::bounded;
use crate::engine::decide::control::offered;
use crate::engine::event::Actor;
use crate::engine::unit::UnitId;

/// The answer to the question of `unit`, or to the only one.
pub(super) fn answer(
    case: Case<'_>,
    unit: Option<&UnitId>,
    choice: Choice,
    by: Actor,
    reason: Option<String>,
) -> Result<Vec<Event>, Rejection> {
    bounded(reason.as_deref().unwrap_or_default())?;
    let ask = find(case, unit)?;
    if !ask.offers(choice) {
        return Err(Rejection::NotOffered { choice, offered: offered(&ask.choices) });
    }
    if let AskReason::Approval(approval) = &ask.reason
        && choice == Choice::Approve
        && !approval.self_approve
        && by.name == case.run.created.by.name
    {
        return Err(Rejection::RequesterMayNotApprove { requester: by.name.to_string() });
    }
    Ok(vec![Event::AskAnswered { id: ask.id, choice, by: Some(by), reason }])
}

fn find<'r>(case: Case<'r>, unit: Option<&UnitId>) -> Result<&'r Ask, Rejection> {
    let asks = &case.run.asks;
    let found = match unit {
        Some(unit) => case.run.ask_of(unit),
        // Questions of the run as a whole have no name; several are answered one after the other, the oldest first.
        None => match (asks.iter().find(|ask| ask.unit.is_none()), asks.as_slice()) {
            (Some(of_run), _) => Some(of_run),
            (None, [_, _, ..]) => return Err(Rejection::Ambiguous { open: named(asks) }),
            (None, asks) => asks.first(),
        },
    };
    found.ok_or_else(|| not_found(case, unit))
}

fn not_found(case: Case<'_>, unit: Option<&UnitId>) -> Rejection {
    let mut answers = case.run.answers.iter().rev();
    let answered = answers.find(|answer| unit.is_none() || answer.unit.as_ref() == unit);
    match (answered, unit) {
        (Some(answered), _) => Rejection::AlreadyAnswered {
            by: answered.by.as_ref().map_or("the expiry", |by| &by.name).to_owned(),
            at: answered.at,
            choice: answered.choice,
        },
        (None, Some(unit)) if !case.run.asks.is_empty() => {
            Rejection::AsksSomethingElse { unit: unit.clone(), open: named(&case.run.asks) }
        }
        (None, _) => Rejection::AsksNothing,
    }
}

fn named(asks: &[Ask]) -> String {
    let name = |ask: &Ask| ask.unit.as_ref().map_or_else(|| "the run".to_owned(), ToString::to_string);
    asks.iter().map(name).collect::<Vec<_>>().join(", ")
}

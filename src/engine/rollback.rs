//! What is undone, in which order, and what is left (E5, E6, L9).
//!
//! Undo goes strictly one step item after the other, in the reverse of the order in which they ended: that order
//! never contradicts the graph, and a person reading along sees one thing at a time.

use crate::definition::model::Commit;
use crate::engine::ask::AskReason;
use crate::engine::ask::Choice;
use crate::engine::case::Case;
use crate::engine::event::AttemptEffect;
use crate::engine::event::Event;
use crate::engine::event::Footprint;
use crate::engine::event::SkipReason;
use crate::engine::part::Part;
use crate::engine::part::Role;
use crate::engine::standing;
use crate::engine::standing::BlockOutcome;
use crate::engine::state::BlockState;
use crate::engine::state::UnitOutcome;
use crate::engine::state::UnitState;
use crate::engine::unit::Block;
use crate::engine::unit::Undo;
use crate::engine::unit::UnitId;
use crate::failure::Bilingual;
use crate::id::StepName;

/// What comes next backwards.
#[derive(Debug)]
pub(super) enum Undoing {
    /// This rollback entry is to run, or runs.
    Run(Block),
    /// This step item is done with: compensated, or left for that reason.
    Done(UnitId, Option<Bilingual>),
    /// It is not certain that this step item's effect is ours: a person decides (E3).
    Ask(UnitId),
}

/// The next thing to undo; none if all that can be is.
pub(super) fn next(case: Case<'_>) -> Option<Undoing> {
    let rollback = case.run.rollback.as_ref()?;
    let units = case.run.completed.iter().rev();
    units.filter(|unit| !rollback.undone.contains_key(unit)).find_map(|unit| undoing(case, unit))
}

/// What to do about one step item; none if it left nothing in the world.
fn undoing(case: Case<'_>, unit: &UnitId) -> Option<Undoing> {
    let part = Part::of(case.plan, &unit.block).filter(|part| part.role == Role::Forward)?;
    let state = case.run.unit(unit)?;
    let footprint = state.left();
    if footprint == Footprint::None {
        return None;
    }
    if let Some(reason) = reason_to_leave(case, part, unit) {
        let changed = footprint == Footprint::Changed;
        return changed.then(|| Undoing::Done(unit.clone(), Some(reason)));
    }
    if is_doubtful(state) {
        match answer(case, unit) {
            None => return Some(Undoing::Ask(unit.clone())),
            Some(Choice::Rollback) => {}
            Some(_) => return Some(Undoing::Done(unit.clone(), Some(by_decision()))),
        }
    }
    Some(match entry(case, part, unit, true) {
        Some(block) => Undoing::Run(block),
        None => Undoing::Done(unit.clone(), left_by_entries(case, part, unit)),
    })
}

/// The rollback entry of a step item that is to run, or runs; none if all have run.
/// Between two attempts of an item the entries that run once for the whole step have no part in it.
pub(super) fn entry(case: Case<'_>, part: Part<'_>, unit: &UnitId, with_once: bool) -> Option<Block> {
    blocks(case, part, unit, with_once).into_iter().find(|block| {
        let undo = Part::of(case.plan, block);
        let state = case.run.undos.get(block);
        undo.zip(state).and_then(|(undo, state)| standing::outcome(undo, state)).is_none()
    })
}

/// True if the retry policy of a unit in backoff wants its rollback entries run first, and one has not.
pub(super) fn before_retry(
    case: Case<'_>,
    part: Part<'_>,
    unit: &UnitId,
    state: &UnitState,
) -> Option<Block> {
    let wanted = part.undoes_between_attempts() && state.attempt > 0 && state.left() > Footprint::None;
    if wanted { entry(case, part, unit, false) } else { None }
}

fn blocks(case: Case<'_>, part: Part<'_>, unit: &UnitId, with_once: bool) -> Vec<Block> {
    let last = with_once && is_last_of_its_step(case, unit);
    let entries = part.undo_entries().into_iter();
    entries
        .filter_map(|entry| {
            let once = unit.item.is_some() && part.runs_once(entry);
            let item = if once { None } else { unit.item.clone() };
            let undo = Some(Undo { item, entry });
            (!once || last).then(|| Block { step: unit.block.step.clone(), undo })
        })
        .collect()
}

/// Entries with a list of their own run with the item that is undone last.
fn is_last_of_its_step(case: Case<'_>, unit: &UnitId) -> bool {
    let same_step = case.run.completed.iter().filter(|other| other.block == unit.block);
    let mut concerned =
        same_step.filter(|other| case.run.unit(other).is_some_and(|state| state.left() > Footprint::None));
    concerned.next() == Some(unit)
}

fn reason_to_leave(case: Case<'_>, part: Part<'_>, unit: &UnitId) -> Option<Bilingual> {
    if case.run.abandoned.as_ref().is_some_and(|abandoned| abandoned.leave) {
        return Some(by_decision());
    }
    if let Some(commit) = commit_point(case, &unit.block.step) {
        let en = format!("it is behind the commit point {commit}");
        return Some(Bilingual { en, zh: Some(format!("已越过提交点 {commit}")) });
    }
    part.undo_entries().is_empty().then(|| Bilingual {
        en: "the step has no rollback".to_owned(),
        zh: Some("该步骤没有回滚动作".to_owned()),
    })
}

/// The commit point that was reached and forbids the undo of `step` (E6).
fn commit_point<'p>(case: Case<'p>, step: &StepName) -> Option<&'p StepName> {
    let commits = case.plan.workflow.steps.iter().filter_map(|step| step.commit.map(|commit| (step, commit)));
    let mut covering =
        commits.filter(|(point, _)| point.name == *step || case.plan.graph.is_before(step, &point.name));
    let reached = covering.find(|(point, commit)| match commit {
        Commit::OnSuccess => {
            let outcome = standing::step_outcome(case.plan, case.run, &point.name);
            outcome == Some(BlockOutcome::Succeeded)
        }
        Commit::OnStart => {
            let block = case.run.steps.get(&point.name);
            block.is_some_and(|block| block.units.values().any(|unit| unit.attempted))
        }
    });
    reached.map(|(point, _)| &point.name)
}

/// True if the effect is there but perhaps somebody else's, or perhaps there.
fn is_doubtful(state: &UnitState) -> bool {
    let effect = state.end.as_ref().map(|end| &end.effect);
    effect.is_none_or(|effect| matches!(effect, AttemptEffect::Unattributed | AttemptEffect::Unknown(_)))
}

/// What a person said about the undo of `unit`. Who answered "rollback" when its effect was in doubt need not be
/// asked again.
fn answer(case: Case<'_>, unit: &UnitId) -> Option<Choice> {
    let mut answers = case.run.answers.iter().rev().filter(|answer| answer.unit.as_ref() == Some(unit));
    let found = answers.find(|answer| {
        let decided = answer.reason == AskReason::CannotTell && answer.choice == Choice::Rollback;
        decided || answer.reason == AskReason::Unattributed
    });
    found.map(|answer| answer.choice)
}

/// Why a step item whose entries have all run is not as before, if so.
fn left_by_entries(case: Case<'_>, part: Part<'_>, unit: &UnitId) -> Option<Bilingual> {
    let states = blocks(case, part, unit, true);
    let states = states.iter().filter_map(|block| case.run.undos.get(block));
    let given_up = |block: &BlockState| {
        let units = &mut block.units.values();
        block.skipped == Some(SkipReason::Decided)
            || matches!(block.covered, Some(Err(_)))
            || units.any(|unit| !matches!(unit.outcome(), Some(UnitOutcome::Succeeded)))
    };
    states.into_iter().any(given_up).then(|| Bilingual {
        en: "an undo failed or was given up".to_owned(),
        zh: Some("有撤销动作失败或被放弃".to_owned()),
    })
}

fn by_decision() -> Bilingual {
    Bilingual {
        en: "somebody decided to leave it".to_owned(), zh: Some("有人决定保留现状".to_owned())
    }
}

/// The events that the rollback as such leads to; what runs is an effect.
pub(super) fn follow_up(case: Case<'_>, undoing: Undoing) -> Vec<Event> {
    match undoing {
        Undoing::Run(_) => vec![],
        Undoing::Done(unit, None) => {
            vec![Event::Compensated { step: unit.block.step, item: unit.item }]
        }
        Undoing::Done(unit, Some(reason)) => {
            vec![Event::NotCompensated { step: unit.block.step, item: unit.item, reason }]
        }
        Undoing::Ask(unit) if case.run.ask_of(&unit).is_some() => vec![],
        Undoing::Ask(unit) => {
            let Some(part) = Part::of(case.plan, &unit.block) else { return vec![] };
            let en = format!("{unit} is to be undone, but it is not certain that its effect is this run's");
            let zh = Some(format!("即将撤销 {unit},但无法确认其效果由本次运行产生"));
            vec![case.ask(part, Some(&unit), AskReason::Unattributed, Bilingual { en, zh })]
        }
    }
}

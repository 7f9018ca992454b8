//! From a command to events. One file per group of commands; `advance` is the loop that the runner calls.
//!
//! `decide` says only what the command itself means. Whatever follows from the new state (a retry, the rollback, the
//! end of the run) is derived from that state by `follow_up`, never from the command: so a crash between two events
//! of one append loses nothing, and the same rules serve a recovery.

mod answer;
mod attempt;
mod control;
mod follow_up;
mod prepare;
mod recover;
mod rejection;
mod tick;
mod wait;

use crate::engine::Command;
use crate::engine::Event;
use crate::engine::RunState;
use crate::engine::ask::AskReason;
use crate::engine::case::Case;
use crate::engine::event::Created;
use crate::engine::invariant;
use crate::engine::limits;
use crate::engine::standing;
use crate::failure::Bilingual;
use crate::id::RunId;
use crate::id::Seq;
use crate::plan::Plan;
use crate::time::Timestamp;

pub use follow_up::follow_up;
pub use rejection::Rejection;

/// What `command` means for the run: the first events, without what follows from them.
///
/// # Errors
/// Why the run does not take the command; nothing has happened then.
pub fn decide(
    plan: &Plan,
    run: &RunState,
    command: Command,
    now: Timestamp,
) -> Result<Vec<Event>, Rejection> {
    let case = Case { plan, run, now };
    if let Some((at, finished)) = &run.finished
        && !matches!(
            command,
            Command::Note { .. }
                | Command::CloseDebt { .. }
                | Command::KeepEvidence(_)
                | Command::Recover { .. }
        )
    {
        return Err(Rejection::Finished { at: *at, outcome: finished.outcome });
    }
    match command {
        Command::Recover { settle } => Ok(recover::recover(case, &settle)),
        Command::Tick => Ok(tick::tick(case)),
        Command::GrantLocks => control::grant_locks(case),
        Command::Opened { block, result } => prepare::opened(case, &block, result),
        Command::Prepared { unit, result } => prepare::prepared(case, &unit, result),
        Command::ProcessStarted { unit, attempt, process } => {
            attempt::process_started(case, unit, attempt, process)
        }
        Command::ChildNoted { unit, attempt, held } => attempt::child_noted(case, unit, attempt, held),
        Command::Acted { unit, attempt, end } => attempt::acted(case, unit, attempt, end),
        Command::Observed { unit, attempt, finding } => attempt::observed(case, unit, attempt, finding),
        Command::Armed { unit, result } => wait::armed(case, &unit, result),
        Command::Judged { unit, report } => wait::judged(case, &unit, &report),
        Command::Concluded { unit, result } => attempt::concluded(case, unit, result),
        Command::Covered { block, result } => prepare::covered(case, block, result),
        Command::GuardBroken { guard, message } => control::guard_broken(case, guard, message),
        Command::Summarized { result } => follow_up::summarized(case, result),
        Command::Cancel { by, reason } => control::cancel(case, by, reason),
        Command::Terminate { by, reason } => control::terminate(case, &by, &reason),
        Command::Pause { by } => control::pause(case, by),
        Command::Unpause { by } => control::unpause(case, by),
        Command::Answer { unit, choice, by, reason } => {
            answer::answer(case, unit.as_ref(), choice, by, reason)
        }
        Command::Note { by, text } => control::note(case, by, text),
        Command::KeepEvidence(evidence) => Ok(control::keep_evidence(case, evidence)),
        Command::BreakLock { key, by, reason } => control::break_lock(case, key, by, reason),
        Command::CloseDebt { id, by, reason } => control::close_debt(case, id, by, reason),
    }
}

/// Decides, applies, and goes on with what follows until nothing does. Returns all events, already applied, in order:
/// they belong into one append.
///
/// # Errors
/// Why the run does not take the command; the state is unchanged then.
///
/// # Panics
/// If an event made here is not legal: a bug of the engine, after which this state is of no use.
pub fn advance(
    plan: &Plan,
    run: &mut RunState,
    command: Command,
    now: Timestamp,
) -> Result<Vec<Event>, Rejection> {
    let mut events = decide(plan, run, command, now)?;
    let mut applied = 0;
    loop {
        for event in &events[applied..] {
            let seq = run.seq.next();
            run.apply(seq, now, event).expect("decide makes only events that are legal");
        }
        applied = events.len();
        count_over(plan, run);
        let more = follow_up(plan, run, now);
        if more.is_empty() {
            debug_assert_eq!(invariant::check(plan, run, now), Ok(()));
            return Ok(events);
        }
        assert!(applied < limits::CONSEQUENCES_MAX, "what follows from a command comes to an end");
        events.extend(more);
    }
}

/// Asks a person what is to become of a run whose journal has lost its end, unless it is over: the question, applied.
pub fn ask_about_loss(plan: &Plan, run: &mut RunState, message: Bilingual, now: Timestamp) -> Vec<Event> {
    if run.finished.is_some() {
        return vec![];
    }
    let question = Case { plan, run, now }.ask_as_a_whole(AskReason::LostRecord, message);
    let seq = run.seq.next();
    run.apply(seq, now, &question).expect("a run that is open may ask");
    vec![question]
}

/// Brings a replayed run up to date with its plan: without it everything works, only slower.
pub fn refresh(plan: &Plan, run: &mut RunState) {
    count_over(plan, run);
}

fn count_over(plan: &Plan, run: &mut RunState) {
    let order = plan.graph.order();
    while let Some(name) = order.get(run.over)
        && standing::step_outcome(plan, run, name).is_some()
    {
        run.over += 1;
    }
}

/// The events that a new run begins with: `Created`, and what follows from it.
pub fn create(plan: &Plan, id: RunId, created: Created, now: Timestamp) -> (RunState, Vec<Event>) {
    let mut run = RunState::create(id, now, &created);
    debug_assert_eq!(run.seq, Seq(1));
    let mut events = vec![Event::Created(Box::new(created))];
    events.extend(advance(plan, &mut run, Command::Tick, now).unwrap_or_default());
    (run, events)
}

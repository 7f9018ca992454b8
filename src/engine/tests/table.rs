//! The transition table: every event in every phase of a unit.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use expect_test::expect;

use crate::definition::model::Outcome;
use crate::definition::model::Severity;
use crate::engine::Event;
use crate::engine::RunState;
use crate::engine::ask::Ask;
use crate::engine::ask::AskReason;
use crate::engine::ask::Choice;
use crate::engine::event::AttemptEnd;
use crate::engine::event::Facts;
use crate::engine::event::ProcessMark;
use crate::engine::event::SkipReason;
use crate::engine::event::VerdictReached;
use crate::engine::event::WaitLimits;
use crate::engine::event::WaitNote;
use crate::engine::state::UnitState;
use crate::engine::testing::*;
use crate::failure::Failure;
use crate::time::Timestamp;

/// Step `a` of a run in each phase that lasts, and in those that last between two events of one append.
fn states() -> Vec<RunState> {
    let wait = "wait = { until = 'object != null', timeout = \"2m\", target = \
                { api = \"v1\", kind = \"Node\", name = \"n\" } }\n";
    let steps = step("a", &[], wait);
    let driven = |effect: &str, replies: &[Reply]| {
        let mut run = Driver::new(&steps);
        run.on("prepare a", &[Reply::StepTimeout(Duration::from_hours(1))]);
        run.on("watch a", &[Reply::Silence])
            .on("observe a", &[Reply::Silence])
            .on("arm a", &[Reply::Silence]);
        run.on(effect, replies).settle();
        run
    };
    let after = |mut run: Driver, event: Event| {
        let seq = run.run.seq.next();
        run.run.apply(seq, run.now, &event).expect("it is legal");
        run.run
    };
    let failed = AttemptEnd::failed(Failure::retryable("busy", "it is busy"));
    let acting = || driven("act a", &[Reply::Silence]);
    let waiting = || driven("arm a", &[Reply::Changed]);
    let acted = || driven("act a", &[Reply::Changed]);
    let observing = || driven("act a", &[Reply::Unknown]);
    let mut sleep = Driver::new("[steps.a]\ntitle = \"a\"\nuses = \"sleep\"\nduration = \"1m\"\n");
    sleep.settle();
    vec![
        Driver::new(&steps).run,
        driven("prepare a", &[Reply::Unmet(Some(Duration::from_mins(1)))]).run,
        driven("prepare a", &[passing(), Reply::Silence]).run,
        acting().run,
        observing().run,
        after(acting(), Event::AttemptFinished { unit: unit("a"), attempt: 1, end: failed }),
        sleep.run,
        acted().run,
        waiting().run,
        after(waiting(), verdict(Outcome::Succeed)),
        after(observing(), Event::AskOpened(Box::new(ask(AskReason::CannotTell)))),
        after(acted(), Event::Succeeded { unit: unit("a"), outputs: Arc::default() }),
    ]
}

fn ask(reason: AskReason) -> Ask {
    Ask {
        id: 1,
        unit: Some(unit("a")),
        reason,
        message: text("?"),
        choices: vec![Choice::Skip],
        expires: None,
    }
}

fn verdict(outcome: Outcome) -> Event {
    let verdict = VerdictReached {
        name: "v".to_owned(),
        outcome,
        severity: Severity::Ok,
        message: text("v"),
        evidence: None,
        failure: None,
    };
    Event::VerdictReached { unit: unit("a"), verdict }
}

/// One event of each kind that concerns a unit.
fn events(attempt: u32) -> Vec<Event> {
    let (a, at) = (|| unit("a"), Timestamp::from_millis(2_000_000));
    let failure = || Failure::permanent("broken", "it is broken");
    let process = ProcessMark { pid: 1, start_ticks: 1, boot_id: "b".into() };
    vec![
        Event::Opened { block: a().block, items: vec![] },
        Event::Skipped { block: a().block, reason: SkipReason::When },
        Event::PreconditionPending { unit: a(), deadline: at, step_deadline: None, message: text("no") },
        Event::Unchanged { unit: a(), facts: Facts::default(), step_deadline: None },
        Event::AttemptStarted {
            unit: a(),
            attempt: attempt + 1,
            facts: None,
            object: None,
            request: "r".into(),
            deadline: at,
            step_deadline: None,
            retry: None,
        },
        Event::ProcessStarted { unit: a(), attempt, process },
        Event::Interrupted { unit: a(), attempt, settle: at },
        Event::ChildNoted { unit: a(), attempt, held: None },
        Event::AttemptFinished { unit: a(), attempt, end: AttemptEnd::unchanged() },
        Event::RetryScheduled { unit: a(), attempt, due: at, failure: failure() },
        Event::SleepStarted { unit: a(), due: at },
        Event::WaitStarted { unit: a(), deadline: at, limits: WaitLimits::default() },
        Event::WaitNoted { unit: a(), note: WaitNote::default() },
        verdict(Outcome::Succeed),
        Event::Succeeded { unit: a(), outputs: Arc::default() },
        Event::Failed { unit: a(), failure: failure() },
        Event::Cancelled { unit: a() },
    ]
}

/// Questions by reason.
fn reasons() -> [(&'static str, AskReason); 4] {
    [
        ("cannot_tell", AskReason::CannotTell),
        ("verdict", AskReason::Verdict),
        ("unobserved", AskReason::Unobserved),
        ("failed_undo", AskReason::FailedUndo),
    ]
}

#[test]
fn every_event_is_legal_in_these_phases_and_an_illegal_one_changes_nothing() {
    let states = states();
    let phase = |run: &RunState| run.unit(&unit("a")).map_or("new", |unit: &UnitState| unit.phase.name());
    let mut table = String::new();
    let attempt = |run: &RunState| run.unit(&unit("a")).map_or(0, |unit| unit.attempt);
    let names = events(0).into_iter().map(|event| event.name().to_owned());
    let asks = reasons().into_iter().map(|(name, _)| format!("ask {name}"));
    for (row, name) in names.chain(asks).enumerate() {
        let mut phases = vec![];
        for run in &states {
            let plain = events(attempt(run)).into_iter().nth(row);
            let event = plain.unwrap_or_else(|| {
                let (_, reason) = reasons()[row - events(0).len()].clone();
                Event::AskOpened(Box::new(Ask { id: run.asks_total + 1, ..ask(reason) }))
            });
            let mut next = run.clone();
            let seq = next.seq.next();
            if next.apply(seq, next.updated_at, &event).is_ok() {
                phases.push(phase(run));
            } else {
                assert_eq!(format!("{next:?}"), format!("{run:?}"), "{name} in {}", phase(run));
            }
        }
        let _ = writeln!(table, "{name}: {}", phases.join(" "));
    }
    expect![[r#"
        opened: new backoff
        skipped: new pending backoff
        precondition_pending: new pending backoff
        unchanged: new pending backoff
        attempt_started: new pending backoff
        process_started: acting
        interrupted: acting
        child_noted: acting observing
        attempt_finished: acting observing sleeping
        retry_scheduled: new pending backoff failing
        sleep_started: acting
        wait_started: acted
        wait_noted: waiting
        verdict_reached: waiting
        succeeded: acted concluding
        failed: new pending backoff failing sleeping acted waiting concluding
        cancelled: pending backoff failing sleeping acted waiting concluding asking
        ask cannot_tell: observing
        ask verdict: waiting
        ask unobserved: pending waiting
        ask failed_undo: new pending backoff failing sleeping acted waiting concluding
    "#]]
    .assert_eq(&table);
    let mut covered: Vec<_> = states.iter().map(phase).collect();
    covered.sort_unstable();
    covered.dedup();
    assert_eq!(covered.len(), states.len(), "each phase once: {covered:?}");
}

#[test]
fn after_the_end_only_debts_and_remarks_are_taken() {
    let mut run = Driver::new(&step("a", &[], ""));
    run.go();
    for event in events(1) {
        let seq = run.run.seq.next();
        assert!(run.run.apply(seq, run.now, &event).is_err(), "{}", event.name());
    }
    let seq = run.run.seq.next();
    let note = Event::Noted { by: actor("bob"), text: "x".to_owned() };
    assert_eq!(run.run.apply(seq, run.now, &note), Ok(()));
}

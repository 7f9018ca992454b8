//! A new process: replay, interrupted attempts, linked runs.

use std::collections::BTreeMap;
use std::time::Duration;

use expect_test::expect;

use crate::engine::Command;
use crate::engine::RunState;
use crate::engine::ask::Choice;
use crate::engine::command::Finding;
use crate::engine::event::AttemptEffect;
use crate::engine::event::AttemptEnd;
use crate::engine::event::Created;
use crate::engine::event::Event;
use crate::engine::linked;
use crate::engine::linked::Kind;
use crate::engine::state::RunStatus;
use crate::engine::testing::*;
use crate::failure::Failure;

#[test]
fn an_attempt_without_a_result_is_observed_after_its_writes_have_settled() {
    for (found, expected) in [
        (
            Reply::Found { ours: true },
            expect![[r#"
            interrupted a 1
            attempt_finished a changed
            succeeded a
            finished Succeeded, left []
        "#]],
        ),
        (
            Reply::Found { ours: false },
            expect![[r#"
            interrupted a 1
            attempt_finished a unattributed
            succeeded a
            finished Succeeded, left []
        "#]],
        ),
        (
            Reply::NotDone,
            expect![[r#"
            interrupted a 1
            attempt_finished a not_done
            attempt_started a 2
            attempt_finished a changed
            succeeded a
            finished Succeeded, left []
        "#]],
        ),
        (
            Reply::CannotTell,
            expect![[r#"
            interrupted a 1
            ask_opened a cannot_tell: retry | done | skip | rollback | fail
        "#]],
        ),
        (
            lasting(),
            expect![[r#"
            interrupted a 1
            attempt_finished a failed
            failed a broken
            rollback_started broken
            finished Failed, left []
        "#]],
        ),
    ] {
        let mut run = Driver::new(&step("a", &[], "retry = { attempts = 1 }"));
        run.on("act a", &[Reply::Silence]).settle();
        run.restart();
        assert_eq!(run.effects(), [], "its writes may still arrive");
        run.on("act a", &[Reply::Changed]).on("observe a", &[found]).go();
        let waited = run
            .journal
            .iter()
            .rev()
            .find(|(_, _, event)| matches!(event, Event::AttemptFinished { .. } | Event::AskOpened(_)));
        assert!(waited.is_some_and(|(_, at, _)| at.as_millis() >= 1_030_000));
        expected.assert_eq(&run.log_from("interrupted"));
    }
}

#[test]
fn an_observed_end_that_is_unknown_is_never_repeated_blindly() {
    let mut run = Driver::new(&step("a", &[], ""));
    run.on("act a", &[Reply::Unknown]).on("observe a", &[Reply::Silence]).settle();
    run.now = run.now + Duration::from_mins(1);
    let effect = AttemptEffect::Unknown(Failure::unknown("lost", "no answer came"));
    let finding = Finding::Ended(AttemptEnd::of(effect));
    run.send(Command::Observed { unit: unit("a"), attempt: 1, finding }).expect("it is observed");
    assert_eq!(run.run.status(), RunStatus::Held);

    let mut run = Driver::new(&step("a", &[], ""));
    run.on("act a", &[Reply::Fail(Failure::unknown("lost", "no answer came")), Reply::Changed]).go();
    expect![[r#"
        created
        attempt_started a 1
        attempt_finished a unknown
        attempt_finished a failed
        retry_scheduled a lost
        attempt_started a 2
        attempt_finished a changed
        succeeded a
        finished Succeeded, left []
    "#]]
    .assert_eq(&run.log());
}

#[test]
fn what_died_with_the_process_is_observed_at_once() {
    let mut run = Driver::new(&step("a", &[], ""));
    run.on("act a", &[Reply::Silence]).settle();
    let settle = BTreeMap::from([(unit("a"), run.now)]);
    run.send(Command::Recover { settle }).expect("recovery is taken");
    assert_eq!(run.effects().len(), 1);
}

#[test]
fn waits_sleeps_and_questions_go_on_with_their_deadlines() {
    let wait = "[steps.a.wait]\nuntil = 'object != null'\ntimeout = \"10m\"\n\
                target = { api = \"v1\", kind = \"Node\", name = \"n\" }\n";
    let sleep = "[steps.b]\ntitle = \"b\"\nuses = \"sleep\"\nduration = \"1m\"\n";
    let mut run = Driver::new(&(step("a", &[], wait) + sleep));
    run.on("watch a", &[Reply::Report(not_yet())]).settle();
    run.wait(Duration::from_secs(30));
    run.now = run.now + Duration::from_hours(2);
    run.restart().on("watch a", &[Reply::Report(applies(0))]).go();
    expect![[r#"
        created
        attempt_started a 1
        attempt_finished a changed
        wait_started a
        wait_noted a
        attempt_started b 1
        sleep_started b
        wait_noted a
        wait_noted a
        verdict_reached a until
        succeeded a
        attempt_finished b unchanged
        succeeded b
        finished Succeeded, left []
    "#]]
    .assert_eq(&run.log());
    assert_eq!(run.run.status(), RunStatus::Succeeded, "the last look counts, two hours late");
}

fn linked(driver: &Driver, kind: Kind) -> Driver {
    let inherited = linked::inherited(&driver.plan, &driver.run, kind).expect("there is something to do");
    let change = |created: &mut Created| created.inherited = Some(Box::new(inherited));
    Driver::created(driver.plan.clone(), change)
}

#[test]
fn a_retry_goes_on_behind_what_stands_and_undoes_all_of_it_if_it_fails() {
    let steps = step("a", &[], "") + &undo("a", "") + &step("b", &["a"], "") + &undo("b", "");
    let mut run = Driver::new(&steps);
    run.on("act b", &[lasting()]).on("act b/undo.0", &[lasting()]).go();
    run.answer(None, Choice::Fail).go();
    assert_eq!(run.run.status(), RunStatus::Failed);

    let mut retry = linked(&run, Kind::Retry);
    retry.go();
    expect![[r#"
        created
        attempt_started b 1
        attempt_finished b changed
        succeeded b
        finished Succeeded, left []
    "#]]
    .assert_eq(&retry.log());

    let mut retry = linked(&run, Kind::Retry);
    retry.on("act b", &[lasting()]).go();
    expect![[r#"
        created
        attempt_started b 1
        attempt_finished b failed
        failed b broken
        rollback_started broken
        attempt_started b/undo.0 1
        attempt_finished b/undo.0 changed
        succeeded b/undo.0
        compensated b
        attempt_started a/undo.0 1
        attempt_finished a/undo.0 changed
        succeeded a/undo.0
        compensated a
        finished RolledBack, left []
    "#]]
    .assert_eq(&retry.log());
    assert!(linked::inherited(&run.plan, &retry.run, Kind::Rollback).is_err(), "nothing is left");
    let again = linked::inherited(&run.plan, &retry.run, Kind::Retry).expect("it failed");
    assert!(again.units.is_empty(), "all was undone: it begins afresh");
}

#[test]
fn a_retry_goes_on_within_a_list() {
    let steps = step("a", &[], "for_each = '[\"x\", \"y\", \"z\"]'");
    let mut run = Driver::new(&steps);
    run.on("act a[y]", &[lasting()]).go();
    assert_eq!(run.run.status(), RunStatus::Failed);
    let mut retry = linked(&run, Kind::Retry);
    retry.go();
    expect![[r#"
        created
        opened a ["x", "y", "z"]
        attempt_started a[y] 1
        attempt_finished a[y] changed
        succeeded a[y]
        attempt_started a[z] 1
        attempt_finished a[z] changed
        succeeded a[z]
        finished Succeeded, left []
    "#]]
    .assert_eq(&retry.log());
}

#[test]
fn a_rollback_of_a_run_that_succeeded_undoes_it_and_nothing_else() {
    let finally = "[finally.z]\ntitle = \"z\"\nuses = \"process\"\nidempotent = true\ncommand = [\"z\"]\n";
    let steps = step("a", &[], "") + &undo("a", "") + &step("b", &["a"], "") + &undo("b", "") + finally;
    let mut run = Driver::new(&steps);
    run.go();
    assert!(linked::inherited(&run.plan, &run.run, Kind::Retry).is_err());
    let mut back = linked(&run, Kind::Rollback);
    back.go();
    expect![[r#"
        created
        rollback_started cancelled
        attempt_started b/undo.0 1
        attempt_finished b/undo.0 changed
        succeeded b/undo.0
        compensated b
        attempt_started a/undo.0 1
        attempt_finished a/undo.0 changed
        succeeded a/undo.0
        compensated a
        finished RolledBack, left []
    "#]]
    .assert_eq(&back.log());
    assert_eq!(back.run.status(), RunStatus::RolledBack);
}

#[test]
fn a_journal_with_a_hole_is_refused() {
    let mut run = Driver::new(&(step("a", &[], "") + &step("b", &["a"], "")));
    run.go();
    let replay = |skip: usize| {
        let journal = run.journal.iter().enumerate().filter(|(i, _)| *i != skip).map(|(_, event)| event);
        RunState::replay(run.run.id, journal.map(|(seq, at, event)| (*seq, *at, event)))
    };
    for skip in 0..run.journal.len() - 1 {
        assert!(replay(skip).is_err(), "event {skip} is missing");
    }
}

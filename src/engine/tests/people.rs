//! Approvals, answers, cancel, pause, terminate, guards, locks, debts, notes.

use std::time::Duration;

use expect_test::expect;

use crate::engine::Command;
use crate::engine::Effect;
use crate::engine::Rejection;
use crate::engine::ask::Choice;
use crate::engine::event::Created;
use crate::engine::state::RunStatus;
use crate::engine::testing::*;
use crate::time::Timestamp;

fn approval(more: &str) -> String {
    "[steps.ok]\ntitle = \"ok\"\nafter = [\"a\"]\nuses = \"approval\"\nsubject = [\"vm\"]\nexpires = \"1h\"\n\
     message = \"may it go?\"\n"
        .to_owned()
        + more
        + "\n"
}

fn with_approval(more: &str) -> Driver {
    let steps = step("a", &[], "")
        + &undo("a", "")
        + &approval(more)
        + &step("b", &["ok"], "")
        + &step("c", &["b"], "")
        + &step("d", &["a"], "");
    let mut run = Driver::new(&steps);
    run.settle();
    assert_eq!(run.run.status(), RunStatus::Held);
    run
}

#[test]
fn an_approval_waits_for_somebody_else_than_the_requester() {
    let mut run = with_approval("");
    expect![[r#"
        created
        attempt_started a 1
        attempt_finished a changed
        succeeded a
        attempt_started ok 1
        ask_opened ok approval: reject | approve
        attempt_started d 1
        attempt_finished d changed
        succeeded d
    "#]]
    .assert_eq(&run.log());
    let own = Command::Answer { unit: None, choice: Choice::Approve, by: actor("ann"), reason: None };
    assert!(matches!(run.send(own), Err(Rejection::RequesterMayNotApprove { .. })));
    run.answer(Some("ok"), Choice::Approve).go();
    assert_eq!(run.run.status(), RunStatus::Succeeded);
}

#[test]
fn a_refusal_fails_the_run_or_skips_what_depends_on_it() {
    let mut run = with_approval("");
    run.answer(None, Choice::Reject).go();
    expect![[r#"
        ask_answered reject by bob
        rollback_started approval-rejected
        not_compensated d: the step has no rollback
        attempt_started a/undo.0 1
        attempt_finished a/undo.0 changed
        succeeded a/undo.0
        compensated a
        finished Failed, left ["d: the step has no rollback"]
    "#]]
    .assert_eq(&run.log_from("ask_answered"));
    let mut run = with_approval("on_reject = \"decline\"");
    run.answer(None, Choice::Reject).go();
    expect![[r#"
        ask_answered reject by bob
        skipped b Declined
        skipped c Declined
        finished Succeeded, left []
    "#]]
    .assert_eq(&run.log_from("ask_answered"));
    let mut run = with_approval("on_expire = \"decline\"");
    run.go();
    expect![[r#"
        ask_answered reject by expiry
        skipped b Declined
        skipped c Declined
        finished Succeeded, left []
    "#]]
    .assert_eq(&run.log_from("ask_answered"));
    let mut run = with_approval("");
    run.go();
    expect![[r#"
        ask_answered reject by expiry
        rollback_started approval-expired
        not_compensated d: the step has no rollback
        attempt_started a/undo.0 1
        attempt_finished a/undo.0 changed
        succeeded a/undo.0
        compensated a
        finished Failed, left ["d: the step has no rollback"]
    "#]]
    .assert_eq(&run.log_from("ask_answered"));
}

#[test]
fn the_first_answer_wins_and_later_ones_are_told_so() {
    let mut run = with_approval("");
    let answer = |unit: Option<&str>, choice| Command::Answer {
        unit: unit.map(crate::engine::testing::unit),
        choice,
        by: actor("eve"),
        reason: None,
    };
    let refused = run.send(answer(Some("b"), Choice::Approve)).map(|_| ());
    expect!["the run asks nothing about `b`; it asks about ok"]
        .assert_eq(&refused.expect_err("it does not ask").to_string());
    let refused = run.send(answer(None, Choice::Done)).map(|_| ());
    expect!["`done` is not an answer to this question; these are: reject, approve"]
        .assert_eq(&refused.expect_err("it is no answer").to_string());
    run.answer(None, Choice::Approve);
    let refused = run.send(answer(Some("ok"), Choice::Reject)).map(|_| ());
    expect!["already answered at 1970-01-01T00:16:40.000Z by bob: approve"]
        .assert_eq(&refused.expect_err("it is answered").to_string());
}

#[test]
fn every_answer_to_an_attempt_in_doubt_leads_somewhere() {
    let held = || {
        let mut run = Driver::new(&(step("a", &[], "") + &undo("a", "") + &step("b", &["a"], "")));
        run.on("act a", &[Reply::Unknown, Reply::Changed]).on("observe a", &[Reply::CannotTell]).go();
        assert_eq!(run.run.status(), RunStatus::Held);
        run
    };
    for (choice, expected) in [
        (
            Choice::Done,
            expect![[r#"
            ask_answered done by bob
            succeeded a
            attempt_started b 1
            attempt_finished b changed
            succeeded b
            finished Succeeded, left []
        "#]],
        ),
        (
            Choice::Retry,
            expect![[r#"
            ask_answered retry by bob
            attempt_started a 2
            attempt_finished a changed
            succeeded a
            attempt_started b 1
            attempt_finished b changed
            succeeded b
            finished Succeeded, left []
        "#]],
        ),
        (
            Choice::Skip,
            expect![[r#"
            ask_answered skip by bob
            attempt_started b 1
            attempt_finished b changed
            succeeded b
            finished Succeeded, left []
        "#]],
        ),
        (
            Choice::Rollback,
            expect![[r#"
                ask_answered rollback by bob
                rollback_started lost
                attempt_started a/undo.0 1
                attempt_finished a/undo.0 changed
                succeeded a/undo.0
                compensated a
                finished RolledBack, left []
            "#]],
        ),
        (
            Choice::Fail,
            expect![[r#"
            ask_answered fail by bob
            rollback_started lost
            not_compensated a: somebody decided to leave it
            finished Failed, left ["a: somebody decided to leave it"]
        "#]],
        ),
    ] {
        let mut run = held();
        run.answer(Some("a"), choice).go();
        expected.assert_eq(&run.log_from("ask_answered"));
    }
}

#[test]
fn cancel_undoes_and_says_how_much() {
    let cancel = || Command::Cancel { by: actor("bob"), reason: None };
    let steps = step("a", &[], "") + &undo("a", "") + &step("b", &["a"], "") + &step("c", &["b"], "");
    let mut run = Driver::new(&steps);
    run.on("act b", &[Reply::Silence]).settle();
    run.send(cancel()).expect("it runs");
    expect![[r#"
        cancel_requested
        rollback_started cancelled
    "#]]
    .assert_eq(&run.log_from("cancel_requested"));
    assert_eq!(run.send(cancel()).map(|_| ()), Err(Rejection::CancelledAlready));
    run.on("act b", &[Reply::Changed]).go();
    expect![[r#"
        rollback_started cancelled
        attempt_finished b changed
        succeeded b
        not_compensated b: the step has no rollback
        attempt_started a/undo.0 1
        attempt_finished a/undo.0 changed
        succeeded a/undo.0
        compensated a
        finished Cancelled(Partly), left ["b: the step has no rollback"]
    "#]]
    .assert_eq(&run.log_from("rollback"));

    let mut run = Driver::new(&steps);
    run.on("act a", &[Reply::Silence]).settle();
    run.send(cancel()).expect("it runs").on("act a", &[Reply::Changed]).go();
    expect![[r#"
        rollback_started cancelled
        attempt_finished a changed
        succeeded a
        attempt_started a/undo.0 1
        attempt_finished a/undo.0 changed
        succeeded a/undo.0
        compensated a
        finished Cancelled(Yes), left []
    "#]]
    .assert_eq(&run.log_from("rollback"));

    let mut run = Driver::new(&steps);
    run.on("act c", &[lasting()]).on("act a/undo.0", &[Reply::Silence]).settle();
    assert_eq!(run.send(cancel()).map(|_| ()), Err(Rejection::RollingBack));
}

#[test]
fn terminate_ends_at_once_and_names_what_is_left() {
    let steps = step("a", &[], "") + &undo("a", "") + &step("b", &["a"], "");
    let mut run = Driver::new(&steps);
    run.on("act b", &[Reply::Silence]).settle();
    let terminate = Command::Terminate { by: actor("bob"), reason: "the cluster is gone".to_owned() };
    run.send(terminate.clone()).expect("it runs");
    expect![[r#"
        noted
        finished Cancelled(No), left ["a", "b: it was in flight"]
    "#]]
    .assert_eq(&run.log_from("noted"));
    assert_eq!(run.effects(), []);
    assert!(matches!(run.send(terminate), Err(Rejection::Finished { .. })));
}

#[test]
fn a_paused_run_starts_nothing_and_its_deadlines_move() {
    let hour = Duration::from_hours(1);
    let wait = "[steps.a.wait]\nuntil = 'object != null'\ntimeout = \"2m\"\n\
                target = { api = \"v1\", kind = \"Node\", name = \"n\" }\n";
    let mut run = Driver::new(&(step("a", &[], wait) + &step("b", &[], "") + &step("c", &["b"], "")));
    run.on("watch a", &[Reply::Report(not_yet())]).on("act b", &[Reply::Silence]).settle();
    run.send(Command::Pause { by: actor("bob") }).expect("it runs");
    run.on("act b", &[Reply::Changed]).settle().wait(hour).settle();
    let waits = |run: &Driver| run.effects() == [Effect::Watch(unit("a"))];
    assert!(waits(&run), "{:?}", run.effects());
    assert!(run.send(Command::Pause { by: actor("bob") }).is_err());
    run.send(Command::Unpause { by: actor("bob") }).expect("it is paused");
    run.settle();
    assert_eq!(run.run.status(), RunStatus::Waiting, "the hour does not count");
    run.go();
    expect![[r#"
        created
        attempt_started a 1
        attempt_finished a changed
        wait_started a
        wait_noted a
        attempt_started b 1
        paused
        attempt_finished b changed
        succeeded b
        unpaused
        attempt_started c 1
        attempt_finished c changed
        succeeded c
        verdict_reached a timeout
        failed a wait-timeout
        rollback_started wait-timeout
        not_compensated a: the step has no rollback
        not_compensated c: the step has no rollback
        not_compensated b: the step has no rollback
        finished Failed, left ["b: the step has no rollback", "c: the step has no rollback", "a: the step has no rollback"]
    "#]].assert_eq(&run.log());
}

#[test]
fn a_guard_holds_from_the_end_of_one_step_to_the_start_of_another() {
    let guard = |on_break: &str| {
        format!(
            "[[guards]]\nread.n = {{ api = \"v1\", kind = \"Node\", name = \"n\" }}\nthat = 'n != null'\n\
             from = \"a\"\nto = \"c\"\non_break = \"{on_break}\"\n"
        )
    };
    let steps = step("a", &[], "") + &undo("a", "") + &step("b", &["a"], "") + &step("c", &["b"], "");
    let mut run = Driver::new(&(steps.clone() + &guard("ask")));
    run.on("act a", &[Reply::Silence]).settle();
    assert!(!run.effects().contains(&Effect::Guard(0)), "it has not begun");
    run.on("act a", &[Reply::Changed]).on("act b", &[Reply::Silence]).settle();
    assert!(run.effects().contains(&Effect::Guard(0)));
    run.on("guard 0", &[lasting()]).settle().on("act b", &[Reply::Changed]).settle();
    expect![[r#"
        guard_broken
        ask_opened run guard_broken: rollback | skip | fail
        attempt_finished b changed
        succeeded b
    "#]]
    .assert_eq(&run.log_from("guard_broken"));
    run.answer(None, Choice::Skip).go();
    assert_eq!(run.run.status(), RunStatus::Succeeded);

    let mut run = Driver::new(&(steps + &guard("fail")));
    run.on("guard 0", &[lasting()]).on("act b", &[Reply::Silence]).settle();
    run.on("act b", &[Reply::Changed]).go();
    expect![[r#"
        guard_broken
        rollback_started guard-broken
        attempt_finished b changed
        succeeded b
        not_compensated b: the step has no rollback
        attempt_started a/undo.0 1
        attempt_finished a/undo.0 changed
        succeeded a/undo.0
        compensated a
        finished Failed, left ["b: the step has no rollback"]
    "#]]
    .assert_eq(&run.log_from("guard_broken"));
}

#[test]
fn a_question_of_the_run_as_a_whole_needs_no_name() {
    let mut run = with_approval("");
    run.run.created.locks = vec!["vm/demo".into()];
    let break_lock =
        Command::BreakLock { key: "vm/demo".into(), by: actor("bob"), reason: "stuck".to_owned() };
    run.send(break_lock).expect("it holds it");
    assert_eq!(run.run.asks.len(), 2);
    run.answer(None, Choice::Skip);
    run.answer(None, Choice::Approve).go();
    assert_eq!(run.run.status(), RunStatus::Succeeded);
}

#[test]
fn a_run_waits_for_its_locks_and_may_lose_one() {
    let plan = plan_of(&step("a", &[], ""));
    let locked = |run: &mut Created| run.locks = vec!["vm/demo".into()];
    let mut run = Driver::created(plan.clone(), locked);
    assert_eq!((run.run.status(), run.effects()), (RunStatus::Queued, vec![]));
    run.send(Command::GrantLocks).expect("it queues");
    assert_eq!(run.send(Command::GrantLocks).map(|_| ()), Err(Rejection::HasLocks));
    let break_lock =
        |key: &str| Command::BreakLock { key: key.into(), by: actor("bob"), reason: "stuck".to_owned() };
    assert!(matches!(run.send(break_lock("vm/other")), Err(Rejection::NoSuchLock { .. })));
    run.send(break_lock("vm/demo")).expect("it holds it");
    run.go();
    expect![[r#"
        created
        locks_granted
        lock_broken
        ask_opened run lock_broken: rollback | skip | fail
    "#]]
    .assert_eq(&run.log());

    let mut run = Driver::created(plan, |created| {
        locked(created);
        created.lock_deadline = Some(Timestamp::from_millis(1_060_000));
    });
    run.go();
    expect![[r#"
        created
        rollback_started lock-timeout
        finished Failed, left []
    "#]]
    .assert_eq(&run.log());
}

#[test]
fn debts_and_notes_are_kept_also_after_the_end() {
    let debt = "[steps.d]\ntitle = \"d\"\nuses = \"debt\"\nwhat = \"the old disk\"\n\
                gone_when = 'pvc == null'\nread.pvc = { api = \"v1\", kind = \"PersistentVolumeClaim\", name = \"p\" }\n";
    let mut run = Driver::new(debt);
    run.go();
    expect![[r#"
        created
        attempt_started d 1
        debt_opened d: the old disk
        attempt_finished d unchanged
        succeeded d
        finished Succeeded, left []
    "#]]
    .assert_eq(&run.log());
    run.send(Command::Note { by: actor("bob"), text: "ticket 7".to_owned() }).expect("notes are taken");
    let close = |id| Command::CloseDebt { id, by: None, reason: "gone".to_owned() };
    assert!(matches!(run.send(close(2)), Err(Rejection::NoSuchDebt { id: 2 })));
    run.send(close(1)).expect("it is open");
    assert_eq!((run.run.debts.len(), run.run.notes.len()), (0, 1));
    let long = "x".repeat(5_000);
    let note = Command::Note { by: actor("bob"), text: long };
    assert!(matches!(run.send(note), Err(Rejection::TextTooLong { .. })));
}

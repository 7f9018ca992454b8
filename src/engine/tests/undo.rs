//! Rollback: order, commit points, what is left, failing undos, finally.

use std::time::Duration;

use expect_test::expect;

use crate::engine::Command;
use crate::engine::Effect;
use crate::engine::ask::Choice;
use crate::engine::command::Arming;
use crate::engine::event::Event;
use crate::engine::state::RunStatus;
use crate::engine::testing::*;

/// `a` and `b` with an undo each, then `c`.
fn two_and_one() -> String {
    step("a", &[], "") + &undo("a", "") + &step("b", &["a"], "") + &undo("b", "") + &step("c", &["b"], "")
}

#[test]
fn a_failure_undoes_in_the_reverse_of_completion() {
    let mut run = Driver::new(&two_and_one());
    run.on("act c", &[lasting()]).go();
    expect![[r#"
        failed c broken
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
    .assert_eq(&run.log_from("failed"));
    assert_eq!(run.run.status(), RunStatus::RolledBack);
}

#[test]
fn a_failed_step_is_undone_too_but_not_one_that_changed_nothing() {
    let mut run = Driver::new(&(two_and_one() + &undo("c", "")));
    run.on("prepare a", &[Reply::Unchanged]).on("act b", &[Reply::Unchanged]).on("act c", &[lasting()]).go();
    expect![[r#"
        failed c broken
        rollback_started broken
        attempt_started c/undo.0 1
        attempt_finished c/undo.0 changed
        succeeded c/undo.0
        compensated c
        finished RolledBack, left []
    "#]]
    .assert_eq(&run.log_from("failed"));
}

#[test]
fn a_step_without_rollback_that_changed_something_is_named_as_left() {
    let mut run =
        Driver::new(&(step("a", &[], "") + &step("b", &["a"], "") + &undo("b", "") + &step("c", &["b"], "")));
    run.on("act c", &[lasting()]).go();
    expect![[r#"
        rollback_started broken
        attempt_started b/undo.0 1
        attempt_finished b/undo.0 changed
        succeeded b/undo.0
        compensated b
        not_compensated a: the step has no rollback
        finished Failed, left ["a: the step has no rollback"]
    "#]]
    .assert_eq(&run.log_from("rollback"));
}

#[test]
fn rollback_entries_run_in_their_order_and_a_false_when_may_leave_a_debt() {
    let mut run =
        Driver::new(&(step("a", &[], "") + &undo("a", "") + &undo("a", "") + &step("b", &["a"], "")));
    run.on("act b", &[lasting()]).on("prepare a/undo.0", &[Reply::SkipWithDebt("the old value")]).go();
    expect![[r#"
        rollback_started broken
        debt_opened a: the old value
        skipped a/undo.0 When
        attempt_started a/undo.1 1
        attempt_finished a/undo.1 changed
        succeeded a/undo.1
        compensated a
        finished RolledBack, left []
    "#]]
    .assert_eq(&run.log_from("rollback"));
    assert_eq!(run.run.debts.len(), 1);
}

#[test]
fn behind_a_commit_point_nothing_is_undone() {
    let steps = |commit: &str| {
        let own = if commit == "on_start" { String::new() } else { undo("b", "") };
        step("a", &[], "")
            + &undo("a", "")
            + &step("b", &["a"], &format!("commit = \"{commit}\""))
            + &own
            + &step("c", &["b"], "")
            + &undo("c", "")
    };
    let mut run = Driver::new(&steps("on_success"));
    run.on("act c", &[lasting()]).go();
    expect![[r#"
        rollback_started broken
        attempt_started c/undo.0 1
        attempt_finished c/undo.0 changed
        succeeded c/undo.0
        compensated c
        not_compensated b: it is behind the commit point b
        not_compensated a: it is behind the commit point b
        finished Failed, left ["a: it is behind the commit point b", "b: it is behind the commit point b"]
    "#]]
    .assert_eq(&run.log_from("rollback"));
    assert_eq!(run.run.status(), RunStatus::Failed);

    let mut run = Driver::new(&steps("on_success"));
    run.on("act b", &[lasting()]).go();
    assert_eq!(run.run.status(), RunStatus::RolledBack, "{}", run.log());

    let mut run = Driver::new(&steps("on_start"));
    run.on("act b", &[lasting()]).go();
    expect![[r#"
        rollback_started broken
        not_compensated a: it is behind the commit point b
        finished Failed, left ["a: it is behind the commit point b"]
    "#]]
    .assert_eq(&run.log_from("rollback"));
    assert_eq!(run.run.status(), RunStatus::Failed);

    let mut run = Driver::new(&steps("on_start"));
    run.on("prepare b", &[Reply::Unmet(None)]).go();
    assert_eq!(run.run.status(), RunStatus::RolledBack, "it has not started: {}", run.log());
}

#[test]
fn an_undo_that_fails_holds_the_run_until_somebody_decides() {
    let held = || {
        let mut run = Driver::new(&two_and_one());
        run.on("act c", &[lasting()]).on("act b/undo.0", &[lasting()]).go();
        assert_eq!(run.run.status(), RunStatus::Held);
        run
    };
    let mut run = held();
    expect![[r#"
        rollback_started broken
        attempt_started b/undo.0 1
        attempt_finished b/undo.0 failed
        ask_opened b/undo.0 failed_undo: retry | done | skip | fail
    "#]]
    .assert_eq(&run.log_from("rollback"));

    run.on("act b/undo.0", &[Reply::Changed]).answer(Some("b/undo.0"), Choice::Retry).go();
    assert_eq!(run.run.status(), RunStatus::RolledBack);

    let mut run = held();
    run.answer(None, Choice::Done).go();
    assert_eq!(run.run.status(), RunStatus::RolledBack);

    let mut run = held();
    run.answer(None, Choice::Skip).go();
    expect![[r#"
        ask_answered skip by bob
        not_compensated b: an undo failed or was given up
        attempt_started a/undo.0 1
        attempt_finished a/undo.0 changed
        succeeded a/undo.0
        compensated a
        finished Failed, left ["b: an undo failed or was given up"]
    "#]]
    .assert_eq(&run.log_from("ask_answered"));

    let mut run = held();
    run.answer(None, Choice::Fail).go();
    expect![[r#"
        ask_answered fail by bob
        not_compensated b: somebody decided to leave it
        not_compensated a: somebody decided to leave it
        finished Failed, left ["a: somebody decided to leave it", "b: somebody decided to leave it"]
    "#]]
    .assert_eq(&run.log_from("ask_answered"));
}

#[test]
fn an_undo_may_wait_and_be_repeated() {
    let wait = "retry = { attempts = 2 }\nwait = { until = 'object != null', timeout = \"2m\", target = \
                { api = \"v1\", kind = \"Node\", name = \"n\" } }";
    let mut run = Driver::new(&(step("a", &[], "") + &undo("a", wait) + &step("b", &["a"], "")));
    run.on("act b", &[lasting()]).on("act a/undo.0", &[passing(), Reply::Changed]);
    run.on("watch a/undo.0", &[Reply::Report(not_yet())]).go();
    expect![[r#"
        rollback_started broken
        attempt_started a/undo.0 1
        attempt_finished a/undo.0 failed
        retry_scheduled a/undo.0 busy
        attempt_started a/undo.0 2
        attempt_finished a/undo.0 changed
        wait_started a/undo.0
        wait_noted a/undo.0
        verdict_reached a/undo.0 timeout
        ask_opened a/undo.0 failed_undo: retry | done | skip | fail
    "#]]
    .assert_eq(&run.log_from("rollback"));
    run.on("watch a/undo.0", &[Reply::Report(applies(0))]);
    run.answer(None, Choice::Retry).go();
    assert_eq!(run.run.status(), RunStatus::RolledBack);
}

#[test]
fn undo_begins_only_when_nothing_is_in_flight_and_writes_are_awaited_and_observed() {
    let wait = "[steps.b.wait]\nuntil = 'object != null'\ntimeout = \"1h\"\n\
                target = { api = \"v1\", kind = \"Node\", name = \"n\" }\n";
    let steps =
        step("a", &[], "") + &undo("a", "") + &step("b", &[], wait) + &undo("b", "") + &step("c", &[], "");
    let mut run = Driver::new(&steps);
    run.on("act a", &[Reply::Silence]).on("watch b", &[Reply::Report(not_yet())]);
    run.on("act c", &[Reply::Silence]).settle();
    run.on("act c", &[lasting()]).settle();
    expect![[r#"
        rollback_started broken
        cancelled b
    "#]]
    .assert_eq(&run.log_from("rollback"));
    run.on("act a", &[Reply::Unknown]).on("observe a", &[Reply::Found { ours: true }]).go();
    expect![[r#"
        cancelled b
        attempt_finished a unknown
        attempt_finished a changed
        succeeded a
        attempt_started a/undo.0 1
        attempt_finished a/undo.0 changed
        succeeded a/undo.0
        compensated a
        attempt_started b/undo.0 1
        attempt_finished b/undo.0 changed
        succeeded b/undo.0
        compensated b
        finished RolledBack, left []
    "#]]
    .assert_eq(&run.log_from("cancelled"));
    assert_eq!(run.run.status(), RunStatus::RolledBack);
}

#[test]
fn an_effect_that_may_be_somebody_elses_is_undone_only_if_a_person_says_so() {
    let held = || {
        let mut run = Driver::new(&(step("a", &[], "") + &undo("a", "") + &step("b", &["a"], "")));
        run.on("act a", &[Reply::Unknown]).on("observe a", &[Reply::Found { ours: false }]);
        run.on("act b", &[lasting()]).go();
        run
    };
    let mut run = held();
    expect![[r#"
        rollback_started broken
        ask_opened a unattributed: skip | rollback | fail
    "#]]
    .assert_eq(&run.log_from("rollback"));
    run.answer(Some("a"), Choice::Rollback).go();
    assert_eq!(run.run.status(), RunStatus::RolledBack);
    let mut run = held();
    run.answer(Some("a"), Choice::Skip).go();
    expect![[r#"
        ask_answered skip by bob
        not_compensated a: somebody decided to leave it
        finished Failed, left ["a: somebody decided to leave it"]
    "#]]
    .assert_eq(&run.log_from("ask_answered"));
}

#[test]
fn between_two_attempts_the_undo_runs_if_the_policy_says_so() {
    let policy = "retry = { attempts = 2, wait = true, undo = true }\nwait = { until = 'object != null', timeout = \
                  \"2m\", target = { api = \"v1\", kind = \"Node\", name = \"n\" } }";
    let mut run = Driver::new(&(step("a", &[], policy) + &undo("a", "")));
    run.on("act a", &[passing(), Reply::Changed]).go();
    expect![[r#"
        created
        attempt_started a 1
        attempt_finished a failed
        retry_scheduled a busy
        attempt_started a/undo.0 1
        attempt_finished a/undo.0 changed
        succeeded a/undo.0
        attempt_started a 2
        attempt_finished a changed
        wait_started a
        verdict_reached a until
        succeeded a
        finished Succeeded, left []
    "#]]
    .assert_eq(&run.log());
    let mut run = Driver::new(&(step("a", &[], policy) + &undo("a", "")));
    run.on("watch a", &[Reply::Report(not_yet())]).go();
    expect![[r#"
        retry_scheduled a wait-timeout
        attempt_started a/undo.0 1
        attempt_finished a/undo.0 changed
        succeeded a/undo.0
        attempt_started a 2
        attempt_finished a changed
        wait_started a
        wait_noted a
        verdict_reached a timeout
        failed a wait-timeout
        rollback_started wait-timeout
        attempt_started a/undo.0 1
        attempt_finished a/undo.0 changed
        succeeded a/undo.0
        compensated a
        finished RolledBack, left []
    "#]]
    .assert_eq(&run.log_from("retry_scheduled"));
}

#[test]
fn a_finally_step_comes_behind_those_that_it_is_after_and_not_without_them() {
    let finally = |name: &str, after: &str| {
        format!(
            "[finally.{name}]\ntitle = \"{name}\"\nafter = {after}\nuses = \"process\"\nidempotent = true\n\
             command = [\"{name}\"]\n"
        )
    };
    let steps = step("a", &[], "")
        + &finally("last", "[\"middle\"]")
        + &finally("anyway", "[{ step = \"first\", on = \"any\" }]")
        + &finally("middle", "[\"first\"]")
        + &finally("first", "[]");
    let order = |run: &Driver| {
        let begun = |line: &str| Some(line.strip_prefix("attempt_started ")?.split(' ').next()?.to_owned());
        run.log().lines().filter_map(begun).skip(1).collect::<Vec<_>>()
    };
    let mut run = Driver::new(&steps);
    run.go();
    assert_eq!(order(&run), ["first", "anyway", "middle", "last"]);
    let mut run = Driver::new(&steps);
    run.on("act first", &[lasting()]).go();
    assert_eq!(order(&run), ["first", "anyway"]);
    assert!(run.log().contains("skipped middle Unreachable\nskipped last Unreachable"), "{}", run.log());
    assert_eq!(run.run.status(), RunStatus::Succeeded);
}

#[test]
fn finally_steps_run_after_success_and_after_a_rollback_and_change_no_outcome() {
    let finally = "[finally.z]\ntitle = \"z\"\nuses = \"process\"\nidempotent = true\ncommand = [\"z\"]\n\
                   [finally.y]\ntitle = \"y\"\nuses = \"process\"\nidempotent = true\ncommand = [\"y\"]\n";
    let mut run = Driver::new(&(step("a", &[], "") + finally));
    run.on("act z", &[lasting()]).go();
    expect![[r#"
        created
        attempt_started a 1
        attempt_finished a changed
        succeeded a
        attempt_started z 1
        attempt_finished z failed
        failed z broken
        debt_opened z: the finally step z failed: it is broken
        warned broken
        attempt_started y 1
        attempt_finished y changed
        succeeded y
        finished Succeeded, left []
    "#]]
    .assert_eq(&run.log());
    assert_eq!(run.run.status(), RunStatus::Succeeded);
    let mut run = Driver::new(&(two_and_one() + finally));
    run.on("act c", &[lasting()]).go();
    expect![[r#"
        compensated a
        attempt_started z 1
        attempt_finished z changed
        succeeded z
        attempt_started y 1
        attempt_finished y changed
        succeeded y
        finished RolledBack, left []
    "#]]
    .assert_eq(&run.log_from("compensated a"));
}

#[test]
fn a_child_workflow_is_stopped_and_undone_by_its_own_steps() {
    let child = "[steps.a]\ntitle = \"a\"\nuses = \"workflow\"\nname = \"child\"\n";
    let mut run = Driver::new(&(child.to_owned() + &step("b", &["a"], "")));
    run.on("act b", &[lasting()]).go();
    expect![[r#"
        rollback_started broken
        attempt_started a/undo.65535 1
        attempt_finished a/undo.65535 changed
        succeeded a/undo.65535
        compensated a
        finished RolledBack, left []
    "#]]
    .assert_eq(&run.log_from("rollback"));

    let mut run = Driver::new(child);
    run.on("act a", &[Reply::Silence]).settle();
    run.send(Command::Cancel { by: actor("bob"), reason: None }).expect("it can be cancelled");
    let effects = run.effects();
    assert!(matches!(effects.as_slice(), [Effect::StopChild { .. }, Effect::Act { .. }]), "{effects:?}");
    run.on("act a", &[Reply::Unchanged]).go();
    expect![[r#"
        cancel_requested
        rollback_started cancelled
        attempt_finished a unchanged
        succeeded a
        finished Cancelled(Yes), left []
    "#]]
    .assert_eq(&run.log_from("cancel_requested"));
}

#[test]
fn the_run_timeout_rolls_back_and_time_with_a_question_does_not_count() {
    let hour = Duration::from_hours(1);
    let ms = u64::try_from(hour.as_millis()).expect("it fits");
    let wait = "[steps.b.wait]\nuntil = 'object != null'\ntimeout = \"9h\"\nstall_after = \"5m\"\n\
                progress = 'size(object)'\ntarget = { api = \"v1\", kind = \"Node\", name = \"n\" }\n";
    let steps = step("a", &[], "") + &undo("a", "") + &step("b", &["a"], wait);
    let arming = Arming { timeout: 9 * hour, stall_after: Some(hour / 4), stable_for: vec![] };
    let mut run = Driver::created(plan_of(&steps), |created| created.timeout_ms = Some(ms));
    run.on("arm b", &[Reply::Arming(arming)]).on("watch b", &[Reply::Report(not_yet())]).settle();
    run.wait(hour / 4).settle();
    assert_eq!(run.run.status(), RunStatus::Held);
    run.wait(3 * hour).answer(Some("b"), Choice::Wait(hour));
    assert_eq!(run.run.status(), RunStatus::Waiting, "three hours of asking do not count");
    run.wait(hour / 4).settle().answer(Some("b"), Choice::Wait(hour));
    run.wait(hour / 4).settle().answer(Some("b"), Choice::Wait(hour));
    run.wait(hour / 4).settle();
    expect![[r#"
        rollback_started run-timeout
        cancelled b
        not_compensated b: the step has no rollback
        attempt_started a/undo.0 1
        attempt_finished a/undo.0 changed
        succeeded a/undo.0
        compensated a
        finished Failed, left ["b: the step has no rollback"]
    "#]]
    .assert_eq(&run.log_from("rollback"));
    let ended = run.journal.iter().filter(|(_, _, event)| matches!(event, Event::Cancelled { .. })).count();
    assert_eq!(ended, 1);
}

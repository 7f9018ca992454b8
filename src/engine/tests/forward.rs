//! Steps, retries, waits, asks and sleeps, going forward.

use std::time::Duration;

use expect_test::Expect;
use expect_test::expect;

use crate::engine::Command;
use crate::engine::Event;
use crate::engine::Rejection;
use crate::engine::ask::Choice;
use crate::engine::command::Arming;
use crate::engine::command::Preparation;
use crate::engine::command::WaitReport;
use crate::engine::event::AttemptEnd;
use crate::engine::state::RunStatus;
use crate::engine::testing::*;
use crate::failure::Explanation;
use crate::failure::Failure;

const WAIT: &str = "[steps.a.wait]\nuntil = 'object != null'\n\
                    timeout = \"2m\"\ntarget = { api = \"v1\", kind = \"Node\", name = \"n\" }\n";

fn shows(driver: &Driver, expected: &Expect) {
    expected.assert_eq(&driver.log());
}

#[test]
fn a_chain_of_plain_steps_succeeds_in_order() {
    let mut run = Driver::new(&(step("a", &[], "") + &step("b", &["a"], "") + &step("c", &["b"], "")));
    shows(
        run.go(),
        &expect![[r#"
        created
        attempt_started a 1
        attempt_finished a changed
        succeeded a
        attempt_started b 1
        attempt_finished b changed
        succeeded b
        attempt_started c 1
        attempt_finished c changed
        succeeded c
        finished Succeeded, left []
    "#]],
    );
    assert_eq!(run.run.status(), RunStatus::Succeeded);
}

#[test]
fn a_plain_step_needs_no_event_between_its_end_and_the_next_beginning() {
    let mut run = Driver::new(&(step("a", &[], "") + &step("b", &["a"], "")));
    run.on("act b", &[Reply::Silence]).settle();
    shows(
        &run,
        &expect![[r#"
        created
        attempt_started a 1
        attempt_finished a changed
        succeeded a
        attempt_started b 1
    "#]],
    );
}

#[test]
fn steps_without_a_path_between_them_run_at_once() {
    let mut run = Driver::new(&(step("a", &[], "") + &step("b", &[], "") + &step("c", &["a", "b"], "")));
    run.on("act a", &[Reply::Silence]).on("act b", &[Reply::Silence]).settle();
    shows(
        &run,
        &expect![[r#"
        created
        attempt_started a 1
        attempt_started b 1
    "#]],
    );
    run.on("act a", &[Reply::Changed]).on("act b", &[Reply::Changed]).go();
    assert_eq!(run.run.status(), RunStatus::Succeeded);
}

#[test]
fn a_passing_failure_is_repeated_with_growing_delays_until_the_policy_is_used_up() {
    let mut run = Driver::new(&step("a", &[], "retry = { attempts = 3, jitter = 0.0 }"));
    run.on("act a", &[passing()]).go();
    shows(
        &run,
        &expect![[r#"
        created
        attempt_started a 1
        attempt_finished a failed
        retry_scheduled a busy
        attempt_started a 2
        attempt_finished a failed
        retry_scheduled a busy
        attempt_started a 3
        attempt_finished a failed
        failed a busy
        rollback_started busy
        finished Failed, left []
    "#]],
    );
    let dues: Vec<_> = run.journal.iter().map(|(_, at, _)| at.as_millis() - 1_000_000).collect();
    expect!["[0, 0, 0, 0, 2000, 2000, 2000, 6000, 6000, 6000, 6000, 6000]"].assert_eq(&format!("{dues:?}"));
}

#[test]
fn a_lasting_failure_is_not_repeated() {
    let mut run = Driver::new(&step("a", &[], ""));
    run.on("act a", &[lasting()]).go();
    shows(
        &run,
        &expect![[r#"
        created
        attempt_started a 1
        attempt_finished a failed
        failed a broken
        rollback_started broken
        finished Failed, left []
    "#]],
    );
}

#[test]
fn an_unknown_result_is_observed_before_anything_is_repeated() {
    for (found, expected) in [
        (
            Reply::Found { ours: true },
            expect![[r#"
            created
            attempt_started a 1
            attempt_finished a unknown
            attempt_finished a changed
            succeeded a
            finished Succeeded, left []
        "#]],
        ),
        (
            Reply::Found { ours: false },
            expect![[r#"
            created
            attempt_started a 1
            attempt_finished a unknown
            attempt_finished a unattributed
            succeeded a
            finished Succeeded, left []
        "#]],
        ),
        (
            Reply::NotDone,
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
        "#]],
        ),
        (
            Reply::CannotTell,
            expect![[r#"
            created
            attempt_started a 1
            attempt_finished a unknown
            ask_opened a cannot_tell: retry | done | skip | rollback | fail
        "#]],
        ),
    ] {
        let mut run = Driver::new(&step("a", &[], ""));
        run.on("act a", &[Reply::Unknown, Reply::Changed]).on("observe a", &[found]).go();
        shows(&run, &expected);
    }
}

#[test]
fn an_executor_that_never_answers_is_observed_after_the_attempt_timeout() {
    let mut run = Driver::new(&step("a", &[], ""));
    run.on("act a", &[Reply::Silence]).go();
    expect![[r#"
        created
        attempt_started a 1
        attempt_finished a unknown
        attempt_finished a failed
        retry_scheduled a attempt-timeout
        attempt_started a 2
        attempt_finished a unknown
        attempt_finished a failed
        retry_scheduled a attempt-timeout
        attempt_started a 3
        attempt_finished a unknown
        attempt_finished a failed
        failed a attempt-timeout
        rollback_started attempt-timeout
        finished Failed, left []
    "#]]
    .assert_eq(&run.log());
}

#[test]
fn a_check_that_is_true_skips_the_action_but_not_the_wait() {
    let mut run = Driver::new(&step("a", &[], WAIT));
    run.on("prepare a", &[Reply::Unchanged]).go();
    shows(
        &run,
        &expect![[r#"
        created
        unchanged a
        wait_started a
        verdict_reached a until
        succeeded a
        finished Succeeded, left []
    "#]],
    );
}

#[test]
fn a_false_when_skips_the_step_and_its_followers_go_on() {
    let mut run = Driver::new(&(step("a", &[], "") + &step("b", &["a"], "")));
    run.on("prepare a", &[Reply::Skip]).go();
    shows(
        &run,
        &expect![[r#"
        created
        skipped a When
        attempt_started b 1
        attempt_finished b changed
        succeeded b
        finished Succeeded, left []
    "#]],
    );
}

#[test]
fn a_step_that_may_fail_warns_and_only_those_that_accept_it_go_on() {
    let steps = step("a", &[], "on_error = \"continue\"") + &step("b", &["a"], "") + &step("d", &["b"], "");
    let any = step("c", &[], "").replace("after = []", "after = [{ step = \"a\", on = \"any\" }]");
    let mut run = Driver::new(&(steps + &any));
    run.on("act a", &[lasting()]).go();
    shows(
        &run,
        &expect![[r#"
        created
        attempt_started a 1
        attempt_finished a failed
        failed a broken
        warned broken
        skipped b Unreachable
        skipped d Unreachable
        attempt_started c 1
        attempt_finished c changed
        succeeded c
        finished Succeeded, left []
    "#]],
    );
}

#[test]
fn a_precondition_is_waited_for_until_its_own_deadline() {
    let minute = Duration::from_mins(1);
    let mut run = Driver::new(&step("a", &[], ""));
    run.on("prepare a", &[Reply::Unmet(Some(minute))]).settle();
    assert_eq!(run.run.status(), RunStatus::Waiting);
    run.wait(minute / 2).settle();
    run.on("prepare a", &[Reply::Changed]).go();
    shows(
        &run,
        &expect![[r#"
        created
        precondition_pending a
        attempt_started a 1
        attempt_finished a changed
        succeeded a
        finished Succeeded, left []
    "#]],
    );

    let mut run = Driver::new(&step("a", &[], ""));
    run.on("prepare a", &[Reply::Unmet(Some(minute))]).go();
    shows(
        &run,
        &expect![[r#"
        created
        precondition_pending a
        failed a precondition-timeout
        rollback_started precondition-timeout
        finished Failed, left []
    "#]],
    );

    let mut run = Driver::new(&step("a", &[], ""));
    run.on("prepare a", &[Reply::Unmet(None)]).go();
    shows(
        &run,
        &expect![[r#"
        created
        failed a precondition
        rollback_started precondition
        finished Failed, left []
    "#]],
    );
}

#[test]
fn an_api_that_is_away_when_a_precondition_is_due_is_a_question() {
    let mut run = Driver::new(&step("a", &[], ""));
    run.on("prepare a", &[Reply::Unmet(Some(Duration::from_mins(1))), passing()]).go();
    shows(
        &run,
        &expect![[r#"
        created
        precondition_pending a
        ask_opened a unobserved: retry | skip | rollback | fail
    "#]],
    );
    run.on("prepare a", &[Reply::Changed]).answer(Some("a"), Choice::Retry).go();
    assert_eq!(run.run.status(), RunStatus::Succeeded);
}

#[test]
fn reads_that_fail_are_repeated_even_without_a_policy() {
    let mut run = Driver::new(&step("a", &[], "retry = { attempts = 1 }"));
    run.on("prepare a", &[passing(), passing(), Reply::Changed]).go();
    shows(
        &run,
        &expect![[r#"
        created
        retry_scheduled a busy
        retry_scheduled a busy
        attempt_started a 1
        attempt_finished a changed
        succeeded a
        finished Succeeded, left []
    "#]],
    );
}

#[test]
fn a_sleep_ends_when_it_is_due() {
    let mut run = Driver::new("[steps.a]\ntitle = \"a\"\nuses = \"sleep\"\nduration = \"1m\"\n");
    run.settle();
    assert_eq!(run.run.status(), RunStatus::Waiting);
    run.wait(Duration::from_secs(59));
    assert_eq!(run.run.status(), RunStatus::Waiting);
    run.go();
    shows(
        &run,
        &expect![[r#"
        created
        attempt_started a 1
        sleep_started a
        attempt_finished a unchanged
        succeeded a
        finished Succeeded, left []
    "#]],
    );
}

#[test]
fn a_wait_ends_by_the_first_verdict_that_is_confirmed() {
    let mut run = Driver::new(&step("a", &[], WAIT));
    let unconfirmed = WaitReport { confirmed: false, ..applies(0) };
    run.on("watch a", &[Reply::Report(unconfirmed), Reply::Report(not_yet()), Reply::Report(applies(0))]);
    run.settle();
    shows(
        &run,
        &expect![[r#"
        created
        attempt_started a 1
        attempt_finished a changed
        wait_started a
        wait_noted a
    "#]],
    );
    // `fail_if` stands before `until`.
    let mut run = Driver::new(&step("a", &[], &(WAIT.to_owned() + "fail_if = 'object == null'\n")));
    run.on("watch a", &[Reply::Report(applies(0))]).go();
    shows(
        &run,
        &expect![[r#"
        created
        attempt_started a 1
        attempt_finished a changed
        wait_started a
        verdict_reached a fail_if
        failed a fail-if
        rollback_started fail-if
        not_compensated a: the step has no rollback
        finished Failed, left ["a: the step has no rollback"]
    "#]],
    );
}

#[test]
fn a_deadline_that_is_over_needs_one_confirmed_evaluation_and_success_still_wins() {
    let reports = |last: WaitReport| [Reply::Report(not_yet()), Reply::Report(last)];
    let mut run = Driver::new(&step("a", &[], WAIT));
    run.on("watch a", &reports(not_yet())).go();
    shows(
        &run,
        &expect![[r#"
        created
        attempt_started a 1
        attempt_finished a changed
        wait_started a
        wait_noted a
        verdict_reached a timeout
        failed a wait-timeout
        rollback_started wait-timeout
        not_compensated a: the step has no rollback
        finished Failed, left ["a: the step has no rollback"]
    "#]],
    );

    let mut run = Driver::new(&step("a", &[], WAIT));
    run.on("watch a", &[Reply::Report(not_yet())]).settle().wait(Duration::from_hours(1));
    assert_eq!(run.run.status(), RunStatus::Waiting, "a tick alone ends no wait");
    run.on("watch a", &[Reply::Report(applies(0))]).go();
    assert_eq!(run.run.status(), RunStatus::Succeeded);

    let mut run = Driver::new(&step("a", &[], WAIT));
    let unreadable =
        WaitReport { unreadable: Some(Failure::retryable("away", "no answer")), ..WaitReport::default() };
    run.on("watch a", &reports(unreadable)).settle().wait(Duration::from_hours(1)).go();
    shows(
        &run,
        &expect![[r#"
        created
        attempt_started a 1
        attempt_finished a changed
        wait_started a
        wait_noted a
        wait_noted a
        ask_opened a unobserved: wait 600s | done | retry | skip | rollback | fail
    "#]],
    );
    run.on("watch a", &[Reply::Report(not_yet()), Reply::Report(applies(0))]);
    run.answer(Some("a"), Choice::Wait(Duration::from_mins(5)));
    assert_eq!(run.run.status(), RunStatus::Waiting);
    run.go();
    assert_eq!(run.run.status(), RunStatus::Succeeded);
}

#[test]
fn a_verdict_that_must_be_stable_needs_two_confirmed_reads_that_far_apart() {
    let minute = Duration::from_mins(1);
    let arming =
        Arming { timeout: Duration::from_mins(10), stall_after: None, stable_for: vec![Some(minute)] };
    let mut run = Driver::new(&step("a", &[], WAIT));
    run.on("arm a", &[Reply::Arming(arming)]).on("watch a", &[Reply::Report(applies(0))]);
    run.settle();
    assert_eq!(run.run.status(), RunStatus::Waiting);
    run.on("watch a", &[Reply::Report(not_yet())]).wait(minute / 2).settle();
    run.on("watch a", &[Reply::Report(applies(0))]).wait(minute / 2).settle();
    assert_eq!(run.run.status(), RunStatus::Waiting, "a break starts it anew");
    run.wait(minute).settle();
    shows(
        &run,
        &expect![[r#"
        created
        attempt_started a 1
        attempt_finished a changed
        wait_started a
        wait_noted a
        wait_noted a
        wait_noted a
        verdict_reached a until
        succeeded a
        finished Succeeded, left []
    "#]],
    );
}

#[test]
fn a_known_failure_that_is_permanent_ends_the_wait_at_once_with_its_remedy() {
    let mut run = Driver::new(&step("a", &[], WAIT));
    let failure = Failure { remedy: Some(text("mend it")), ..Failure::permanent("known", "no space") };
    let report = WaitReport { known: Some(failure.clone()), ..not_yet() };
    run.on("watch a", &[Reply::Report(report)]).go();
    shows(
        &run,
        &expect![[r#"
        created
        attempt_started a 1
        attempt_finished a changed
        wait_started a
        verdict_reached a known_failure
        failed a known
        rollback_started known
        not_compensated a: the step has no rollback
        finished Failed, left ["a: the step has no rollback"]
    "#]],
    );
    let (_, finished) = run.run.finished.as_ref().expect("it is over");
    assert_eq!(finished.failure.as_ref(), Some(&failure));
}

#[test]
fn whatever_ends_a_wait_is_told_with_what_the_evidence_means() {
    let hint = Explanation { cause: text("the source is down"), remedy: text("take another") };
    let wait = WAIT.to_owned() + "fail_if = 'object == null'\n";
    let late = Duration::from_mins(3);
    for (report, code) in [(applies(0), "fail-if"), (not_yet(), "wait-timeout")] {
        let report = WaitReport { hint: Some(hint.clone()), ..report };
        let mut run = Driver::new(&step("a", &[], &wait));
        run.on("watch a", &[Reply::Report(report.clone()), Reply::Report(report)]).settle();
        if run.run.finished.is_none() {
            run.wait(late).go();
        }
        let (_, finished) = run.run.finished.as_ref().expect("it is over");
        let failure = finished.failure.as_ref().expect("it failed");
        assert_eq!(failure.code, code);
        assert_eq!(
            (&failure.cause, &failure.remedy),
            (&Some(hint.cause.clone()), &Some(hint.remedy.clone()))
        );
    }
}

#[test]
fn no_progress_is_a_stall_but_time_out_of_sight_does_not_count() {
    let minute = Duration::from_mins(1);
    let arming = Arming {
        timeout: Duration::from_hours(1),
        stall_after: Some(5 * minute),
        stable_for: vec![None, None],
    };
    let at = |number: f64| Reply::Report(WaitReport { progress: vec![Some(number)], ..not_yet() });
    let dark =
        WaitReport { unreadable: Some(Failure::retryable("away", "no answer")), ..WaitReport::default() };
    let mut run = Driver::new(&step(
        "a",
        &[],
        &(WAIT.to_owned() + "progress = 'size(object)'\nstall_after = \"5m\"\n"),
    ));
    run.on("arm a", &[Reply::Arming(arming)]).on("watch a", &[at(1.0)]).settle();
    run.on("watch a", &[at(2.0)]).wait(4 * minute).settle();
    run.on("watch a", &[at(2.0)]).wait(4 * minute).settle();
    assert_eq!(run.run.status(), RunStatus::Waiting, "it rose four minutes ago");
    run.on("watch a", &[Reply::Report(dark)]).settle();
    run.on("watch a", &[at(2.0)]).wait(30 * minute).settle();
    assert_eq!(run.run.status(), RunStatus::Waiting, "nobody saw it for half an hour");
    run.wait(2 * minute).settle();
    shows(
        &run,
        &expect![[r#"
        created
        attempt_started a 1
        attempt_finished a changed
        wait_started a
        wait_noted a
        wait_noted a
        wait_noted a
        wait_noted a
        ask_opened a stalled: wait 600s | done | retry | skip | rollback | fail
    "#]],
    );
}

#[test]
fn a_failure_that_has_a_limit_is_repeated_no_longer_than_that() {
    let limited = Reply::Fail(Failure {
        give_up_after_ms: Some(300_000),
        ..Failure::retryable("cert", "it is refused")
    });
    let mut run = Driver::new(&step("a", &[], "retry = { attempts = 100 }"));
    let began = run.now;
    // What failed for another reason before does not count.
    let replies = [vec![passing(); 3], vec![limited.clone(); 2], vec![passing()], vec![limited]].concat();
    run.on("act a", &replies).go();
    assert!(run.log().ends_with("finished Failed, left []\n"), "{}", run.log());
    let began_again =
        run.journal.iter().rfind(|(_, _, event)| line(event).ends_with("busy")).expect("it was").1;
    let lasted = run.now.since(began_again);
    assert!((300..400).contains(&lasted.as_secs()) && began_again > began, "{lasted:?}: {}", run.log());
}

#[test]
fn a_step_timeout_covers_all_attempts() {
    let mut run = Driver::new(&step("a", &[], "retry = { attempts = 100, delay = \"10s\" }"));
    run.on("prepare a", &[Reply::StepTimeout(Duration::from_secs(25))]).on("act a", &[passing()]).go();
    shows(
        &run,
        &expect![[r#"
        created
        attempt_started a 1
        attempt_finished a failed
        retry_scheduled a busy
        attempt_started a 2
        attempt_finished a failed
        retry_scheduled a busy
        attempt_started a 3
        attempt_finished a failed
        retry_scheduled a busy
        attempt_started a 4
        attempt_finished a failed
        failed a busy
        rollback_started busy
        finished Failed, left []
    "#]],
    );
}

#[test]
fn an_action_has_no_longer_than_its_step() {
    let of_first_attempt = |reply: Reply| {
        let mut run = Driver::new(&step("a", &[], ""));
        run.on("prepare a", &[reply]).on("act a", &[Reply::Silence]).settle();
        let begun = run.now;
        let started = run.journal.iter().find_map(|(_, _, event)| {
            let Event::AttemptStarted { deadline, .. } = event else { return None };
            Some(*deadline)
        });
        started.expect("it was started").since(begun)
    };
    assert_eq!(of_first_attempt(Reply::StepTimeout(Duration::from_secs(25))), Duration::from_secs(25));
    assert_eq!(of_first_attempt(Reply::StepTimeout(Duration::from_mins(5))), Duration::from_secs(30));
}

#[test]
fn a_report_that_nobody_waits_for_is_refused() {
    let mut run = Driver::new(&(step("a", &[], "") + &step("b", &["a"], "")));
    run.on("act b", &[Reply::Silence]).settle();
    let seq = run.run.seq;
    let stale = [
        Command::Acted { unit: unit("a"), attempt: 1, end: AttemptEnd::unchanged() },
        Command::Acted { unit: unit("b"), attempt: 2, end: AttemptEnd::unchanged() },
        Command::Prepared { unit: unit("b"), result: Preparation::Skip { debt: None } },
        Command::Judged { unit: unit("b"), report: Box::new(applies(0)) },
        Command::GuardBroken { guard: 0, message: text("x") },
        Command::Summarized { result: Ok(std::sync::Arc::default()) },
    ];
    for command in stale {
        let text = format!("{command:?}");
        assert!(matches!(run.send(command), Err(Rejection::Stale { .. })), "{text}");
    }
    assert_eq!(run.run.seq, seq);
}

//! Called workflows that wait for a person, and verdicts of attempts.

use std::time::Duration;

use expect_test::expect;

use crate::definition::model::Severity;
use crate::engine::Command;
use crate::engine::Effect;
use crate::engine::event::HeldChild;
use crate::engine::state::RunStatus;
use crate::engine::testing::*;
use crate::id::RunId;

const CALL: &str = "[steps.call]\ntitle = \"c\"\nuses = \"workflow\"\nname = \"child\"\n";

/// The child of `call` waits for a person, or does not any more.
fn noted(asks: Option<&str>) -> Command {
    let held = asks.map(|asks| HeldChild { run: RunId::new(1, 8), reason: text(asks) });
    Command::ChildNoted { unit: unit("call"), attempt: 1, held }
}

#[test]
fn a_child_that_waits_for_a_person_holds_its_caller_until_it_goes_on() {
    let mut run = Driver::new(CALL);
    run.on("act call", &[Reply::Silence]).settle();
    let act = [Effect::Act { unit: unit("call"), attempt: 1 }];
    run.send(noted(Some("shall it?"))).expect("it acts").settle();
    assert_eq!((run.run.status(), run.effects()), (RunStatus::Held, act.to_vec()));
    let reason = run.run.held_reason().expect("it is held").en;
    assert!(reason.contains(&RunId::new(1, 8).to_string()) && reason.ends_with("shall it?"), "{reason}");
    let before = run.run.seq;
    run.send(noted(Some("shall it?"))).expect("it acts");
    assert_eq!(run.run.seq, before, "it knows that");

    run.on("observe call", &[Reply::Silence]).restart().settle();
    assert_eq!(run.run.status(), RunStatus::Held, "a new process knows it, too");
    run.send(noted(None)).expect("it is observed").settle();
    assert_eq!(run.run.status(), RunStatus::Running);
    run.send(noted(Some("and now?"))).expect("it is observed");
    run.on("observe call", &[Reply::Found { ours: true }]).go();
    expect![[r#"
        created
        attempt_started call 1
        child_noted call shall it?
        interrupted call 1
        child_noted call goes on
        child_noted call and now?
        attempt_finished call changed
        succeeded call
        finished Succeeded, left []
    "#]]
    .assert_eq(&run.log());
    assert!(run.send(noted(None)).is_err(), "it is over");
}

#[test]
fn time_in_which_a_child_waits_for_a_person_does_not_count_for_the_run() {
    let hour = Duration::from_hours(1);
    let mut run = Driver::created(plan_of(CALL), |created| created.timeout_ms = Some(3_600_000));
    run.on("act call", &[Reply::Silence]).settle();
    run.send(noted(Some("shall it?"))).expect("it acts");
    run.wait(hour * 10).send(noted(None)).expect("it acts");
    run.wait(hour / 2);
    assert_eq!(run.run.status(), RunStatus::Running);
    run.wait(hour);
    assert!(run.log().contains("rollback_started run-timeout"), "{}", run.log());
}

#[test]
fn a_verdict_that_is_not_good_is_a_warning_and_the_worst_is_that_of_the_run() {
    use Severity::{Bad, Ok, Warn};
    let steps = format!("verdict_of = [\"one\", \"two\", \"three\"]\n{}", calls(&["one", "two", "three"]));
    let verdict = |severities: [Severity; 3]| {
        let mut run = Driver::new(&steps);
        for (step, severity) in ["one", "two", "three"].into_iter().zip(severities) {
            run.on(&format!("act {step}"), &[Reply::Says(severity)]);
        }
        run.go();
        assert_eq!(run.run.status(), RunStatus::Succeeded);
        let (step, verdict) = run.run.verdict(&run.plan).expect("it has one");
        (step.to_string(), verdict.severity, run.run.warnings.len())
    };
    assert_eq!(verdict([Ok, Ok, Ok]), ("one".to_owned(), Ok, 0));
    assert_eq!(verdict([Ok, Warn, Warn]), ("two".to_owned(), Warn, 2));
    assert_eq!(verdict([Ok, Warn, Bad]), ("three".to_owned(), Bad, 2));
}

fn calls(names: &[&str]) -> String {
    names.iter().map(|name| CALL.replace("steps.call", &format!("steps.{name}"))).collect()
}

//! The journal of a run is cut after every event; a new process must bring the run to the same end.

use crate::engine::ask::Choice;
use crate::engine::event::RunOutcome;
use crate::engine::testing::*;

/// A workflow, its world, and who answers what.
struct Scenario {
    name: &'static str,
    steps: String,
    script: Vec<(&'static str, Vec<Reply>)>,
    answers: Vec<(&'static str, Choice)>,
    outcome: RunOutcome,
}

const WAIT: &str = "wait = { until = 'object != null', timeout = \"2m\", target = \
                    { api = \"v1\", kind = \"Node\", name = \"n\" } }\n";

#[expect(clippy::too_many_lines, reason = "one scenario after the other")]
fn scenarios() -> Vec<Scenario> {
    let chain = || {
        step("a", &[], WAIT)
            + &undo("a", "")
            + &step("b", &["a"], "")
            + &undo("b", WAIT)
            + &step("c", &["b"], "")
    };
    let list = || {
        step("l", &[], "for_each = '[\"x\", \"y\", \"z\"]'\nmax_parallel = 2")
            + &undo("l", "")
            + &undo("l", "for_each = '[\"p\"]'")
    };
    let finally = "[finally.z]\ntitle = \"z\"\nuses = \"process\"\nidempotent = true\ncommand = [\"z\"]\n";
    vec![
        Scenario {
            name: "success",
            steps: chain() + finally,
            script: vec![],
            answers: vec![],
            outcome: RunOutcome::Succeeded,
        },
        Scenario {
            name: "rollback",
            steps: chain() + finally,
            script: vec![("act c", vec![lasting()]), ("act z", vec![lasting()])],
            answers: vec![],
            outcome: RunOutcome::RolledBack,
        },
        Scenario {
            name: "retries",
            steps: chain(),
            script: vec![("act c", vec![passing()])],
            answers: vec![],
            outcome: RunOutcome::RolledBack,
        },
        Scenario {
            name: "failed undo",
            steps: chain(),
            script: vec![("act c", vec![lasting()]), ("act b/undo.0", vec![lasting()])],
            answers: vec![("b/undo.0", Choice::Skip)],
            outcome: RunOutcome::Failed,
        },
        Scenario {
            name: "list",
            steps: list() + &step("d", &["l"], ""),
            script: vec![("act d", vec![lasting()]), ("open l/undo.1", vec![Reply::Items(vec!["p"])])],
            answers: vec![],
            outcome: RunOutcome::RolledBack,
        },
        Scenario {
            name: "half-done list",
            steps: list(),
            script: vec![("act l[y]", vec![lasting()]), ("open l/undo.1", vec![Reply::Items(vec!["p"])])],
            answers: vec![],
            outcome: RunOutcome::RolledBack,
        },
        Scenario {
            name: "undo between attempts",
            steps: step("a", &[], &format!("retry = {{ attempts = 2, wait = true, undo = true }}\n{WAIT}"))
                + &undo("a", ""),
            script: vec![("watch a", vec![Reply::Report(not_yet())])],
            answers: vec![],
            outcome: RunOutcome::RolledBack,
        },
        Scenario {
            name: "approval and sleep",
            steps: "[steps.ok]\ntitle = \"ok\"\nuses = \"approval\"\nsubject = [\"vm\"]\nexpires = \"1h\"\n\
                    message = \"?\"\n[steps.s]\ntitle = \"s\"\nafter = [\"ok\"]\nuses = \"sleep\"\n\
                    duration = \"1m\"\n"
                .to_owned(),
            script: vec![],
            answers: vec![("ok", Choice::Approve)],
            outcome: RunOutcome::Succeeded,
        },
    ]
}

/// Lets the run go to its end with the scenario's answers.
fn finish(driver: &mut Driver, answers: &[(&'static str, Choice)]) {
    for _ in 0..100 {
        driver.settle();
        match driver.run.asks.first().and_then(|ask| ask.unit.clone()) {
            Some(asking) => {
                let (name, choice) =
                    answers.iter().find(|(name, _)| unit(name) == asking).expect("it has an answer");
                driver.answer(Some(name), *choice);
            }
            None if driver.run.finished.is_some() => return,
            None => {
                driver.pass();
            }
        }
    }
    panic!("it does not end:\n{}", driver.log());
}

#[test]
fn a_journal_that_is_cut_anywhere_leads_to_the_same_end() {
    for scenario in scenarios() {
        let mut whole = Driver::new(&scenario.steps);
        for (effect, replies) in &scenario.script {
            whole.on(effect, replies);
        }
        finish(&mut whole, &scenario.answers);
        let (_, end) = whole.run.finished.clone().expect("it is over");
        assert_eq!(end.outcome, scenario.outcome, "{}:\n{}", scenario.name, whole.log());
        for events in 1..whole.journal.len() {
            let mut cut = whole.cut(events);
            finish(&mut cut, &scenario.answers);
            let (_, found) = cut.run.finished.clone().expect("it is over");
            let place = format!("{} after event {events}:\n{}", scenario.name, cut.log());
            assert_eq!((found.outcome, &found.left), (end.outcome, &end.left), "{place}");
            assert_eq!(cut.run.debts.len(), whole.run.debts.len(), "{place}");
        }
    }
}

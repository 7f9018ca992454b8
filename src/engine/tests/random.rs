//! Random workflows, a random world, random people: whatever happens, a run comes to an end, and its journal says all.

use std::time::Duration;

use proptest::prelude::*;

use crate::engine::Command;
use crate::engine::Effect;
use crate::engine::RunState;
use crate::engine::ask::Choice;
use crate::engine::command::Arming;
use crate::engine::command::WaitReport;
use crate::engine::decide;
use crate::engine::testing::*;
use crate::failure::Failure;

/// Commands after which people and the world become kind.
const RANDOM_MAX: usize = 300;
/// Commands in which a kind world must bring any run to its end.
const KIND_MAX: usize = 3_000;

/// What a random step is made of.
#[derive(Debug, Clone)]
struct Shape {
    /// Bit `i`: after step `i`.
    after: u8,
    undos: u8,
    list: bool,
    wait: bool,
    continues: bool,
    undo_between: bool,
    kind: u8,
}

fn shapes() -> impl Strategy<Value = Vec<Shape>> {
    let shape =
        (any::<u8>(), 0_u8..3, any::<[bool; 4]>(), 0_u8..12).prop_map(|(after, undos, bits, kind)| {
            let [list, wait, continues, undo_between] = bits;
            Shape { after, undos, list, wait, continues, undo_between, kind }
        });
    prop::collection::vec(shape, 1..6)
}

fn workflow(shapes: &[Shape]) -> String {
    let mut text = String::new();
    for (i, shape) in shapes.iter().enumerate() {
        let name = format!("s{i}");
        let after: Vec<_> = (0..i).filter(|j| shape.after & (1 << j) != 0).map(|j| format!("s{j}")).collect();
        match shape.kind {
            0 => {
                text += &format!(
                    "[steps.{name}]\ntitle = \"s\"\nafter = {after:?}\nuses = \"sleep\"\nduration = \"1m\"\n"
                );
            }
            1 => {
                text += &format!(
                    "[steps.{name}]\ntitle = \"s\"\nafter = {after:?}\nuses = \"approval\"\nsubject = [\"x\"]\n\
                     message = \"?\"\nexpires = \"1h\"\non_reject = \"decline\"\n"
                );
            }
            2 => {
                text += &format!(
                    "[steps.{name}]\ntitle = \"s\"\nafter = {after:?}\nuses = \"workflow\"\nname = \"child\"\n"
                );
            }
            _ => text += &plain(shape, &name, &after),
        }
    }
    text + "[finally.z]\ntitle = \"z\"\nuses = \"process\"\nidempotent = true\ncommand = [\"z\"]\n"
}

fn plain(shape: &Shape, name: &str, after: &[String]) -> String {
    let after: Vec<_> = after.iter().map(String::as_str).collect();
    let mut more = String::new();
    if shape.list {
        more += "for_each = '[\"x\", \"y\", \"z\"]'\nmax_parallel = 2\nmax_failures = 1\n";
    }
    if shape.list && shape.kind > 6 {
        more += "covers = 'items.size() == 3'\n";
    }
    if shape.continues {
        more += "on_error = \"continue\"\n";
    }
    let between = shape.wait && shape.undos > 0 && shape.undo_between;
    if between {
        more += "retry = { attempts = 3, wait = true, undo = true }\n";
    }
    if shape.wait {
        more += "wait = { until = 'object != null', fail_if = 'object == null', timeout = \"2m\", target = \
                 { api = \"v1\", kind = \"Node\", name = \"n\" } }\n";
    }
    let undos = (0..shape.undos).map(|_| undo(name, ""));
    step(name, &after, &more) + &undos.collect::<String>()
}

/// A reply that fits the effect; half of them are good ones.
fn reply(effect: &Effect, number: u8) -> Option<Reply> {
    let minute = Duration::from_mins(1);
    let dark =
        WaitReport { unreadable: Some(Failure::retryable("away", "no answer")), ..WaitReport::default() };
    let replies = match effect {
        Effect::Open(_) | Effect::Conclude(_) | Effect::Cover(_) | Effect::Summarize | Effect::Guard(_) => {
            vec![lasting(), passing(), Reply::Skip]
        }
        Effect::Prepare(_) => vec![
            passing(),
            Reply::Unmet(Some(minute)),
            Reply::StepTimeout(minute),
            Reply::Unchanged,
            lasting(),
            Reply::SkipWithDebt("something"),
        ],
        Effect::Act { .. } | Effect::StopChild { .. } => {
            vec![passing(), passing(), Reply::Unknown, Reply::Unchanged, lasting()]
        }
        Effect::Observe { .. } => vec![
            Reply::Found { ours: true },
            Reply::Found { ours: false },
            Reply::NotDone,
            Reply::CannotTell,
            passing(),
        ],
        Effect::Arm(_) => {
            let stable_for = vec![None, Some(minute / 6)];
            let arming = Arming { timeout: minute, stall_after: Some(minute / 2), stable_for };
            vec![Reply::Arming(arming.clone()), Reply::Arming(arming), lasting()]
        }
        Effect::Watch(_) => {
            [not_yet(), not_yet(), not_yet(), dark, applies(0), applies(1)].map(Reply::Report).into()
        }
    };
    replies.get(usize::from(number) % (2 * replies.len())).cloned()
}

/// One thing that happens; refusals are as good as anything.
fn happen(driver: &mut Driver, numbers: (u8, u8, u8)) {
    let (what, which, how) = numbers;
    let by = || actor("bob");
    let command = match what {
        0..2 => Command::Pause { by: by() },
        2..20 => Command::Unpause { by: by() },
        20 => Command::Cancel { by: by(), reason: None },
        21 if which < 40 => Command::Terminate { by: by(), reason: "enough".to_owned() },
        21..50 => {
            driver.restart();
            return;
        }
        50..90 => {
            driver.now = driver.now + Duration::from_secs(u64::from(which));
            Command::Tick
        }
        90..130 => match answer(driver, which, how) {
            Some(command) => command,
            None => return,
        },
        _ => {
            let effects = driver.effects();
            if effects.is_empty() {
                return;
            }
            let effect = &effects[usize::from(which) % effects.len()];
            match driver.report(effect, reply(effect, how)) {
                Some(command) => command,
                None => return,
            }
        }
    };
    if let Err(refusal) = driver.send(command).map(|_| ()) {
        assert!(!refusal.to_string().is_empty());
    }
}

fn answer(driver: &Driver, which: u8, how: u8) -> Option<Command> {
    let asks = &driver.run.asks;
    let ask = asks.get(usize::from(which) % asks.len().max(1))?;
    let choice = ask.choices[usize::from(how) % ask.choices.len()];
    Some(Command::Answer { unit: ask.unit.clone(), choice, by: actor("bob"), reason: None })
}

/// Answers every question in the way that lets the run go on.
fn be_kind(driver: &mut Driver) {
    for _ in 0..KIND_MAX {
        if driver.run.finished.is_some() {
            return;
        }
        if driver.run.paused_at.is_some() {
            driver.send(Command::Unpause { by: actor("bob") }).expect("it is paused");
        }
        driver.go();
        let Some(ask) = driver.run.asks.iter().find(|ask| ask.unit.is_some() || driver.run.asks.len() == 1)
        else {
            continue;
        };
        let kind = [Choice::Done, Choice::Approve, Choice::Skip];
        let choice =
            kind.into_iter().find(|choice| ask.offers(*choice)).expect("one of them is always offered");
        let unit = ask.unit.clone();
        driver.send(Command::Answer { unit, choice, by: actor("bob"), reason: None }).expect("it asks");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_a_run_comes_to_an_end_and_its_journal_says_all(
        shapes in shapes(),
        events in prop::collection::vec(any::<(u8, u8, u8)>(), 100..RANDOM_MAX),
    ) {
        let mut driver = Driver::new(&workflow(&shapes));
        for numbers in events {
            happen(&mut driver, numbers);
            prop_assert_eq!(driver.effects(), driver.effects());
        }
        be_kind(&mut driver);
        prop_assert!(driver.run.finished.is_some(), "it does not end:\n{}", driver.log());

        let journal = driver.journal.iter().map(|(seq, at, event)| (*seq, *at, event));
        let mut replayed = RunState::replay(driver.run.id, journal).expect("the journal is legal");
        decide::refresh(&driver.plan, &mut replayed);
        prop_assert_eq!(format!("{replayed:?}"), format!("{:?}", driver.run));
    }
}

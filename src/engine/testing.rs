//! A run without a runner: answers effects from a script, moves the clock by itself, keeps the journal.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a reply that does not fit an effect means the usual one"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::definition::Library;
use crate::definition::model::ActionKind;
use crate::definition::model::Outcome;
use crate::definition::model::Severity;
use crate::engine::Command;
use crate::engine::Effect;
use crate::engine::Event;
use crate::engine::Rejection;
use crate::engine::RunState;
use crate::engine::ask::Approval;
use crate::engine::ask::Choice;
use crate::engine::command::Arming;
use crate::engine::command::DebtDraft;
use crate::engine::command::Finding;
use crate::engine::command::Go;
use crate::engine::command::Opening;
use crate::engine::command::Preparation;
use crate::engine::command::Ready;
use crate::engine::command::WaitReport;
use crate::engine::decide;
use crate::engine::effect::next_deadline;
use crate::engine::effect::pending_effects;
use crate::engine::event::Actor;
use crate::engine::event::AttemptEffect;
use crate::engine::event::AttemptEnd;
use crate::engine::event::Created;
use crate::engine::event::Facts;
use crate::engine::event::Item;
use crate::engine::event::Trigger;
use crate::engine::event::VerdictReached;
use crate::engine::invariant;
use crate::engine::part::Part;
use crate::engine::unit::Block;
use crate::engine::unit::Undo;
use crate::engine::unit::UnitId;
use crate::failure::Bilingual;
use crate::failure::Failure;
use crate::id::RunId;
use crate::id::Seq;
use crate::plan;
use crate::plan::Plan;
use crate::time::Timestamp;

/// Commands that one `go` may need; more is a loop.
const COMMANDS_MAX: usize = 10_000;

/// What the world does when it is asked.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "there are few of them")]
pub(super) enum Reply {
    Silence,
    Fail(Failure),
    Unknown,
    Unchanged,
    Skip,
    SkipWithDebt(&'static str),
    Unmet(Option<Duration>),
    Items(Vec<&'static str>),
    Found { ours: bool },
    NotDone,
    CannotTell,
    Report(WaitReport),
    Arming(Arming),
    StepTimeout(Duration),
    Says(Severity),
    Changed,
}

pub(super) fn lasting() -> Reply {
    Reply::Fail(Failure::permanent("broken", "it is broken"))
}

pub(super) fn passing() -> Reply {
    Reply::Fail(Failure::retryable("busy", "it is busy"))
}

/// The plan of one workflow; `steps` is TOML after the header.
pub(super) fn plan_of(steps: &str) -> Arc<Plan> {
    let text = format!("schema = 1\nname = \"t\"\ntitle = \"T\"\ntitle_zh = \"T\"\n{steps}");
    let child = "schema = 1\nname = \"child\"\ntitle = \"C\"\nverdict_of = \"one\"\n[steps.one]\ntitle = \"1\"\n\
                 uses = \"assert\"\nthat = 'run.name != \"\"'\nmessage = \"never\"\n";
    let library = Library::from_texts([("t.toml", text.as_str()), ("child.toml", child)]);
    let name = "t".parse().expect("a name");
    plan::from_library(&library, &name).unwrap_or_else(|| panic!("{:#?}", library.diagnostics()))
}

/// A plain step: `name after…`.
pub(super) fn step(name: &str, after: &[&str], more: &str) -> String {
    format!(
        "[steps.{name}]\ntitle = \"{name}\"\nafter = {after:?}\nuses = \"process\"\nidempotent = true\n\
         command = [\"{name}\"]\n{more}\n"
    )
}

/// A rollback entry of a step.
pub(super) fn undo(name: &str, more: &str) -> String {
    format!(
        "[[steps.{name}.rollback]]\nuses = \"process\"\nidempotent = true\ncommand = [\"undo-{name}\"]\n{more}\n"
    )
}

/// `a`, `a[x]`, `a/undo.0`, `a[x]/undo.0`.
pub(super) fn unit(text: &str) -> UnitId {
    let (head, entry) = match text.split_once("/undo.") {
        Some((head, entry)) => (head, Some(entry.parse().expect("a number"))),
        None => (text, None),
    };
    let (step, item) = match head.split_once('[') {
        Some((step, item)) => (step, Some(Arc::from(item.trim_end_matches(']')))),
        None => (head, None),
    };
    let step = step.parse().expect("a name");
    match entry {
        None => Block::forward(step).unit(item),
        Some(entry) => Block { step, undo: Some(Undo { item, entry }) }.unit(None),
    }
}

pub(super) fn actor(name: &str) -> Actor {
    Actor { name: name.into() }
}

pub(super) fn text(en: &str) -> Bilingual {
    Bilingual { en: en.to_owned(), zh: None }
}

/// A run and its script.
pub(super) struct Driver {
    pub(super) plan: Arc<Plan>,
    pub(super) run: RunState,
    pub(super) now: Timestamp,
    pub(super) journal: Vec<(Seq, Timestamp, Event)>,
    /// Replies by effect (`act a`, `prepare a/undo.0`, `watch b`), the next first; the last one stays.
    script: BTreeMap<String, Vec<Reply>>,
    /// Every effect that was carried out.
    pub(super) done: Vec<String>,
}

impl Driver {
    pub(super) fn new(steps: &str) -> Self {
        Self::created(plan_of(steps), |_| {})
    }

    pub(super) fn created(plan: Arc<Plan>, change: impl FnOnce(&mut Created)) -> Self {
        let now = Timestamp::from_millis(1_000_000);
        let mut created = Created {
            workflow: plan.workflow.name.clone(),
            digest: plan.digest.clone(),
            cluster: None,
            inputs: Arc::new(json!({})),
            secrets: BTreeMap::new(),
            trigger: Trigger::Manual,
            by: actor("ann"),
            key: None,
            locks: vec![],
            lock_deadline: None,
            timeout_ms: None,
            inherited: None,
        };
        change(&mut created);
        let (run, events) = decide::create(&plan, RunId::new(1, 7), created, now);
        let mut driver = Self { plan, run, now, journal: vec![], script: BTreeMap::new(), done: vec![] };
        driver.record(events);
        driver
    }

    /// From now on the effect gets these replies, the last one for ever.
    pub(super) fn on(&mut self, effect: &str, replies: &[Reply]) -> &mut Self {
        self.script.insert(effect.to_owned(), replies.iter().rev().cloned().collect());
        self
    }

    pub(super) fn send(&mut self, command: Command) -> Result<&mut Self, Rejection> {
        let events = decide::advance(&self.plan, &mut self.run, command, self.now)?;
        self.record(events);
        let checked = invariant::check(&self.plan, &self.run, self.now);
        assert_eq!(checked, Ok(()), "{}", self.log());
        Ok(self)
    }

    fn record(&mut self, events: Vec<Event>) {
        for event in events {
            let seq = Seq(self.journal.len() as u64 + 1);
            self.journal.push((seq, self.now, event));
        }
        assert_eq!(self.run.seq.0, self.journal.len() as u64);
    }

    pub(super) fn effects(&self) -> Vec<Effect> {
        pending_effects(&self.plan, &self.run, self.now)
    }

    /// Carries out effects and moves the clock until nothing happens any more.
    pub(super) fn go(&mut self) -> &mut Self {
        for _ in 0..COMMANDS_MAX {
            if !self.react() && !self.pass() {
                return self;
            }
        }
        panic!("it does not come to rest:\n{}", self.log());
    }

    /// Carries out effects, without the clock, until none is answered.
    pub(super) fn settle(&mut self) -> &mut Self {
        for _ in 0..COMMANDS_MAX {
            if !self.react() {
                return self;
            }
        }
        panic!("it does not come to rest:\n{}", self.log());
    }

    /// Carries out the first effect that the script answers with a change.
    fn react(&mut self) -> bool {
        for effect in self.effects() {
            let key = key(&effect);
            let reply = self.next_reply(&key);
            let Some(command) = self.report(&effect, reply) else { continue };
            let before = self.run.seq;
            self.send(command).unwrap_or_else(|why| panic!("{key}: {why}"));
            if self.run.seq != before {
                self.done.push(key);
                return true;
            }
        }
        false
    }

    /// Moves the clock to the next deadline and ticks; false if there is none.
    pub(super) fn pass(&mut self) -> bool {
        let Some(due) = next_deadline(&self.plan, &self.run, self.now) else { return false };
        let idle = due <= self.now;
        self.now = self.now.max(due);
        let before = self.run.seq;
        self.send(Command::Tick).expect("a tick is taken");
        assert!(!idle || self.run.seq != before, "a tick that is due does nothing:\n{}", self.log());
        true
    }

    pub(super) fn wait(&mut self, duration: Duration) -> &mut Self {
        self.now = self.now + duration;
        self.send(Command::Tick).expect("a tick is taken")
    }

    pub(super) fn answer(&mut self, of: Option<&str>, choice: Choice) -> &mut Self {
        let command = Command::Answer { unit: of.map(unit), choice, by: actor("bob"), reason: None };
        self.send(command).unwrap_or_else(|why| panic!("{why}"))
    }

    /// The same run as it was after so many events, in a new process.
    pub(super) fn cut(&self, events: usize) -> Self {
        let journal = self.journal[..events].to_vec();
        let now = journal.last().map_or(self.now, |(_, at, _)| *at);
        let mut cut = Self {
            plan: self.plan.clone(),
            run: self.run.clone(),
            now,
            journal,
            script: self.script.clone(),
            done: vec![],
        };
        cut.restart();
        cut
    }

    /// A new process: replay, then recovery.
    pub(super) fn restart(&mut self) -> &mut Self {
        let journal = self.journal.iter().map(|(seq, at, event)| (*seq, *at, event));
        self.run = RunState::replay(self.run.id, journal).expect("the journal is legal");
        decide::refresh(&self.plan, &mut self.run);
        self.send(Command::Recover { settle: BTreeMap::new() }).expect("recovery is taken")
    }

    /// The journal, one event a line.
    pub(super) fn log(&self) -> String {
        let mut log = String::new();
        for (_, _, event) in &self.journal {
            let _ = writeln!(log, "{}", line(event));
        }
        log
    }

    /// The journal from an event on, without the noise of plain success.
    pub(super) fn log_from(&self, name: &str) -> String {
        let log = self.log();
        let from = log.lines().skip_while(|line| !line.starts_with(name));
        from.fold(String::new(), |text, line| text + line + "\n")
    }

    fn next_reply(&mut self, key: &str) -> Option<Reply> {
        let replies = self.script.get_mut(key)?;
        if replies.len() > 1 { replies.pop() } else { replies.last().cloned() }
    }

    /// The report of `effect` for that reply; without one all is well.
    pub(super) fn report(&self, effect: &Effect, reply: Option<Reply>) -> Option<Command> {
        if matches!(reply, Some(Reply::Silence)) {
            return None;
        }
        Some(match effect.clone() {
            Effect::Open(block) => Command::Opened { block, result: opening(reply) },
            Effect::Prepare(unit) => {
                let result = self.preparation(&unit, reply);
                Command::Prepared { unit, result }
            }
            Effect::Act { unit, attempt } => Command::Acted { unit, attempt, end: end(reply) },
            Effect::Observe { unit, attempt } => Command::Observed { unit, attempt, finding: finding(reply) },
            Effect::Arm(unit) => Command::Armed { unit, result: arming(reply) },
            Effect::Watch(unit) => Command::Judged { unit, report: Box::new(judgement(reply)) },
            Effect::Conclude(unit) => Command::Concluded { unit, result: outputs(reply) },
            Effect::Cover(block) => Command::Covered { block, result: outputs(reply).map(drop) },
            Effect::Summarize => Command::Summarized { result: outputs(reply) },
            Effect::Guard(guard) => match reply? {
                Reply::Fail(_) => Command::GuardBroken { guard, message: text("somebody interfered") },
                _ => return None,
            },
            Effect::StopChild { .. } => return None,
        })
    }

    fn preparation(&self, unit: &UnitId, reply: Option<Reply>) -> Preparation {
        let step_timeout = match &reply {
            Some(Reply::StepTimeout(timeout)) => Some(*timeout),
            _ => None,
        };
        match reply {
            Some(Reply::Fail(failure)) => Preparation::Failed(failure),
            Some(Reply::Skip) => Preparation::Skip { debt: None },
            Some(Reply::SkipWithDebt(what)) => Preparation::Skip { debt: Some(draft(what)) },
            Some(Reply::Unchanged) => Preparation::Unchanged { facts: Facts::default(), step_timeout },
            Some(Reply::Unmet(wait)) => Preparation::Unmet { message: text("not yet"), wait, step_timeout },
            _ => Preparation::Ready(Box::new(Ready {
                facts: Some(Facts::default()),
                object: None,
                request: "r".into(),
                attempt_timeout: self.attempt_timeout(unit),
                step_timeout,
                retry_delays: (Duration::from_secs(2), Duration::from_secs(30)),
                go: self.go_of(unit),
            })),
        }
    }

    /// A child has limits of its own.
    fn attempt_timeout(&self, unit: &UnitId) -> Duration {
        let uses = Part::of(&self.plan, &unit.block).expect("it is in the plan").step.action.uses;
        if uses == ActionKind::Workflow { Duration::from_hours(8_760) } else { Duration::from_secs(30) }
    }

    fn go_of(&self, unit: &UnitId) -> Go {
        let part = Part::of(&self.plan, &unit.block).expect("it is in the plan");
        match part.step.action.uses {
            ActionKind::Sleep => Go::Sleep(Duration::from_mins(1)),
            ActionKind::Debt => Go::Debt(draft("the old disk")),
            ActionKind::K8sWait => Go::Done(AttemptEnd::unchanged()),
            ActionKind::Approval => {
                let argument = |name: &str| {
                    let value = part.step.action.args.get(name).and_then(|value| value.plain());
                    value == Some(&json!("decline"))
                };
                Go::Ask {
                    approval: Approval {
                        subject: vec!["vm demo".to_owned()],
                        binds: "0".to_owned(),
                        self_approve: false,
                        expiry_declines: argument("on_expire"),
                        rejection_declines: argument("on_reject"),
                    },
                    message: text("may it go?"),
                    expires: Some(Duration::from_hours(1)),
                }
            }
            _ => Go::Act,
        }
    }
}

fn draft(what: &str) -> DebtDraft {
    DebtDraft { what: text(what), objects: vec![], gone_when: None }
}

fn opening(reply: Option<Reply>) -> Result<Opening, Failure> {
    let keys = match reply {
        Some(Reply::Fail(failure)) => return Err(failure),
        Some(Reply::Skip) => return Ok(Opening::Skip { debt: None }),
        Some(Reply::Items(keys)) => keys,
        _ => vec!["x", "y", "z"],
    };
    let item = |key: &&str| Item { key: (*key).into(), value: Arc::new(json!(key)) };
    Ok(Opening::Items(keys.iter().map(item).collect()))
}

fn end(reply: Option<Reply>) -> AttemptEnd {
    let effect = match reply {
        Some(Reply::Fail(failure)) => AttemptEffect::Failed(failure),
        Some(Reply::Unknown) => AttemptEffect::Unknown(Failure::unknown("lost", "no answer came")),
        Some(Reply::Unchanged) => AttemptEffect::Unchanged,
        Some(Reply::Says(severity)) => return saying(severity),
        _ => AttemptEffect::Changed,
    };
    AttemptEnd::of(effect)
}

/// A good end with a verdict.
fn saying(severity: Severity) -> AttemptEnd {
    let (name, message) = ("said".to_owned(), text("as it was found"));
    let verdict =
        VerdictReached { name, outcome: Outcome::Succeed, severity, message, evidence: None, failure: None };
    AttemptEnd { verdict: Some(Box::new(verdict)), ..AttemptEnd::of(AttemptEffect::Changed) }
}

fn finding(reply: Option<Reply>) -> Finding {
    match reply {
        Some(Reply::Found { ours }) => Finding::Done { ours, object: None, result: None, changes: None },
        Some(Reply::CannotTell) => Finding::CannotTell(Failure::unknown("dark", "nobody knows")),
        Some(Reply::Fail(failure)) => Finding::Ended(AttemptEnd::failed(failure)),
        _ => Finding::NotDone,
    }
}

fn arming(reply: Option<Reply>) -> Result<Arming, Failure> {
    match reply {
        Some(Reply::Fail(failure)) => Err(failure),
        Some(Reply::Arming(arming)) => Ok(arming),
        _ => Ok(Arming { timeout: Duration::from_mins(2), stall_after: None, stable_for: vec![] }),
    }
}

/// By default the first verdict applies.
fn judgement(reply: Option<Reply>) -> WaitReport {
    match reply {
        Some(Reply::Report(report)) => report,
        _ => applies(0),
    }
}

fn outputs(reply: Option<Reply>) -> Result<Arc<Value>, Failure> {
    match reply {
        Some(Reply::Fail(failure)) => Err(failure),
        _ => Ok(Arc::new(json!({ "ok": true }))),
    }
}

/// A confirmed report by which that verdict applies.
pub(super) fn applies(verdict: u16) -> WaitReport {
    let applies = Some((verdict, text("as read"), None));
    WaitReport { confirmed: true, applies, reason: text("as read"), ..WaitReport::default() }
}

/// A confirmed report by which nothing applies.
pub(super) fn not_yet() -> WaitReport {
    WaitReport { confirmed: true, reason: text("not yet"), ..WaitReport::default() }
}

fn key(effect: &Effect) -> String {
    match effect {
        Effect::Open(block) => format!("open {block}"),
        Effect::Prepare(unit) => format!("prepare {unit}"),
        Effect::Act { unit, .. } => format!("act {unit}"),
        Effect::StopChild { unit, .. } => format!("stop {unit}"),
        Effect::Observe { unit, .. } => format!("observe {unit}"),
        Effect::Arm(unit) => format!("arm {unit}"),
        Effect::Watch(unit) => format!("watch {unit}"),
        Effect::Conclude(unit) => format!("conclude {unit}"),
        Effect::Guard(guard) => format!("guard {guard}"),
        Effect::Cover(block) => format!("cover {block}"),
        Effect::Summarize => "summarize".to_owned(),
    }
}

/// An event as a person would tell it.
pub(super) fn line(event: &Event) -> String {
    let name = event.name();
    match event {
        Event::Skipped { block, reason } => format!("{name} {block} {reason:?}"),
        Event::Covered { block, failure } => {
            format!("{name} {block} {}", failure.as_ref().map_or("yes", |failure| &failure.code))
        }
        Event::Opened { block, items } => {
            let keys: Vec<_> = items.iter().map(|item| &*item.key).collect();
            format!("{name} {block} {keys:?}")
        }
        Event::AttemptStarted { unit, attempt, .. } | Event::Interrupted { unit, attempt, .. } => {
            format!("{name} {unit} {attempt}")
        }
        Event::AttemptFinished { unit, end, .. } => format!("{name} {unit} {}", effect_name(&end.effect)),
        Event::RetryScheduled { unit, failure, .. } | Event::Failed { unit, failure } => {
            format!("{name} {unit} {}", failure.code)
        }
        Event::VerdictReached { unit, verdict } => format!("{name} {unit} {}", verdict.name),
        Event::PreconditionPending { unit, .. }
        | Event::Unchanged { unit, .. }
        | Event::ProcessStarted { unit, .. }
        | Event::SleepStarted { unit, .. }
        | Event::WaitStarted { unit, .. }
        | Event::WaitNoted { unit, .. }
        | Event::Succeeded { unit, .. }
        | Event::Cancelled { unit } => format!("{name} {unit}"),
        Event::ChildNoted { unit, held, .. } => {
            format!("{name} {unit} {}", held.as_ref().map_or("goes on", |held| &held.reason.en))
        }
        Event::Compensated { step, item } => {
            format!("{name} {}", Block::forward(step.clone()).unit(item.clone()))
        }
        Event::NotCompensated { step, item, reason } => {
            format!("{name} {}: {}", Block::forward(step.clone()).unit(item.clone()), reason.en)
        }
        Event::AskOpened(ask) => {
            let unit = ask.unit.as_ref().map_or_else(|| "run".to_owned(), ToString::to_string);
            let reason = serde_json::to_value(&ask.reason).expect("a reason is data");
            let reason = match &reason {
                Value::Object(map) => map.keys().next().cloned().unwrap_or_default(),
                other => other.as_str().unwrap_or_default().to_owned(),
            };
            let choices: Vec<_> = ask.choices.iter().map(ToString::to_string).collect();
            format!("{name} {unit} {reason}: {}", choices.join(" | "))
        }
        Event::AskAnswered { choice, by, .. } => {
            format!("{name} {choice} by {}", by.as_ref().map_or("expiry", |by| &by.name))
        }
        Event::RollbackStarted { failure } => {
            format!("{name} {}", failure.as_ref().map_or("cancelled", |failure| &failure.code))
        }
        Event::DebtOpened(debt) => format!("{name} {}: {}", debt.step, debt.what.en),
        Event::Warned { failure, .. } => format!("{name} {}", failure.code),
        Event::Finished(finished) => {
            format!("{name} {:?}, left {:?}", finished.outcome, finished.left)
        }
        Event::Created(_)
        | Event::LocksGranted { .. }
        | Event::LockBroken { .. }
        | Event::GuardBroken { .. }
        | Event::CancelRequested { .. }
        | Event::Paused { .. }
        | Event::Unpaused { .. }
        | Event::DebtClosed { .. }
        | Event::EvidenceKept(_)
        | Event::Noted { .. } => name.to_owned(),
    }
}

const fn effect_name(effect: &AttemptEffect) -> &'static str {
    match effect {
        AttemptEffect::Changed => "changed",
        AttemptEffect::Unchanged => "unchanged",
        AttemptEffect::Unattributed => "unattributed",
        AttemptEffect::Failed(_) => "failed",
        AttemptEffect::FailedHalfway(_) => "failed_halfway",
        AttemptEffect::NotDone => "not_done",
        AttemptEffect::Unknown(_) => "unknown",
    }
}

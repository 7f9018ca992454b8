//! What the world looks like in a moment of trouble, kept beside the journal for whoever finds out the cause.
//!
//! It is gathered between a decision and its append: no failure is recorded without its evidence, and nothing is undone
//! before it is kept. It changes nothing of what was decided, whatever becomes of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use crate::definition::model::ActionKind;
use crate::definition::model::Severity;
use crate::diagnosis;
use crate::diagnosis::Limits;
use crate::diagnosis::Scene;
use crate::diagnosis::scene::name_of;
use crate::engine::Command;
use crate::engine::Event;
use crate::engine::ask::AskReason;
use crate::engine::event::Evidence;
use crate::engine::event::Track;
use crate::engine::event::Trouble;
use crate::engine::limits::EVIDENCE_MAX;
use crate::engine::state::Phase;
use crate::engine::state::WaitState;
use crate::engine::unit::UnitId;
use crate::evaluate::Readings;
use crate::evaluate::Term;
use crate::evaluate::objects_in;
use crate::failure::Bilingual;
use crate::runner::run_task::RunTask;

/// What a look may cost: the run stands still meanwhile, and an undo must not be late for the sake of evidence.
const LIMITS: Limits = Limits { time: Duration::from_secs(5), answer: Duration::from_secs(3) };
/// Moments of one append that are looked at: items of a `for_each` that fail together look alike.
const AT_ONCE_MAX: usize = 4;
/// The largest evidence of one moment; the farthest objects are left out first.
const BYTES_MAX: usize = 1 << 20;
/// The layout of the documents.
const FORMAT: u32 = 1;

/// What was read last for a unit.
pub(super) struct Look {
    /// The objects.
    pub(super) readings: Readings,
    /// What its wait remembered when the engine was told of them.
    pub(super) wait: Option<WaitState>,
}

/// A moment of which evidence is to be kept.
#[derive(Debug, Clone, PartialEq)]
struct Moment {
    subject: Subject,
    trouble: Trouble,
    /// What is said about it.
    says: Bilingual,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    Unit(UnitId),
    Guard(u16),
}

impl RunTask {
    /// What the wait of a watched unit remembers, before the engine hears of a new reading.
    pub(super) fn wait_of(&self, unit: &UnitId) -> Option<WaitState> {
        match &self.run.unit(unit)?.phase {
            Phase::Waiting(wait) => Some(wait.as_ref().clone()),
            _ => None,
        }
    }

    /// Keeps evidence of the trouble that events, which are decided and not yet durable, tell of.
    pub(super) async fn keep_evidence(&mut self) {
        for moment in moments(&self.unsaved).into_iter().take(AT_ONCE_MAX) {
            if self.run.evidence.len() >= EVIDENCE_MAX || self.has_own_evidence(&moment) {
                continue;
            }
            let Some((mut document, scene)) = self.gather(&moment).await else { continue };
            let is_cut_short = scene.is_cut_short;
            describe(&mut document, scene, &self.shared.knowledge);
            self.shared.executor.secrets().mask_all(&mut document);
            match self.shared.store.put_blob(document.to_string().as_bytes()) {
                Ok(file) => {
                    let unit = moment.unit().cloned();
                    let evidence = Evidence { unit, trouble: moment.trouble, file };
                    // All events of an append have one time: looking took some, but nothing was decided meanwhile.
                    let kept = self.advance_at(Command::KeepEvidence(evidence), self.run.updated_at);
                    debug_assert!(kept.is_ok(), "a run always takes it: {kept:?}");
                }
                Err(error) => tracing::warn!(run = %self.run.id, %error, "evidence could not be kept"),
            }
            if is_cut_short {
                // The run has stood still for long enough.
                return;
            }
        }
    }

    /// A step that calls a workflow: that run keeps what it saw itself.
    fn has_own_evidence(&self, moment: &Moment) -> bool {
        let step = moment.unit().and_then(|unit| self.step(unit));
        step.is_some_and(|step| step.action.uses == ActionKind::Workflow)
    }

    /// The document without what is seen now, and that; none where there is nothing to tell.
    async fn gather(&self, moment: &Moment) -> Option<(Value, Scene)> {
        let read_now;
        let (readings, wait) = match &moment.subject {
            Subject::Guard(guard) => (self.guard_readings.get(guard)?, None),
            Subject::Unit(unit) => {
                if let Some(look) = self.looks.get(unit) {
                    (&look.readings, look.wait.as_ref())
                } else {
                    read_now = self.read_for(unit).await;
                    (&read_now, None)
                }
            }
        };
        let terms = self.terms(&moment.subject, readings, wait);
        if terms.is_empty() && readings.objects().next().is_none() {
            return None;
        }
        let document = self.document(moment, readings, wait, &terms);
        let roots = readings.objects().cloned().map(Arc::new).collect();
        let attempt = moment.unit().and_then(|unit| self.run.unit(unit)).map_or(0, |state| state.attempt);
        let unit = moment.unit().map_or_else(|| "guard".to_owned(), ToString::to_string);
        let origin = self.origin(&unit, attempt);
        let (executor, knowledge) = (self.shared.executor.clone(), self.shared.knowledge.clone());
        Some((document, diagnosis::look(&executor, &knowledge, &origin, roots, LIMITS).await))
    }

    /// Reads what a unit acts on, where nothing was read for it in this process.
    async fn read_for(&self, unit: &UnitId) -> Readings {
        let plan = self.evaluator(&self.shared.values()).reads_to_observe(unit).unwrap_or_default();
        let observer = self.shared.observer(plan);
        tokio::time::timeout(LIMITS.time, observer.read()).await.unwrap_or_default()
    }

    fn terms(&self, subject: &Subject, readings: &Readings, wait: Option<&WaitState>) -> Vec<Term> {
        let values = self.shared.values();
        let evaluator = self.evaluator(&values);
        match subject {
            Subject::Unit(unit) => evaluator.terms(unit, readings, wait),
            Subject::Guard(index) => {
                let guard = self.plan.workflow.guards.get(usize::from(*index));
                guard.map_or(vec![], |guard| evaluator.terms_of_guard(guard, readings))
            }
        }
    }

    fn document(
        &self,
        moment: &Moment,
        readings: &Readings,
        wait: Option<&WaitState>,
        terms: &[Term],
    ) -> Value {
        let unit = moment.unit();
        let state = unit.and_then(|unit| self.run.unit(unit));
        let read: BTreeMap<&String, Vec<String>> = readings
            .values
            .iter()
            .map(|(name, value)| (name, objects_in(value).map(name_of).collect()))
            .collect();
        json!({
            "format": FORMAT,
            "run": self.run.id,
            "workflow": self.run.created.workflow,
            "step": unit.map(ToString::to_string),
            "title": unit.and_then(|unit| self.step(unit)).map(|step| &step.title),
            "at": self.shared.clock.now().to_string(),
            "trouble": moment.trouble,
            "says": moment.says,
            "failure": state.and_then(|state| state.failure.as_ref()),
            "verdict": state.and_then(|state| state.verdict.as_ref()).map(|verdict| json!({
                "name": verdict.name, "severity": verdict.severity, "message": verdict.message,
            })),
            "waiting_since": wait.map(|wait| wait.since.to_string()),
            "tracks": wait.map(tracks),
            "progress": wait.map(|wait| &wait.progress),
            "conditions": terms,
            "read": read,
        })
    }
}

impl Moment {
    fn unit(&self) -> Option<&UnitId> {
        match &self.subject {
            Subject::Unit(unit) => Some(unit),
            Subject::Guard(_) => None,
        }
    }
}

/// The values that a wait tracks, for people.
fn tracks(wait: &WaitState) -> Value {
    let row = |track: &Track| json!({ "value": track.value, "since": track.since.to_string(), "changes": track.changes });
    wait.tracks.iter().map(|(name, track)| (name.clone(), row(track))).collect::<Map<_, _>>().into()
}

/// Adds what was seen to a document, as far as it has room.
fn describe(document: &mut Value, mut scene: Scene, knowledge: &crate::definition::knowledge::Knowledge) {
    document["findings"] = json!(diagnosis::findings(&scene, knowledge));
    let mut left_out = vec![];
    let bytes = |value: &Value| value.to_string().len();
    let mut objects: Vec<Value> = scene.objects.iter().map(|seen| json!(seen)).collect();
    let mut total = bytes(document) + objects.iter().map(bytes).sum::<usize>();
    while let Some(last) = objects.last().filter(|_| total > BYTES_MAX) {
        total -= bytes(last);
        left_out.push(format!("{}: left out, there is no room", last["name"].as_str().unwrap_or_default()));
        objects.pop();
    }
    scene.missing.extend(left_out);
    document["objects"] = Value::Array(objects);
    document["missing"] = json!(scene.missing);
}

/// The moments of trouble in events that belong together, one for each unit.
fn moments(events: &[Event]) -> Vec<Moment> {
    let mut moments: Vec<Moment> = vec![];
    let mut add = |subject: Subject, trouble: Trouble, says: Bilingual| {
        let known = moments.iter_mut().find(|known| known.subject == subject);
        let moment = Moment { subject, trouble, says };
        // What comes of a verdict says more than the verdict.
        match known {
            Some(known) => *known = moment,
            None => moments.push(moment),
        }
    };
    for event in events {
        match event {
            Event::VerdictReached { unit, verdict } if verdict.severity == Severity::Bad => {
                add(Subject::Unit(unit.clone()), Trouble::BadVerdict, verdict.message.clone());
            }
            Event::Failed { unit, failure } => {
                add(Subject::Unit(unit.clone()), Trouble::Failed, failure.text());
            }
            Event::AskOpened(ask) if !matches!(ask.reason, AskReason::Approval(_)) => {
                if let Some(unit) = &ask.unit {
                    add(Subject::Unit(unit.clone()), Trouble::Asked, ask.message.clone());
                }
            }
            Event::GuardBroken { guard, message } => {
                add(Subject::Guard(*guard), Trouble::GuardBroken, message.clone());
            }
            _ => {}
        }
    }
    if moments.is_empty() { ended_by_timeout(events) } else { moments }
}

/// A run whose time is up fails as a whole: what it was busy with tells why.
fn ended_by_timeout(events: &[Event]) -> Vec<Moment> {
    let failure = events.iter().find_map(|event| match event {
        Event::RollbackStarted { failure: Some(failure) } => Some(failure),
        _ => None,
    });
    let Some(failure) = failure else { return vec![] };
    let stopped = events.iter().filter_map(|event| match event {
        Event::Cancelled { unit } => Some(unit.clone()),
        _ => None,
    });
    let moment =
        |unit| Moment { subject: Subject::Unit(unit), trouble: Trouble::Failed, says: failure.text() };
    stopped.map(moment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::model::Outcome;
    use crate::engine::event::VerdictReached;
    use crate::engine::unit::Block;
    use crate::failure::Failure;

    fn unit(step: &str) -> UnitId {
        Block::forward(step.parse().expect("a name")).unit(None)
    }

    fn verdict(step: &str, severity: Severity) -> Event {
        let verdict = VerdictReached {
            name: "v".to_owned(),
            outcome: Outcome::Fail,
            severity,
            message: "verdict".into(),
            evidence: None,
            failure: None,
        };
        Event::VerdictReached { unit: unit(step), verdict }
    }

    fn failed(step: &str) -> Event {
        Event::Failed { unit: unit(step), failure: Failure::permanent("code", "failed") }
    }

    fn rollback() -> Event {
        Event::RollbackStarted { failure: Some(Failure::permanent("run-timeout", "time is up")) }
    }

    #[test]
    fn each_unit_in_trouble_has_one_moment_and_good_ends_have_none() {
        let rows = [
            (
                vec![verdict("a", Severity::Bad), failed("a"), failed("b"), rollback()],
                vec![("a", Trouble::Failed), ("b", Trouble::Failed)],
            ),
            (vec![verdict("a", Severity::Bad)], vec![("a", Trouble::BadVerdict)]),
            (vec![verdict("a", Severity::Warn), verdict("b", Severity::Ok)], vec![]),
            (vec![Event::Cancelled { unit: unit("a") }, rollback()], vec![("a", Trouble::Failed)]),
            (vec![Event::Cancelled { unit: unit("a") }], vec![]),
            (
                vec![failed("a"), Event::Cancelled { unit: unit("b") }, rollback()],
                vec![("a", Trouble::Failed)],
            ),
        ];
        for (events, expected) in rows {
            let found: Vec<_> = moments(&events).iter().map(|m| (m.unit().cloned(), m.trouble)).collect();
            let expected: Vec<_> = expected.into_iter().map(|(step, t)| (Some(unit(step)), t)).collect();
            assert_eq!(found, expected, "{events:?}");
        }
    }

    #[test]
    fn what_has_no_room_is_named() {
        let library = crate::definition::Library::built_in();
        let object = |name: &str, size: usize| json!({"kind": "Pod", "metadata": {"name": name, "uid": name}, "spec": "x".repeat(size)});
        let seen = |name: &str, size| diagnosis::Seen::of(Arc::new(object(name, size)));
        let objects = vec![seen("near", 100), seen("far", BYTES_MAX), seen("farther", 100)];
        let mut document = json!({});
        describe(&mut document, Scene { objects, ..Scene::default() }, &library.knowledge());
        assert_eq!(document["objects"].as_array().map(Vec::len), Some(1));
        assert!(document.to_string().len() < BYTES_MAX);
        let missing = document["missing"].to_string();
        assert!(missing.contains("Pod far:") && missing.contains("Pod farther:"), "{missing}");
    }
}

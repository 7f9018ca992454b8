//! Waits, guards, and the question whether an interrupted attempt took effect.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::definition::expr::EvalErrorKind;
use crate::definition::expr::Expr;
use crate::definition::expr::Scope;
use crate::definition::knowledge::Class;
use crate::definition::model::Guard;
use crate::definition::model::Outcome;
use crate::definition::model::Verdict;
use crate::definition::model::Wait;
use crate::engine::command::Arming;
use crate::engine::command::WaitReport;
use crate::engine::state::Phase;
use crate::engine::state::WaitState;
use crate::engine::unit::UnitId;
use crate::evaluate::Evaluator;
use crate::evaluate::ReadPlan;
use crate::evaluate::Reading;
use crate::evaluate::Readings;
use crate::evaluate::codes;
use crate::evaluate::message;
use crate::evaluate::scope::NO_LETS;
use crate::evaluate::scope::Wanted;
use crate::evaluate::scope::wanted_by;
use crate::evaluate::scope::wanted_by_exprs;
use crate::evaluate::target::wanted_by_target;
use crate::evaluate::truth;
use crate::failure::Bilingual;
use crate::failure::Failure;

/// The text behind `elapsed`: a variable that no workflow can name, because it is none to validation.
pub(super) const ELAPSED: &str = "elapsed_text";

impl Evaluator<'_> {
    /// The durations of a unit's wait.
    pub fn arm(&self, unit: &UnitId) -> Result<Arming, Failure> {
        let step = self.step(&unit.block)?;
        let wait = wait_of(step)?;
        let stable = wait.verdicts.iter().map(|verdict| verdict.stable_for.as_ref());
        let templates = stable.clone().flatten().chain([&wait.timeout]).chain(&wait.stall_after);
        let scope = self.unit_scope(step, unit, &Readings::default(), &wait.lets, wanted_by(templates))?;
        Ok(Arming {
            timeout: self.duration(&wait.timeout, &scope, "timeout")?,
            stall_after: self.optional_duration(wait.stall_after.as_ref(), &scope, "stall_after")?,
            stable_for: stable
                .map(|template| self.optional_duration(template, &scope, "stable_for"))
                .collect::<Result<_, _>>()?,
        })
    }

    /// What a wait reads at each evaluation.
    pub fn reads_to_judge(&self, unit: &UnitId) -> Result<ReadPlan, Failure> {
        let step = self.step(&unit.block)?;
        let wait = wait_of(step)?;
        let mut wanted = wanted_to_judge(wait);
        wanted.extend(wait.reads.iter().flat_map(|(_, target)| wanted_by_target(target)));
        let mut wanted = self.expanded(step, &wait.lets, wanted);
        let mut readings = vec![];
        let target = wait.target.as_ref().or_else(|| self.target_of(unit, step));
        if let Some(target) = target.filter(|_| wanted.contains("object")) {
            readings.push(Reading { name: "object".to_owned(), target: target.clone() });
        }
        readings.extend(
            wait.reads.iter().map(|(name, target)| Reading { name: name.clone(), target: target.clone() }),
        );
        for reading in &readings {
            wanted.extend(wanted_by_target(&reading.target));
        }
        let scope = self.unit_scope(step, unit, &Readings::default(), &wait.lets, wanted)?;
        Ok(ReadPlan::new(scope, readings))
    }

    /// What one reading of a wait's targets means.
    pub fn judge(&self, unit: &UnitId, readings: &Readings) -> WaitReport {
        self.try_judge(unit, readings).unwrap_or_else(WaitReport::blind)
    }

    fn try_judge(&self, unit: &UnitId, readings: &Readings) -> Result<WaitReport, Failure> {
        if let Some(failure) = &readings.unreadable {
            return Err(failure.clone());
        }
        let step = self.step(&unit.block)?;
        let wait = wait_of(step)?;
        let mut scope = self.unit_scope(step, unit, readings, &wait.lets, wanted_to_judge(wait))?;
        let state = self.wait_state(unit);
        let mut report = WaitReport { confirmed: true, seen: seen(readings), ..WaitReport::default() };
        self.bind_memory(&mut scope, state, readings, &report.seen);
        for (name, expr) in &wait.tracks {
            match expr.eval(&scope) {
                Ok(value) => drop(report.tracks.insert(name.clone(), Arc::new(value))),
                Err(error) => note(&mut report.reason, &format!("track.{name}: {error}").into()),
            }
        }
        self.bind_tracks(&mut scope, state, &report.tracks);
        report.progress = wait
            .progress
            .iter()
            .map(|expr| expr.eval(&scope).ok().as_ref().and_then(Value::as_f64))
            .collect();
        let pending = self.find_verdict(wait, &scope, readings, &mut report)?;
        if !pending.en.is_empty() {
            note(&mut report.reason, &pending);
        }
        let known = self.knowledge.most_telling(&readings.evidence);
        if let Some((entry, text)) = known.filter(|(entry, _)| entry.class == Class::Permanent) {
            let failure = Failure::permanent(codes::KNOWN, text);
            report.known = Some(failure.explained(Some(&entry.explanation)));
        }
        let applies = report.applies.as_ref().and_then(|(place, ..)| wait.verdicts.get(usize::from(*place)));
        let named =
            applies.and_then(|verdict| verdict.known.as_deref()).and_then(|name| self.knowledge.named(name));
        let told = known.map(|(entry, _)| entry).into_iter().chain(named).max_by_key(|entry| entry.weight());
        report.hint = told.map(|entry| entry.explanation.clone());
        Ok(report)
    }

    /// Which verdict applies, the first that does; and what the wait still waits for, in words.
    fn find_verdict(
        &self,
        wait: &Wait,
        scope: &Scope,
        readings: &Readings,
        report: &mut WaitReport,
    ) -> Result<Bilingual, Failure> {
        let mut pending = Bilingual::default();
        // A member that a young object does not have yet; at a good end it is a mistake like any other (L7).
        let mut missing = None;
        for (position, verdict) in wait.verdicts.iter().enumerate() {
            let decided = report.applies.is_some();
            if decided && verdict.outcome != Outcome::Fail {
                continue;
            }
            match verdict.when.eval_bool(scope) {
                Ok(true) if !decided => {
                    let text = verdict_message(verdict, scope);
                    let evidence = self.values.keep(Arc::new(json!(readings.values)))?;
                    // In words is better than as an expression.
                    if verdict.message.is_some() {
                        pending.clone_from(&text);
                    }
                    report.applies =
                        Some((u16::try_from(position).unwrap_or(u16::MAX), text, Some(evidence)));
                    if verdict.outcome != Outcome::Succeed {
                        return Ok(pending);
                    }
                }
                // What must become true says why it is not over; what must not, says nothing while it is not.
                Ok(false) if verdict.outcome == Outcome::Succeed => {
                    let source = verdict.when.source();
                    let (en, zh) = (format!("`{source}` is not true yet"), format!("`{source}` 尚未成立"));
                    note(&mut pending, &Bilingual::new(en, zh));
                }
                Ok(_) => {}
                Err(error) => {
                    let text = format!("{}: {error}", verdict.name);
                    if !decided {
                        note(&mut report.reason, &text.clone().into());
                    }
                    let warning = (verdict.outcome == Outcome::Fail)
                        .then(|| Failure::permanent(codes::EXPRESSION, text));
                    let place = if error.kind == EvalErrorKind::NoSuchKey {
                        &mut missing
                    } else {
                        &mut report.warning
                    };
                    *place = place.take().or(warning);
                }
            }
        }
        if report.applies.is_some() {
            report.warning = report.warning.take().or(missing);
        }
        Ok(pending)
    }

    fn wait_state(&self, unit: &UnitId) -> Option<&WaitState> {
        match &self.unit_state(unit)?.phase {
            Phase::Waiting(wait) => Some(wait),
            Phase::Asking { wait, .. } => wait.as_deref(),
            _ => None,
        }
    }

    /// Binds `elapsed` and `gone`.
    pub(super) fn bind_memory(
        &self,
        scope: &mut Scope,
        state: Option<&WaitState>,
        readings: &Readings,
        seen: &BTreeMap<String, Arc<str>>,
    ) {
        let since = state.map_or(self.now, |state| state.since);
        // A `let`, because values are JSON and JSON has no durations; with one text, so that it is compiled once.
        if let Ok(expr) = Expr::compile(&format!("duration({ELAPSED})")) {
            let seconds = self.now.since(since).as_secs_f64() * self.speed;
            scope.bind(ELAPSED, Value::from(format!("{seconds:.3}s")));
            scope.lets.insert("elapsed".to_owned(), expr);
        }
        let seen_before = |name: &String| {
            state.is_some_and(|state| state.seen.contains_key(name)) || seen.contains_key(name)
        };
        let gone: serde_json::Map<String, Value> = readings
            .values
            .iter()
            .map(|(name, value)| (name.clone(), Value::Bool(value.is_null() && seen_before(name))))
            .collect();
        scope.values.insert("gone".to_owned(), Arc::new(Value::Object(gone)));
    }

    /// Binds `track`: what is remembered, with the values just read.
    pub(super) fn bind_tracks(
        &self,
        scope: &mut Scope,
        state: Option<&WaitState>,
        tracks: &BTreeMap<String, Arc<Value>>,
    ) {
        let view = tracks.iter().map(|(name, value)| {
            let known = state.and_then(|state| state.tracks.get(name));
            let track = match known {
                Some(known) if known.value == *value => {
                    json!({ "value": value, "since": known.since.to_string(), "changes": known.changes })
                }
                Some(known) => {
                    json!({ "value": value, "since": self.now.to_string(), "changes": known.changes + 1 })
                }
                None => json!({ "value": value, "since": self.now.to_string(), "changes": 0 }),
            };
            (name.clone(), track)
        });
        let view = Value::Object(view.collect());
        scope.values.insert("track".to_owned(), Arc::new(view));
    }

    /// What a guard reads.
    pub fn reads_to_guard(&self, guard: &Guard) -> Result<ReadPlan, Failure> {
        let mut wanted = wanted_by_exprs([&guard.that]);
        let mut readings = vec![];
        for (name, target) in &guard.reads {
            wanted.extend(wanted_by_target(target));
            readings.push(Reading { name: name.clone(), target: target.clone() });
        }
        Ok(ReadPlan::new(self.workflow_scope(wanted)?, readings))
    }

    /// What is wrong with a guard, if it can be told that something is.
    pub fn broken(&self, guard: &Guard, readings: &Readings) -> Option<Bilingual> {
        if readings.unreadable.is_some() {
            return None;
        }
        let messages = guard.message.iter().chain(&guard.message_zh);
        let mut wanted = wanted_by_exprs([&guard.that]);
        wanted.extend(wanted_by(messages));
        let mut scope = self.workflow_scope(wanted).ok()?;
        scope.values.extend(readings.values.clone());
        if guard.that.eval_bool(&scope) != Ok(false) {
            return None;
        }
        let fallback = format!("`{}` does not hold", guard.that.source());
        let last = last_writer(readings).map_or_else(String::new, |writer| format!(" ({writer})"));
        let zh = guard.message_zh.as_ref().map(|zh| message(Some(zh), &scope, &fallback) + &last);
        Some(Bilingual { en: message(guard.message.as_ref(), &scope, &fallback) + &last, zh })
    }

    /// The `check` of a unit, against what was just read: none if it has no `check`.
    pub fn check(&self, unit: &UnitId, readings: &Readings) -> Result<Option<bool>, Failure> {
        let step = self.step(&unit.block)?;
        let Some(check) = &step.check else { return Ok(None) };
        if let Some(failure) = &readings.unreadable {
            return Err(failure.clone());
        }
        let scope = self.unit_scope(step, unit, readings, NO_LETS, wanted_by_exprs([check]))?;
        truth(check, &scope, "check").map(Some)
    }
}

fn wait_of(step: &crate::definition::model::Step) -> Result<&Wait, Failure> {
    step.wait
        .as_ref()
        .ok_or_else(|| Failure::permanent(codes::UNKNOWN_STEP, format!("step {} has no wait", step.name)))
}

pub(super) fn wanted_to_judge(wait: &Wait) -> Wanted<'_> {
    let verdicts = wait.verdicts.iter();
    let exprs =
        verdicts.clone().map(|verdict| &verdict.when).chain(wait.tracks.values()).chain(&wait.progress);
    let mut wanted = wanted_by_exprs(exprs);
    wanted.extend(wanted_by(verdicts.flat_map(|verdict| verdict.message.iter().chain(&verdict.message_zh))));
    wanted
}

fn verdict_message(verdict: &Verdict, scope: &Scope) -> Bilingual {
    let fallback = format!("`{}` is true", verdict.when.source());
    let zh = verdict.message_zh.as_ref().map(|zh| message(Some(zh), scope, &fallback));
    Bilingual { en: message(verdict.message.as_ref(), scope, &fallback), zh }
}

/// uid of each single object that was there.
pub(super) fn seen(readings: &Readings) -> BTreeMap<String, Arc<str>> {
    let uid = |value: &Value| value.pointer("/metadata/uid").and_then(Value::as_str).map(Into::into);
    readings.values.iter().filter_map(|(name, value)| Some((name.clone(), uid(value)?))).collect()
}

/// Adds a reason to those that are known already.
fn note(reasons: &mut Bilingual, reason: &Bilingual) {
    if reasons.en.is_empty() {
        reasons.clone_from(reason);
        return;
    }
    if reasons.zh.is_some() || reason.zh.is_some() {
        reasons.zh = Some(format!("{}；{}", reasons.in_chinese(), reason.in_chinese()));
    }
    reasons.en = format!("{}; {}", reasons.en, reason.en);
}

/// Who wrote last to what was read, and when, from `metadata.managedFields`.
fn last_writer(readings: &Readings) -> Option<String> {
    let fields =
        readings.values.values().filter_map(|object| object.pointer("/metadata/managedFields")?.as_array());
    let last = fields.flatten().max_by_key(|entry| entry["time"].as_str().unwrap_or_default().to_owned())?;
    let (manager, time) = (last["manager"].as_str()?, last["time"].as_str()?);
    Some(format!("last written by {manager} at {time}"))
}

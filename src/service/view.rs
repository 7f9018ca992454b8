//! A run as `windrow show --output json` writes it.

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::definition::model::ActionKind;
use crate::definition::model::Step;
use crate::engine::RunState;
use crate::engine::event::AttemptEffect;
use crate::engine::event::Blob;
use crate::engine::event::RunOutcome;
use crate::engine::event::Trigger;
use crate::engine::state::BlockState;
use crate::engine::state::Overlay;
use crate::engine::state::Phase;
use crate::engine::state::RunStatus;
use crate::engine::state::UnitState;
use crate::engine::unit::Block;
use crate::engine::unit::ItemKey;
use crate::engine::unit::UnitId;
use crate::failure::Bilingual;
use crate::id::RunId;
use crate::journal::store::Recorded;
use crate::journal::store::Summary;
use crate::plan::Plan;
use crate::runner::Update;

/// Everything about a run that its journal tells.
pub fn run(plan: &Plan, run: &RunState) -> Value {
    let finished = run.finished.as_ref();
    let failure = finished
        .and_then(|(_, finished)| finished.failure.as_ref())
        .or_else(|| run.rollback.as_ref().and_then(|rollback| rollback.failure.as_ref()));
    let status = run.status();
    let held = run.held_reason();
    json!({
        "id": run.id,
        "workflow": run.created.workflow,
        "title": plan.workflow.title,
        "digest": run.created.digest,
        "cluster": run.created.cluster,
        "state": status.word(),
        "held_reason": held.as_ref().map(|reason| &reason.en),
        "held_reason_zh": held.as_ref().and_then(|reason| reason.zh.as_ref()),
        "inputs": run.created.inputs,
        "secrets": run.created.secrets,
        "trigger": trigger(&run.created.trigger),
        "by": run.created.by.name,
        "key": run.created.key,
        "locks": run.created.locks,
        "created_at": run.created_at.to_string(),
        "finished_at": finished.map(|(at, _)| at.to_string()),
        "outcome": finished.map(|(_, finished)| finished.outcome),
        "rolled_back": finished.and_then(|(_, finished)| match finished.outcome {
            RunOutcome::Cancelled(how_much) => Some(how_much),
            RunOutcome::Succeeded | RunOutcome::Failed | RunOutcome::RolledBack => None,
        }),
        "cancelled_by": run.cancel.as_ref().map(|cancel| json!({ "by": cancel.by.name, "reason": cancel.reason })),
        "verdict": run.verdict(plan).map(|(step, verdict)| json!({
            "step": step, "name": verdict.name, "severity": verdict.severity, "message": verdict.message,
        })),
        "outputs": finished.map(|(_, finished)| finished.outputs.clone()),
        "failure": failure,
        "left": finished.map(|(_, finished)| &finished.left),
        "warnings": run.warnings.iter().map(|(step, failure)| json!({ "step": step, "failure": failure })).collect::<Vec<_>>(),
        "debts": run.debts,
        "asks": asks(run),
        "notes": run.notes.iter().map(|(at, by, text)| json!({ "at": at.to_string(), "by": by, "text": text })).collect::<Vec<_>>(),
        "evidence": run.evidence.iter().map(|(at, evidence)| json!({
            "at": at.to_string(), "step": evidence.unit.as_ref().map(ToString::to_string), "trouble": evidence.trouble, "file": evidence.file,
        })).collect::<Vec<_>>(),
        "paused": run.overlay() == Some(Overlay::Paused),
        "cancelling": run.overlay() == Some(Overlay::Cancelling),
        "called": crate::runner::called(plan, run),
        "steps": steps(plan, run),
    })
}

/// A run of which nothing but its line in the index can be read, and why.
pub(super) fn line(line: &Summary, why: &str) -> Value {
    let over = line.status.is_terminal();
    json!({
        "id": line.run,
        "workflow": line.workflow,
        "title": null,
        "digest": null,
        "cluster": null,
        "state": if over { line.status } else { RunStatus::Held }.word(),
        "held_reason": if over { line.held_reason.as_deref() } else { Some(why) },
        "held_reason_zh": line.held_reason_zh.as_deref().filter(|_| over),
        "inputs": null,
        "trigger": null,
        "created_at": line.created_at.to_string(),
        "finished_at": line.finished_at.map(|at| at.to_string()),
        "verdict": null,
        "failure": null,
        "warnings": [],
        "debts": [],
        "asks": [],
        "notes": [],
        "evidence": [],
        "called": [],
        "steps": [],
    })
}

/// One line for each item of each step, in the order of the plan, finally steps last.
fn steps(plan: &Plan, run: &RunState) -> Vec<Value> {
    let names = plan.graph.order().iter().chain(plan.workflow.finally.iter().map(|step| &step.name));
    let mut rows = vec![];
    for name in names {
        let step = plan.workflow.step(name);
        let title = step.map(title);
        let Some(block) = run.steps.get(name) else {
            rows.push(
                json!({ "name": name, "title": title, "item": null, "state": "Pending", "attempts": 0 }),
            );
            continue;
        };
        if block.units.is_empty() {
            let reason = block.skipped.map(crate::engine::event::SkipReason::words);
            rows.push(json!({ "name": name, "title": title, "item": null, "state": block.word(), "attempts": 0, "reason": reason }));
        }
        if let Some(Err(failure)) = &block.covered {
            rows.push(json!({ "name": name, "title": title, "item": null, "state": block.word(), "attempts": 0, "failure": failure }));
        }
        for (key, unit) in &block.units {
            let item = (!key.is_empty()).then(|| key.clone());
            let mut row = row(run, &Block::forward(name.clone()).unit(item.clone()), unit);
            row["name"] = json!(name);
            row["title"] = json!(title);
            row["item"] = json!(item);
            if unit.attempt > 0 && step.is_some_and(|step| step.action.uses == ActionKind::Workflow) {
                let id = Block::forward(name.clone()).unit(item);
                row["called"] = json!(crate::runner::child_id(run.id, &id, unit.attempt));
            }
            rows.push(row);
        }
    }
    rows
}

/// What a step is there for; its action, where nobody has said that.
fn title(step: &Step) -> Bilingual {
    match step.title.en.is_empty() {
        true => step.action.uses.to_string().into(),
        false => step.title.clone(),
    }
}

fn row(run: &RunState, id: &UnitId, unit: &UnitState) -> Value {
    let mut row = unit_row(unit);
    row["rollback"] = json!({ "state": run.undo_word(id), "entries": undo_rows(run, id) });
    row
}

fn unit_row(unit: &UnitState) -> Value {
    let changed = unit.end.as_ref().map(|end| match &end.effect {
        AttemptEffect::Changed | AttemptEffect::FailedHalfway(_) => json!(true),
        AttemptEffect::Unchanged => json!(false),
        AttemptEffect::Unattributed | AttemptEffect::Unknown(_) => json!("unknown"),
        AttemptEffect::Failed(_) | AttemptEffect::NotDone => json!(false),
    });
    json!({
        "state": unit.word(),
        "attempts": unit.attempt,
        "started_at": unit.started_at.to_string(),
        "finished_at": unit.finished_at.map(|at| at.to_string()),
        "changed": changed,
        "captured": unit.facts.as_ref().map(|facts| facts.captured.iter().map(|(name, blob)| (name.clone(), shown(blob))).collect::<serde_json::Map<_, _>>()),
        "outputs": unit.outputs,
        "verdict": unit.verdict.as_ref().map(|verdict| json!({
            "name": verdict.name, "outcome": verdict.outcome, "severity": verdict.severity, "message": verdict.message,
        })),
        "failure": unit.failure,
        "waiting": waiting(unit),
    })
}

/// A value as it is shown: one in a side file is named, not read.
fn shown(blob: &Blob) -> Value {
    match blob {
        Blob::Inline(value) => value.as_ref().clone(),
        Blob::Side(digest) => json!({ "side_file": digest }),
    }
}

/// What a unit waits for, and until when.
fn waiting(unit: &UnitState) -> Value {
    match &unit.phase {
        Phase::Pending { deadline, message, .. } => json!({ "for": message, "until": deadline.to_string() }),
        Phase::Sleeping { due } => json!({ "until": due.to_string() }),
        Phase::Backoff { due } => {
            json!({ "for": Bilingual::new("the next attempt", "下一次尝试"), "until": due.to_string() })
        }
        Phase::Waiting(wait) => json!({
            "for": wait.reason,
            "until": wait.deadline.to_string(),
            "since": wait.since.to_string(),
            "progress": wait.progress,
            "tracks": wait.tracks,
        }),
        Phase::Preparing
        | Phase::Inherited
        | Phase::Acting { .. }
        | Phase::Observing { .. }
        | Phase::Failing
        | Phase::Acted
        | Phase::Asking { .. }
        | Phase::Concluding
        | Phase::Done(_) => Value::Null,
    }
}

/// The run that a step has called and waits for.
pub(super) fn running_child(row: &Value) -> Option<RunId> {
    let child = row["called"].as_str().filter(|_| row["state"] == "Running")?;
    child.parse().ok()
}

/// What a run is busy with, in the form of [`waiting`]: its first step that is neither over nor to come.
pub(super) fn progress(view: &Value) -> Value {
    let busy = |row: &&Value| matches!(row["state"].as_str(), Some("Running" | "Waiting" | "Backoff"));
    let Some(row) = view["steps"].as_array().into_iter().flatten().find(busy) else { return Value::Null };
    let (name, mut progress) = (row["name"].as_str().unwrap_or_default(), row["waiting"].clone());
    let about = match &progress["for"] {
        Value::Null => &row["title"],
        about => about,
    };
    let in_step = |text: &Value| text.as_str().map(|text| format!("{name}: {text}"));
    progress["for"] = json!({ "en": in_step(&about["en"]), "zh": in_step(&about["zh"]) });
    progress
}

fn undo_rows(run: &RunState, id: &UnitId) -> Vec<Value> {
    let of_item = |item: &Option<ItemKey>| item.is_none() || *item == id.item;
    let blocks = run.undos.iter().filter(|(block, _)| block.step == id.block.step);
    let mut rows = vec![];
    for (block, state) in blocks {
        let Some(undo) = block.undo.as_ref().filter(|undo| of_item(&undo.item)) else { continue };
        rows.extend(undo_units(undo.entry, state));
    }
    rows
}

fn undo_units(entry: u16, block: &BlockState) -> Vec<Value> {
    if block.units.is_empty() {
        return vec![json!({ "entry": entry, "state": block.word() })];
    }
    let row = |(key, unit): (&Arc<str>, &UnitState)| {
        let mut row = unit_row(unit);
        row["entry"] = json!(entry);
        row["item"] = json!((!key.is_empty()).then_some(key));
        row
    };
    block.units.iter().map(row).collect()
}

/// The questions of a run, each with the run that asks: a child's are answered in the same way.
pub(super) fn asks(run: &RunState) -> Vec<Value> {
    let asks = run.asks.iter().map(|ask| json!(ask));
    let named = asks.map(|mut ask| {
        ask["run"] = json!(run.id);
        ask
    });
    named.collect()
}

fn trigger(trigger: &Trigger) -> Value {
    match trigger {
        Trigger::Manual => json!({ "kind": "manual" }),
        Trigger::Parent { run, root, unit, .. } => {
            json!({ "kind": "parent", "run": run, "root": root, "step": unit.to_string() })
        }
        Trigger::Retry(run) => json!({ "kind": "retry", "run": run }),
        Trigger::Rollback(run) => json!({ "kind": "rollback", "run": run }),
    }
}

/// A record of the journal.
pub fn event(record: &Recorded) -> Value {
    json!({ "seq": record.seq, "at": record.at.to_string(), "event": record.event })
}

/// The records of an update.
pub fn events(update: &Update) -> Vec<Value> {
    let first = update.seq.0 + 1 - update.events.len() as u64;
    let numbered = update.events.iter().zip(first..);
    numbered.map(|(event, seq)| json!({ "seq": seq, "at": update.at.to_string(), "event": event })).collect()
}

//! A plan promises what a run writes: its list is held against the audit log of the real rehearsal.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use windrow::definition::Library;
use windrow::definition::model::Rehearsal;
use windrow::plan;
use windrow::plan::explain::Explained;
use windrow::plan::explain::ExplainedStep;
use windrow::plan::explain::Write;
use windrow::sim::AuditEntry;

use crate::support::stage;

/// How long a run may take by its own clock.
const LIMIT: Duration = Duration::from_hours(2);

/// For workflows that have an undo, a case in which it writes.
const UNDONE: [(&str, &str); 6] = [
    ("image-import", "source-missing"),
    ("vm-create", "image-missing"),
    ("vm-network-check", "nodes-are-split"),
    ("vm-restart", "too-slow"),
    ("vm-start", "io-error"),
    ("vm-stop", "manual-stop-takes-too-long"),
];

/// Verb, kind, object, subresource; workflow and step.
type Line = (String, String, String);

/// What a run wrote, and how it ended.
async fn rehearse(library: &Arc<Library>, workflow: &str, case: &Rehearsal) -> (Vec<Line>, Value) {
    let stage = stage(library, case, 1.0).await;
    let run = stage.start(workflow, case).await.unwrap();
    let end = tokio::time::timeout(LIMIT, stage.attend(run, case, |_| {})).await;
    let view = end.unwrap_or_else(|_| panic!("{workflow} {} does not end", case.name)).unwrap();
    let written = stage.cluster.audit().into_iter().filter(|entry| entry.manager.starts_with("windrow-"));
    (written.map(|entry| line_of_audit(&entry)).collect(), view)
}

fn line_of_audit(entry: &AuditEntry) -> Line {
    let kind = entry.resource.split('.').next().unwrap_or_default();
    let verb = if entry.verb == "apply" { "patch" } else { entry.verb };
    let object = format!("{}/{}/{}", entry.namespace, entry.name, entry.subresource);
    (format!("{verb} {kind}"), object, entry.manager.clone())
}

fn line_of_plan(write: &Write, workflow: &str, step: &ExplainedStep) -> Line {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let object = format!("{}/{}/{}", text(&write.namespace), write.name, text(&write.subresource));
    let manager = format!("windrow-{workflow}-{}", step.name);
    // The audit log has the plural.
    let kind = text(&write.kind).to_lowercase();
    let kind = if kind.ends_with('s') { kind + "es" } else { kind + "s" };
    (format!("{} {kind}", write.verb), object, manager)
}

/// True if a write is the one that was promised. What only a run finds out stands in a plan as it is written.
fn covers(promised: &Line, written: &Line) -> bool {
    let is_open = promised.1.contains("{{");
    (&promised.0, &promised.2) == (&written.0, &written.2) && (is_open || promised.1 == written.1)
}

/// What a plan lists: going forward, and undoing. A workflow that is called twice is listed twice.
fn promised(plan: &Explained) -> (Vec<Line>, Vec<Line>) {
    let (mut forward, mut undo) = (vec![], vec![]);
    for step in plan.steps.iter().chain(&plan.finally) {
        let line = |write: &Write| line_of_plan(write, &plan.workflow, step);
        forward.extend(step.writes.iter().map(line));
        undo.extend(step.rollback.iter().flat_map(|entry| &entry.writes).map(line));
        if let Some(child) = &step.child {
            let (forward_of_child, undo_of_child) = promised(child);
            forward.extend(forward_of_child);
            undo.extend(undo_of_child);
        }
    }
    (forward, undo)
}

/// Steps of the run that changed something, as managers; those of called workflows are not in its view.
fn changed(workflow: &str, view: &Value) -> BTreeSet<String> {
    let steps = view["steps"].as_array().unwrap().iter();
    let changed = steps.filter(|step| step["changed"] == true);
    changed.map(|step| format!("windrow-{workflow}-{}", step["name"].as_str().unwrap())).collect()
}

fn explained(library: &Library, workflow: &str, case: &Rehearsal) -> Explained {
    let plan = plan::from_library(library, &workflow.parse().unwrap()).unwrap();
    let given = Value::Object(case.inputs.clone().into_iter().collect());
    plan.explain(&plan.workflow.complete_inputs(&given).unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_writes_of_a_good_run_are_those_of_its_plan() {
    let library = Arc::new(Library::built_in());
    for workflow in library.workflows() {
        let name = workflow.name.as_str();
        let case = &workflow.rehearsals[0];
        let (written, view) = rehearse(&library, name, case).await;
        assert_eq!(view["state"], "Succeeded", "{name}: {view:#}");
        let (promised, _) = promised(&explained(&library, name, case));
        for line in &written {
            assert!(
                promised.iter().any(|wanted| covers(wanted, line)),
                "{name} wrote {line:?}, the plan has {promised:#?}"
            );
        }
        // The other way round: what was promised of a step that changed something was written.
        let changed = changed(name, &view);
        for line in promised.iter().filter(|line| changed.contains(&line.2)) {
            assert!(
                written.iter().any(|made| covers(line, made)),
                "{name} promised {line:?} and wrote {written:#?}"
            );
        }
        for line in &written {
            let times = written.iter().filter(|other| *other == line).count();
            let wanted = promised.iter().filter(|wanted| covers(wanted, line)).count();
            assert!(times <= wanted, "{name} wrote {line:?} {times} times, its plan does {wanted} times");
        }
        assert_eq!(written.is_empty(), promised.is_empty(), "{name} promised {promised:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_writes_of_an_undo_are_those_of_its_plan() {
    let library = Arc::new(Library::built_in());
    for workflow in library.workflows() {
        let name = workflow.name.as_str();
        let Some((_, wanted)) = UNDONE.iter().find(|(workflow, _)| *workflow == name) else { continue };
        let case = workflow.rehearsals.iter().find(|case| case.name == *wanted).unwrap();
        let (written, view) = rehearse(&library, name, case).await;
        assert_eq!(view["state"], "RolledBack", "{name}: {view:#}");
        let (forward, undo) = promised(&explained(&library, name, case));
        for line in &written {
            let announced = forward.iter().chain(&undo).any(|promised| covers(promised, line));
            assert!(announced, "{name} wrote {line:?} unannounced");
        }
        // Each step that changed something wrote once; all that goes beyond is undo.
        let changed = changed(name, &view);
        let mut rest = written.clone();
        for line in forward.iter().filter(|line| changed.contains(&line.2)) {
            let at = rest.iter().position(|written| covers(line, written));
            rest.remove(at.unwrap_or_else(|| panic!("{name} promised {line:?} and wrote {written:#?}")));
        }
        assert!(
            !rest.is_empty() && rest.iter().all(|line| undo.iter().any(|promised| covers(promised, line))),
            "{name}: {rest:#?}"
        );
    }
}

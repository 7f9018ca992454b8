//! `windrow rehearse`.

use std::sync::Arc;

use serde_json::Value;
use serde_json::json;

use crate::action::secret::Secrets;
use crate::cli::args::Global;
use crate::cli::args::Rehearse;
use crate::cli::args::SPEED_MAX;
use crate::cli::error::CommandError;
use crate::cli::lines::Lines;
use crate::cli::printer::Printer;
use crate::cli::render;
use crate::cli::session::library;
use crate::definition::Library;
use crate::definition::Workflow;
use crate::definition::model::Rehearsal;
use crate::journal::memory::MemoryStore;
use crate::rehearsal::Judgement;
use crate::rehearsal::Stage;
use crate::service::codes;
use crate::time::SharedClock;
use crate::time::SystemClock;

pub(super) async fn rehearse(global: &Global, what: Rehearse, printer: &Printer) -> Result<u8, CommandError> {
    if !(what.speed >= 1.0 && what.speed <= SPEED_MAX) {
        return Err(CommandError::usage(codes::BAD_SPEED, format!("--speed is 1 to {SPEED_MAX}")));
    }
    let library = Arc::new(library(global));
    let mut rows = vec![];
    for (workflow, case) in chosen(&library, &what)? {
        if !printer.is_json() {
            printer.note(format_args!("── {} / {}", workflow.name, case.name));
        }
        let (view, judgement) = one(&library, &workflow, &case, &what, printer).await?;
        if !printer.is_json() {
            printer.note(render::outcome(&view, printer));
            render::reasons(&view, printer).iter().for_each(|line| printer.note(line));
        }
        report(&case, &judgement, printer);
        rows.push(
            json!({ "workflow": workflow.name, "case": case.name, "run": view, "judgement": judgement }),
        );
    }
    if printer.is_json() {
        printer.json(&rows);
    }
    let passed = |row: &Value| row["judgement"]["mismatches"].as_array().is_some_and(Vec::is_empty);
    let failed = rows.iter().filter(|row| !passed(row)).count();
    if rows.len() > 1 {
        printer.note(format_args!(
            "{} {}, {} {}",
            rows.len() - failed,
            printer.pick("as expected", "符合预期"),
            failed,
            printer.pick("not", "不符合")
        ));
    }
    Ok(if failed == 0 { 0 } else { crate::cli::error::BAD_ROWS })
}

/// The rehearsals that the arguments mean.
fn chosen(library: &Library, what: &Rehearse) -> Result<Vec<(Arc<Workflow>, Rehearsal)>, CommandError> {
    let workflows: Vec<_> = match &what.workflow {
        None => library.workflows().cloned().collect(),
        Some(name) => {
            vec![library.get(name).cloned().ok_or_else(|| super::definitions::unknown(library, name))?]
        }
    };
    let mut cases = vec![];
    for workflow in workflows {
        let own = &workflow.rehearsals;
        let picked: Vec<_> = match &what.case {
            Some(name) => own.iter().filter(|case| case.name == *name).collect(),
            None if what.all => own.iter().collect(),
            None => own.iter().take(1).collect(),
        };
        if picked.is_empty() && what.workflow.is_some() {
            let names: Vec<_> = own.iter().map(|case| case.name.as_str()).collect();
            let message = match names.as_slice() {
                [] => format!("{} has no rehearsals", workflow.name),
                names => format!("{} has these rehearsals: {}", workflow.name, names.join(", ")),
            };
            return Err(CommandError::usage(codes::UNKNOWN_REHEARSAL, message));
        }
        cases.extend(picked.into_iter().map(|case| (workflow.clone(), case.clone())));
    }
    Ok(cases)
}

async fn one(
    library: &Arc<Library>,
    workflow: &Workflow,
    case: &Rehearsal,
    what: &Rehearse,
    printer: &Printer,
) -> Result<(Value, Judgement), CommandError> {
    let clock: SharedClock = Arc::new(SystemClock::at_speed(what.speed));
    let store = Arc::new(MemoryStore::new());
    let stage = Stage::set(case, library.clone(), store, Secrets::default(), clock, what.seed)
        .await
        .map_err(|failure| CommandError::usage(&failure.code, failure.text()))?;
    let run = stage.start(workflow.name.as_str(), case).await?;
    let mut lines = Lines::new(printer);
    let view = stage.attend(run, case, |view| lines.show(view)).await;
    lines.end();
    let view = view?;
    let judgement = stage.judge(&view, &case.expect).await;
    Ok((view, judgement))
}

fn report(case: &Rehearsal, judgement: &Judgement, printer: &Printer) {
    if printer.is_json() {
        return;
    }
    for line in &judgement.left {
        printer.note(format_args!("  {}: {line}", printer.pick("differs from before", "与之前不同")));
    }
    match judgement.mismatches.as_slice() {
        [] => printer.note(format_args!("= {}: {}", case.name, printer.pick("as expected", "符合预期"))),
        some => {
            for line in some {
                printer.note(format_args!("≠ {}: {line}", case.name));
            }
        }
    }
}

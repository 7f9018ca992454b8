//! What can be known of workflows without running them.

use std::path::Path;
use std::path::PathBuf;

use serde_json::Value;
use serde_json::json;

use crate::cli::args::Global;
use crate::cli::args::Inputs;
use crate::cli::args::Notation;
use crate::cli::error::CommandError;
use crate::cli::printer::Printer;
use crate::cli::session::library;
use crate::definition::Library;
use crate::plan;
use crate::plan::Plan;

/// There is no such workflow; the closest name, and whether it is there with mistakes.
pub(super) fn unknown(library: &Library, name: &str) -> CommandError {
    let broken = library.diagnostics().iter().any(crate::definition::diagnostic::Diagnostic::is_error);
    let names: Vec<&str> = library.workflows().map(|workflow| workflow.name.as_str()).collect();
    let likeness = |known: &str| strsim::jaro(known, name);
    let close = names.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let hint = close.map_or_else(String::new, |close| format!("; did you mean `{close}`?"));
    let mistakes = if broken { " (some files have mistakes: see `windrow validate`)" } else { "" };
    CommandError::usage("unknown-workflow", format!("there is no workflow `{name}`{hint}{mistakes}"))
}

fn planned(library: &Library, name: &str) -> Result<std::sync::Arc<Plan>, CommandError> {
    let plan = name.parse().ok().and_then(|parsed| plan::from_library(library, &parsed));
    plan.ok_or_else(|| unknown(library, name))
}

pub(super) fn workflows(global: &Global, printer: &Printer) -> u8 {
    let library = library(global);
    let rows: Vec<_> = library.workflows().collect();
    if printer.is_json() {
        let view = |workflow: &&std::sync::Arc<crate::definition::Workflow>| {
            let inputs: serde_json::Map<String, Value> = workflow
                .inputs
                .iter()
                .map(|(name, input)| {
                    (name.clone(), json!({ "description": input.description, "default": input.default }))
                })
                .collect();
            json!({ "name": workflow.name, "title": workflow.title, "description": workflow.description, "inputs": inputs })
        };
        printer.json(&rows.iter().map(view).collect::<Vec<_>>());
        return 0;
    }
    for workflow in rows {
        printer.data(format_args!("{:<20} {}", workflow.name, printer.text(&workflow.title)));
        for (name, input) in &workflow.inputs {
            let default = input.default.as_ref().map_or_else(String::new, |value| format!(" [{value}]"));
            printer.data(format_args!("    -i {name}={default:<14} {}", printer.text(&input.description)));
        }
    }
    0
}

pub(super) fn validate(global: &Global, paths: &[PathBuf], printer: &Printer) -> u8 {
    let own: Vec<PathBuf> = match paths {
        [] if global.workflows.is_empty() => vec![Path::new("workflows").to_owned()],
        [] => global.workflows.clone(),
        given => given.to_vec(),
    };
    let library = Library::load_only(&own);
    let diagnostics = library.diagnostics();
    let errors = diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count();
    if printer.is_json() {
        printer.json(
            &diagnostics.iter().map(|diagnostic| diagnostic.view(library.sources())).collect::<Vec<_>>(),
        );
    } else {
        for diagnostic in diagnostics {
            printer.note(diagnostic.render(library.sources(), printer.has_colour()));
        }
        let good = library.workflows().count();
        let warnings = diagnostics.len() - errors;
        printer.note(format_args!(
            "{good} {}, {errors} {}, {warnings} {}",
            printer.pick("workflows without errors", "个工作流无错误"),
            printer.pick("errors", "个错误"),
            printer.pick("warnings", "个警告"),
        ));
    }
    if errors > 0 { 2 } else { 0 }
}

pub(super) fn graph(
    global: &Global,
    workflow: &str,
    format: Notation,
    printer: &Printer,
) -> Result<u8, CommandError> {
    let library = library(global);
    let plan = planned(&library, workflow)?;
    printer.data(match format {
        Notation::Dot => plan::draw::dot(&plan),
        Notation::Mermaid => plan::draw::mermaid(&plan),
    });
    Ok(0)
}

pub(super) fn plan(global: &Global, what: &Inputs, printer: &Printer) -> Result<u8, CommandError> {
    let library = library(global);
    let workflow = library.get(&what.workflow).ok_or_else(|| unknown(&library, &what.workflow))?;
    let inputs = workflow
        .parse_inputs(what.inputs.iter().map(String::as_str))
        .map_err(|error| CommandError::usage("bad-inputs", error.to_string()))?;
    print_plan(&library, &what.workflow, &inputs, printer)?;
    Ok(0)
}

/// What a run would do, in order.
pub(super) fn print_plan(
    library: &Library,
    name: &str,
    inputs: &Value,
    printer: &Printer,
) -> Result<(), CommandError> {
    let plan = planned(library, name)?;
    let explained = plan.explain(inputs);
    if printer.is_json() {
        printer.json(&explained);
    } else {
        crate::cli::outline::print(&explained, 0, printer);
    }
    Ok(())
}

pub(super) fn schema(printer: &Printer) -> u8 {
    printer.json(&crate::definition::schema::workflow_schema());
    0
}

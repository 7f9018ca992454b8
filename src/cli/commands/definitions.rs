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
use crate::definition::diagnostic::Look;
use crate::definition::model::Input;
use crate::definition::model::InputKind;
use crate::definition::suggest::did_you_mean;
use crate::failure::Bilingual;
use crate::plan;
use crate::plan::Plan;
use crate::service::codes;

/// There is no such workflow: its file has mistakes, or another name was meant.
pub(super) fn unknown(library: &Library, name: &str) -> CommandError {
    let views = library.diagnostics().iter().filter(|diagnostic| diagnostic.is_error());
    let mut mistakes = views.map(|diagnostic| diagnostic.view(library.sources()));
    let its_own =
        |file: Option<&str>| file.is_some_and(|file| Path::new(file).file_stem() == Some(name.as_ref()));
    if let Some(first) = mistakes.find(|mistake| its_own(mistake.file)) {
        let file = first.file.unwrap_or_default();
        let line = first.line.unwrap_or_default();
        let text = format!(
            "the workflow `{name}` has mistakes: {file}:{line}: {}; `windrow validate {file}` shows all of them",
            first.message
        );
        return CommandError::usage(codes::UNKNOWN_WORKFLOW, text);
    }
    let hint = did_you_mean(name, library.workflows().map(|workflow| workflow.name.as_str()));
    let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
    let text = Bilingual::new(
        format!("there is no workflow `{name}`{hint}"),
        format!("没有名为 `{name}` 的工作流{hint}"),
    );
    CommandError::usage(codes::UNKNOWN_WORKFLOW, text)
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
            let inputs: serde_json::Map<String, Value> =
                workflow.inputs.iter().map(|(name, input)| (name.clone(), view_of_input(input))).collect();
            json!({ "name": workflow.name, "title": workflow.title, "description": workflow.description, "source": workflow.source, "inputs": inputs })
        };
        printer.json(&rows.iter().map(view).collect::<Vec<_>>());
        return 0;
    }
    for workflow in rows {
        printer.data(format_args!("{:<20} {}", workflow.name, printer.text(&workflow.title)));
        for (name, input) in &workflow.inputs {
            let about = about_input(input, printer);
            let description = printer.text(&input.description);
            printer.data(format_args!("    -i {:<18} {about}  {description}", format!("{name}=")));
        }
    }
    0
}

/// What an input takes, for programs.
fn view_of_input(input: &Input) -> Value {
    let choices = if let InputKind::Enum(choices) = &input.kind { Some(choices) } else { None };
    json!({
        "description": input.description,
        "type": input.kind.word(),
        "required": input.default.is_none(),
        "default": input.default,
        "values": choices,
    })
}

/// What an input takes, and whether it must be given.
fn about_input(input: &Input, printer: &Printer) -> String {
    let kind = match &input.kind {
        InputKind::Enum(choices) => choices.join("|"),
        kind => kind.word().to_owned(),
    };
    let given = match &input.default {
        None => printer.pick("required", "必填").to_owned(),
        Some(Value::String(text)) if text.is_empty() => printer.pick("optional", "可选").to_owned(),
        Some(Value::Array(items)) => {
            let items: Vec<String> = items.iter().map(crate::cli::render::text).collect();
            format!("{} [{}]", printer.pick("default", "默认"), items.join(","))
        }
        Some(value) => format!("{} {}", printer.pick("default", "默认"), crate::cli::render::text(value)),
    };
    format!("{kind}, {given}")
}

pub(super) fn validate(global: &Global, paths: &[PathBuf], printer: &Printer) -> Result<u8, CommandError> {
    let usual = Path::new("workflows");
    let own: Vec<PathBuf> = match paths {
        [] if global.workflows.is_empty() && !usual.is_dir() => {
            let text = Bilingual::new(
                "there is no folder `workflows` here: name the files or folders to check",
                "当前目录下没有 `workflows` 文件夹：请指明要检查的文件或文件夹",
            );
            return Err(CommandError::usage(codes::NO_WORKFLOWS, text));
        }
        [] if global.workflows.is_empty() => vec![usual.to_owned()],
        [] => global.workflows.clone(),
        given => given.to_vec(),
    };
    let library = Library::load_only(&own);
    if library.sources().is_empty() && library.diagnostics().is_empty() {
        let places: Vec<_> = own.iter().map(|path| path.display().to_string()).collect();
        let places = places.join(", ");
        let text = Bilingual::new(
            format!("there are no workflow files in {places}"),
            format!("{places} 中没有工作流文件"),
        );
        return Err(CommandError::usage(codes::NO_WORKFLOWS, text));
    }
    let diagnostics = library.diagnostics();
    let errors = diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count();
    if printer.is_json() {
        printer.json(
            &diagnostics.iter().map(|diagnostic| diagnostic.view(library.sources())).collect::<Vec<_>>(),
        );
    } else {
        let look = Look { colour: printer.has_colour(), chinese: printer.is_chinese() };
        for diagnostic in diagnostics {
            printer.note(diagnostic.render(library.sources(), look));
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
    Ok(if errors > 0 { 2 } else { 0 })
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

pub(super) async fn plan(global: &Global, what: &Inputs, printer: &Printer) -> Result<u8, CommandError> {
    let library = library(global);
    let workflow = library.get(&what.workflow).ok_or_else(|| unknown(&library, &what.workflow))?;
    let inputs = workflow
        .parse_inputs(what.inputs.iter().map(String::as_str))
        .map_err(|error| CommandError::usage(codes::BAD_INPUTS, error.to_string()))?;
    print_plan(global, &library, &what.workflow, &inputs, printer).await?;
    Ok(0)
}

/// What a run would do, in order, and which of its preconditions hold now.
pub(super) async fn print_plan(
    global: &Global,
    library: &Library,
    name: &str,
    inputs: &Value,
    printer: &Printer,
) -> Result<(), CommandError> {
    let plan = planned(library, name)?;
    let mut explained = plan.explain(inputs);
    let looked = crate::cli::standing::look(global, library, &plan, &mut explained).await;
    explained.unreachable = looked.err();
    if printer.is_json() {
        printer.json(&explained);
    } else {
        crate::cli::outline::print(&explained, 0, printer);
        if let Some(failure) = &explained.unreachable {
            let text = printer
                .pick("whether the preconditions hold now is not known:", "无法得知前提条件目前是否满足：");
            printer.note(format_args!("{text} {}", printer.text(&failure.text())));
            printer.explain(failure);
        }
    }
    Ok(())
}

pub(super) fn schema(printer: &Printer) -> u8 {
    printer.json(&crate::definition::schema::workflow_schema());
    0
}

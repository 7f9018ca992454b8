//! `windrow bundle`: the evidence of a run in one file.
//!
//! The file is YAML: a document for the run, one for each moment of trouble, the same for the runs that it has called,
//! and their journals at the end. Everybody can read that in an editor, and every language can parse it; logs stand in
//! it line by line.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde_json::Value;
use serde_json::json;

use crate::cli::args::Bundle;
use crate::cli::args::Global;
use crate::cli::error::CommandError;
use crate::cli::printer::Printer;
use crate::cli::session::Session;
use crate::id::RunId;
use crate::service::codes;
use crate::service::operation::Operation;
use crate::service::operation::Reply;

/// The layout of the file.
const FORMAT: u32 = 1;
/// Runs in one bundle: those that were called, and called by those. More would be no evidence but a copy of the store.
const RUNS_MAX: usize = 200;
/// Characters of a line that stays one line: an editor wraps it, a search finds it.
const LINE_CHARS: usize = 10_000;

pub(super) async fn bundle(global: &Global, what: Bundle, printer: &Printer) -> Result<u8, CommandError> {
    let session = Session::existing(global).await?;
    let run = session.run(&what.run).await?;
    let documents = collect(&session, run).await?;
    let text = if printer.is_json() {
        serde_json::to_string_pretty(&documents).map_err(|_| CommandError::bug())?
    } else {
        yaml(&documents)?
    };
    let Some(file) = what.out else {
        printer.data(text.trim_end());
        return Ok(0);
    };
    write(&file, &text).map_err(|error| {
        CommandError::unusable(codes::WRITE, format!("{} cannot be written: {error}", file.display()))
    })?;
    let kept = documents.iter().filter(|document| document.get("trouble").is_some()).count();
    let moments = printer.pick("moments of trouble", "个出现问题的时刻");
    printer.note(format_args!("{}: {kept} {moments}", file.display()));
    if kept == 0 {
        printer.note(printer.pick(
            "nothing went wrong of which evidence would have been kept; the file holds the run itself",
            "没有出现需要留存证据的问题；文件中只有运行本身",
        ));
    }
    Ok(0)
}

/// The run, what it has kept, and the same of the runs that it has called.
async fn collect(session: &Session, run: RunId) -> Result<Vec<Value>, CommandError> {
    let (mut documents, mut journals) = (vec![], vec![]);
    let mut open = std::collections::VecDeque::from([run]);
    let mut runs = 0;
    while let Some(next) = open.pop_front() {
        let asked = session.call(Operation::Show { run: next, events: true }).await;
        let mut view = match asked {
            Ok(Reply::Run { view }) => view,
            Ok(_) => return Err(CommandError::bug()),
            // A step that never got so far has called nobody.
            Err(error) if next != run && error.failure.code == codes::UNKNOWN_RUN => continue,
            Err(error) => return Err(error),
        };
        runs += 1;
        if runs == RUNS_MAX {
            open.clear();
        } else {
            let called = view["called"].as_array().into_iter().flatten();
            open.extend(called.filter_map(|id| id.as_str()?.parse::<RunId>().ok()));
        }
        let files: Vec<_> = view["evidence"].as_array().into_iter().flatten().cloned().collect();
        crate::action::secret::Secrets::default().mask_all(&mut view);
        let events = view.as_object_mut().and_then(|view| view.shift_remove("events"));
        journals.push(json!({ "journal_of": next, "events": events }));
        documents.push(json!({ "bundle": FORMAT, "windrow": env!("CARGO_PKG_VERSION"), "run": view }));
        for kept in &files {
            documents.push(piece(session, next, kept).await?);
        }
    }
    documents.extend(journals);
    Ok(documents)
}

/// One piece of evidence; one that is lost says so and hides nothing of the others.
async fn piece(session: &Session, run: RunId, kept: &Value) -> Result<Value, CommandError> {
    let file = kept["file"].as_str().unwrap_or_default().into();
    match session.call(Operation::Evidence { run, file }).await {
        Ok(Reply::Evidence { document }) => Ok(document),
        Ok(_) => Err(CommandError::bug()),
        Err(error) if error.failure.code == codes::AGENT_GONE => Err(error),
        Err(error) => {
            let mut lost = kept.clone();
            lost["lost"] = error.failure.message.into();
            Ok(lost)
        }
    }
}

/// One YAML stream. It begins with a word for whoever has never seen one.
fn yaml(documents: &[Value]) -> Result<String, CommandError> {
    let options = serde_saphyr::ser_options! { folded_wrap_chars: LINE_CHARS };
    let text = serde_saphyr::to_string_multiple_with_options(documents, options);
    let text = text.map_err(|_| CommandError::bug())?;
    Ok(format!(
        "# Evidence of a Windrow run: the run, a document for each moment of trouble, the journal.\n\
         # Windrow 运行的现场证据：运行本身，每个出现问题的时刻一个文档，最后是日志。\n{text}"
    ))
}

/// Never over a file that is there: the evidence of another run may be all that is left of it.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    let mut open = std::fs::OpenOptions::new();
    let mut file = open.write(true).create_new(true).mode(0o600).open(file)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_stand_line_by_line_and_everything_can_be_read_back() {
        let log = "first: line\n  - second # line\n\u{1b}[0m\ttabbed\n";
        let long = "word ".repeat(400);
        let documents = [
            json!({"bundle": 1, "run": {"yes": "no", "n": 12, "none": null, "list": []}}),
            json!({"log": "a: 1\nb: 2\n", "odd": log, "long": long, "zh": "镜像导入失败", "time": "2026-01-01"}),
        ];
        let text = yaml(&documents).expect("YAML");
        assert!(text.contains("log: |\n  a: 1\n  b: 2\n"), "{text}");
        let back: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
        assert_eq!(back, documents);
    }
}

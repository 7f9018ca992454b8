//! `windrow store`.

use serde_json::json;

use crate::cli::args::Global;
use crate::cli::args::StoreAction;
use crate::cli::error::BAD_ROWS;
use crate::cli::error::CommandError;
use crate::cli::printer::Printer;
use crate::cli::session::has_store;
use crate::journal::export::compact;
use crate::journal::export::export;
use crate::journal::export::import;
use crate::journal::sled::Options;
use crate::journal::store;
use crate::journal::verify;
use crate::journal::verify::Finding;
use crate::journal::verify::Report;
use crate::time::wall_now;

pub(super) fn store(global: &Global, action: StoreAction, printer: &Printer) -> Result<u8, CommandError> {
    let options = Options::default();
    let failed = |error: store::Error| CommandError::store(&error, &global.state);
    let is_import = matches!(action, StoreAction::Import { .. });
    if !is_import && !has_store(&global.state) {
        return Err(CommandError::no_store(&global.state));
    }
    match action {
        StoreAction::Check => {
            let report = verify::check(&global.state, &options).map_err(failed)?;
            Ok(print(&report, printer))
        }
        StoreAction::Export { file } => {
            let exported = export(&global.state, &file, &options).map_err(failed)?;
            printer.note(format_args!(
                "{} runs, {} records, {} side files",
                exported.runs, exported.rows, exported.blobs
            ));
            printer.note(printer.pick(
                "without the key of its secrets: keep `seal.key` of the state directory apart",
                "不含机密的密钥：请另行保存状态目录中的 `seal.key`",
            ));
            exported.missing.iter().for_each(|what| printer.note(format_args!("missing: {what}")));
            Ok(if exported.missing.is_empty() { 0 } else { BAD_ROWS })
        }
        StoreAction::Import { file } => {
            let report = import(&file, &global.state, wall_now(), &options).map_err(failed)?;
            Ok(print(&report, printer))
        }
        StoreAction::Compact => {
            let (before, after) = compact(&global.state, &options).map_err(failed)?;
            printer.note(format_args!("{before} -> {after} bytes"));
            Ok(0)
        }
    }
}

/// What a check found; the exit code that says it.
fn print(report: &Report, printer: &Printer) -> u8 {
    let finding = |finding: &Finding| json!({ "run": finding.run, "what": finding.what });
    if printer.is_json() {
        printer.json(&json!({
            "runs": report.runs,
            "records": report.rows,
            "events": report.events,
            "side_files": report.blobs,
            "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
            "findings_total": report.findings_total,
        }));
    } else {
        for finding in &report.findings {
            let run = finding.run.map_or_else(String::new, |run| format!("{run}: "));
            printer.data(format_args!("{run}{}", finding.what));
        }
        printer.data(format_args!(
            "{} runs, {} records, {} events, {} side files, {} findings",
            report.runs, report.rows, report.events, report.blobs, report.findings_total
        ));
    }
    if report.findings_total == 0 { 0 } else { BAD_ROWS }
}

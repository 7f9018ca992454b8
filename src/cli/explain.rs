//! `windrow explain`: what each code means.

use serde_json::json;

use crate::cli::error::CommandError;
use crate::cli::printer::Printer;
use crate::definition::suggest::did_you_mean;
use crate::failure::Code;
use crate::service::codes;

/// Every code that this program prints, sorted.
fn all() -> Vec<&'static Code> {
    let tables = [
        codes::ALL,
        crate::action::codes::ALL,
        crate::engine::codes::ALL,
        crate::evaluate::codes::ALL,
        crate::runner::codes::ALL,
        crate::definition::codes::ALL,
    ];
    let mut codes: Vec<&Code> = tables.into_iter().flatten().collect();
    codes.sort_unstable_by_key(|code| code.code);
    codes
}

/// What a code means.
pub(super) fn find(code: &str) -> Option<&'static Code> {
    all().into_iter().find(|known| known.code == code)
}

pub(super) fn explain(code: Option<&str>, printer: &Printer) -> Result<u8, CommandError> {
    let mut found = all();
    if let Some(wanted) = code {
        let hint = did_you_mean(wanted, found.iter().map(|code| code.code));
        let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
        found.retain(|code| code.code.eq_ignore_ascii_case(wanted));
        if found.is_empty() {
            let text = format!("there is no code `{wanted}`{hint} (`windrow explain` lists all of them)");
            return Err(CommandError::usage(codes::UNKNOWN_CODE, text));
        }
    }
    if printer.is_json() {
        let row = |code: &&Code| json!({ "code": code.code, "en": code.en, "zh": code.zh });
        printer.json(&found.iter().map(row).collect::<Vec<_>>());
        return Ok(0);
    }
    for code in found {
        printer.data(format_args!("{:<24} {}", code.code, printer.pick(code.en, code.zh)));
    }
    Ok(0)
}

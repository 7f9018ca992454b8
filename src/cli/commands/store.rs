//! `windrow store`.

use crate::cli::args::Global;
use crate::cli::args::StoreAction;
use crate::cli::error::CommandError;
use crate::cli::printer::Printer;
use crate::journal::export;
use crate::journal::sled::Options;
use crate::journal::store;
use crate::journal::verify;
use crate::time::wall_now;

pub(super) fn store(global: &Global, action: StoreAction, printer: &Printer) -> Result<u8, CommandError> {
    let options = Options::default();
    let failed = |error: store::Error| CommandError::unusable("store", error.to_string());
    match action {
        StoreAction::Check => {
            let report = verify::check(&global.state, &options).map_err(failed)?;
            let good = report.is_good();
            if printer.is_json() {
                printer.json(&report);
            } else {
                printer.data(&report);
            }
            Ok(if good { 0 } else { crate::cli::error::BAD_ROWS })
        }
        StoreAction::Export { file } => {
            let exported = export::export(&global.state, &file, &options).map_err(failed)?;
            printer.note(format_args!("{exported}"));
            Ok(0)
        }
        StoreAction::Import { file } => {
            let report = export::import(&file, &global.state, wall_now(), &options).map_err(failed)?;
            printer.note(format_args!("{report}"));
            Ok(if report.is_good() { 0 } else { crate::cli::error::BAD_ROWS })
        }
        StoreAction::Compact => {
            let (before, after) = export::compact(&global.state, &options).map_err(failed)?;
            printer.note(format_args!("{before} -> {after} bytes"));
            Ok(0)
        }
    }
}

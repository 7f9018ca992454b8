//! The one place that writes: data to stdout, everything else to stderr, without colour where nobody sees it.

use std::fmt::Display;
use std::io::IsTerminal;
use std::io::Write;

use serde::Serialize;

use crate::cli::args::Output;
use crate::cli::error::CommandError;
use crate::failure::Bilingual;
use crate::failure::Failure;

/// Writes for one command.
#[derive(Debug, Clone)]
pub struct Printer {
    output: Output,
    colour: bool,
    chinese: bool,
}

impl Printer {
    /// Looks at the environment once: `NO_COLOR`, `TERM`, and the language of `LC_ALL`, `LC_MESSAGES` or `LANG`.
    pub fn new(output: Output) -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let language = set("LC_ALL").or_else(|| set("LC_MESSAGES")).or_else(|| set("LANG"));
        Self {
            output,
            colour: set("NO_COLOR").is_none()
                && set("TERM").is_some_and(|terminal| terminal != "dumb")
                && std::io::stderr().is_terminal(),
            chinese: language.is_some_and(|language| language.starts_with("zh")),
        }
    }

    /// True if programs read the output.
    pub fn is_json(&self) -> bool {
        self.output == Output::Json
    }

    /// True if colours and moving lines can be seen.
    pub const fn has_colour(&self) -> bool {
        self.colour
    }

    /// True if the reader reads Chinese.
    pub const fn is_chinese(&self) -> bool {
        self.chinese
    }

    /// True if a person sits at both ends.
    pub fn is_interactive(&self) -> bool {
        !self.is_json() && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// The text in the reader's language.
    pub fn pick<'t>(&self, en: &'t str, zh: &'t str) -> &'t str {
        if self.chinese { zh } else { en }
    }

    /// The same for a text that may have no Chinese.
    pub fn text<'t>(&self, text: &'t Bilingual) -> &'t str {
        text.zh.as_deref().filter(|_| self.chinese).unwrap_or(&text.en)
    }

    /// The same for a text in a JSON view.
    pub fn json_text<'v>(&self, text: &'v serde_json::Value) -> &'v str {
        let zh = text["zh"].as_str().filter(|_| self.chinese);
        zh.or_else(|| text["en"].as_str()).or_else(|| text.as_str()).unwrap_or_default()
    }

    /// The text under `key`, or under `key_zh`, of a JSON view.
    pub fn json_pair<'v>(&self, view: &'v serde_json::Value, key: &str) -> &'v str {
        let zh = view[format!("{key}_zh")].as_str().filter(|_| self.chinese);
        zh.or_else(|| view[key].as_str()).unwrap_or_default()
    }

    /// A line of data.
    pub fn data(&self, line: impl Display) {
        // A reader that has gone away ends the output, not the run.
        writeln!(std::io::stdout().lock(), "{line}").ok();
    }

    /// Data for programs.
    pub fn json(&self, value: &impl Serialize) {
        if let Ok(text) = serde_json::to_string_pretty(value) {
            self.data(text);
        }
    }

    /// A line for people.
    pub fn note(&self, line: impl Display) {
        writeln!(std::io::stderr().lock(), "{line}").ok();
    }

    /// What went wrong: message, cause, remedy, and what the code means.
    pub fn failure(&self, error: &CommandError) {
        if self.is_json() {
            self.json(&serde_json::json!({ "error": error.failure }));
            return;
        }
        self.note(format_args!("{}: {}", self.pick("error", "错误"), self.text(&error.failure.text())));
        self.explain(&error.failure);
    }

    /// Cause and remedy of a failure, its code and what that means.
    pub fn explain(&self, failure: &Failure) {
        self.explanation(failure).iter().for_each(|line| self.note(line));
    }

    /// The same in lines.
    pub fn explanation(&self, failure: &Failure) -> Vec<String> {
        let about = [("cause", "原因", &failure.cause), ("remedy", "处置", &failure.remedy)];
        let known = about.into_iter().filter_map(|(en, zh, text)| Some((self.pick(en, zh), text.as_ref()?)));
        let mut lines: Vec<String> =
            known.map(|(what, text)| format!("  {what}: {}", self.text(text))).collect();
        lines.push(match crate::cli::explain::find(&failure.code) {
            Some(code) => format!("  {}: {}", code.code, self.pick(code.en, code.zh)),
            None => format!("  {}", failure.code),
        });
        lines
    }
}

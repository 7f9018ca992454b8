//! Known failures: what a message means, what to do about it, and which objects leave such messages (L14).

use std::sync::Arc;

use regex::Regex;
use serde::Serialize;
use serde_json::Value;
use serde_json::json;

use crate::definition::expr::Expr;
use crate::definition::expr::Scope;
use crate::definition::model::Target;
use crate::failure::Explanation;

/// All entries, the most important first.
#[derive(Debug, Default)]
pub struct Knowledge {
    entries: Vec<Entry>,
    relations: Vec<Relation>,
}

/// Objects whose trouble is that of another one: what it owns, what it is made of, what works for it.
#[derive(Debug, Clone)]
pub struct Relation {
    /// The kinds of the other one, as `Kind` or `Kind.group`; every kind if empty.
    pub of: Vec<String>,
    /// Where they are; sees the other one as `object`.
    pub target: Target,
    /// Which of them; sees the other one as `object` and each of them as `other`.
    pub filter: Option<Expr>,
    /// They are pods whose logs tell as well.
    pub logs: bool,
    /// Where it is written down.
    pub source: String,
}

impl Relation {
    /// True if it says something about an object of that apiVersion and kind.
    pub fn is_about(&self, api: &str, kind: &str) -> bool {
        let group = api.split_once('/').map_or("", |(group, _)| group);
        let fits = |of: &String| match of.split_once('.') {
            Some((wanted, of_group)) => wanted == kind && of_group == group,
            None => of == kind,
        };
        self.of.is_empty() || self.of.iter().any(fits)
    }
}

/// One known failure.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its name, unique over all files.
    pub name: String,
    /// What it is recognised by.
    pub signature: Signature,
    /// Why it happens, and what to do.
    pub explanation: Explanation,
    /// What it means for whoever waits.
    pub class: Class,
    /// Where several match, the highest wins.
    pub priority: i64,
    /// Where it is written down.
    pub source: String,
}

/// How an entry recognises evidence.
#[derive(Debug, Clone)]
pub enum Signature {
    /// The text matches somewhere.
    Regex(Regex),
    /// True for `evidence`, the text.
    Cel(Expr),
}

/// What a known failure means for whoever waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// It passes by itself.
    Wait,
    /// Trying again may help.
    Retryable,
    /// Waiting is useless.
    Permanent,
}

impl Class {
    /// The word in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::Retryable => "retryable",
            Self::Wait => "wait",
        }
    }
}

impl Knowledge {
    /// Sorts the entries by priority; equal ones keep their order.
    pub fn new(mut entries: Vec<Entry>, relations: Vec<Relation>) -> Self {
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.priority));
        Self { entries, relations }
    }

    /// Which objects tell about others.
    pub fn relations(&self) -> &[Relation] {
        &self.relations
    }

    /// The most important entry that recognises `evidence`: the text of a condition, an event or an error.
    pub fn matches(&self, evidence: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.matches(evidence))
    }

    /// The most telling of several texts, with the entry that recognises it: the worse class, then the priority counts.
    pub fn most_telling<'t>(&self, evidence: &'t [String]) -> Option<(&Entry, &'t str)> {
        let known = evidence.iter().filter_map(|text| Some((self.matches(text)?, text.as_str())));
        known.reduce(|best, next| if next.0.weight() > best.0.weight() { next } else { best })
    }

    /// The entry of that name.
    pub fn named(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Every entry, the most important first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

impl Entry {
    /// True if this is what `evidence` tells of. An expression without a value does not match.
    pub fn matches(&self, evidence: &str) -> bool {
        match &self.signature {
            Signature::Regex(regex) => regex.is_match(evidence),
            Signature::Cel(expr) => {
                let mut scope = Scope::default();
                scope.bind("evidence", Arc::new(Value::from(evidence)));
                expr.eval_bool(&scope).unwrap_or(false)
            }
        }
    }

    /// How much it tells, beside others: the worse class, then the priority counts.
    pub fn weight(&self) -> (Class, i64) {
        (self.class, self.priority)
    }

    /// What `known()` gives.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "cause": self.explanation.cause.en,
            "cause_zh": self.explanation.cause.zh,
            "remedy": self.explanation.remedy.en,
            "remedy_zh": self.explanation.remedy.zh,
            "class": self.class.as_str(),
            "source": self.source,
        })
    }
}

//! What is waited for, and what is watched meanwhile.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::definition::expr::Expr;
use crate::definition::model::Target;
use crate::definition::template::Template;
use crate::id::StepName;

/// What must become true after the action (L5).
#[derive(Debug, Clone)]
pub struct Wait {
    /// The object bound as `object`; the step's target if not set.
    pub target: Option<Target>,
    /// Further objects.
    pub reads: Vec<(String, Target)>,
    /// Named expressions.
    pub lets: BTreeMap<String, Expr>,
    /// Values whose changes are remembered.
    pub tracks: BTreeMap<String, Expr>,
    /// Numbers that rise while there is progress.
    pub progress: Vec<Expr>,
    /// How long without progress is a stall; a duration.
    pub stall_after: Option<Template>,
    /// A stall is a question to a person (true) or a failure (false).
    pub stall_asks: bool,
    /// First match wins. `until` and `fail_if` stand here as verdicts too.
    pub verdicts: Vec<Verdict>,
    /// The limit; a duration.
    pub timeout: Template,
}

/// One possible end of a wait (L6).
#[derive(Debug, Clone)]
pub struct Verdict {
    /// Its name: `until` and `fail_if` for the two short forms.
    pub name: String,
    /// When it applies.
    pub when: Expr,
    /// What follows.
    pub outcome: Outcome,
    /// How bad it is.
    pub severity: Severity,
    /// How long it must apply without a break; a duration.
    pub stable_for: Option<Template>,
    /// What follows if this still applies when time is up.
    pub at_timeout: Option<AtTimeout>,
    /// The entry of the knowledge files that explains it.
    pub known: Option<String>,
    /// A text template for people.
    pub message: Option<Template>,
    /// The same in Chinese.
    pub message_zh: Option<Template>,
}

/// What a verdict leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The wait is over, all is well.
    Succeed,
    /// The wait is over, the step failed.
    Fail,
    /// Not yet.
    Wait,
    /// A person decides.
    Ask,
    /// The action is repeated, within the step's attempts.
    Retry,
}

/// How bad a verdict is; the order is that of "worst".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good.
    Ok,
    /// Usable, with something left to do.
    Warn,
    /// Bad.
    Bad,
}

/// What follows a verdict that still says "wait" when time is up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AtTimeout {
    /// Accept it; with severity `warn` this is a debt.
    Succeed,
    /// Fail.
    Fail,
    /// Ask a person.
    Ask,
}

/// A condition that must hold from the success of one step until another starts (L2).
#[derive(Debug, Clone)]
pub struct Guard {
    /// Its place in the list, from 0.
    pub index: u16,
    /// What is watched.
    pub reads: Vec<(String, Target)>,
    /// Must be true.
    pub that: Expr,
    /// Begins when this step has succeeded.
    pub from: StepName,
    /// Ends when this step starts.
    pub to: StepName,
    /// A broken guard is a question to a person (true) or a failure (false).
    pub asks: bool,
    /// What is wrong when it is broken; a text template.
    pub message: Option<Template>,
    /// The same in Chinese.
    pub message_zh: Option<Template>,
}

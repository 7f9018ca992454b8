//! A workflow's own tests.

use std::collections::BTreeMap;

use crate::definition::model::Severity;

/// A test that a workflow carries (L15).
#[derive(Debug, Clone)]
pub struct Rehearsal {
    /// Its name.
    pub name: String,
    /// The inputs of the run.
    pub inputs: BTreeMap<String, serde_json::Value>,
    /// YAML of the objects that exist besides the default ones.
    pub fixture: Option<String>,
    /// Faults that are switched on.
    pub faults: Vec<String>,
    /// Faults that were there when the objects of the fixture were made, so that these are in trouble from the start.
    pub already: Vec<String>,
    /// Whether somebody gives the approvals that are asked for.
    pub approve: bool,
    /// What must come out.
    pub expect: Expectation,
}

/// What a rehearsal expects; what is not set is not looked at.
#[derive(Debug, Clone, Default)]
pub struct Expectation {
    /// The run's state.
    pub state: Option<String>,
    /// The run's verdict.
    pub verdict: Option<String>,
    /// The failure's code.
    pub code: Option<String>,
    /// The verdict's severity.
    pub severity: Option<Severity>,
    /// Objects that differ from the fixture by R5 afterwards, as `Kind namespace/name`.
    pub left: Option<Vec<String>>,
}

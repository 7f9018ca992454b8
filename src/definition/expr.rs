//! CEL: compile, evaluate.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::time::Timestamp;

/// A compiled expression.
#[derive(Clone)]
pub struct Expr {
    source: Arc<str>,
    references: Arc<BTreeSet<String>>,
}

impl std::fmt::Debug for Expr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.source)
    }
}

/// The names that expressions see, and what they mean.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Values by name.
    pub values: BTreeMap<String, Arc<Value>>,
    /// Expressions by name, evaluated where used (`let`).
    pub lets: BTreeMap<String, Expr>,
    /// What `now()` gives.
    pub now: Timestamp,
}

impl Expr {
    /// The text as written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The variables that it names.
    pub fn references(&self) -> &BTreeSet<String> {
        &self.references
    }
}

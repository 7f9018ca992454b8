//! What an expression sees.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sha2::Digest;
use sha2::Sha256;

use crate::definition::expr::Expr;
use crate::definition::knowledge::Knowledge;
use crate::digest::hex;
use crate::time::Timestamp;

/// The names that expressions see, and what they mean.
#[derive(Debug, Clone)]
pub struct Scope {
    /// Values by name.
    pub values: BTreeMap<String, Arc<Value>>,
    /// Expressions by name, evaluated where used and once per evaluation (`let`). A value of the same name wins.
    pub lets: BTreeMap<String, Expr>,
    /// What `now()` gives.
    pub now: Timestamp,
    /// How many times faster the clock runs than written durations say: `age()` is so many times longer (R4).
    pub speed: f64,
    /// What `name()` makes names of; without it that function fails.
    pub naming: Option<Naming>,
    /// What `known()` looks up; without it nothing is known.
    pub knowledge: Option<Arc<Knowledge>>,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            values: BTreeMap::new(),
            lets: BTreeMap::new(),
            now: Timestamp::default(),
            speed: 1.0,
            naming: None,
            knowledge: None,
        }
    }
}

impl Scope {
    /// Binds `name` to `value`.
    pub fn bind(&mut self, name: &str, value: impl Into<Arc<Value>>) {
        self.values.insert(name.to_owned(), value.into());
    }
}

/// Who gives a name to an object (C3).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Naming {
    /// The run's id as text.
    pub run: String,
    /// Path of the step, with that of its parents.
    pub step: String,
    /// Key of the item.
    pub item: Option<String>,
    /// The attempt, for steps that must have a new name each time.
    pub attempt: Option<u32>,
}

/// Longest name of a Kubernetes object that is also a label value.
const NAME_MAX: usize = 63;
/// Hexadecimal digits after the prefix.
const HASH_DIGITS: usize = 8;

/// The name that begins with `prefix` and is the same whenever the same step of the same run asks (C3). The prefix is
/// cut where the name would be longer than 63 characters.
pub fn object_name(prefix: &str, naming: &Naming) -> String {
    let mut hash = Sha256::new();
    for part in [Some(naming.run.as_str()), Some(naming.step.as_str()), naming.item.as_deref()] {
        // A missing part differs from an empty one, and no part runs into the next.
        let text = part.unwrap_or_default();
        hash.update([u8::from(part.is_some())]);
        hash.update(text.len().to_be_bytes());
        hash.update(text);
    }
    if let Some(attempt) = naming.attempt {
        hash.update(attempt.to_be_bytes());
    }
    let digits = hex(&hash.finalize()[..HASH_DIGITS / 2]);
    let room = NAME_MAX - HASH_DIGITS - 1;
    let prefix: String = prefix.chars().take(room).collect();
    format!("{}-{digits}", prefix.trim_end_matches(['-', '.']))
}

//! Names and identifiers. Each is a type of its own, so that a step name is never passed where a run is meant.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Crockford's base 32: no i, l, o, u, so that an id survives being read aloud.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Characters in the text form of a [`RunId`].
const RUN_ID_CHARS: usize = 26;

/// A text that is not an identifier of the wanted sort.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}: {rule}")]
pub struct ParseIdError {
    /// What was expected.
    pub what: &'static str,
    /// What was given.
    pub text: String,
    /// The rule that it breaks.
    pub rule: &'static str,
}

/// One execution of a workflow. Sorts by the time of its creation: 48 bits of milliseconds, then 80 random bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct RunId(u128);

impl RunId {
    /// Builds an id from its two parts; only the low 80 bits of `random` are used.
    pub const fn new(created_ms: u64, random: u128) -> Self {
        Self(((created_ms as u128) << 80) | (random & ((1 << 80) - 1)))
    }

    /// The id as a key: big endian, so that keys sort as ids do.
    pub const fn to_be_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The inverse of [`RunId::to_be_bytes`].
    pub const fn from_be_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// The last eight characters: enough for a person, and the part that differs between runs of one minute.
    pub fn short(self) -> String {
        self.to_string()[RUN_ID_CHARS - 8..].to_owned()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: String = (0..RUN_ID_CHARS)
            .rev()
            .map(|i| char::from(ALPHABET[(self.0 >> (5 * i) & 31) as usize]))
            .collect();
        f.write_str(&text)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for RunId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let error = |rule| ParseIdError { what: "run id", text: text.to_owned(), rule };
        if text.len() != RUN_ID_CHARS {
            return Err(error("it has 26 characters"));
        }
        let mut value: u128 = 0;
        for byte in text.bytes() {
            let digit = ALPHABET.iter().position(|c| *c == byte.to_ascii_lowercase());
            let digit = digit.ok_or_else(|| error("it consists of 0-9 and a-z without i, l, o, u"))?;
            if value >> 123 != 0 {
                return Err(error("it is at most 7zzzzzzzzzzzzzzzzzzzzzzzzz"));
            }
            value = value << 5 | digit as u128;
        }
        Ok(Self(value))
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for RunId {
    type Error = ParseIdError;

    fn try_from(text: String) -> Result<Self, ParseIdError> {
        text.parse()
    }
}

/// Longest workflow, step or input name: it must fit a label value and a field manager with two of them.
pub const NAME_CHARS_MAX: usize = 60;

/// True for what a workflow or step may be called: `[a-z][a-z0-9_-]*`, at most [`NAME_CHARS_MAX`] characters.
pub fn is_name(text: &str) -> bool {
    text.len() <= NAME_CHARS_MAX
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'_')
}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let rule = "a lower case letter, then at most 59 of a-z, 0-9, - and _";
                match is_name(text) {
                    true => Ok(Self(text.into())),
                    false => Err(ParseIdError { what: $what, text: text.to_owned(), rule }),
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = ParseIdError;

            fn try_from(text: String) -> Result<Self, ParseIdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name_type!(
    /// The name of a workflow: that of its file without `.toml`.
    WorkflowName,
    "workflow name"
);
name_type!(
    /// The name of a step, unique in its workflow; never an index.
    StepName,
    "step name"
);

/// Position of an event in its run's journal, from 1, without holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The position after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_survives_its_text_and_its_bytes_and_sorts_by_time() {
        let (early, late) = (RunId::new(1_700_000_000_000, u128::MAX), RunId::new(1_700_000_000_001, 0));
        for id in [early, late, RunId::new(0, 0), RunId::new((1 << 48) - 1, u128::MAX)] {
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(RunId::from_be_bytes(id.to_be_bytes()), id);
        }
        assert!(early < late && early.to_string() < late.to_string());
    }

    #[test]
    fn what_is_no_run_id_is_refused_with_the_rule() {
        for (text, rule) in [
            ("short", "26"),
            ("0123456789012345678901234u", "without"),
            ("80000000000000000000000000", "most"),
        ] {
            let error = text.parse::<RunId>().expect_err(text);
            assert!(error.rule.contains(rule), "{text}: {error}");
        }
    }

    #[test]
    fn names_are_lower_case_and_short() {
        assert!(is_name("vm-stop") && is_name("a_1"));
        let long = "a".repeat(NAME_CHARS_MAX + 1);
        for bad in ["", "1a", "-a", "Vm", "a b", "a.b", long.as_str()] {
            assert!(bad.parse::<StepName>().is_err(), "{bad}");
        }
    }
}

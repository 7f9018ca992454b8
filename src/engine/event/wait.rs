//! What a wait writes down.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::engine::event::Track;
use crate::failure::Bilingual;
use crate::time::Timestamp;

/// Durations of a wait, evaluated when it was armed, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WaitLimits {
    /// Without progress for so long is a stall.
    pub stall_after_ms: Option<u64>,
    /// For each verdict in order: how long it must apply without a break.
    pub stable_for_ms: Vec<Option<u64>>,
}

/// What a wait remembers; only what changed is set.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct WaitNote {
    /// `track.*`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tracks: BTreeMap<String, Track>,
    /// The numbers of `progress`; none where an expression has no value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Vec<Option<f64>>>,
    /// uid of each object seen, by name, for `gone.*`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub seen: BTreeMap<String, Arc<str>>,
    /// Why it is not over.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text_or_english")]
    pub reason: Option<Bilingual>,
    /// The verdict that applies, and how often in a row a confirmed read said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applies: Option<Applies>,
    /// The targets were lost from sight, or are in sight again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sight: Option<Sight>,
}

/// A text; journals of earlier programs have its English only.
fn text_or_english<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Bilingual>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        English(String),
        Both(Bilingual),
    }
    Ok(Option::<Written>::deserialize(deserializer)?.map(|written| match written {
        Written::English(en) => en.into(),
        Written::Both(text) => text,
    }))
}

/// Whether a wait sees its targets. Time out of sight counts for the deadline only (E7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sight {
    /// Nothing was read since then.
    Lost(Timestamp),
    /// They are read again.
    Regained,
}

/// A verdict that applies but must be stable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applies {
    /// Its position; none when no verdict applies any more.
    pub verdict: Option<u16>,
    /// Since when.
    pub since: Timestamp,
    /// Confirmed reads in a row.
    pub reads: u32,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_wait_is_about_is_read_as_earlier_programs_wrote_it() {
        let read = |written: Value| {
            let bytes = rmp_serde::to_vec_named(&written).expect("it is data");
            let note: WaitNote = rmp_serde::from_slice(&bytes).expect("it is a note");
            note.reason
        };
        assert_eq!(read(json!({ "reason": "not yet" })), Some("not yet".into()));
        let both = Bilingual::new("not yet", "尚未");
        assert_eq!(read(json!({ "reason": both })), Some(both));
        assert_eq!(read(json!({})), None);
    }
}

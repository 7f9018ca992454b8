//! The four kinds of patch, each a pure function from an object to an object.

mod apply;
mod json;
mod merge;
mod strategic;

use serde_json::Value;

pub(super) use self::apply::apply;
pub(super) use self::json::json;
pub(super) use self::merge::merge;
pub(super) use self::strategic::strategic;

/// A patch as it came in.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Patch {
    /// RFC 6902.
    Json(Value),
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' own merge, which knows how lists are keyed.
    Strategic(Value),
    /// Server-side apply.
    Apply {
        /// The manifest.
        manifest: Value,
        /// Take fields from other managers.
        force: bool,
    },
}

impl Patch {
    /// The document.
    pub(super) fn body(&self) -> &Value {
        match self {
            Self::Json(body) | Self::Merge(body) | Self::Strategic(body) => body,
            Self::Apply { manifest, .. } => manifest,
        }
    }
}

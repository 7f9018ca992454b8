//! The four kinds of patch, each a pure function from an object to an object.

mod apply;
mod json;
mod merge;
mod strategic;

use serde_json::Value;

pub use self::apply::apply;
pub use self::json::json;
pub use self::merge::merge;
pub use self::strategic::strategic;

/// A patch as it came in.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
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
    pub fn body(&self) -> &Value {
        match self {
            Self::Json(body) | Self::Merge(body) | Self::Strategic(body) => body,
            Self::Apply { manifest, .. } => manifest,
        }
    }
}

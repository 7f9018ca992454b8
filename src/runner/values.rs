//! Large values in side files, secrets hidden (S5, L11).

use std::sync::Arc;

use serde_json::Value;

use crate::action::secret::Secrets;
use crate::engine::event::Blob;
use crate::evaluate::Values;
use crate::failure::Failure;
use crate::journal::Store;
use crate::runner::codes;

/// A value up to this size stands in the event itself (S5).
const INLINE_BYTES_MAX: usize = 4 << 10;

/// Keeps large values in the store's side files.
pub(super) struct SideFiles {
    pub(super) store: Arc<dyn Store>,
    pub(super) secrets: Secrets,
}

impl Values for SideFiles {
    fn load(&self, blob: &Blob) -> Result<Arc<Value>, Failure> {
        let digest = match blob {
            Blob::Inline(value) => return Ok(value.clone()),
            Blob::Side(digest) => digest,
        };
        let lost = |error: &dyn std::error::Error| {
            Failure::permanent(codes::LOST_VALUE, format!("the value {digest} is lost: {error}"))
        };
        let bytes = self.store.blob(digest).map_err(|error| lost(&error))?;
        serde_json::from_slice(&bytes).map(Arc::new).map_err(|error| lost(&error))
    }

    fn keep(&self, value: Arc<Value>) -> Result<Blob, Failure> {
        let value = self.secrets.protect(&value);
        if is_small(&value) {
            return Ok(Blob::Inline(value));
        }
        let not_kept = |error: &dyn std::error::Error| {
            Failure::retryable(codes::NOT_KEPT, format!("a value could not be kept: {error}"))
        };
        let bytes = serde_json::to_vec(value.as_ref()).map_err(|error| not_kept(&error))?;
        if bytes.len() <= INLINE_BYTES_MAX {
            return Ok(Blob::Inline(value));
        }
        self.store.put_blob(&bytes).map(Blob::Side).map_err(|error| not_kept(&error))
    }
}

/// True for what is small without counting: most captures.
fn is_small(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => text.len() <= INLINE_BYTES_MAX,
        Value::Array(_) | Value::Object(_) => false,
    }
}

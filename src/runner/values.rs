//! Large values in side files, secrets in them sealed (S5, L11).

use std::sync::Arc;

use serde_json::Value;

use crate::runner::codes;
use crate::action::secret::Sealer;
use crate::engine::event::Blob;
use crate::evaluate::Values;
use crate::failure::Failure;
use crate::journal::Store;

/// A value up to this size stands in the event itself (S5).
const INLINE_BYTES_MAX: usize = 4 << 10;

/// Keeps large values in the store's side files.
pub(super) struct SideFiles {
    pub(super) store: Arc<dyn Store>,
    pub(super) sealer: Arc<Sealer>,
}

impl Values for SideFiles {
    fn load(&self, blob: &Blob) -> Result<Arc<Value>, Failure> {
        match blob {
            Blob::Inline(value) => self.sealer.open(value),
            Blob::Side(digest) => {
                let bytes = self.store.blob(digest).map_err(|error| lost(digest, &error.to_string()))?;
                let value = serde_json::from_slice(&bytes).map_err(|error| lost(digest, &error.to_string()))?;
                self.sealer.open(&Arc::new(value))
            }
        }
    }

    fn keep(&self, value: Arc<Value>) -> Result<Blob, Failure> {
        let sealed = self.sealer.seal(&value)?;
        if is_scalar(&sealed) {
            return Ok(Blob::Inline(sealed));
        }
        let bytes = serde_json::to_vec(&sealed).map_err(|error| Failure::permanent(codes::NOT_KEPT, error.to_string()))?;
        if bytes.len() <= INLINE_BYTES_MAX {
            return Ok(Blob::Inline(sealed));
        }
        let digest = self.store.put_blob(&bytes);
        digest.map(Blob::Side).map_err(|error| Failure::retryable(codes::NOT_KEPT, format!("a value could not be kept: {error}")))
    }
}

/// True for what is small without looking: most captures.
fn is_scalar(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => text.len() <= INLINE_BYTES_MAX,
        Value::Array(_) | Value::Object(_) => false,
    }
}

fn lost(digest: &str, error: &str) -> Failure {
    Failure::permanent(codes::LOST_VALUE, format!("the value {digest} is lost: {error}"))
}

//! temp
use crate::id::RunId;
use std::sync::Arc;
/// t
#[derive(Debug, Default)]
pub struct LockTable;
/// t
#[derive(Debug, thiserror::Error)]
#[error("held")]
pub struct Refusal;
impl LockTable {
    /// t
    pub fn request(
        &mut self,
        _id: RunId,
        _owner: RunId,
        _keys: &[Arc<str>],
        _at_once: bool,
    ) -> Result<bool, Refusal> {
        Ok(true)
    }
    /// t
    pub fn release(&mut self, _id: RunId) -> Vec<RunId> {
        vec![]
    }
}

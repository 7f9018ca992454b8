//! temp
/// t
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// r
    Retry,
    /// r
    Rollback,
}

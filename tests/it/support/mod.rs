//! What several integration tests share.

pub(crate) mod certificates;
pub(crate) mod controlplane;

//! Objects in trouble: which others belong to them, what the cluster says about all of these, and what is known of it.
//!
//! It needs no run. [`scene::look`] reads, [`finding::findings`] explains what was read.

pub mod finding;
pub mod scene;

pub use finding::Finding;
pub use finding::findings;
pub use scene::Limits;
pub use scene::Scene;
pub use scene::Seen;
pub use scene::look;

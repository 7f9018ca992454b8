//! From TOML to a validated [`Workflow`].

pub mod expr;
pub mod model;
pub mod template;

pub use model::Workflow;

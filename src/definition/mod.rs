//! From TOML to a validated [`Workflow`].

pub mod actions;
pub mod codes;
pub mod diagnostic;
pub mod duration;
pub mod expr;
pub mod graph;
pub mod inputs;
pub mod keys;
pub mod knowledge;
mod library;
pub mod model;
pub mod node;
pub mod normal;
mod read;
mod report;
pub mod schema;
pub mod shape;
mod shipped;
pub mod suggest;
pub mod template;
mod validate;

pub use library::Library;
pub use model::Workflow;

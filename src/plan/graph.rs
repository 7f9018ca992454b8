//! Order and reachability of a workflow's steps.

pub use crate::definition::graph::Graph;

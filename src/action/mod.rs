//! What steps do to the outside: Kubernetes, HTTP, TCP, processes.

pub mod args;
pub mod codes;
pub mod executor;
pub mod k8s;
pub mod naming;
pub mod request;

//! What steps do to the outside: Kubernetes, HTTP, TCP, processes.

pub mod request;

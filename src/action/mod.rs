//! What steps do to the outside: Kubernetes, HTTP, TCP, processes.

pub mod args;
pub mod codes;
pub mod evidence;
pub mod executor;
pub mod k8s;
pub mod naming;
pub mod net;
pub mod process;
pub mod proof;
pub mod request;
pub mod secret;

pub use executor::Executor;

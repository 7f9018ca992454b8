//! The one integration-test binary: everything here runs against the library or the real `windrow` binary.
#![expect(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]
#![expect(clippy::print_stderr, reason = "seeds, and what was left out, must be seen")]

mod cli;
mod conformance;
mod crash;
mod deadlines;
mod docs;
mod evidence;
mod harness;
mod hosting;
mod knowledge;
mod language;
mod layering;
mod observe;
mod paths;
mod plan_writes;
mod reality;
mod rehearsals;
mod restores;
mod sim_faults;
mod sim_kubectl;
mod sim_kubevirt;
mod store;
mod support;
mod workflows;

//! How commands fail, and with which exit code (design.md section 6).

use std::path::Path;

use crate::failure::Bilingual;
use crate::failure::Failure;
use crate::journal::store;
use crate::service::codes;
use crate::service::operation::Problem;
use crate::service::operation::ProblemKind;

/// A command that could not do what it should.
#[derive(Debug, Clone)]
pub struct CommandError {
    /// What sort.
    pub kind: ProblemKind,
    /// What, and what to do next.
    pub failure: Failure,
}

impl CommandError {
    /// The caller asked for something that makes no sense.
    pub fn usage(code: &str, message: impl Into<Bilingual>) -> Self {
        Self { kind: ProblemKind::Usage, failure: Failure::permanent(code, message) }
    }

    /// The store, the cluster or the machine cannot be used.
    pub fn unusable(code: &str, message: impl Into<Bilingual>) -> Self {
        Self { kind: ProblemKind::Unusable, failure: Failure::permanent(code, message) }
    }

    /// The store says no.
    pub fn store(error: &store::Error, state: &Path) -> Self {
        let store::Error::InUse { pid } = error else {
            return Self::unusable(codes::STORE, error.to_string());
        };
        let state = state.display();
        let text = Bilingual::new(
            format!(
                "the state directory {state} is in use by process {pid}, or still being opened by it: try again"
            ),
            format!("状态目录 {state} 正被进程 {pid} 使用，或仍在打开中：请稍后重试"),
        );
        Self::unusable(codes::STORE_IN_USE, text)
    }

    /// Nothing was ever kept in `state`.
    pub fn no_store(state: &Path) -> Self {
        let state = state.display();
        let text = Bilingual::new(
            format!("there is no store in {state}: is --state right?"),
            format!("{state} 中没有存储：--state 是否正确？"),
        );
        Self::unusable(codes::STORE, text)
    }

    /// Windrow itself is wrong.
    pub fn bug() -> Self {
        Self::unusable(
            codes::BUG,
            "Windrow has stopped on a mistake of its own; what was acknowledged is durable",
        )
    }

    /// The exit code.
    pub const fn code(&self) -> u8 {
        match self.kind {
            ProblemKind::Usage => 2,
            ProblemKind::Refused => 3,
            ProblemKind::Unusable => 6,
        }
    }
}

impl From<Problem> for CommandError {
    fn from(problem: Problem) -> Self {
        Self { kind: problem.kind, failure: problem.failure }
    }
}

/// The exit code of a run as it is shown: that of its end, or of its waiting for a person.
pub fn code_of_run(view: &serde_json::Value) -> u8 {
    let has = |key: &str| view[key].as_array().is_some_and(|list| !list.is_empty());
    match view["state"].as_str().unwrap_or_default() {
        "Succeeded" if has("warnings") || has("debts") => WITH_WARNINGS,
        "Succeeded" => 0,
        "Failed" => 1,
        "RolledBack" => 4,
        "Cancelled" => 9,
        _ => 5,
    }
}

/// A run that succeeded with warnings or debts, a diagnosis that found nothing that needs somebody.
pub const WITH_WARNINGS: u8 = 7;
/// A run that was left to go on later.
pub const PARKED: u8 = 130;
/// A check that found something.
pub const BAD_ROWS: u8 = 8;

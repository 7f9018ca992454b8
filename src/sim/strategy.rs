//! The run strategy of a virtual machine, with its deprecated alias `running`.

use serde_json::Value;

use crate::sim::object::text;

/// When a VM runs (domain.md §1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Whenever it does not run.
    Always,
    /// Never.
    Halted,
    /// When asked to.
    Manual,
    /// When asked to, and again after a failure.
    RerunOnFailure,
    /// Once, until it ends by itself.
    Once,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Always, Self::Halted, Self::Manual, Self::RerunOnFailure, Self::Once];

    /// The word in the spec.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::Halted => "Halted",
            Self::Manual => "Manual",
            Self::RerunOnFailure => "RerunOnFailure",
            Self::Once => "Once",
        }
    }

    /// The strategy with this name. `WaitAsReceiver` is behind a gate that Harvester leaves shut (domain.md §1.1).
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == name)
    }

    /// What a VM asks for: `spec.runStrategy`, or `spec.running` as its alias. `None` if it has neither or an unknown one.
    pub fn of(vm: &Value) -> Option<Self> {
        match vm.pointer("/spec/running").and_then(Value::as_bool) {
            Some(true) => Some(Self::Always),
            Some(false) => Some(Self::Halted),
            None => Self::named(text(vm, "/spec/runStrategy")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_old_field_is_an_alias() {
        for (spec, expected) in [
            (json!({ "running": true }), Some(Strategy::Always)),
            (json!({ "running": false }), Some(Strategy::Halted)),
            (json!({ "running": null, "runStrategy": "Manual" }), Some(Strategy::Manual)),
            (json!({ "runStrategy": "Stopped" }), None),
            (json!({}), None),
        ] {
            assert_eq!(Strategy::of(&json!({ "spec": spec })), expected, "{spec}");
        }
        for strategy in Strategy::ALL {
            assert_eq!(Strategy::named(strategy.name()), Some(strategy));
        }
    }
}

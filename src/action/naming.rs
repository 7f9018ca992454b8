//! How Windrow signs what it writes (C2, C3, C4).

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::action::request::Origin;

/// The annotation that names the attempt that wrote an object last.
pub const LAST_WRITE: &str = "windrow.io/last-write";
/// The API server's limit for a field manager.
const MANAGER_CHARS_MAX: usize = 128;
/// The limit of a DNS label, which is that of most names.
const NAME_CHARS_MAX: usize = 63;

impl Origin {
    /// The step without item and undo entry.
    fn step(&self) -> &str {
        self.unit.split(['[', '/']).next().unwrap_or_default()
    }

    /// The field manager: `windrow-<workflow>-<step>`.
    pub fn field_manager(&self) -> String {
        let mut manager = format!("windrow-{}-{}", self.workflow, self.step());
        manager.truncate(manager.floor_char_boundary(MANAGER_CHARS_MAX));
        manager
    }

    /// Run and unit: what an object made by any attempt of this unit begins with in [`LAST_WRITE`].
    fn unit_mark(&self) -> String {
        format!("{}/{}#", self.run, self.unit)
    }

    /// The value of [`LAST_WRITE`] for this attempt.
    pub fn last_write(&self) -> String {
        format!("{}{}", self.unit_mark(), self.attempt)
    }

    /// The object was last written by this attempt.
    pub fn wrote(&self, object: &Value) -> bool {
        last_writer(object) == Some(&self.last_write())
    }

    /// The object was last written by some attempt of this unit.
    pub fn wrote_in_any_attempt(&self, object: &Value) -> bool {
        let attempt = last_writer(object).and_then(|mark| mark.strip_prefix(&self.unit_mark()));
        attempt.is_some_and(|attempt| attempt.parse::<u32>().is_ok())
    }

    /// The name of an object that this unit creates: the prefix and a hash of run and unit, and of the attempt if
    /// each attempt makes an object of its own (C3). Too long a prefix is cut.
    pub fn object_name(&self, prefix: &str, per_attempt: bool) -> String {
        let mut hash = Sha256::new();
        hash.update(self.unit_mark());
        if per_attempt {
            hash.update(self.attempt.to_string());
        }
        let hash = hash.finalize();
        let short = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
        let room = prefix.floor_char_boundary(NAME_CHARS_MAX - "-01234567".len());
        format!("{}-{short:08x}", prefix[..room].trim_end_matches(['-', '.']))
    }
}

/// The attempt that wrote the object last, if it was Windrow's.
pub fn last_writer(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(LAST_WRITE)?.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn origin(unit: &str, attempt: u32) -> Origin {
        Origin { run: "01run".into(), workflow: "vm-stop".into(), unit: unit.into(), attempt }
    }

    #[test]
    fn the_field_manager_names_workflow_and_step_only_and_is_short_enough() {
        assert_eq!(origin("halt[vm-1]/undo.0", 2).field_manager(), "windrow-vm-stop-halt");
        let long = Origin { workflow: "w".repeat(60), ..origin(&"s".repeat(60), 1) };
        assert_eq!(long.field_manager().len(), MANAGER_CHARS_MAX);
    }

    #[test]
    fn an_object_is_recognised_by_attempt_and_by_unit() {
        let object = json!({"metadata": {"annotations": {LAST_WRITE: "01run/halt[a]#2"}}});
        assert!(origin("halt[a]", 2).wrote(&object));
        assert!(!origin("halt[a]", 1).wrote(&object) && origin("halt[a]", 1).wrote_in_any_attempt(&object));
        assert!(!origin("halt", 2).wrote_in_any_attempt(&object));
        assert!(!origin("halt", 2).wrote_in_any_attempt(&json!({})));
    }

    #[test]
    fn created_names_are_fixed_by_run_and_unit_and_fit_a_label() {
        let name = origin("snap", 1).object_name("web", false);
        assert_eq!(name, origin("snap", 2).object_name("web", false));
        assert_ne!(name, origin("snap[b]", 1).object_name("web", false));
        assert_ne!(origin("snap", 1).object_name("web", true), origin("snap", 2).object_name("web", true));
        assert_eq!(origin("snap", 1).object_name(&"x".repeat(80), false).len(), NAME_CHARS_MAX);
        assert!(name.starts_with("web-") && name.len() == "web-".len() + 8);
    }
}

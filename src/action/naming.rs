//! How Windrow signs what it writes (C2, C4).

use serde_json::Value;

use crate::action::request::Origin;

/// The annotation that names the attempt that wrote an object last.
pub const LAST_WRITE: &str = "windrow.io/last-write";
/// The API server's limit for a field manager.
const MANAGER_CHARS_MAX: usize = 128;

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
}

//! Carrying out what controllers and subresources of the platform want.

use serde_json::{Value, json};

use crate::sim::delete::DeleteOptions;
use crate::sim::events::Said;
use crate::sim::failure::Failure;
use crate::sim::kinds;
use crate::sim::meta;
use crate::sim::parts::Part;
use crate::sim::patch::Patch;
use crate::sim::registry::Caller;
use crate::sim::registry::Registry;
use crate::sim::world::Key;
use crate::sim::world::Write;

impl Registry {
    /// Carries out a write of a controller or of a subresource. What it is about may be gone: then nothing happens.
    pub(super) fn carry_out(&mut self, write: &Write, caller: &Caller) -> Result<(), Failure> {
        let done = match write {
            Write::Create(resource, object) => {
                let kind = kinds::of(*resource).ok_or_else(Failure::no_resource)?;
                let namespace = meta::namespace(object).to_owned();
                self.create(kind, &namespace, object.clone(), caller).map(drop)
            }
            Write::Patch(key, patch) => self.merge(key, Part::Main, patch.clone(), caller),
            Write::Status(key, status) => {
                let split = kinds::of(key.resource).is_some_and(|kind| kind.status);
                let part = if split { Part::Status } else { Part::Main };
                self.merge(key, part, json!({"status": status}), caller)
            }
            Write::Delete(key) => self.remove(key, &DeleteOptions::default(), caller),
            Write::DeleteNow(key) => {
                let now = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
                self.remove(key, &now, caller)
            }
            Write::Event { about, kind, reason, message, from } => {
                self.say(&Said { about, kind, reason, message, from }, caller)
            }
        };
        match done {
            Err(failure) if matches!(failure.reason, "NotFound" | "AlreadyExists") => Ok(()),
            done => done,
        }
    }

    fn merge(&mut self, key: &Key, part: Part, patch: Value, caller: &Caller) -> Result<(), Failure> {
        let kind = kinds::of(key.resource).ok_or_else(Failure::no_resource)?;
        self.patch(kind, key, part, &Patch::Merge(patch), caller).map(drop)
    }

    fn remove(&mut self, key: &Key, options: &DeleteOptions, caller: &Caller) -> Result<(), Failure> {
        let kind = kinds::of(key.resource).ok_or_else(Failure::no_resource)?;
        self.delete(kind, key, options, caller).map(drop)
    }
}

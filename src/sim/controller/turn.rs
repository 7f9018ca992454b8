//! One turn of a controller: collects what it wants, leaves out what would change nothing, and knows the pace.

use std::time::Duration;

use serde_json::Value;

use crate::sim::object::would_change;
use crate::sim::world::Context;
use crate::sim::world::Fault;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;
use crate::sim::world::Resource;
use crate::sim::world::Write;
use crate::time::Timestamp;
use crate::time::shorten;

/// What a controller has decided so far in this turn.
pub(super) struct Turn<'a> {
    /// The circumstances.
    pub(super) context: &'a Context<'a>,
    /// The component that events come from.
    from: &'static str,
    done: Reconciled,
}

impl<'a> Turn<'a> {
    pub(super) fn new(context: &'a Context<'a>, from: &'static str) -> Self {
        Self { context, from, done: Reconciled::default() }
    }

    pub(super) fn end(self) -> Reconciled {
        self.done
    }

    pub(super) fn now(&self) -> Timestamp {
        self.context.now
    }

    pub(super) fn fault(&self, fault: Fault) -> bool {
        self.context.faults.contains(&fault)
    }

    /// True once `duration` at the cluster's pace has passed since `since`; until then the turn is taken again then.
    pub(super) fn passed(&mut self, since: Timestamp, duration: Duration) -> bool {
        let due = since + shorten(duration, self.context.speed);
        if due <= self.context.now {
            return true;
        }
        self.again_at(due);
        false
    }

    /// Takes the turn again after `duration` at the cluster's pace, though nothing may have changed.
    pub(super) fn again_after(&mut self, duration: Duration) {
        self.again_at(self.context.now + shorten(duration, self.context.speed));
    }

    fn again_at(&mut self, at: Timestamp) {
        self.done.again_at = Some(self.done.again_at.map_or(at, |before| before.min(at)));
    }

    pub(super) fn status(&mut self, key: &Key, object: &Value, status: Value) {
        if would_change(&object["status"], &status) {
            self.done.writes.push(Write::Status(key.clone(), status));
        }
    }

    pub(super) fn patch(&mut self, key: &Key, object: &Value, patch: Value) {
        if would_change(object, &patch) {
            self.done.writes.push(Write::Patch(key.clone(), patch));
        }
    }

    pub(super) fn create(&mut self, resource: Resource, object: Value) {
        self.done.writes.push(Write::Create(resource, object));
    }

    pub(super) fn delete(&mut self, key: &Key) {
        self.done.writes.push(Write::Delete(key.clone()));
    }

    pub(super) fn delete_now(&mut self, key: &Key) {
        self.done.writes.push(Write::DeleteNow(key.clone()));
    }

    /// What a subresource answers.
    pub(super) fn add(&mut self, writes: Vec<Write>) {
        self.done.writes.extend(writes);
    }

    pub(super) fn event(&mut self, about: &Key, kind: &'static str, reason: &str, message: &str) {
        self.done.writes.push(Write::Event {
            about: about.clone(),
            kind,
            reason: reason.to_owned(),
            message: message.to_owned(),
            from: self.from,
        });
    }
}

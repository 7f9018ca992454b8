//! The platform's controllers for an API server that is not ours: they see a copy of its objects, and what they want
//! comes out as requests to it. There is no I/O here: whoever holds a [`Crew`] tells it what the server has and sends what
//! it asks for.

mod copy;
mod found;
mod wish;

use std::collections::BTreeMap;
use std::time::Duration;

use http::Request;
use serde_json::Value;

use self::copy::Copy;
use self::wish::Writer;
use crate::sim::agenda::Agenda;
use crate::sim::agenda::Task;
use crate::sim::drive::RETRY;
use crate::sim::harvester::harvester;
use crate::sim::kinds;
use crate::sim::kinds::DEFINITIONS;
use crate::sim::kinds::KINDS;
use crate::sim::object::key_of;
use crate::sim::object::uid;
use crate::sim::world::Call;
use crate::sim::world::Context;
use crate::sim::world::Fault;
use crate::sim::world::Key;
use crate::sim::world::Platform;
use crate::sim::world::Refusal;
use crate::time::Timestamp;
use crate::time::shorten;

pub use self::found::Foundation;

/// A kind whose objects the controllers want to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// The group; empty for the core group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The name in `kind`.
    pub kind: &'static str,
    /// The plural, as it stands in a URL.
    pub plural: &'static str,
}

/// What a controller wants after one look at one object.
#[derive(Debug)]
pub struct Turn {
    /// Which controller it is, for messages.
    pub controller: &'static str,
    /// Requests to the API server, in order. A 404, and a 409 that says `AlreadyExists`, are fine.
    pub requests: Vec<Request<Vec<u8>>>,
    task: Task,
}

/// The controllers, what they have seen, and what they are to look at.
pub struct Crew {
    platform: Platform,
    agenda: Agenda,
    copy: Copy,
    faults: Vec<Fault>,
    speed: f64,
    /// How often each event was said.
    said: BTreeMap<String, u64>,
}

impl Crew {
    /// The controllers of Harvester. Durations are shortened by `speed`.
    pub fn new(faults: Vec<Fault>, speed: f64) -> Self {
        let platform = harvester();
        let agenda = Agenda::new(platform.controllers.clone());
        Self { platform, agenda, copy: Copy::default(), faults, speed, said: BTreeMap::new() }
    }

    /// What they want to see. Definitions of kinds are not among it: they come from whoever set up the server.
    pub fn watched() -> impl Iterator<Item = Watched> {
        KINDS.iter().filter(|kind| !kind.is_view() && kind.resource != DEFINITIONS).map(|kind| Watched {
            group: kind.resource.group,
            version: kind.versions[0],
            kind: kind.kind,
            plural: kind.resource.plural,
        })
    }

    /// Takes in an object as the server has it. One that is older than what is known changes nothing.
    pub fn saw(&mut self, object: Value, now: Timestamp) {
        let Some(key) = key_in(&object) else { return };
        if let Some(object) = self.copy.put(&key, object) {
            self.agenda.tell(&key, &object, now, self.speed);
        }
    }

    /// Takes in that an object is gone; `object` is its last known state.
    pub fn lost(&mut self, object: &Value, now: Timestamp) {
        let Some(key) = key_in(object) else { return };
        if let Some(last) = self.copy.remove(&key, uid(object)) {
            self.agenda.tell(&key, &last, now, self.speed);
        }
    }

    /// What a controller wants, if one has a task that is due.
    pub fn turn(&mut self, now: Timestamp) -> Option<Turn> {
        let (task, controller) = self.agenda.take(now)?;
        let context = Context { view: &self.copy, now, speed: self.speed, faults: &self.faults };
        let reconciled = controller.reconcile(&context, &task.1);
        let mut writer = Writer { copy: &self.copy, manager: controller.name(), now, said: &mut self.said };
        let requests = reconciled.writes.iter().flat_map(|write| writer.requests(write)).collect();
        if let Some(at) = reconciled.again_at {
            self.agenda.plan(task.clone(), at.max(now + Duration::from_millis(1)));
        }
        Some(Turn { controller: controller.name(), requests, task })
    }

    /// One of a turn's requests was refused: the controller tries again later.
    pub fn failed(&mut self, turn: &Turn, now: Timestamp) {
        self.agenda.plan(turn.task.clone(), now + shorten(RETRY, self.speed));
    }

    /// When the next task is due.
    pub fn next(&self) -> Option<Timestamp> {
        self.agenda.next()
    }

    /// True if the controllers have reacted to everything that they were told.
    pub fn is_settled(&self) -> bool {
        self.agenda.is_settled()
    }

    /// Serves a request to `subresource` (`start`, `stop`, …) of an object of `kubevirt.io`: what it changes.
    ///
    /// # Errors
    /// The refusal, as KubeVirt words it.
    pub fn call(
        &mut self,
        plural: &str,
        namespace: &str,
        name: &str,
        subresource: &str,
        body: &Value,
        now: Timestamp,
    ) -> Result<Vec<Request<Vec<u8>>>, Refusal> {
        let kind = kinds::by_plural("kubevirt.io", "v1", plural).ok_or_else(|| {
            let message = "the server could not find the requested resource".to_owned();
            Refusal { code: 404, reason: "NotFound", message }
        })?;
        let key = &Key::new(kind.resource, namespace, name);
        let (view, faults) = (&self.copy, self.faults.as_slice());
        let answer = (self.platform.subresource)(&Call { view, key, name: subresource, body, now, faults })?;
        let mut writer = Writer { copy: &self.copy, manager: "virt-api", now, said: &mut self.said };
        Ok(answer.writes.iter().flat_map(|write| writer.requests(write)).collect())
    }

    /// Every object that is known.
    pub fn objects(&self) -> Vec<Value> {
        self.copy.all().cloned().collect()
    }
}

/// The key of an object of a kind that the controllers know.
fn key_in(object: &Value) -> Option<Key> {
    let kind = kinds::by_kind(object["apiVersion"].as_str()?, object["kind"].as_str()?)?;
    Some(key_of(kind.stored, object))
}

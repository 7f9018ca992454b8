//! A store without a server: just enough of an API server to let the controllers run over objects. The contents of a
//! new cluster get their past here, and the controllers are tested on it.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::admission;
use crate::sim::controller;
use crate::sim::kinds::PODS;
use crate::sim::object::deleting;
use crate::sim::object::items;
use crate::sim::object::key_of;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::world::Admission;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Fault;
use crate::sim::world::Key;
use crate::sim::world::Operation;
use crate::sim::world::Resource;
use crate::sim::world::View;
use crate::sim::world::Write;
use crate::time::Timestamp;
use crate::time::shorten;

/// A controller's number and the object that it is to look at.
type Task = (usize, Key);

/// Objects, a clock and the controllers.
pub(in crate::sim) struct Stage {
    objects: Objects,
    /// The time on the stage.
    pub(in crate::sim) now: Timestamp,
    /// The faults that are switched on.
    pub(in crate::sim) faults: Vec<Fault>,
    /// How many times shorter durations are.
    pub(in crate::sim) speed: f64,
    /// The events so far: about whom, reason, message.
    pub(in crate::sim) events: Vec<(Key, String, String)>,
    /// The messages of writes that admission refused.
    pub(in crate::sim) refusals: Vec<String>,
    controllers: Vec<Arc<dyn Controller>>,
    planned: BTreeMap<Task, Timestamp>,
    due: BTreeSet<(Timestamp, Task)>,
    made: u64,
    /// Objects that admission refuses: whoever takes the stage over has to say so.
    refused: Vec<Value>,
}

/// The objects with the order in which they were made.
#[derive(Default)]
struct Objects(BTreeMap<Key, (u64, Arc<Value>)>);

impl View for Objects {
    fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.0.get(key).map(|(_, object)| object.clone())
    }

    fn list(&self, resource: Resource, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let wanted =
            |key: &Key| key.resource == resource && namespace.is_none_or(|space| space == &*key.namespace);
        let from = self.0.range(Key::new(resource, namespace.unwrap_or_default(), "")..);
        from.take_while(|(key, _)| wanted(key)).map(|(_, (_, object))| object.clone()).collect()
    }
}

impl Stage {
    /// An empty stage.
    pub(in crate::sim) fn new(now: Timestamp) -> Self {
        Self {
            objects: Objects::default(),
            now,
            faults: vec![],
            speed: 1.0,
            events: vec![],
            refusals: vec![],
            controllers: controller::all(),
            planned: BTreeMap::new(),
            due: BTreeSet::new(),
            made: 0,
            refused: vec![],
        }
    }

    /// All objects in the order in which they were made.
    pub(in crate::sim) fn into_objects(self) -> Vec<Value> {
        let mut objects: Vec<(u64, Arc<Value>)> = self.objects.0.into_values().collect();
        objects.sort_by_key(|(made, _)| *made);
        objects.into_iter().map(|(_, object)| Arc::unwrap_or_clone(object)).chain(self.refused).collect()
    }

    /// Puts an object on the stage, in the place of one of the same name.
    pub(in crate::sim) fn found(&mut self, resource: Resource, object: &Value, manager: &str) {
        let key = key_of(resource, object);
        self.remove(&key);
        self.create(resource, object.clone(), manager);
        if self.objects.get(&key).is_none() {
            self.refused.push(object.clone());
        }
    }

    /// Lets the controllers work for a while.
    pub(in crate::sim) fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some((at, _)) = self.due.first().filter(|(at, _)| *at <= end) {
            self.now = self.now.max(*at);
            if let Some((_, task)) = self.due.pop_first() {
                self.planned.remove(&task);
                self.turn(task.0, &task.1);
            }
        }
        self.now = end;
    }

    fn turn(&mut self, number: usize, key: &Key) {
        let controller = self.controllers[number].clone();
        let context = Context { view: &self.objects, now: self.now, speed: self.speed, faults: &self.faults };
        let reconciled = controller.reconcile(&context, key);
        for write in reconciled.writes {
            self.write(write, controller.name());
        }
        if let Some(at) = reconciled.again_at {
            self.plan(at.max(self.now + Duration::from_millis(1)), (number, key.clone()));
        }
    }

    /// Plans a task; an earlier plan for it stands.
    fn plan(&mut self, at: Timestamp, task: Task) {
        match self.planned.get(&task).copied() {
            Some(earlier) if earlier <= at => return,
            Some(later) => drop(self.due.remove(&(later, task.clone()))),
            None => {}
        }
        self.planned.insert(task.clone(), at);
        self.due.insert((at, task));
    }

    /// Carries out a write as if `manager` had sent it.
    pub(in crate::sim) fn write(&mut self, write: Write, manager: &str) {
        match write {
            Write::Create(resource, object) => self.create(resource, object, manager),
            Write::Patch(key, patch) => self.patch(&key, &patch, manager),
            Write::Status(key, status) => {
                let Some(old) = self.objects.get(&key) else { return };
                let mut new = (*old).clone();
                merge(&mut new, &json!({ "status": status }));
                self.store(&key, new);
            }
            Write::Delete(key) => self.delete(&key, true, manager),
            Write::DeleteNow(key) => self.delete(&key, false, manager),
            Write::Event { about, reason, message, .. } => self.events.push((about, reason, message)),
        }
    }

    fn create(&mut self, resource: Resource, mut object: Value, manager: &str) {
        let key = key_of(resource, &object);
        if self.objects.get(&key).is_some() {
            return;
        }
        self.made += 1;
        let metadata = &mut object["metadata"];
        if metadata["uid"].is_null() {
            metadata["uid"] = format!("{:08x}-5eed-4000-8000-{:012x}", self.made, self.made).into();
        }
        metadata["creationTimestamp"] = self.now.to_string().into();
        metadata["generation"] = 1.into();
        if let Some(object) = self.admit(&key, None, object, manager) {
            self.store(&key, object);
        }
    }

    fn patch(&mut self, key: &Key, patch: &Value, manager: &str) {
        let Some(old) = self.objects.get(key) else { return };
        let mut new = (*old).clone();
        merge(&mut new, patch);
        if let Some(mut new) = self.admit(key, Some(&old), new, manager) {
            if new["spec"] != old["spec"] {
                new["metadata"]["generation"] =
                    (old["metadata"]["generation"].as_i64().unwrap_or(0) + 1).into();
            }
            self.store(key, new);
        }
    }

    fn admit(&mut self, key: &Key, old: Option<&Value>, mut new: Value, manager: &str) -> Option<Value> {
        let view = &self.objects;
        let admission = Admission { view, key, old, subresource: "", manager, faults: &self.faults };
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        admission::mutate(&admission, &mut new);
        match admission::validate(&admission, &new, operation) {
            Ok(()) => Some(new),
            Err(refusal) => {
                self.refusals.push(refusal.message);
                None
            }
        }
    }

    fn delete(&mut self, key: &Key, graceful: bool, manager: &str) {
        let Some(old) = self.objects.get(key) else { return };
        let admission = Admission {
            view: &self.objects,
            key,
            old: Some(&old),
            subresource: "",
            manager,
            faults: &self.faults,
        };
        if let Err(refusal) = admission::validate(&admission, &old, Operation::Delete) {
            return self.refusals.push(refusal.message);
        }
        let bound = key.resource == PODS && !text(&old, "/spec/nodeName").is_empty();
        let grace = old.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_u64).unwrap_or(30);
        let grace = if graceful && bound { grace } else { 0 };
        if items(&old, "/metadata/finalizers").is_empty() && grace == 0 {
            return self.remove(key);
        }
        if !deleting(&old) {
            let mut new = (*old).clone();
            new["metadata"]["deletionTimestamp"] = (self.now + Duration::from_secs(grace)).to_string().into();
            new["metadata"]["deletionGracePeriodSeconds"] = grace.into();
            self.store(key, new);
        }
    }

    fn store(&mut self, key: &Key, object: Value) {
        let waits_for_kubelet = key.resource == PODS
            && object["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0) > 0;
        if deleting(&object) && items(&object, "/metadata/finalizers").is_empty() && !waits_for_kubelet {
            return self.remove(key);
        }
        if self.objects.get(key).is_some_and(|old| *old == object) {
            return;
        }
        let made = self.objects.0.get(key).map_or(self.made, |(made, _)| *made);
        let object = Arc::new(object);
        self.objects.0.insert(key.clone(), (made, object.clone()));
        self.tell(key, &object);
    }

    /// Removes an object and, as the garbage collector does, what it owned.
    fn remove(&mut self, key: &Key) {
        let Some((_, gone)) = self.objects.0.remove(key) else { return };
        self.tell(key, &gone);
        let owned = |object: &Value| {
            let owners = items(object, "/metadata/ownerReferences");
            owners.iter().any(|owner| text(owner, "/uid") == uid(&gone))
        };
        let owned: Vec<Key> = self
            .objects
            .0
            .iter()
            .filter(|(_, (_, object))| owned(object))
            .map(|(key, _)| key.clone())
            .collect();
        for key in owned {
            self.delete(&key, true, "generic-garbage-collector");
        }
    }

    fn tell(&mut self, key: &Key, object: &Value) {
        for number in 0..self.controllers.len() {
            let controller = &self.controllers[number];
            if let Some(concerned) = controller.concerns(key, object) {
                let at = self.now + shorten(controller.lag(), self.speed);
                self.plan(at, (number, concerned));
            }
        }
    }
}

#[cfg(test)]
impl Stage {
    /// The object, if it is there.
    pub(in crate::sim) fn get(&self, resource: Resource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.objects.get(&Key::new(resource, namespace, name))
    }

    /// The objects of a kind.
    pub(in crate::sim) fn list(&self, resource: Resource) -> Vec<Arc<Value>> {
        self.objects.list(resource, None)
    }

    /// What a hook sees.
    pub(in crate::sim) fn view(&self) -> &dyn View {
        &self.objects
    }
}

/// Merges as RFC 7386 says.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    if let Some(fields) = target.as_object_mut() {
        for (name, value) in patch {
            if value.is_null() {
                fields.remove(name);
            } else {
                merge(fields.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
    }
}

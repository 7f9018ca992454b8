//! Kubernetes events: what components say about objects.

use serde_json::{Value, json};

use crate::sim::failure::Failure;
use crate::sim::kinds;
use crate::sim::kinds::EVENTS;
use crate::sim::meta;
use crate::sim::registry::Caller;
use crate::sim::registry::Registry;
use crate::sim::world::Key;
use crate::sim::world::View as _;

/// How many events a namespace keeps. A real cluster forgets them after an hour.
const EVENTS_MAX: usize = 1000;

/// What a component says about an object.
pub(super) struct Said<'a> {
    /// The object.
    pub about: &'a Key,
    /// `Normal` or `Warning`.
    pub kind: &'a str,
    /// One word.
    pub reason: &'a str,
    /// The text.
    pub message: &'a str,
    /// The component.
    pub from: &'a str,
}

impl Registry {
    /// Records an event, or counts it up if the same was said before about the same object.
    pub(super) fn say(&mut self, said: &Said<'_>, caller: &Caller) -> Result<(), Failure> {
        let namespace = if said.about.namespace.is_empty() { "default" } else { &said.about.namespace };
        let involved = self.reference(said.about);
        let same = |event: &&std::sync::Arc<Value>| {
            event["involvedObject"]["uid"] == involved["uid"]
                && event["reason"] == said.reason
                && event["message"] == said.message
                && event["source"]["component"] == said.from
        };
        let now = meta::rfc3339(caller.now);
        let known = self.store.list(EVENTS, Some(namespace));
        if let Some(event) = known.iter().find(same) {
            let mut event = (**event).clone();
            let count = event["count"].as_i64().unwrap_or(0) + 1;
            event["count"] = count.into();
            event["lastTimestamp"] = now.into();
            let key = Key::new(EVENTS, namespace, meta::name(&event));
            self.store.put(&key, event);
            return Ok(());
        }
        if known.len() >= EVENTS_MAX
            && let Some(oldest) = known.iter().min_by_key(|event| meta::text(event, "/lastTimestamp"))
        {
            self.store.remove(&Key::new(EVENTS, namespace, meta::name(oldest)));
        }
        let kind = kinds::of(EVENTS).expect("the table has events");
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": format!("{}.{}", said.about.name, self.new_suffix()), "namespace": namespace},
            "involvedObject": involved,
            "reason": said.reason,
            "message": said.message,
            "source": {"component": said.from},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": said.kind,
            "eventTime": null,
            "reportingComponent": said.from,
            "reportingInstance": "",
        });
        self.seed(kind, event, caller).map(drop)
    }

    fn reference(&self, about: &Key) -> Value {
        let kind = kinds::of(about.resource);
        let object = self.store.get(about).unwrap_or_default();
        let mut reference = json!({
            "kind": kind.map(|kind| kind.kind),
            "namespace": &*about.namespace,
            "name": &*about.name,
            "uid": meta::uid(&object),
            "apiVersion": kind.map(kinds::Kind::api_version),
            "resourceVersion": meta::version(&object),
        });
        if about.namespace.is_empty()
            && let Some(reference) = reference.as_object_mut()
        {
            reference.shift_remove("namespace");
        }
        reference
    }
}

/// An event as the group events.k8s.io shows it.
pub(super) fn in_new_form(event: &Value) -> Value {
    let mut shown = json!({"metadata": event["metadata"]});
    for (new, old) in [
        ("eventTime", "eventTime"),
        ("reportingController", "reportingComponent"),
        ("reportingInstance", "reportingInstance"),
        ("action", "action"),
        ("reason", "reason"),
        ("regarding", "involvedObject"),
        ("related", "related"),
        ("series", "series"),
        ("note", "message"),
        ("type", "type"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
    ] {
        if let Some(value) = event.get(old) {
            shown[new] = value.clone();
        }
    }
    shown
}

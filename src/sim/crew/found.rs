//! The contents of a new cluster for a server that gives out uids of its own.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use http::Request;
use serde_json::Value;
use serde_json::json;

use super::copy::Copy;
use super::wish::Writer;
use crate::sim::harvester::harvester;
use crate::sim::kinds;
use crate::sim::kinds::API_SERVICES;
use crate::sim::kinds::DEFINITIONS;
use crate::sim::object::deleting;
use crate::sim::object::items;
use crate::sim::object::key_of;
use crate::sim::object::name;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::world::Fault;
use crate::sim::world::Founding;
use crate::sim::world::Write;
use crate::time::Timestamp;

/// What the server sets by itself.
const OWN: &[&str] = &["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"];

/// The objects that a cluster begins with. They name each other by uids that the server does not know: each object is
/// created without those that are not known yet, and completed when all are.
pub struct Foundation {
    objects: Vec<Value>,
    /// What was sent to create them.
    sent: Vec<Value>,
    /// The uids of the server, by the ones in the objects.
    uids: BTreeMap<String, String>,
    /// The uids that are written in the fixture.
    given: BTreeSet<String>,
}

impl Foundation {
    /// The platform's usual contents with `further` objects: those of a fixture, each with a namespace if its kind has
    /// them.
    pub fn new(further: &[Value], faults: &[Fault], already: &[Fault], now: Timestamp, speed: f64) -> Self {
        let founding = Founding { now, speed, further, faults, already };
        let mut objects = (harvester().contents)(&founding);
        // Kinds are defined by whoever set up the server.
        objects.retain(|object| kind_of(object).is_some_and(|kind| kind.resource != DEFINITIONS));
        // The server calls an API available that no service stands behind.
        for object in objects.iter_mut().filter(|o| kind_of(o).is_some_and(|k| k.resource == API_SERVICES)) {
            object["spec"]["service"] = Value::Null;
        }
        let given = further.iter().map(|object| uid(object).to_owned()).collect();
        Self::of(objects, given)
    }

    fn of(objects: Vec<Value>, given: BTreeSet<String>) -> Self {
        let mut foundation = Self { objects: vec![], sent: vec![], uids: BTreeMap::new(), given };
        let mut waiting: Vec<Option<Value>> = objects.into_iter().map(Some).collect();
        for number in 0..waiting.len() {
            foundation.take(number, &mut waiting);
        }
        foundation.sent = vec![Value::Null; foundation.objects.len()];
        foundation
    }

    /// Takes an object, after those that it is named after.
    fn take(&mut self, number: usize, waiting: &mut Vec<Option<Value>>) {
        let Some(object) = waiting[number].take() else { return };
        for other in 0..waiting.len() {
            if waiting[other].as_ref().is_some_and(|other| self.names(name(&object), uid(other))) {
                self.take(other, waiting);
            }
        }
        self.objects.push(object);
    }

    /// Whether a text is a uid or has it inside. One that a fixture gives may be part of a name that a run is told.
    fn names(&self, text: &str, uid: &str) -> bool {
        text == uid || !self.given.contains(uid) && text.contains(uid)
    }

    /// How many objects there are.
    pub fn count(&self) -> usize {
        self.objects.len()
    }

    /// The request that creates an object without its status.
    pub fn create(&mut self, number: usize) -> Request<Vec<u8>> {
        let mut object = self.known(&self.objects[number]);
        if let Some(metadata) = object["metadata"].as_object_mut() {
            OWN.iter().for_each(|field| drop(metadata.shift_remove(*field)));
        }
        // An owner that the server does not know would be taken for one that is gone.
        let owners = items(&object, "/metadata/ownerReferences");
        let known: Vec<Value> =
            owners.iter().filter(|owner| self.is_of_server(text(owner, "/uid"))).cloned().collect();
        if known.len() < owners.len() {
            object["metadata"]["ownerReferences"] = known.into();
        }
        if let Some(fields) = object.as_object_mut() {
            fields.shift_remove("status");
        }
        self.without_unknown(&mut object["spec"]);
        if object["spec"].is_null()
            && let Some(fields) = object.as_object_mut()
        {
            fields.shift_remove("spec");
        }
        let kind = kind_of(&object).expect("others were left out");
        self.sent[number] = object.clone();
        self.requests(&Write::Create(kind.resource, object)).swap_remove(0)
    }

    /// Takes in which uid the server gave.
    pub fn created(&mut self, number: usize, uid_of_server: &str) {
        let own = uid(&self.objects[number]).to_owned();
        self.uids.insert(own, uid_of_server.to_owned());
    }

    /// The requests that complete an object when all are created.
    pub fn complete(&self, number: usize) -> Vec<Request<Vec<u8>>> {
        let object = self.known(&self.objects[number]);
        let Some(kind) = kind_of(&object) else { return vec![] };
        let key = key_of(kind.resource, &object);
        let mut rest = json!({});
        if object["spec"] != self.sent[number]["spec"] {
            rest["spec"] = object["spec"].clone();
        }
        // What admission adds to a new node is not wanted.
        if kind.resource == kinds::NODES {
            rest["spec"]["taints"] = object["spec"]["taints"].clone();
        }
        if object["metadata"]["ownerReferences"] != self.sent[number]["metadata"]["ownerReferences"] {
            rest["metadata"]["ownerReferences"] = object["metadata"]["ownerReferences"].clone();
        }
        let mut writes = vec![];
        if rest != json!({}) {
            writes.push(Write::Patch(key.clone(), rest));
        }
        if let Some(status) = object.get("status").filter(|status| !status.is_null()) {
            writes.push(Write::Status(key.clone(), status.clone()));
        }
        if deleting(&object) {
            writes.push(Write::Delete(key));
        }
        writes.iter().flat_map(|write| self.requests(write)).collect()
    }

    fn requests(&self, write: &Write) -> Vec<Request<Vec<u8>>> {
        let (copy, now) = (&Copy::default(), Timestamp::default());
        Writer { copy, manager: "rehearsal", now, said: &mut BTreeMap::new() }.requests(write)
    }

    fn is_of_server(&self, uid: &str) -> bool {
        self.uids.values().any(|known| known == uid)
    }

    /// Drops the fields that name an object which is not created yet.
    fn without_unknown(&self, value: &mut Value) {
        let unknown = |text: &str| {
            let uids = self.objects.iter().map(uid).filter(|uid| !self.uids.contains_key(*uid));
            uids.into_iter().any(|uid| self.names(text, uid))
        };
        if let Some(fields) = value.as_object_mut() {
            fields.retain(|_, value| !value.as_str().is_some_and(unknown));
            fields.values_mut().for_each(|value| self.without_unknown(value));
        }
    }

    /// The value with the uids of the server: alone, in names and in keys.
    fn known(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.in_text(text).into(),
            Value::Array(items) => items.iter().map(|item| self.known(item)).collect(),
            Value::Object(fields) => {
                let known = fields.iter().map(|(key, value)| (self.in_text(key), self.known(value)));
                Value::Object(known.collect())
            }
            other => other.clone(),
        }
    }

    fn in_text(&self, text: &str) -> String {
        let uids = self.uids.iter().filter(|(own, _)| self.names(text, own));
        uids.fold(text.to_owned(), |text, (own, of_server)| text.replace(own, of_server))
    }
}

fn kind_of(object: &Value) -> Option<&'static kinds::Kind> {
    kinds::by_kind(text(object, "/apiVersion"), text(object, "/kind"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(name: &str, uid: &str, more: Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": uid},
            "spec": more,
        })
    }

    fn body(request: &Request<Vec<u8>>) -> Value {
        serde_json::from_slice(request.body()).expect("JSON")
    }

    #[test]
    fn uids_of_the_server_take_the_place_of_others_everywhere() {
        let objects = vec![
            map("of-u2", "u1", json!({"hostname": "u2"})),
            map("b", "u2", json!({"hostname": "x-u1", "subdomain": "y"})),
        ];
        let mut foundation = Foundation::of(objects, BTreeSet::new());
        assert_eq!((name(&foundation.objects[0]), name(&foundation.objects[1])), ("b", "of-u2"));
        let first = body(&foundation.create(0));
        assert_eq!((&first["metadata"]["uid"], &first["spec"]), (&Value::Null, &json!({"subdomain": "y"})));
        foundation.created(0, "s2");
        let second = body(&foundation.create(1));
        assert_eq!((name(&second), text(&second, "/spec/hostname")), ("of-s2", "s2"));
        foundation.created(1, "s1");
        let rest = foundation.complete(0);
        assert_eq!(body(&rest[0])["spec"]["hostname"], "x-s1");
        assert!(foundation.complete(1).is_empty(), "nothing is left to say");
    }
}

//! What the API server and the controllers of the rehearsal cluster share: how an object is named, what a controller
//! sees and what it answers. Controllers are pure: they look at a [`View`] and return [`Write`]s, so that the same
//! ones can drive any API server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::time::Timestamp;

/// An API group and the plural name of a kind in it, for instance `kubevirt.io` and `virtualmachines`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// The group; empty for the core group.
    pub group: &'static str,
    /// The plural, as it stands in a URL.
    pub plural: &'static str,
}

/// Which object: its resource, namespace (empty for cluster-scoped kinds) and name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The kind.
    pub resource: Resource,
    /// The namespace; empty for a cluster-scoped kind.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl Key {
    /// Names an object.
    pub fn new(resource: Resource, namespace: &str, name: &str) -> Self {
        Self { resource, namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} {}/{}", self.resource.plural, self.resource.group, self.namespace, self.name)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The objects of a cluster at one moment.
pub trait View {
    /// The object, or none.
    fn get(&self, key: &Key) -> Option<Arc<Value>>;

    /// All objects of a kind in name order, in one namespace or (`None`) everywhere.
    fn list(&self, resource: Resource, namespace: Option<&str>) -> Vec<Arc<Value>>;
}

/// A change that a controller wants. Merge patches follow RFC 7386.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Create the object; it exists already: nothing happens.
    Create(Resource, Value),
    /// Merge into the object outside its status.
    Patch(Key, Value),
    /// Merge into the object's status. `Value` is the new content below `status`.
    Status(Key, Value),
    /// Delete, as a client would: finalizers hold it, and a pod on a node stays for its grace period.
    Delete(Key),
    /// Delete with a grace period of zero, as the kubelet does when a pod's containers have ended.
    DeleteNow(Key),
    /// A Kubernetes event about an object; repeats of the same reason and message raise its count.
    Event {
        /// What it is about.
        about: Key,
        /// `Normal` or `Warning`.
        kind: &'static str,
        /// One CamelCase word.
        reason: String,
        /// The text.
        message: String,
        /// The component that says so, for instance `virt-controller`.
        from: &'static str,
    },
}

/// What a controller wants done about one object, and when it wants to look again though nothing changed.
#[derive(Debug, Default)]
pub struct Reconciled {
    /// Changes, in order.
    pub writes: Vec<Write>,
    /// Look again at this moment at the latest.
    pub again_at: Option<Timestamp>,
}

/// The circumstances of a reconciliation.
pub struct Context<'a> {
    /// The cluster.
    pub view: &'a dyn View,
    /// The time now.
    pub now: Timestamp,
    /// How many times shorter durations are than those of a real cluster. Timestamps are never changed.
    pub speed: f64,
    /// The faults that are switched on.
    pub faults: &'a [Fault],
}

/// How late a controller usually is: long enough that a client sees the old status after a write.
pub(super) const CONTROLLER_LAG: Duration = Duration::from_millis(200);

/// A controller of the platform. It holds no state: everything it needs is in the cluster.
pub trait Controller: Send + Sync {
    /// Its name, which is its field manager.
    fn name(&self) -> &'static str;

    /// How long after a change the controller notices it, on a real cluster. Changes meanwhile count as one, so a
    /// status is always a little late, as clients must expect.
    fn lag(&self) -> Duration {
        CONTROLLER_LAG
    }

    /// Which object to reconcile when `changed` changed, if any.
    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key>;

    /// What is to be done about the object called `key`, which may not exist.
    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled;
}

/// What a request wants to do with the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Create it.
    Create,
    /// Replace or patch it, the status included.
    Update,
    /// Delete it.
    Delete,
}

/// What an admission webhook sees.
pub struct Admission<'a> {
    /// The cluster before the write.
    pub view: &'a dyn View,
    /// The object's name.
    pub key: &'a Key,
    /// The object before, if it exists.
    pub old: Option<&'a Value>,
    /// `status` or empty.
    pub subresource: &'a str,
    /// Who writes (the field manager).
    pub manager: &'a str,
    /// The faults that are switched on.
    pub faults: &'a [Fault],
}

/// A refusal in the form of the API: HTTP status, reason, message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub code: u16,
    /// The reason of the `Status` object, for instance `Conflict`.
    pub reason: &'static str,
    /// The message, as the real component words it.
    pub message: String,
}

/// A fault that can be switched on for the cluster, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fault {
    /// The name used on the command line.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// The same in Chinese.
    pub about_zh: &'static str,
}

/// A request to a subresource that the platform serves, for instance `start` of a virtual machine.
pub struct Call<'a> {
    /// The cluster.
    pub view: &'a dyn View,
    /// The object; its existence has not been checked.
    pub key: &'a Key,
    /// The subresource: the last part of the path.
    pub name: &'a str,
    /// The body, null if there was none.
    pub body: &'a Value,
    /// The time now.
    pub now: Timestamp,
    /// The faults that are switched on.
    pub faults: &'a [Fault],
}

/// A call that was accepted.
#[derive(Debug, PartialEq)]
pub struct Answer {
    /// What it changes, in order. The writes pass admission; the first refusal is the answer of the call.
    pub writes: Vec<Write>,
    /// The HTTP status; the answer has no body.
    pub code: u16,
}

/// The annotation in which a pod carries its log: nothing runs in it that could write one. A pod with several
/// containers has one for each, with a dot and the container's name behind it.
pub(super) const POD_LOG: &str = "rehearsal.example/log";

/// What a new cluster is made of.
pub struct Founding<'a> {
    /// The time now.
    pub now: Timestamp,
    /// How many times shorter durations are: in the past as well, so that what began then is as far as it should be.
    pub speed: f64,
    /// The objects of fixtures, each with a kind that the cluster serves and, if that has them, a namespace.
    pub further: &'a [Value],
    /// The faults that are switched on.
    pub faults: &'a [Fault],
    /// Those that were there when the further objects were made.
    pub already: &'a [Fault],
}

/// The platform that stands behind the API server: what is registered with it.
#[derive(Clone)]
pub struct Platform {
    /// Its controllers.
    pub controllers: Vec<Arc<dyn Controller>>,
    /// The mutating webhooks in one: changes an object that is about to be created or updated.
    pub mutate: fn(&Admission<'_>, &mut Value),
    /// The validating webhooks in one: refuses what must not be stored. For a delete, `Value` is the object as it is.
    pub validate: fn(&Admission<'_>, &Value, Operation) -> Result<(), Refusal>,
    /// Serves the subresources of `subresources.kubevirt.io`.
    pub subresource: fn(&Call<'_>) -> Result<Answer, Refusal>,
    /// The objects of a cluster that is not started empty, the further ones included, in the order of their creation.
    /// A `status` is kept.
    pub contents: fn(&Founding<'_>) -> Vec<Value>,
    /// The faults that it knows.
    pub faults: &'static [Fault],
}

impl Default for Platform {
    /// No platform: an API server alone.
    fn default() -> Self {
        Self {
            controllers: vec![],
            mutate: |_, _| {},
            validate: |_, _, _| Ok(()),
            subresource: |call| {
                let message = format!("the server has no subresource {}", call.name);
                Err(Refusal { code: 404, reason: "NotFound", message })
            },
            contents: |founding| founding.further.to_vec(),
            faults: &[],
        }
    }
}

//! The cluster as its users hold it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use serde_json::Value;
use tokio::sync::watch;

use crate::sim::audit::Audit;
use crate::sim::audit::AuditEntry;
use crate::sim::drive;
use crate::sim::failure::Failure;
use crate::sim::harvester::harvester;
use crate::sim::kinds;
use crate::sim::kinds::Kind;
use crate::sim::meta;
use crate::sim::registry::Caller;
use crate::sim::registry::Registry;
use crate::sim::trouble;
use crate::sim::trouble::Trouble;
use crate::sim::world::Fault;
use crate::sim::world::Founding;
use crate::sim::world::Key;
use crate::sim::world::Platform;
use crate::time::SharedClock;

/// The namespaces that every cluster has.
const NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];
/// Who creates what is there from the beginning.
const FOUNDER: &str = "rehearsal";

/// How a cluster is made.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Decides names, uids and the course of faults.
    pub seed: u64,
    /// The faults that are switched on.
    pub faults: Vec<Fault>,
    /// Those that are switched on and were there already when the objects of the fixtures were made.
    pub already: Vec<Fault>,
    /// YAML texts of further objects, each with one or more documents. A `status` in them is kept, and an object that
    /// is there already is replaced.
    pub fixtures: Vec<String>,
    /// Leave out the platform's usual contents: only the namespaces of every cluster and the fixtures.
    pub empty: bool,
    /// Append every accepted write to this file.
    pub audit: Option<PathBuf>,
}

/// Why a cluster cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The audit file.
    #[error("the audit file {path} cannot be opened")]
    Audit {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A fixture is not YAML.
    #[error("fixture {number} is not YAML: {text}")]
    Yaml {
        /// Which, from 1.
        number: usize,
        /// Why and where.
        text: String,
    },
    /// A fixture has an object of a kind that the cluster does not serve.
    #[error("an object of the unknown kind {api_version} {kind}")]
    Kind {
        /// `apiVersion`.
        api_version: String,
        /// `kind`.
        kind: String,
    },
    /// An object of the contents or of a fixture is refused.
    #[error("{kind} {name} is refused")]
    Refused {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
        /// Why.
        source: Box<Failure>,
    },
}

/// A running cluster. Clones are the same cluster; it ends with the last of them.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

/// What the clones and the driving task share.
pub(super) struct Inner {
    pub(super) registry: Mutex<Registry>,
    pub(super) trouble: Mutex<Trouble>,
    pub(super) clock: SharedClock,
    /// The version of the last change, for those who wait for one.
    pub(super) changed: watch::Sender<u64>,
    /// The version up to which the controllers have reacted to every change.
    pub(super) settled: watch::Sender<u64>,
    /// How often the API server has gone away.
    pub(super) outages: watch::Sender<u64>,
}

impl Inner {
    /// Works on the objects and wakes those who wait for changes.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Registry) -> T) -> T {
        let mut registry = lock(&self.registry);
        let before = registry.store.revision();
        let result = work(&mut registry);
        let after = registry.store.revision();
        if before != after {
            self.changed.send_replace(after);
        }
        result
    }
}

/// No code panics while it holds a lock; if one did, the state is still whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// Starts a Harvester cluster. Durations are shortened by the clock's speed.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(options: Options, clock: SharedClock) -> Result<Self, Error> {
        Self::start_with(options, harvester(), clock)
    }

    /// Starts a cluster with another platform behind its API, and the task that drives its controllers.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start_with(options: Options, platform: Platform, clock: SharedClock) -> Result<Self, Error> {
        let audit = Audit::open(options.audit.as_deref()).map_err(|source| {
            let path = options.audit.clone().unwrap_or_default();
            Error::Audit { path, source }
        })?;
        let faults = [options.faults.as_slice(), options.already.as_slice()].concat();
        let mut registry = Registry::new(platform, faults.clone(), audit, options.seed);
        let caller = Caller::controller(FOUNDER, clock.now());
        found(&mut registry, &options, &caller, clock.speed())?;
        // Nobody has watched the founding.
        registry.store.compact();
        let revision = registry.store.revision();
        let inner = Arc::new(Inner {
            registry: Mutex::new(registry),
            trouble: Mutex::new(Trouble::new(faults, options.seed)),
            clock,
            changed: watch::Sender::new(revision),
            settled: watch::Sender::new(0),
            outages: watch::Sender::new(0),
        });
        tokio::spawn(drive::drive(Arc::downgrade(&inner)));
        Ok(Self(inner))
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    /// The accepted writes so far, oldest first.
    pub fn audit(&self) -> Vec<AuditEntry> {
        lock(&self.0.registry).audit.entries().cloned().collect()
    }

    /// All objects, by kind, namespace and name.
    pub fn objects(&self) -> Vec<(Key, Arc<Value>)> {
        let registry = lock(&self.0.registry);
        registry.store.all().map(|(key, object)| (key.clone(), object.clone())).collect()
    }

    /// Forgets the history of changes: running watches and continued lists get 410.
    pub fn compact(&self) {
        lock(&self.0.registry).store.compact();
    }

    /// Waits until the controllers have reacted to every change; what they do later by themselves does not count.
    pub async fn settled(&self) {
        let mut settled = self.0.settled.subscribe();
        loop {
            let revision = lock(&self.0.registry).store.revision();
            if *settled.borrow_and_update() >= revision || settled.changed().await.is_err() {
                return;
            }
        }
    }
}

/// The faults that can be switched on: those of the API and those of the platform, by name.
pub fn list_faults() -> Vec<Fault> {
    let mut faults: Vec<Fault> = trouble::FAULTS.iter().chain(harvester().faults).copied().collect();
    faults.sort_by_key(|fault| fault.name);
    faults
}

/// Creates the first objects.
fn found(registry: &mut Registry, options: &Options, caller: &Caller, speed: f64) -> Result<(), Error> {
    for name in NAMESPACES {
        let namespace = serde_json::json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}
        });
        seed(registry, namespace, caller)?;
    }
    let further = further(options)?;
    let (faults, already) = (&options.faults, &options.already);
    let founding = Founding { now: caller.now, speed, further: &further, faults, already };
    let objects = if options.empty { further } else { (registry.platform.contents)(&founding) };
    objects.into_iter().try_for_each(|object| seed(registry, object, caller))
}

/// The objects of the fixtures.
fn further(options: &Options) -> Result<Vec<Value>, Error> {
    let mut objects = vec![];
    for (i, fixture) in options.fixtures.iter().enumerate() {
        let documents: Vec<Value> = serde_saphyr::from_multiple(fixture)
            .map_err(|error| Error::Yaml { number: i + 1, text: error.to_string() })?;
        for document in documents.into_iter().filter(|document| !document.is_null()) {
            match document.get("items").and_then(Value::as_array) {
                Some(items) => objects.extend(items.iter().cloned()),
                None => objects.push(document),
            }
        }
    }
    for object in &mut objects {
        if kind_of(object)?.namespaced && meta::namespace(object).is_empty() {
            meta::set(object, "namespace", Some("default".into()));
        }
    }
    Ok(objects)
}

fn kind_of(object: &Value) -> Result<&'static Kind, Error> {
    let (api_version, name) = (meta::text(object, "/apiVersion"), meta::text(object, "/kind"));
    kinds::by_kind(api_version, name)
        .ok_or_else(|| Error::Kind { api_version: api_version.to_owned(), kind: name.to_owned() })
}

fn seed(registry: &mut Registry, mut object: Value, caller: &Caller) -> Result<(), Error> {
    let kind = kind_of(&object)?;
    let namespace = if kind.namespaced { meta::namespace(&object) } else { "" };
    let key = Key::new(kind.resource, namespace, meta::name(&object));
    registry.store.remove(&key);
    meta::set(&mut object, "resourceVersion", None);
    let name = meta::name(&object).to_owned();
    let held = !meta::finalizers(&object).is_empty();
    let deleted_at =
        object.pointer("/metadata/deletionTimestamp").filter(|at| held && !at.is_null()).cloned();
    let stored = registry.seed(kind, object, caller).map_err(|source| Error::Refused {
        kind: kind.qualified(),
        name,
        source: Box::new(source),
    })?;
    if deleted_at.is_some() {
        let mut going = (*stored).clone();
        meta::set(&mut going, "deletionTimestamp", deleted_at);
        registry.store.put(&key, going);
    }
    Ok(())
}

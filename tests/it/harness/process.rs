//! A process that can be made to die: from a given event on nothing that it does has an effect.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use kube::client::Body;
use serde_json::Value;
use serde_json::json;
use windrow::action::Executor;
use windrow::action::k8s::client::Cluster;
use windrow::action::secret::Secrets;
use windrow::definition::knowledge::Knowledge;
use windrow::engine::state::RunStatus;
use windrow::id::RunId;
use windrow::id::Seq;
use windrow::journal::Store;
use windrow::journal::store::Append;
use windrow::journal::store::Error;
use windrow::journal::store::Keep;
use windrow::journal::store::Pending;
use windrow::journal::store::Recorded;
use windrow::journal::store::Removed;
use windrow::journal::store::Summary;
use windrow::plan::WorkflowDigest;
use windrow::runner::Host;
use windrow::runner::host::Parts;
use windrow::time::Timestamp;

use super::world::World;

/// When a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Death {
    /// So many events are durable then.
    pub(super) events: usize,
    /// It lives on until it would write the next event: what the last one set going has happened, and is lost.
    pub(super) late: bool,
}

/// A process on a world.
pub(super) struct Process {
    pub(super) host: Host,
    store: Arc<Mortal>,
}

impl Process {
    pub(super) fn start(world: &Arc<World>, knowledge: Arc<Knowledge>, death: Option<Death>) -> Self {
        world.new_process();
        let store = Arc::new(Mortal { world: world.clone(), death, is_dead: AtomicBool::new(false) });
        let client = kube::Client::new(tower::service_fn(api(store.clone())), "default");
        let cluster = Cluster::of_client(client, world.clock.clone());
        let parts = Parts {
            store: store.clone(),
            executor: Arc::new(Executor::new(Secrets::new(None)).with_cluster(cluster)),
            clock: world.clock.clone(),
            knowledge,
        };
        Self { host: Host::open(parts).unwrap(), store }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.store.is_dead()
    }

    /// Until the process is dead.
    pub(super) async fn death(&self) {
        let mut news = self.store.world.news.subscribe();
        while !self.is_dead() {
            news.changed().await.unwrap();
        }
    }

    /// Until the run is over, or a run waits for a person: that run; or until the process is dead.
    pub(super) async fn rest(&self) -> Option<RunId> {
        let world = &self.store.world;
        let mut news = world.news.subscribe();
        loop {
            news.borrow_and_update();
            let statuses = world.log().statuses.clone();
            // A run that waits for its child is held as well; what is asked is asked by the child.
            let held = statuses.iter().filter(|(_, status)| **status == RunStatus::Held);
            let held = held.max_by_key(|(run, _)| **run != world.root);
            let over = statuses.get(&world.root).is_some_and(|status| status.is_terminal());
            if over || held.is_some() || self.is_dead() {
                return held.map(|(run, _)| *run);
            }
            news.changed().await.unwrap();
        }
    }
}

/// The way to the API: a dead process sends nothing, and some requests are refused.
fn api(
    store: Arc<Mortal>,
) -> impl FnMut(
    http::Request<Body>,
) -> futures::future::BoxFuture<'static, std::io::Result<axum::response::Response>>
+ Clone {
    move |request| {
        let store = store.clone();
        Box::pin(async move {
            if store.is_dead() {
                return std::future::pending().await;
            }
            if store.world.refuses(&request) {
                return Ok(forbidden());
            }
            tower::ServiceExt::oneshot(store.world.cluster.service(), request).await
        })
    }
}

fn forbidden() -> axum::response::Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden",
        "message": "sabotaged",
    });
    http::Response::builder().status(403).body(status.to_string().into()).unwrap()
}

/// A store whose process dies.
struct Mortal {
    world: Arc<World>,
    death: Option<Death>,
    is_dead: AtomicBool,
}

impl Mortal {
    fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Acquire)
    }

    async fn die<T>(&self) -> T {
        self.is_dead.store(true, Ordering::Release);
        self.world.news.send_replace(());
        std::future::pending().await
    }

    async fn append_mortally(&self, append: &Append) -> Result<Seq, Error> {
        if self.is_dead() {
            return std::future::pending().await;
        }
        let events = self.world.log().events;
        if self.death.is_some_and(|death| events + append.events.len() > death.events) {
            return self.die().await;
        }
        let seq = self.world.store.append(append).await?;
        self.world.note(append);
        let dies = self.death.is_some_and(|death| !death.late && self.world.log().events == death.events);
        if dies { self.die().await } else { Ok(seq) }
    }
}

impl Store for Mortal {
    fn append<'a>(&'a self, append: &'a Append) -> Pending<'a, Seq> {
        Box::pin(self.append_mortally(append))
    }

    fn read(&self, run: RunId) -> Result<Vec<Recorded>, Error> {
        self.world.store.read(run)
    }

    fn runs(&self, before: Option<RunId>, limit: usize) -> Result<Vec<Summary>, Error> {
        self.world.store.runs(before, limit)
    }

    fn open_runs(&self) -> Result<Vec<Summary>, Error> {
        self.world.store.open_runs()
    }

    fn summary(&self, run: RunId) -> Result<Option<Summary>, Error> {
        self.world.store.summary(run)
    }

    fn put_summary(&self, summary: Summary) -> Pending<'_, ()> {
        self.world.store.put_summary(summary)
    }

    fn cut(&self, run: RunId, after: Seq) -> Pending<'_, Seq> {
        self.world.store.cut(run, after)
    }

    fn run_of_key(&self, key: &str) -> Result<Option<RunId>, Error> {
        self.world.store.run_of_key(key)
    }

    fn put_definition(&self, digest: &WorkflowDigest, definition: &Value) -> Pending<'_, ()> {
        self.world.store.put_definition(digest, definition)
    }

    fn definition(&self, digest: &WorkflowDigest) -> Result<Option<Value>, Error> {
        self.world.store.definition(digest)
    }

    fn setting(&self, name: &str) -> Result<Option<Value>, Error> {
        self.world.store.setting(name)
    }

    fn put_setting(&self, name: &str, value: Option<Value>) -> Pending<'_, ()> {
        self.world.store.put_setting(name, value)
    }

    fn put_blob(&self, bytes: &[u8]) -> Result<Arc<str>, Error> {
        self.world.store.put_blob(bytes)
    }

    fn blob(&self, digest: &str) -> Result<Vec<u8>, Error> {
        self.world.store.blob(digest)
    }

    fn newest(&self) -> Result<Option<Timestamp>, Error> {
        self.world.store.newest()
    }

    fn revive(&self) -> Pending<'_, ()> {
        self.world.store.revive()
    }

    fn retain(&self, keep: Keep, now: Timestamp) -> Pending<'_, Removed> {
        self.world.store.retain(keep, now)
    }
}

//! Shared watches (C5): one per kind and namespace, however many wait on it. An event wakes, and says nothing: who is
//! woken reads. A watch that is silent or late therefore costs time and never a wrong answer.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::Weak;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::ResourceExt;
use kube::core::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::action::codes;
use crate::action::k8s::classify;
use crate::action::k8s::classify::Intent;
use crate::action::k8s::client::Cluster;
use crate::action::k8s::read;
use crate::action::request::ObjectRef;
use crate::action::request::Selector;
use crate::failure::Failure;

/// The most watches at the same time (E13): each is a connection. Who comes later polls.
const WATCHES_MAX: usize = 200;
/// The beat at which subscribers of a watch that does not work are woken, and at which an unknown kind or refused
/// credentials are tried again.
const POLL: Duration = Duration::from_secs(5);

/// What one watch covers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Scope {
    api: String,
    kind: String,
    namespace: Option<String>,
    all_namespaces: bool,
}

/// One who waits.
#[derive(Debug)]
struct Subscriber {
    /// The names that concern it; none for all.
    names: Option<BTreeSet<String>>,
    bell: Arc<Notify>,
}

/// A running watch.
#[derive(Debug, Default)]
struct Watch {
    subscribers: BTreeMap<u64, Subscriber>,
    by_name: BTreeMap<String, BTreeSet<u64>>,
    /// Those that concern every name.
    broad: BTreeSet<u64>,
    /// Why the watch does not work at the moment.
    broken: Option<Failure>,
    task: Option<AbortHandle>,
}

impl Watch {
    fn add(&mut self, id: u64, subscriber: Subscriber) {
        match &subscriber.names {
            Some(names) => {
                for name in names {
                    self.by_name.entry(name.clone()).or_default().insert(id);
                }
            }
            None => drop(self.broad.insert(id)),
        }
        self.subscribers.insert(id, subscriber);
    }

    fn remove(&mut self, id: u64) {
        self.broad.remove(&id);
        for name in self.subscribers.remove(&id).and_then(|gone| gone.names).into_iter().flatten() {
            if let Some(ids) = self.by_name.get_mut(&name) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.by_name.remove(&name);
                }
            }
        }
    }

    fn wake(&self, name: &str) {
        let concerned = self.by_name.get(name).into_iter().flatten().chain(&self.broad);
        concerned
            .filter_map(|id| self.subscribers.get(id))
            .for_each(|subscriber| subscriber.bell.notify_one());
    }

    fn wake_all(&self) {
        self.subscribers.values().for_each(|subscriber| subscriber.bell.notify_one());
    }
}

#[derive(Debug, Default)]
struct State {
    watches: BTreeMap<Scope, Watch>,
    next: u64,
}

/// All watches of a process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Watches(Arc<Mutex<State>>);

impl Watches {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rings `bell` whenever the target may have changed. While the watch does not work, it rings at a steady beat:
    /// then the target is polled. Must be called within a tokio runtime.
    pub fn subscribe(&self, cluster: &Cluster, target: &ObjectRef, bell: Arc<Notify>) -> Subscription {
        let scope = Scope {
            api: target.api.clone(),
            kind: target.kind.clone(),
            namespace: target.namespace.clone().filter(|_| !target.all_namespaces),
            all_namespaces: target.all_namespaces,
        };
        let names = match &target.select {
            Selector::Name(name) => Some(BTreeSet::from([name.clone()])),
            Selector::Names(names) => Some(names.iter().cloned().collect()),
            Selector::Match { .. } | Selector::All => None,
        };
        let mut state = self.lock();
        state.next += 1;
        let id = state.next;
        let full = state.watches.len() >= WATCHES_MAX && !state.watches.contains_key(&scope);
        if !full {
            let watch = state.watches.entry(scope.clone()).or_default();
            watch.add(id, Subscriber { names, bell });
            if watch.task.is_none() {
                let run = run(Arc::downgrade(&self.0), scope.clone(), cluster.clone());
                watch.task = Some(tokio::spawn(run).abort_handle());
            }
        }
        drop(state);
        Subscription { watches: self.clone(), scope: (!full).then_some(scope), id }
    }

    /// A subscription to nothing.
    pub fn silent(&self) -> Subscription {
        Subscription { watches: self.clone(), scope: None, id: 0 }
    }

    /// How many watches run.
    pub fn count(&self) -> usize {
        self.lock().watches.len()
    }
}

/// A bell that rings when a target may have changed. Dropping it ends the subscription, and the last one its watch.
#[derive(Debug)]
pub struct Subscription {
    watches: Watches,
    /// None if nothing is watched: there were too many watches already.
    scope: Option<Scope>,
    id: u64,
}

impl Subscription {
    /// Why the target is polled at the moment: no right to list it, an unknown kind, no connection.
    pub fn must_poll(&self) -> Option<Failure> {
        let state = self.watches.lock();
        match self.scope.as_ref().map(|scope| state.watches.get(scope)) {
            Some(watch) => watch.and_then(|watch| watch.broken.clone()),
            None => Some(Failure::retryable(codes::TOO_LARGE, "not watched: there are too many watches")),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Some(scope) = &self.scope else { return };
        let mut state = self.watches.lock();
        let Some(watch) = state.watches.get_mut(scope) else { return };
        watch.remove(self.id);
        if watch.subscribers.is_empty() {
            if let Some(task) = watch.task.take() {
                task.abort();
            }
            state.watches.remove(scope);
        }
    }
}

/// The task behind a watch; aborted when nobody listens any more.
async fn run(state: Weak<Mutex<State>>, scope: Scope, cluster: Cluster) {
    let keeper = Keeper { state, scope, cluster };
    loop {
        match api(&keeper.cluster, &keeper.scope).await {
            Err(failure) => keeper.is_broken(&failure),
            Ok(api) => {
                keeper.follow(api).await;
                // The next stream is made with the credentials that are valid now.
                if let Err(failure) = keeper.cluster.reload().await {
                    keeper.is_broken(&failure);
                }
            }
        }
        keeper.cluster.clock().sleep(POLL).await;
    }
}

struct Keeper {
    state: Weak<Mutex<State>>,
    scope: Scope,
    cluster: Cluster,
}

impl Keeper {
    fn with(&self, change: impl FnOnce(&mut Watch)) {
        let Some(state) = self.state.upgrade() else { return };
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(watch) = state.watches.get_mut(&self.scope) {
            change(watch);
        }
    }

    fn is_broken(&self, failure: &Failure) {
        self.with(|watch| {
            watch.broken = Some(failure.clone());
            watch.wake_all();
        });
    }

    fn works(&self, wake: impl FnOnce(&Watch)) {
        self.with(|watch| {
            watch.broken = None;
            wake(watch);
        });
    }

    /// Passes events on until the credentials are refused.
    async fn follow(&self, api: Api<DynamicObject>) {
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
        let mut broken = false;
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = self.cluster.clock().sleep(POLL), if broken => {
                    self.with(|watch| watch.wake_all());
                    continue;
                }
            };
            broken = false;
            match event {
                None => return,
                Some(Ok(watcher::Event::Apply(object) | watcher::Event::Delete(object))) => {
                    self.works(|watch| watch.wake(&object.name_any()));
                }
                // What was listed anew may differ from what was seen before the gap.
                Some(Ok(watcher::Event::InitDone)) => self.works(Watch::wake_all),
                Some(Ok(watcher::Event::Init | watcher::Event::InitApply(_))) => {}
                Some(Err(error)) => {
                    let failure = meaning(&error, &self.scope);
                    self.is_broken(&failure);
                    broken = true;
                    if failure.code == codes::UNAUTHORIZED {
                        return;
                    }
                }
            }
        }
    }
}

async fn api(cluster: &Cluster, scope: &Scope) -> Result<Api<DynamicObject>, Failure> {
    let kind = cluster.kind(&scope.api, &scope.kind).await?;
    let target = ObjectRef {
        api: scope.api.clone(),
        kind: scope.kind.clone(),
        namespace: scope.namespace.clone(),
        all_namespaces: scope.all_namespaces,
        select: Selector::All,
        optional: false,
    };
    let client = cluster.client();
    Ok(match read::namespace_of(cluster, &target, &kind) {
        Some(namespace) => Api::namespaced_with(client, &namespace, &kind.resource),
        None => Api::all_with(client, &kind.resource),
    })
}

fn meaning(error: &watcher::Error, scope: &Scope) -> Failure {
    let what = format!("watch {} of {}", scope.kind, scope.api);
    let status = match error {
        watcher::Error::WatchError(status)
        | watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => Some(status),
        _ => None,
    };
    match status {
        Some(status) if status.code == 401 => Failure::permanent(codes::UNAUTHORIZED, what),
        Some(status) if status.code == 403 => {
            Failure::permanent(codes::FORBIDDEN, format!("{what}: {}", status.message))
        }
        Some(status) => Failure::retryable(codes::EXPIRED, format!("{what}: {}", status.message)),
        None => classify::transport(error, Intent::Read, &what),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering;

    use bytes::Bytes;
    use http_body_util::BodyExt;
    use http_body_util::Full;
    use http_body_util::StreamBody;
    use http_body_util::combinators::BoxBody;
    use hyper::body::Frame;
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::sync::mpsc;
    use tower::BoxError;

    use super::*;
    use crate::action::k8s::script::status;
    use crate::action::k8s::script::vm;
    use crate::time::SystemClock;

    type Lines = mpsc::UnboundedSender<Value>;

    /// A server whose watches the test feeds.
    struct Server {
        cluster: Cluster,
        lists: Arc<AtomicUsize>,
        forbidden: Arc<Mutex<bool>>,
        /// One sender for each watch that was opened.
        opened: mpsc::UnboundedReceiver<Lines>,
    }

    fn whole(code: u16, value: &Value) -> http::Response<BoxBody<Bytes, BoxError>> {
        let body = Full::new(Bytes::from(value.to_string())).map_err(Into::into).boxed();
        http::Response::builder().status(code).body(body).expect("a response")
    }

    fn streamed(lines: mpsc::UnboundedReceiver<Value>) -> http::Response<BoxBody<Bytes, BoxError>> {
        let frames = futures::stream::unfold(lines, |mut lines| async move {
            let line = lines.recv().await?;
            Some((Ok::<_, BoxError>(Frame::data(Bytes::from(format!("{line}\n")))), lines))
        });
        http::Response::new(BodyExt::boxed(StreamBody::new(SyncStream(Box::pin(frames)))))
    }

    /// A stream is polled by one task only, which is what `Sync` asks of a boxed body.
    struct SyncStream<S>(std::pin::Pin<Box<S>>);

    impl<S: futures::Stream> futures::Stream for SyncStream<S> {
        type Item = S::Item;

        fn poll_next(
            mut self: std::pin::Pin<&mut Self>,
            context: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<S::Item>> {
            self.0.as_mut().poll_next(context)
        }
    }

    impl Server {
        fn new() -> Self {
            let (open, opened) = mpsc::unbounded_channel();
            let (lists, forbidden) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(false)));
            let (count, refuse) = (Arc::clone(&lists), Arc::clone(&forbidden));
            let service = tower::service_fn(move |request: http::Request<Body>| {
                let url = request.uri().to_string();
                let refused = *refuse.lock().expect("unpoisoned");
                let answer = if url == "/apis/kubevirt.io/v1" {
                    let kind =
                        json!({"name": "virtualmachines", "kind": "VirtualMachine", "namespaced": true});
                    whole(200, &json!({"resources": [kind]}))
                } else if refused {
                    whole(403, &status(403, "Forbidden", "no"))
                } else if url.contains("watch=true") {
                    let (sender, lines) = mpsc::unbounded_channel();
                    open.send(sender).expect("the test listens");
                    streamed(lines)
                } else {
                    count.fetch_add(1, Ordering::SeqCst);
                    let list = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineList", "items": [],
                                      "metadata": {"resourceVersion": "1"}});
                    whole(200, &list)
                };
                async move { Ok::<_, BoxError>(answer) }
            });
            let cluster = Cluster::of_client(Client::new(service, "default"), Arc::new(SystemClock::new()));
            Self { cluster, lists, forbidden, opened }
        }

        async fn next_watch(&mut self) -> Lines {
            self.opened.recv().await.expect("a watch")
        }

        fn subscribe(&self, watches: &Watches, target: &ObjectRef) -> (Subscription, Arc<Notify>) {
            let bell = Arc::new(Notify::new());
            (watches.subscribe(&self.cluster, target, Arc::clone(&bell)), bell)
        }
    }

    fn event(kind: &str, name: &str) -> Value {
        let metadata = json!({"name": name, "namespace": "default", "resourceVersion": "2"});
        json!({"type": kind, "object": {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata}})
    }

    async fn rings(bell: &Notify) -> bool {
        tokio::time::timeout(Duration::from_secs(1), bell.notified()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn subscribers_share_one_watch_and_wake_for_what_concerns_them() {
        let (mut server, watches) = (Server::new(), Watches::default());
        let (first, web) = server.subscribe(&watches, &vm("web"));
        let (second, other) = server.subscribe(&watches, &vm("other"));
        let (third, every) = server.subscribe(&watches, &ObjectRef { select: Selector::All, ..vm("") });
        let lines = server.next_watch().await;
        for bell in [&web, &other, &every] {
            assert!(rings(bell).await, "once, when the watch has begun");
        }
        assert!(watches.count() == 1 && first.must_poll().is_none());
        for kind in ["ADDED", "MODIFIED", "DELETED"] {
            lines.send(event(kind, "web")).expect("open");
            assert!(rings(&web).await && rings(&every).await && !rings(&other).await, "{kind}");
        }
        drop((first, second));
        lines.send(event("MODIFIED", "web")).expect("open");
        assert!(rings(&every).await && !rings(&web).await, "who has left is not woken");
        drop(third);
        assert_eq!(watches.count(), 0);
        lines.closed().await;
    }

    #[tokio::test(start_paused = true)]
    async fn other_kinds_and_namespaces_have_watches_of_their_own() {
        let (server, watches) = (Server::new(), Watches::default());
        let rest = ObjectRef { namespace: Some("rest".into()), ..vm("web") };
        let everywhere = ObjectRef { all_namespaces: true, select: Selector::All, ..vm("web") };
        let kept = [vm("web"), vm("b"), rest, everywhere].map(|target| server.subscribe(&watches, &target));
        assert_eq!(watches.count(), 3);
        drop(kept);
    }

    #[tokio::test(start_paused = true)]
    async fn a_forgotten_version_lists_anew_and_wakes_everyone() {
        let (mut server, watches) = (Server::new(), Watches::default());
        let (kept, web) = server.subscribe(&watches, &vm("web"));
        let lines = server.next_watch().await;
        assert!(rings(&web).await);
        let gone = status(410, "Expired", "too old resource version");
        lines.send(json!({"type": "ERROR", "object": gone})).expect("open");
        drop(lines);
        let again = server.next_watch().await;
        assert_eq!(server.lists.load(Ordering::SeqCst), 2);
        assert!(rings(&web).await);
        again.send(event("MODIFIED", "web")).expect("open");
        assert!(rings(&web).await && kept.must_poll().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn who_may_not_watch_polls_until_it_may() {
        let (mut server, watches) = (Server::new(), Watches::default());
        *server.forbidden.lock().expect("unpoisoned") = true;
        let (kept, web) = server.subscribe(&watches, &vm("web"));
        for _ in 0..3 {
            web.notified().await;
            assert_eq!(kept.must_poll().expect("forbidden").code, codes::FORBIDDEN);
        }
        *server.forbidden.lock().expect("unpoisoned") = false;
        let _lines = server.next_watch().await;
        while kept.must_poll().is_some() {
            web.notified().await;
        }
        let (unknown, bell) = server.subscribe(&watches, &ObjectRef { kind: "Volume".into(), ..vm("web") });
        for _ in 0..2 {
            bell.notified().await;
            assert_eq!(unknown.must_poll().expect("unknown").code, codes::UNKNOWN_KIND);
        }
    }
}

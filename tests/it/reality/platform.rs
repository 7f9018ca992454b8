//! The platform behind a real API server: the controllers of the rehearsal cluster over watches of it.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;

use futures::StreamExt;
use http::Method;
use http::Request;
use kube::Api;
use kube::Client;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use kube::runtime::watcher::Event;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use windrow::definition::model::Rehearsal;
use windrow::sim::Fault;
use windrow::sim::crew::Crew;
use windrow::sim::crew::Foundation;
use windrow::sim::crew::Turn;
use windrow::sim::crew::Watched;
use windrow::sim::list_faults;
use windrow::time::SharedClock;

use crate::paths::kinds::find;
use crate::reality::server::send;

/// How much news may wait for the controllers.
const NEWS_MAX: usize = 1024;

/// What a watch tells.
enum News {
    Seen(Value),
    Gone(Value),
    /// Everything that was there is told.
    Ready,
}

/// A platform at work until it is dropped.
pub(crate) struct Platform {
    shared: Arc<Shared>,
    settled: watch::Receiver<bool>,
    _tasks: JoinSet<()>,
}

/// What the controllers' task and the front share.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) clock: SharedClock,
    crew: Mutex<Crew>,
}

impl Platform {
    /// Makes the cluster of a case, then sets the controllers to work.
    pub(crate) async fn found(client: Client, case: &Rehearsal, clock: SharedClock) -> Self {
        let (faults, already) = (named(&case.faults), named(&case.already));
        let further = objects(case.fixture.as_deref().unwrap_or_default());
        let foundation = Foundation::new(&further, &faults, &already, clock.now(), clock.speed());
        lay(foundation, &client).await;
        let crew = Mutex::new(Crew::new([faults, already].concat(), clock.speed()));
        let shared = Arc::new(Shared { client: client.clone(), clock, crew });
        let (tell, news) = mpsc::channel(NEWS_MAX);
        let mut tasks = JoinSet::new();
        let mut kinds = 0;
        for kind in Crew::watched() {
            tasks.spawn(observe(client.clone(), kind, tell.clone()));
            kinds += 1;
        }
        let (settle, settled) = watch::channel(false);
        tasks.spawn(work(shared.clone(), news, kinds, settle));
        Self { shared, settled, _tasks: tasks }
    }

    /// Waits until the controllers have reacted to everything.
    pub(crate) async fn settled(&self) {
        self.settled.clone().wait_for(|settled| *settled).await.unwrap();
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }
}

impl Shared {
    pub(crate) fn crew(&self) -> MutexGuard<'_, Crew> {
        self.crew.lock().unwrap()
    }

    /// Sends a request of the platform and takes in what it came to.
    pub(crate) async fn carry_out(&self, request: Request<Vec<u8>>) -> Result<(), kube::Error> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answer = match self.client.request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 || status.reason == "AlreadyExists" => {
                return Ok(());
            }
            answer => answer?,
        };
        let object = if method == Method::DELETE || answer["kind"] == "Status" {
            // A deleted object may be gone or be held; a binding is no pod.
            send(&self.client, "GET", path.trim_end_matches("/binding"), &Value::Null).await.ok()
        } else {
            Some(answer)
        };
        if let Some(object) = object {
            self.crew().saw(object, self.clock.now());
        }
        Ok(())
    }
}

/// The faults of these names.
fn named(names: &[String]) -> Vec<Fault> {
    list_faults().into_iter().filter(|fault| names.iter().any(|name| name == fault.name)).collect()
}

/// The objects of a fixture.
fn objects(fixture: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(fixture).unwrap();
    let mut objects: Vec<Value> = documents.into_iter().filter(|document| !document.is_null()).collect();
    for object in &mut objects {
        let text = |name: &str| object[name].as_str().unwrap_or_default();
        let namespaced = find(text("apiVersion"), text("kind")).is_some_and(|kind| kind.resource.namespaced);
        if namespaced && object["metadata"]["namespace"].is_null() {
            object["metadata"]["namespace"] = "default".into();
        }
    }
    objects
}

/// Creates the objects, then completes them.
async fn lay(mut foundation: Foundation, client: &Client) {
    let mut refused = vec![];
    for number in 0..foundation.count() {
        let request = foundation.create(number);
        let (path, body) = (request.uri().path().to_owned(), request.body().clone());
        let created = match client.request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
                let object: Value = serde_json::from_slice(&body).unwrap();
                let url = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
                send(client, "GET", &url, &Value::Null).await
            }
            answer => answer,
        };
        match created {
            Ok(created) => foundation.created(number, created["metadata"]["uid"].as_str().unwrap()),
            Err(error) => refused.push(format!("{error}: {path} {}", String::from_utf8_lossy(&body))),
        }
    }
    for request in (0..foundation.count()).flat_map(|number| foundation.complete(number)) {
        let what = format!("{} {}", request.uri().path(), String::from_utf8_lossy(request.body()));
        if let Err(error) = client.request::<Value>(request).await {
            refused.push(format!("{error}: {what}"));
        }
    }
    assert!(refused.is_empty(), "the server refuses\n  {}", refused.join("\n  "));
}

/// Tells of the objects of a kind.
async fn observe(client: Client, kind: Watched, tell: mpsc::Sender<News>) {
    let gvk = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, kind.plural);
    let full = |object: DynamicObject| {
        let mut object = serde_json::to_value(object).unwrap();
        object["apiVersion"] = resource.api_version.clone().into();
        object["kind"] = kind.kind.into();
        object
    };
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let mut events = watcher(api, watcher::Config::default()).boxed();
    while let Some(event) = events.next().await {
        let news = match event {
            Ok(Event::InitApply(object) | Event::Apply(object)) => News::Seen(full(object)),
            Ok(Event::Delete(object)) => News::Gone(full(object)),
            Ok(Event::InitDone) => News::Ready,
            // It is opened again.
            Ok(Event::Init) | Err(_) => continue,
        };
        if tell.send(news).await.is_err() {
            return;
        }
    }
}

/// Lets the controllers work as soon as they see all kinds.
async fn work(
    shared: Arc<Shared>,
    mut news: mpsc::Receiver<News>,
    mut unseen: usize,
    settle: watch::Sender<bool>,
) {
    let take = |news: News, unseen: &mut usize| match news {
        News::Seen(object) => shared.crew().saw(object, shared.clock.now()),
        News::Gone(object) => shared.crew().lost(&object, shared.clock.now()),
        News::Ready => *unseen = unseen.saturating_sub(1),
    };
    loop {
        while let Ok(news) = news.try_recv() {
            take(news, &mut unseen);
        }
        let turn = if unseen == 0 { shared.crew().turn(shared.clock.now()) } else { None };
        if let Some(turn) = turn {
            carry_out(&shared, turn).await;
            continue;
        }
        let next = shared.crew().next();
        let is_settled = shared.crew().is_settled();
        settle.send_if_modified(|settled| std::mem::replace(settled, is_settled && unseen == 0) != *settled);
        let due = next.filter(|_| unseen == 0).map(|at| shared.clock.sleep_until(at));
        tokio::select! {
            received = news.recv() => match received {
                Some(news) => take(news, &mut unseen),
                None => return,
            },
            () = async { due.unwrap().await }, if due.is_some() => {}
        }
    }
}

async fn carry_out(shared: &Shared, mut turn: Turn) {
    for request in std::mem::take(&mut turn.requests) {
        let what = format!("{} {}", request.method(), request.uri());
        if let Err(error) = shared.carry_out(request).await {
            eprintln!("{} is refused {what}: {error}", turn.controller);
            shared.crew().failed(&turn, shared.clock.now());
        }
    }
}

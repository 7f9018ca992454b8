//! Faults of the simulated API, as kube-rs meets them.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{
    Api, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, Error};
use serde_json::json;
use windrow::sim::{Cluster, Options, list_faults};
use windrow::time::{Clock, SystemClock, Timestamp};

const VM: &str = r"
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: { name: idle }
spec: { runStrategy: Halted, template: { spec: { domain: {} } } }
";

/// A cluster on the paused clock with some faults, and a client of it.
struct Faulty {
    cluster: Cluster,
    client: Client,
    clock: SystemClock,
}

impl Faulty {
    fn start(seed: u64, names: &[&str]) -> Self {
        let clock = SystemClock::starting_at(Timestamp::from_millis(1_780_000_000_000), 1.0);
        let faults: Vec<_> = list_faults().into_iter().filter(|fault| names.contains(&fault.name)).collect();
        assert_eq!(faults.len(), names.len(), "each fault is known");
        let options =
            Options { seed, faults, fixtures: vec![VM.to_owned()], empty: true, ..Options::default() };
        let cluster = Cluster::start(options, Arc::new(clock)).unwrap();
        let client = Client::new(cluster.service(), "default");
        Self { cluster, client, clock }
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.client.clone())
    }

    fn machines(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachine");
        Api::default_namespaced_with(self.client.clone(), &ApiResource::from_gvk(&kind))
    }

    async fn create(&self, name: &str) -> Result<ConfigMap, Error> {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let map = ConfigMap { metadata, ..ConfigMap::default() };
        self.maps().create(&PostParams::default(), &map).await
    }

    /// Labels the virtual machine.
    async fn label(&self, value: &str) -> Result<DynamicObject, Error> {
        let patch = json!({"metadata": {"labels": {"try": value}}});
        self.machines().patch("idle", &PatchParams::default(), &Patch::Merge(patch)).await
    }

    /// How many accepted writes of clients the audit log holds.
    fn accepted(&self) -> usize {
        self.cluster.audit().iter().filter(|entry| !entry.controller).count()
    }
}

/// The code of a refusal.
fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> u16 {
    match result {
        Err(Error::Api(status)) => status.code,
        other => panic!("no refusal: {other:?}"),
    }
}

/// A watch from now on.
async fn watch(faulty: &Faulty) -> impl futures::Stream<Item = Result<WatchEvent<ConfigMap>, Error>> {
    let version =
        faulty.maps().list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    faulty.maps().watch(&WatchParams::default().timeout(200), &version).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_webhook_that_is_down_refuses_virtual_machines_only_and_comes_back() {
    let faulty = Faulty::start(0, &["webhook-down"]);
    faulty.create("a").await.unwrap();
    let refused = faulty.label("1").await.unwrap_err().to_string();
    assert!(refused.contains("failed calling webhook"), "{refused}");
    faulty.clock.sleep(Duration::from_secs(40)).await;
    faulty.label("2").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_restart_breaks_connections_and_leaves_the_outcome_of_a_write_open() {
    for (seed, kept) in [(0, true), (1, false)] {
        let faulty = Faulty::start(seed, &["apiserver-restart"]);
        let mut events = std::pin::pin!(watch(&faulty).await);
        assert!(matches!(faulty.create("a").await, Err(Error::Service(_) | Error::HyperError(_))));
        assert!(matches!(faulty.create("b").await, Err(Error::Service(_) | Error::HyperError(_))));
        // The watch may still deliver the write, then it breaks.
        let broken = loop {
            match events.try_next().await {
                Ok(Some(_)) => {}
                other => break other,
            }
        };
        assert!(!matches!(broken, Ok(Some(_))));
        faulty.clock.sleep(Duration::from_secs(20)).await;
        assert_eq!(faulty.maps().get_opt("a").await.unwrap().is_some(), kept, "seed {seed}");
        assert!(faulty.maps().get_opt("b").await.unwrap().is_none());
        assert_eq!(faulty.accepted(), usize::from(kept));
        faulty.create("c").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn conflicts_come_in_a_storm_and_pass() {
    let faulty = Faulty::start(7, &["conflict-storm"]);
    let mut refusals = 0;
    for i in 0..20 {
        if let Err(error) = faulty.label(&i.to_string()).await {
            assert_eq!(code::<()>(Err(error)), 409);
            refusals += 1;
        }
    }
    assert!((3..=6).contains(&refusals), "{refusals}");
    assert_eq!(faulty.accepted(), 20 - refusals);
}

#[tokio::test(start_paused = true)]
async fn who_may_not_write_virtual_machines_may_read_them() {
    let faulty = Faulty::start(0, &["rbac-denied"]);
    assert_eq!(code(faulty.label("1").await), 403);
    faulty.machines().get("idle").await.unwrap();
    faulty.create("a").await.unwrap();
    let start = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/idle/start";
    let start = http::Request::put(start).body(vec![]).unwrap();
    assert_eq!(code(faulty.client.request_text(start).await), 403);
}

#[tokio::test(start_paused = true)]
async fn who_may_not_list_virtual_machines_may_get_and_change_them() {
    let faulty = Faulty::start(0, &["list-denied"]);
    let refused = faulty.machines().list(&ListParams::default()).await.unwrap_err().to_string();
    assert!(refused.contains("cannot list resource \"virtualmachines\""), "{refused}");
    assert_eq!(code(faulty.machines().watch(&WatchParams::default(), "0").await.map(drop)), 403);
    faulty.machines().get("idle").await.unwrap();
    faulty.label("1").await.unwrap();
    faulty.maps().list(&ListParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_ready_says_so_and_goes_on_answering() {
    let faulty = Faulty::start(0, &["api-unready"]);
    let ask = |path: &str| faulty.client.request_text(http::Request::get(path).body(vec![]).unwrap());
    let refused = ask("/readyz").await.unwrap_err().to_string();
    assert!(refused.contains("[-]etcd failed"), "{refused}");
    assert_eq!(ask("/livez").await.unwrap(), "ok");
    faulty.create("a").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_server_of_the_subresources_is_back_after_a_minute() {
    let faulty = Faulty::start(0, &["virt-api-restart"]);
    let start = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/idle/start";
    let start = || faulty.client.request_text(http::Request::put(start).body(vec![]).unwrap());
    assert_eq!(code(start().await), 503);
    faulty.label("1").await.unwrap();
    faulty.clock.sleep(Duration::from_secs(50)).await;
    assert_eq!(code(start().await), 503);
    faulty.clock.sleep(Duration::from_secs(20)).await;
    start().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_lags_tells_everything_later() {
    let faulty = Faulty::start(0, &["watch-lag"]);
    let mut events = std::pin::pin!(watch(&faulty).await);
    let before = faulty.clock.now();
    faulty.create("a").await.unwrap();
    let event = events.try_next().await.unwrap();
    assert!(matches!(event, Some(WatchEvent::Added(map)) if map.metadata.name.as_deref() == Some("a")));
    assert!(faulty.clock.now().since(before) >= Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_tells_nothing_until_it_ends() {
    let faulty = Faulty::start(0, &["watch-silent"]);
    let mut events = std::pin::pin!(watch(&faulty).await);
    let before = faulty.clock.now();
    faulty.create("a").await.unwrap();
    assert!(events.try_next().await.unwrap().is_none());
    assert!(faulty.clock.now().since(before) >= Duration::from_secs(200));
}

#[tokio::test(start_paused = true)]
async fn a_watcher_survives_that_its_watches_are_gone() {
    let faulty = Faulty::start(0, &["watch-gone"]);
    let stream = watcher(faulty.maps(), watcher::Config::default()).default_backoff().applied_objects();
    let mut stream = std::pin::pin!(stream);
    let mut errors = 0;
    for name in ["a", "b", "c"] {
        faulty.create(name).await.unwrap();
        loop {
            match stream.try_next().await {
                Ok(Some(map)) if map.metadata.name.as_deref() == Some(name) => break,
                Ok(Some(_)) => {}
                Ok(None) => panic!("a watcher does not end"),
                Err(_) => errors += 1,
            }
        }
        faulty.clock.sleep(Duration::from_secs(10)).await;
    }
    assert!(errors >= 1, "a watch was told 410");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_is_told_where_it_stands() {
    let faulty = Faulty::start(0, &[]);
    let version =
        faulty.maps().list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let params = WatchParams::default().timeout(200);
    let mut events = std::pin::pin!(faulty.maps().watch(&params, &version).await.unwrap());
    let before = faulty.clock.now();
    let Some(WatchEvent::Bookmark(bookmark)) = events.try_next().await.unwrap() else {
        panic!("a bookmark comes first");
    };
    assert!(bookmark.metadata.resource_version >= version);
    assert!(faulty.clock.now().since(before) >= Duration::from_mins(1));
    faulty.create("a").await.unwrap();
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
}

//! What the platform does and no shipped workflow asks for yet: its controllers write fields then that no rehearsal sees.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use kube::Client;
use serde_json::Value;
use windrow::sim::Cluster;
use windrow::sim::Options;
use windrow::time::Clock;
use windrow::time::SystemClock;

use crate::paths::Paths;
use crate::paths::kinds::find;
use crate::support::START;

/// How long the controllers get for each wish. The slowest, a backup, takes some minutes.
const EACH_GETS: Duration = Duration::from_mins(10);

/// Asks for each object of `tests/fixtures/beyond-workflows.yaml` and notes what was written.
pub(crate) fn written() -> Paths {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(ask())
}

async fn ask() -> Paths {
    let wishes: Vec<Value> =
        serde_saphyr::from_multiple(include_str!("../../fixtures/beyond-workflows.yaml")).unwrap();
    let clock = Arc::new(SystemClock::starting_at(START, 1.0));
    let cluster = Cluster::start(Options::default(), clock.clone()).unwrap();
    let client = Client::new(cluster.service(), "default");
    for wish in wishes {
        let text = |name: &str| wish[name].as_str().unwrap();
        let kind = find(text("apiVersion"), text("kind")).unwrap();
        let request = Request::post(kind.url("default")).header("content-type", "application/json");
        let request = request.body(wish.to_string().into_bytes()).unwrap();
        client.request::<Value>(request).await.unwrap_or_else(|error| panic!("{wish}: {error}"));
        clock.sleep(EACH_GETS).await;
        cluster.settled().await;
    }
    let mut paths = Paths::default();
    paths.note(&cluster);
    paths
}

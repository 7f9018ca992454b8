//! Runs on a cluster, and on the wrong one (E10).

use std::sync::Arc;

use rustix::process::Signal;
use tokio::net::TcpListener;
use windrow::sim;
use windrow::time::SystemClock;

use super::site::Site;

/// A rehearsal cluster, and a kubeconfig for it in `file`.
pub(super) async fn cluster(site: &Site, file: &str, seed: u64) -> sim::Cluster {
    let options = sim::Options { seed, ..sim::Options::default() };
    let cluster = sim::Cluster::start(options, Arc::new(SystemClock::at_speed(30.0))).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    site.write(file, &sim::Cluster::kubeconfig(listener.local_addr().unwrap()));
    let served = cluster.clone();
    tokio::spawn(async move { served.serve(listener, std::future::pending()).await });
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_goes_on_on_its_own_cluster_and_is_left_alone_on_another() {
    let site = Site::new();
    let own = cluster(&site, "own", 1).await;
    let other = cluster(&site, "other", 2).await;
    let asked_before = other.audit().len();
    let owner = site.stay(&["run", "vm-stop", "-i", "vm=demo", "--kubeconfig", "own"]).await;
    let run = site.newest("vm-stop").await;
    owner.signal(Signal::INT);
    assert_eq!(owner.ended().await.0, 130);

    let before = site.show(&run).await;
    let said = site.expect(6, &["resume", &run, "--kubeconfig", "other", "--output", "json"]).await.json();
    assert_eq!(said["error"]["code"], "wrong-cluster");
    let message = said["error"]["message"].as_str().unwrap();
    assert!(message.contains(before["cluster"].as_str().unwrap()), "both are named: {message}");
    site.expect(6, &["resume", "--kubeconfig", "other"]).await;
    assert_eq!(site.show(&run).await, before, "the run is untouched");
    assert!(!other.audit()[asked_before..].iter().any(|entry| format!("{entry:?}").contains("windrow")));

    site.expect(0, &["resume", &run, "--kubeconfig", "own"]).await;
    let view = site.show(&run).await;
    assert_eq!((&view["state"], &view["cluster"]), (&"Succeeded".into(), &before["cluster"]));
    assert_eq!(view["verdict"]["name"], "stopped", "{view:#}");
    let stopped = own
        .objects()
        .into_iter()
        .any(|(_, object)| object["kind"] == "VirtualMachine" && object["spec"]["runStrategy"] == "Halted");
    assert!(stopped);
}

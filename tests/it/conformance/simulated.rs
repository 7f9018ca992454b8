//! The simulated server. As on the real one, no platform stands behind its API: what KubeVirt's webhooks and controllers
//! do is not the business of these checks.

use std::future::pending;
use std::net::Ipv4Addr;
use std::sync::Arc;

use kube::Client;
use kube::config::Kubeconfig;
use tokio::net::TcpListener;
use windrow::sim::{Cluster, Fault, Options, Platform, list_faults};
use windrow::time::SystemClock;

use crate::conformance::server::Server;
use crate::support::controlplane::client_of;

/// Starts a cluster for the administrator, and one on which its user is limited.
pub(crate) async fn start() -> Server {
    let denied = list_faults().into_iter().filter(|fault| fault.name == "rbac-denied").collect();
    Server::new(served(vec![]).await.1, served(denied).await.1)
}

/// Serves a cluster with these faults on a socket, and connects to it.
pub(crate) async fn served(faults: Vec<Fault>) -> (Cluster, Client) {
    let options = Options { faults, empty: true, ..Options::default() };
    let cluster = Cluster::start_with(options, Platform::default(), Arc::new(SystemClock::new())).unwrap();
    // As on the real server, where the kinds of the checks came late: what happened before is history.
    cluster.compact();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let kubeconfig = Cluster::kubeconfig(listener.local_addr().unwrap());
    let server = cluster.clone();
    tokio::spawn(async move { server.serve(listener, pending()).await });
    (cluster, client_of(Kubeconfig::from_yaml(&kubeconfig).unwrap()).await)
}

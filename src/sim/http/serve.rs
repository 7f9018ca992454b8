//! The cluster on a socket, and as a service within the process.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::body::Bytes;
use axum::body::HttpBody;
use axum::response::Response;
use futures::future::BoxFuture;
use http::Request;

use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::sim::cluster::Cluster;
use crate::sim::cluster::lock;
use crate::sim::http::Cut;

/// How long an accept that failed is left alone; file descriptors may have run out.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The API as a tower service whose connections can break. kube-rs takes it as its transport.
#[derive(Clone)]
pub struct Service {
    cluster: Cluster,
    router: axum::Router,
}

impl<B> tower::Service<Request<B>> for Service
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = io::Error;
    type Future = BoxFuture<'static, Result<Response, io::Error>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if self.cluster.is_down() {
            return Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) });
        }
        let answer = tower::ServiceExt::oneshot(self.router.clone(), request.map(Body::new));
        Box::pin(async move {
            let response = answer.await.unwrap_or_else(|never| match never {});
            if response.extensions().get::<Cut>().is_some() {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            Ok(response)
        })
    }
}

impl Cluster {
    /// The API as a service within the process.
    pub fn service(&self) -> Service {
        Service { cluster: self.clone(), router: self.router() }
    }

    /// Whether the API server is away.
    pub(super) fn is_down(&self) -> bool {
        let inner = self.inner();
        lock(&inner.trouble).server_is_down(inner.clock.now())
    }

    /// Breaks all open connections.
    pub(super) fn begin_outage(&self) {
        self.inner().outages.send_modify(|outages| *outages += 1);
    }

    /// Serves on a socket until `shutdown` is done. Open connections end with it.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut connections = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                () = &mut shutdown => return,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) if !self.is_down() => {
                        connections.spawn(self.clone().connection(stream));
                    }
                    // Dropped at once: the client sees a closed connection.
                    Ok(_) => {}
                    Err(error) => {
                        tracing::warn!(%error, "a connection is not accepted");
                        self.inner().clock.sleep(ACCEPT_AGAIN).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn connection(self, stream: TcpStream) {
        let mut outages = self.inner().outages.subscribe();
        let mut http = hyper::server::conn::http1::Builder::new();
        let service = TowerToHyperService::new(self.service());
        let connection = http.keep_alive(true).serve_connection(TokioIo::new(stream), service);
        let mut connection: Pin<_> = std::pin::pin!(connection);
        tokio::select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ends");
                }
            }
            _ = outages.changed() => {}
        }
    }

    /// A kubeconfig for a server at `address`, as YAML (which JSON is).
    pub fn kubeconfig(address: SocketAddr) -> String {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rehearsal", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "rehearsal", "user": {}}],
            "contexts": [{
                "name": "rehearsal",
                "context": {"cluster": "rehearsal", "user": "rehearsal", "namespace": "default"}
            }],
            "current-context": "rehearsal",
        });
        format!("{config:#}\n")
    }
}

//! The Kubernetes API over HTTP.

mod authorize;
mod columns;
mod discovery;
mod list;
mod logs;
mod negotiate;
mod objects;
mod openapi;
mod request;
mod review;
mod selector;
mod serve;
mod subresource;
mod table;
mod watch;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::Method;
use http::header::{CONTENT_TYPE, DATE};
use http_body_util::BodyExt as _;
use http_body_util::LengthLimitError;
use http_body_util::Limited;
use serde_json::{Value, json};

pub use self::serve::Service;
use crate::sim::cluster::Cluster;
use crate::sim::cluster::lock;
use crate::sim::failure::Failure;
use crate::sim::http::request::Request;
use crate::sim::http::request::Target;
use crate::time::Timestamp;

/// The largest body of a request; kube-apiserver's own limit.
const BODY_MAX: usize = 3 * 1024 * 1024;

/// Marks an answer that never reaches the client: the connection breaks instead.
#[derive(Debug, Clone, Copy)]
struct Cut;

impl Cluster {
    /// The API as a router. Broken connections look like 503 here; [`Cluster::service`] really breaks them.
    pub fn router(&self) -> axum::Router {
        axum::Router::new().fallback(answer).with_state(self.clone())
    }
}

/// Answers one request.
async fn answer(State(cluster): State<Cluster>, request: http::Request<Body>) -> Response {
    let now = cluster.inner().clock.now();
    if cluster.is_down() {
        return cut();
    }
    let (head, body) = request.into_parts();
    let result = match Limited::new(body, BODY_MAX).collect().await {
        Ok(body) => Request::new(&head, body.to_bytes()).and_then(|request| route(&cluster, &request)),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Failure::new(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728"))
        }
        Err(error) => Err(Failure::bad_request(format!("the body cannot be read: {error}"))),
    };
    let mut response = result.unwrap_or_else(|failure| refusal(&failure));
    if let Ok(date) = http_date(now).parse() {
        response.headers_mut().insert(DATE, date);
    }
    response
}

fn route(cluster: &Cluster, request: &Request) -> Result<Response, Failure> {
    authorize::check(cluster, request)?;
    if let Some(response) = discovery::answer(request).or_else(|| openapi::answer(request)) {
        return Ok(response);
    }
    match &request.target {
        Target::Plain => Ok(health(cluster, request)),
        Target::Review { .. } => review::answer(cluster, request),
        Target::Platform { .. } => subresource::answer(cluster, request),
        Target::Collection { .. } if request.method == Method::GET && request.query.flag("watch") => {
            watch::answer(cluster, request)
        }
        Target::Collection { .. } if request.method == Method::GET => list::answer(cluster, request),
        Target::Collection { .. } | Target::Object { .. } => objects::answer(cluster, request),
        Target::NoResource { custom: true } => Ok(text(404, "404 page not found\n")),
        Target::NoResource { custom: false } => Err(Failure::no_resource()),
    }
}

fn health(cluster: &Cluster, request: &Request) -> Response {
    let ready = lock(&cluster.inner().trouble).server_is_ready();
    match request.path.as_str() {
        "/readyz" if !ready => {
            text(500, "[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\nreadyz check failed\n")
        }
        "/healthz" | "/livez" | "/readyz" if request.query.has("verbose") => {
            let name = &request.path[1..];
            text(200, format!("[+]ping ok\n[+]log ok\n[+]etcd ok\n{name} check passed\n"))
        }
        "/healthz" | "/livez" | "/readyz" => text(200, "ok"),
        "/version" => json_response(
            200,
            &json!({
                "major": "1", "minor": "33", "gitVersion": "v1.33.4+rehearsal", "gitCommit": "",
                "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "",
                "compiler": "rustc", "platform": "linux/amd64"
            }),
        ),
        _ => text(404, "404 page not found\n"),
    }
}

/// A JSON answer.
fn json_response(code: u16, body: &Value) -> Response {
    response(code, "application/json", body.to_string())
}

/// A text answer.
fn text(code: u16, body: impl Into<Body>) -> Response {
    response(code, "text/plain; charset=utf-8", body)
}

fn response(code: u16, content_type: &str, body: impl Into<Body>) -> Response {
    let response = Response::builder().status(code).header(CONTENT_TYPE, content_type).body(body.into());
    response.expect("the code and the content type are constants of this module")
}

fn refusal(failure: &Failure) -> Response {
    json_response(failure.code, &failure.status())
}

fn cut() -> Response {
    let mut response = refusal(&Failure::unavailable("the API server is restarting"));
    response.extensions_mut().insert(Cut);
    response
}

/// A moment as HTTP headers write it.
fn http_date(at: Timestamp) -> String {
    let moment = jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or_default();
    moment.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

//! The way to an API server: every request has a limit, and every failure a class.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::RwLock;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::StatusCode;
use http_body_util::BodyExt;
use http_body_util::LengthLimitError;
use http_body_util::Limited;
use kube::Client;
use kube::client::Body;
use kube::core::ApiResource;
use serde_json::Value;

use crate::action::codes;
use crate::action::k8s::classify;
use crate::action::k8s::classify::Intent;
use crate::action::k8s::classify::Refusal;
pub use crate::action::k8s::source::Source;
use crate::failure::Failure;
use crate::time::SharedClock;
use crate::time::Timestamp;

/// The largest answer that is taken. A page of a list holds at most 500 objects, and etcd none above 1.5 MiB.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// The limit of a read.
pub const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// A kind as the server serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// Group, version, kind and the plural that URLs use.
    pub resource: ApiResource,
    /// Its objects live in namespaces.
    pub namespaced: bool,
}

impl Kind {
    /// The URL path of its objects, as `api` serves them: the kind's own apiVersion, or that of an API for verbs.
    pub fn path(&self, api: &str, namespace: Option<&str>) -> String {
        let namespace = namespace.map_or_else(String::new, |namespace| format!("namespaces/{namespace}/"));
        format!("{}/{namespace}{}", root_of(api), self.resource.plural)
    }
}

/// The URL path of an apiVersion.
fn root_of(api: &str) -> String {
    if api.contains('/') { format!("/apis/{api}") } else { format!("/api/{api}") }
}

/// A cluster. Clones share the connection and what is known about the server.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    /// None for a given service: there is nothing to load again.
    source: Option<Source>,
    client: RwLock<Client>,
    /// Its address, for messages.
    server: String,
    kinds: Mutex<BTreeMap<(String, String), Arc<Kind>>>,
    /// Milliseconds that the server's clock is ahead of ours, as last seen.
    offset_ms: AtomicI64,
    clock: SharedClock,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cluster").field(&self.0.source).finish()
    }
}

/// What is meant with a request.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Whether it writes.
    pub intent: Intent,
    /// How long the answer may take.
    pub limit: Duration,
    /// For messages: verb and object.
    pub what: String,
}

impl Ask {
    /// A read with the usual limit.
    pub fn read(what: impl Into<String>) -> Self {
        Self { intent: Intent::Read, limit: READ_TIMEOUT, what: what.into() }
    }

    /// A success whose body is not what was promised.
    pub fn unreadable(&self, error: &dyn std::error::Error) -> Failure {
        classify::unreadable(self.intent, &self.what, error)
    }
}

/// A GET of a path.
pub fn get(path: &str) -> Result<http::Request<Vec<u8>>, Failure> {
    http::Request::get(path).body(vec![]).map_err(|error| bad_request(&error))
}

/// A request that cannot even be put together.
pub fn bad_request(error: &dyn std::error::Error) -> Failure {
    Failure::permanent(codes::BAD_REQUEST, error.to_string())
}

/// An answer of the server.
#[derive(Debug)]
pub struct Reply {
    /// The HTTP status.
    pub code: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Reply {
    /// The reply as a refusal, if it is no success.
    pub fn refusal(&self) -> Option<Refusal<'_>> {
        let refused = !self.code.is_success();
        refused.then_some(Refusal { code: self.code, headers: &self.headers, body: &self.body })
    }
}

impl Cluster {
    /// Reads the configuration. No request is made yet.
    pub async fn connect(source: Source, clock: SharedClock) -> Result<Self, Failure> {
        let (client, server) = source.connect().await?;
        Ok(Self::with(Some(source), client, server, clock))
    }

    /// A cluster behind any client, for instance around the service of an embedded API server.
    pub fn of_client(client: Client, clock: SharedClock) -> Self {
        Self::with(None, client, "embedded in this process".to_owned(), clock)
    }

    fn with(source: Option<Source>, client: Client, server: String, clock: SharedClock) -> Self {
        Self(Arc::new(Inner {
            source,
            client: RwLock::new(client),
            server,
            kinds: Mutex::default(),
            offset_ms: AtomicI64::new(0),
            clock,
        }))
    }

    /// The kube client as it is now.
    pub fn client(&self) -> Client {
        self.0.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The clock that the cluster was given.
    pub fn clock(&self) -> &SharedClock {
        &self.0.clock
    }

    /// Loads the credentials again: tokens and certificates are rotated. False if there is nothing to load.
    pub(crate) async fn reload(&self) -> Result<bool, Failure> {
        let Some(source) = &self.0.source else { return Ok(false) };
        let (client, _) = source.connect().await?;
        *self.0.client.write().unwrap_or_else(PoisonError::into_inner) = client;
        Ok(true)
    }

    /// The server's time, by its Date header (C6).
    pub fn server_now(&self) -> Timestamp {
        let own = self.0.clock.now().as_millis();
        Timestamp::from_millis(own.saturating_add(self.0.offset_ms.load(Ordering::Relaxed)))
    }

    /// The cluster's identity: the uid of its namespace `kube-system` (E10).
    pub async fn uid(&self) -> Result<String, Failure> {
        let ask = Ask::read("read Namespace kube-system");
        let namespace = self.json(get("/api/v1/namespaces/kube-system")?, &ask).await;
        let namespace = namespace.map_err(|failure| self.named(failure))?;
        let uid = namespace.pointer("/metadata/uid").and_then(Value::as_str);
        let missing = || Failure::retryable(codes::BAD_ANSWER, format!("{}: it has no uid", ask.what));
        uid.map(str::to_owned).ok_or_else(missing)
    }

    /// The failure, with the address that was asked.
    fn named(&self, failure: Failure) -> Failure {
        let message = format!("the cluster {}: {}", self.0.server, failure.message);
        Failure { message, message_zh: None, ..failure }
    }

    /// The kind with exactly that apiVersion and name, from the cache or from the server.
    pub async fn kind(&self, api: &str, kind: &str) -> Result<Arc<Kind>, Failure> {
        let key = (api.to_owned(), kind.to_owned());
        let known = self.kinds().get(&key).cloned();
        match known {
            Some(known) => Ok(known),
            None => self.discover(api, kind).await,
        }
    }

    /// Asks the server about a kind, whatever the cache says.
    pub async fn discover(&self, api: &str, kind: &str) -> Result<Arc<Kind>, Failure> {
        self.kinds().remove(&(api.to_owned(), kind.to_owned()));
        let ask = Ask::read(format!("look up kind {kind} of {api}"));
        let unknown =
            || Failure::permanent(codes::UNKNOWN_KIND, format!("{}: the server does not know it", ask.what));
        let (group, version) = api.split_once('/').unwrap_or(("", api));
        if !is_url_part(version) || !group.is_empty() && !is_url_part(group) {
            return Err(unknown());
        }
        let reply = self.call(get(&root_of(api))?, &ask).await?;
        if let Some(refusal) = reply.refusal() {
            // For an unknown group the server answers `404 page not found` in plain text.
            let by_server = refusal.status().is_some() || reply.body.starts_with(b"404 page not found");
            let gone = reply.code == StatusCode::NOT_FOUND && by_server;
            return Err(if gone { unknown() } else { refusal.classify(ask.intent, &ask.what) });
        }
        let list: Value = serde_json::from_slice(&reply.body).map_err(|error| ask.unreadable(&error))?;
        let found = find_kind(&list, group, version, kind).ok_or_else(unknown)?;
        let found = Arc::new(found);
        self.kinds().insert((api.to_owned(), kind.to_owned()), Arc::clone(&found));
        Ok(found)
    }

    fn kinds(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, String), Arc<Kind>>> {
        self.0.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and reads the JSON of a success; anything else is a failure.
    pub async fn json(&self, request: http::Request<Vec<u8>>, ask: &Ask) -> Result<Value, Failure> {
        let reply = self.call(request, ask).await?;
        match reply.refusal() {
            Some(refusal) => Err(refusal.classify(ask.intent, &ask.what)),
            None => serde_json::from_slice(&reply.body).map_err(|error| ask.unreadable(&error)),
        }
    }

    /// Sends a request and returns what the server answered, refusals included. If the credentials are refused,
    /// they are loaded again, once.
    pub async fn call(&self, request: http::Request<Vec<u8>>, ask: &Ask) -> Result<Reply, Failure> {
        let answer = async {
            let reply = self.send(request.clone(), ask).await?;
            let again = reply.code == StatusCode::UNAUTHORIZED && self.reload().await?;
            if again { self.send(request, ask).await } else { Ok(reply) }
        };
        let limited = tokio::time::timeout(ask.limit, answer).await;
        limited.unwrap_or_else(|_| Err(classify::timed_out(ask.intent, &ask.what)))
    }

    async fn send(&self, request: http::Request<Vec<u8>>, ask: &Ask) -> Result<Reply, Failure> {
        let sent = self.client().send(request.map(Body::from)).await;
        let answer = sent.map_err(|error| classify::transport(&error, ask.intent, &ask.what))?;
        self.note_clock(answer.headers());
        let (head, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| {
            if error.is::<LengthLimitError>() {
                Failure::permanent(codes::TOO_LARGE, format!("{}: the answer is too large", ask.what))
            } else {
                classify::transport(error.as_ref(), ask.intent, &ask.what)
            }
        })?;
        Ok(Reply { code: head.status, headers: head.headers, body: body.to_bytes() })
    }

    fn note_clock(&self, headers: &HeaderMap) {
        let date = headers.get(http::header::DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
        if let Some(date) = date {
            // The header is cut to seconds: half a second is the middle of what it may have been.
            let offset = date.timestamp().as_millisecond() + 500 - self.0.clock.now().as_millis();
            self.0.offset_ms.store(offset, Ordering::Relaxed);
        }
    }
}

/// A text that may stand between two slashes of a URL as it is: groups, versions, namespaces, object names.
pub fn is_url_part(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._:".contains(&b);
    !text.is_empty() && text.bytes().all(plain) && !text.trim_matches('.').is_empty()
}

/// The kind in an `APIResourceList`. Entries with a slash are subresources.
fn find_kind(list: &Value, group: &str, version: &str, kind: &str) -> Option<Kind> {
    let resources = list.get("resources")?.as_array()?;
    let text = |resource: &Value, key: &str| resource.get(key).and_then(Value::as_str).map(str::to_owned);
    let found = resources.iter().find(|resource| {
        text(resource, "kind").as_deref() == Some(kind)
            && text(resource, "name").is_some_and(|name| !name.contains('/'))
    })?;
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(Kind {
        resource: ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version,
            kind: kind.to_owned(),
            plural: text(found, "name")?,
        },
        namespaced: found.get("namespaced").and_then(Value::as_bool)?,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use serde_json::json;
    use tokio::io::AsyncReadExt;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tower::BoxError;

    use super::*;
    use crate::failure::FailureClass;
    use crate::time::SystemClock;

    fn cluster(
        answer: impl Fn(&str) -> http::Response<Body> + Send + Sync + 'static,
        clock: SharedClock,
    ) -> (Cluster, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let (counter, answer) = (Arc::clone(&count), Arc::new(answer));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            counter.fetch_add(1, Ordering::SeqCst);
            let answer = Arc::clone(&answer);
            async move { Ok::<_, BoxError>(answer(request.uri().path())) }
        });
        (Cluster::of_client(Client::new(service, "default"), clock), count)
    }

    fn text(code: u16, body: &str) -> http::Response<Body> {
        let body = Body::from(body.as_bytes().to_vec());
        http::Response::builder().status(code).body(body).expect("a response")
    }

    fn clock() -> SharedClock {
        Arc::new(SystemClock::new())
    }

    #[tokio::test]
    async fn a_kind_is_found_by_its_exact_name_once() {
        let list = json!({"resources": [
            {"name": "virtualmachines/status", "kind": "VirtualMachine", "namespaced": true},
            {"name": "virtualmachines", "kind": "VirtualMachine", "namespaced": true, "shortNames": ["vm"]},
        ]});
        let (cluster, count) = cluster(move |_| text(200, &list.to_string()), clock());
        for _ in 0..2 {
            let kind = cluster.kind("kubevirt.io/v1", "VirtualMachine").await.expect("known");
            assert_eq!(
                kind.path("kubevirt.io/v1", Some("n")),
                "/apis/kubevirt.io/v1/namespaces/n/virtualmachines"
            );
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
        for other in ["vm", "virtualmachines", "virtualmachine", ""] {
            let failure = cluster.kind("kubevirt.io/v1", other).await.expect_err(other);
            assert_eq!(
                (failure.class, failure.code.as_str()),
                (FailureClass::Permanent, codes::UNKNOWN_KIND)
            );
        }
        for api in ["", "a/b/c", "../x", "kubevirt.io/"] {
            assert_eq!(cluster.kind(api, "X").await.expect_err(api).code, codes::UNKNOWN_KIND, "{api}");
        }
        assert_eq!(count.load(Ordering::SeqCst), 5, "what is no apiVersion is not asked for");
    }

    #[tokio::test]
    async fn only_the_server_can_say_that_it_does_not_know_a_group() {
        let rows = [
            (404, "404 page not found\n", codes::UNKNOWN_KIND),
            (404, "<html>not found</html>", codes::BAD_ANSWER),
            (503, "service unavailable", codes::UNAVAILABLE),
            (200, "<html>welcome</html>", codes::BAD_ANSWER),
        ];
        for (code, body, expected) in rows {
            let (cluster, _) = cluster(move |_| text(code, body), clock());
            assert_eq!(cluster.kind("x.io/v1", "X").await.expect_err(body).code, expected, "{body}");
        }
    }

    #[tokio::test]
    async fn the_servers_clock_is_read_from_its_date() {
        let now: Timestamp = "2026-11-06T08:49:37Z".parse().expect("RFC 3339");
        let ours = SystemClock::starting_at(now, 1.0);
        let answer = |_: &str| {
            let mut answer = text(200, r#"{"metadata": {"uid": "u-1"}}"#);
            let date = http::HeaderValue::from_static("Fri, 06 Nov 2026 08:54:37 GMT");
            answer.headers_mut().insert(http::header::DATE, date);
            answer
        };
        let (cluster, _) = cluster(answer, Arc::new(ours));
        assert_eq!(cluster.uid().await.as_deref(), Ok("u-1"));
        let ahead = cluster.server_now().since(now);
        assert!(ahead >= Duration::from_mins(5) && ahead < Duration::from_mins(6), "{ahead:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_come_is_unknown_for_a_write_only() {
        let service =
            tower::service_fn(|_: http::Request<Body>| std::future::pending::<Result<_, BoxError>>());
        let client = Client::new::<_, Body, _>(service, "default");
        let cluster = Cluster::of_client(client, clock());
        for (intent, class) in
            [(Intent::Read, FailureClass::Retryable), (Intent::Write, FailureClass::Unknown)]
        {
            let ask = Ask { intent, limit: READ_TIMEOUT, what: "x".into() };
            let failure = cluster.json(get("/x").expect("a request"), &ask).await.expect_err("silence");
            assert_eq!((failure.class, failure.code.as_str()), (class, codes::TIMEOUT));
        }
    }

    /// A server that knows one token and counts what it is asked.
    async fn guarded(token: &'static str) -> (u16, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                let mut asked = vec![];
                while !asked.ends_with(b"\r\n\r\n") {
                    asked.push(stream.read_u8().await.expect("a request"));
                }
                let knows = String::from_utf8_lossy(&asked).contains(token);
                let (status, body) =
                    if knows { ("200 OK", r#"{"metadata":{"uid":"u"}}"#) } else { ("401 No", "{}") };
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
                );
                stream.write_all(answer.as_bytes()).await.expect("written");
            }
        });
        (port, count)
    }

    fn kubeconfig(port: u16, token: &str) -> String {
        let server = format!("http://127.0.0.1:{port}");
        let named = |what: &str, value: Value| json!([{"name": "a", what: value}]);
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": named("cluster", json!({"server": server})),
            "users": named("user", json!({"token": token})),
            "contexts": named("context", json!({"cluster": "a", "user": "a"})),
        })
        .to_string()
    }

    #[tokio::test]
    async fn rotated_credentials_are_loaded_again_once() {
        let (port, count) = guarded("second-token").await;
        let file = tempfile::NamedTempFile::new().expect("a file");
        let write = |token| std::fs::write(file.path(), kubeconfig(port, token)).expect("written");
        write("first-token");
        let source = Source { path: Some(file.path().to_owned()), context: Some("a".into()) };
        let cluster = Cluster::connect(source, clock()).await.expect("a configuration");
        assert_eq!(cluster.uid().await.expect_err("refused").code, codes::UNAUTHORIZED);
        assert_eq!(count.load(Ordering::SeqCst), 2, "asked again once, not for ever");
        write("second-token");
        assert_eq!(cluster.uid().await.as_deref(), Ok("u"));
        assert_eq!(count.load(Ordering::SeqCst), 4);
    }

    #[tokio::test]
    async fn a_configuration_that_cannot_be_used_says_why() {
        let missing = Source { path: Some("/no/such/kubeconfig".into()), context: None };
        let failure = Cluster::connect(missing, clock()).await.expect_err("missing");
        assert_eq!(failure.code, codes::CONFIGURATION);
        assert!(failure.message.contains("/no/such/kubeconfig"), "{}", failure.message);
    }
}

//! A server under test, spoken to in plain HTTP so that a check sees exactly what a client would see.

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::io::Lines;
use futures::{AsyncBufRead, AsyncBufReadExt, StreamExt, TryStreamExt};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use windrow::time::{Clock, SystemClock};

/// How long a check waits for something that the server does by itself. The collector of garbage takes ten seconds to
/// begin on an idle machine.
const SOON: Duration = Duration::from_mins(2);
/// How often a condition without a watch is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A Kubernetes API server under test.
pub(crate) struct Server {
    /// The identity of an administrator.
    admin: Client,
    /// The identity of a user who may do anything but write virtual machines.
    limited: Client,
    /// How many unique names have been given out.
    names: AtomicU32,
}

impl Server {
    pub(crate) fn new(admin: Client, limited: Client) -> Self {
        Self { admin, limited, names: AtomicU32::new(0) }
    }

    /// Makes a namespace for one check and returns its name.
    pub(crate) async fn namespace(&self) -> String {
        let name = self.unique("check");
        self.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await.ok(201);
        name
    }

    /// `prefix` with a number, for cluster-scoped objects.
    pub(crate) fn unique(&self, prefix: &str) -> String {
        format!("{prefix}-{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends a request as an administrator. `headers` are name and value.
    pub(crate) async fn call(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Answer {
        Answer::read(send(&self.admin, method, url, headers, body).await).await
    }

    async fn call_json(&self, method: Method, url: &str, content_type: &str, body: &Value) -> Answer {
        send_json(&self.admin, method, url, content_type, body).await
    }

    pub(crate) async fn get(&self, url: &str) -> Answer {
        self.get_as(url, "application/json").await
    }

    /// GET with an `Accept` header.
    pub(crate) async fn get_as(&self, url: &str, accept: &str) -> Answer {
        self.call(Method::GET, url, &[("accept", accept)], vec![]).await
    }

    /// Sends JSON as the user who may not write virtual machines.
    pub(crate) async fn as_limited(
        &self,
        method: Method,
        url: &str,
        content_type: &str,
        body: &Value,
    ) -> Answer {
        send_json(&self.limited, method, url, content_type, body).await
    }

    pub(crate) async fn post(&self, url: &str, object: &Value) -> Answer {
        self.call_json(Method::POST, url, "application/json", object).await
    }

    pub(crate) async fn put(&self, url: &str, object: &Value) -> Answer {
        self.call_json(Method::PUT, url, "application/json", object).await
    }

    /// PATCH with `application/<kind>+json`.
    pub(crate) async fn patch(&self, url: &str, kind: &str, patch: &Value) -> Answer {
        self.call_json(Method::PATCH, url, &format!("application/{kind}+json"), patch).await
    }

    pub(crate) async fn merge(&self, url: &str, patch: &Value) -> Answer {
        self.patch(url, "merge-patch", patch).await
    }

    /// Server-side apply. `query` begins with the manager's name, for instance `me&force=true`.
    pub(crate) async fn apply(&self, url: &str, query: &str, object: &Value) -> Answer {
        let url = format!("{url}?fieldManager={query}");
        self.call_json(Method::PATCH, &url, "application/apply-patch+yaml", object).await
    }

    pub(crate) async fn delete(&self, url: &str) -> Answer {
        self.call(Method::DELETE, url, &[("accept", "application/json")], vec![]).await
    }

    /// DELETE with `DeleteOptions`.
    pub(crate) async fn delete_with(&self, url: &str, options: &Value) -> Answer {
        self.call_json(Method::DELETE, url, "application/json", options).await
    }

    /// Opens a watch. `url` carries the query without `watch=true`.
    pub(crate) async fn watch(&self, url: &str) -> Watch {
        self.watch_as(url, "application/json").await
    }

    /// Opens a watch with an `Accept` header.
    pub(crate) async fn watch_as(&self, url: &str, accept: &str) -> Watch {
        let separator = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{separator}watch=true&timeoutSeconds=120");
        let response = send(&self.admin, Method::GET, &url, &[("accept", accept)], vec![]).await;
        assert_eq!(response.status(), 200, "GET {url}");
        let stream = response.into_body().into_data_stream();
        let reader = stream.map_err(std::io::Error::other).into_async_read();
        Watch { lines: (Box::pin(reader) as Reader).lines() }
    }

    /// Reads `url` until the answer satisfies `is`, and returns that answer.
    pub(crate) async fn until(&self, url: &str, is: impl Fn(&Answer) -> bool) -> Answer {
        until(async || self.get(url).await, is).await
    }

    /// Waits until `url` answers 404.
    pub(crate) async fn until_gone(&self, url: &str) {
        self.until(url, |answer| answer.status == 404).await;
    }
}

/// Repeats a request until the answer satisfies `is`, and returns that answer.
pub(crate) async fn until(request: impl AsyncFn() -> Answer, is: impl Fn(&Answer) -> bool) -> Answer {
    let clock = SystemClock::new();
    let deadline = clock.after(SOON);
    loop {
        let answer = request().await;
        if is(&answer) {
            return answer;
        }
        assert!(clock.now() < deadline, "after {SOON:?} the answer still is {answer:?}");
        clock.sleep(LOOK_EVERY).await;
    }
}

async fn send(
    client: &Client,
    method: Method,
    url: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Response<Body> {
    let mut request = Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client.send(request.body(Body::from(body)).unwrap()).await.unwrap()
}

async fn send_json(client: &Client, method: Method, url: &str, content_type: &str, body: &Value) -> Answer {
    let headers = [("content-type", content_type), ("accept", "application/json")];
    Answer::read(send(client, method, url, &headers, serde_json::to_vec(body).unwrap()).await).await
}

/// What the server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The body as JSON; a JSON string if it is none.
    pub(crate) body: Value,
}

impl Answer {
    async fn read(response: Response<Body>) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| text());
        Self { status, headers, body }
    }

    /// The body, after a look at the status.
    #[track_caller]
    pub(crate) fn ok(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.body
    }

    /// The `Status` object of a refusal, after a look at its code, reason and message.
    #[track_caller]
    pub(crate) fn refused(self, code: u16, reason: &str, message: &str) -> Value {
        let expected = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": code,
        });
        let mut seen = self.body.clone();
        if let Some(fields) = seen.as_object_mut() {
            fields.remove("details");
        }
        assert_eq!((self.status, sorted(&seen)), (code, sorted(&expected)));
        self.body
    }

    /// The text at a JSON pointer; empty if there is none.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        text(&self.body, pointer)
    }
}

/// The text at a JSON pointer; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The names of a list's items, in the server's order.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| text(item, "/metadata/name")).collect()
}

/// `value` with the keys of its objects in order, so that an assertion shows only what differs.
fn sorted(value: &Value) -> String {
    let mut value = value.clone();
    value.sort_all_objects();
    serde_json::to_string_pretty(&value).unwrap()
}

type Reader = Pin<Box<dyn AsyncBufRead + Send>>;

/// An open watch.
pub(crate) struct Watch {
    lines: Lines<Reader>,
}

impl Watch {
    /// The next event; `None` when the server has ended the watch.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(SOON, self.lines.next()).await;
        let line = line.expect("an event arrives").transpose().unwrap()?;
        Some(serde_json::from_str(&line).unwrap())
    }

    /// The next event that is not a bookmark, as type and object.
    pub(crate) async fn change(&mut self) -> (String, Value) {
        loop {
            let mut event = self.next().await.expect("the watch goes on");
            if event["type"] != "BOOKMARK" {
                return (text(&event, "/type").to_owned(), event["object"].take());
            }
        }
    }

    /// The next event that is not a bookmark, as type and name.
    pub(crate) async fn named(&mut self) -> (String, String) {
        let (kind, object) = self.change().await;
        (kind, text(&object, "/metadata/name").to_owned())
    }
}

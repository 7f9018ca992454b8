//! `http` and `tcp`.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::StatusCode;
use http::Uri;
use http::header::CONTENT_TYPE;
use http::header::RETRY_AFTER;
use http_body_util::BodyExt;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Map, Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::action::args;
use crate::action::codes;
use crate::action::k8s::classify;
use crate::action::k8s::classify::Intent;
use crate::action::request::Answer;
use crate::failure::Failure;
use crate::failure::FailureClass;

/// How much of an HTTP answer is kept (E13); it goes into the journal.
const BODY_BYTES_MAX: usize = 256 << 10;
/// How much of what the other side of a TCP connection says first is looked at.
const BANNER_BYTES_MAX: usize = 4 << 10;

/// Sends one request. Redirects are answers: where a step's request goes is written in the step.
pub async fn http(args: &args::Http, limit: Duration) -> Result<Answer, Failure> {
    let bad = |what: String| Failure::permanent(codes::BAD_REQUEST, what);
    let method = args.method.as_deref().unwrap_or("GET");
    let method: Method = method.parse().map_err(|_| bad(format!("`{method}` is not an HTTP method")))?;
    let uri: Uri = args.url.parse().map_err(|error| bad(format!("the URL is unusable: {error}")))?;
    let what = format!(
        "{method} {}://{}{}",
        uri.scheme_str().unwrap_or_default(),
        uri.host().unwrap_or_default(),
        uri.path()
    );
    let safe = matches!(method, Method::GET | Method::HEAD | Method::OPTIONS);
    let intent = if safe { Intent::Read } else { Intent::Write };
    let mut request = http::Request::builder().method(method).uri(uri);
    for (name, value) in &args.headers {
        request = request.header(name, value);
    }
    let body = match &args.body {
        None => Bytes::new(),
        Some(Value::String(text)) => text.clone().into(),
        Some(value) => {
            if !args.headers.keys().any(|name| name.eq_ignore_ascii_case("content-type")) {
                request = request.header(CONTENT_TYPE, "application/json");
            }
            value.to_string().into()
        }
    };
    let request = request.body(Full::new(body)).map_err(|error| bad(format!("{what}: {error}")))?;
    let exchange = async {
        let answer =
            send(request, &what).await?.map_err(|error| classify::transport(&error, intent, &what))?;
        receive(answer, args, intent, &what).await
    };
    let answer = tokio::time::timeout(limit, exchange).await;
    answer.unwrap_or_else(|_| Err(classify::timed_out(intent, &what)))
}

type Sent = Result<http::Response<Incoming>, legacy::Error>;

async fn send(request: http::Request<Full<Bytes>>, what: &str) -> Result<Sent, Failure> {
    let client = Client::builder(TokioExecutor::new());
    match request.uri().scheme_str() {
        Some("http") => Ok(client.build_http().request(request).await),
        Some("https") => {
            let connector = HttpsConnectorBuilder::new().with_native_roots().map_err(|error| {
                Failure::permanent(
                    codes::CERTIFICATE_REFUSED,
                    format!("{what}: no trusted certificates: {error}"),
                )
            })?;
            Ok(client.build(connector.https_only().enable_http1().build()).request(request).await)
        }
        _ => {
            Err(Failure::permanent(codes::BAD_REQUEST, format!("{what}: the URL is neither http nor https")))
        }
    }
}

async fn receive(
    answer: http::Response<Incoming>,
    args: &args::Http,
    intent: Intent,
    what: &str,
) -> Result<Answer, Failure> {
    let (head, mut body) = answer.into_parts();
    let mut bytes = vec![];
    let mut cut = false;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| classify::transport(&error, intent, what))?;
        bytes.extend_from_slice(frame.data_ref().map_or(&[][..], |data| &data[..]));
        if bytes.len() > BODY_BYTES_MAX {
            bytes.truncate(BODY_BYTES_MAX);
            cut = true;
            break;
        }
    }
    let expected = if args.expect.is_empty() {
        head.status.is_success()
    } else {
        args.expect.contains(&head.status.as_u16())
    };
    if !expected {
        let excerpt: String = String::from_utf8_lossy(&bytes).trim().chars().take(200).collect();
        let message = format!("{what}: HTTP {}: {excerpt}", head.status);
        let after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let failure = Failure::new(class_of(head.status, intent), codes::HTTP_STATUS, message);
        return Err(Failure {
            retry_after_ms: after.map(|seconds| seconds.saturating_mul(1_000)),
            ..failure
        });
    }
    let headers = head
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), Value::from(String::from_utf8_lossy(value.as_bytes()))));
    let headers: Map<String, Value> = headers.collect();
    let body = match serde_json::from_slice(&bytes) {
        Ok(value) if !cut => value,
        _ => Value::from(String::from_utf8_lossy(&bytes)),
    };
    let result = json!({"status": head.status.as_u16(), "headers": headers, "body": body, "cut": cut});
    Ok(Answer::done(intent == Intent::Write, result))
}

/// Whether an unexpected status means that nothing happened.
fn class_of(status: StatusCode, intent: Intent) -> FailureClass {
    match (status.as_u16(), intent) {
        (408 | 425 | 429 | 503, _) | (500..=599, Intent::Read) => FailureClass::Retryable,
        (500..=599, _) => FailureClass::Unknown,
        _ => FailureClass::Permanent,
    }
}

/// Opens a connection, waits for the expected text if there is one, and closes it.
pub async fn tcp(args: &args::Tcp, limit: Duration) -> Result<Answer, Failure> {
    let what = format!("connect to {}:{}", args.host, args.port);
    let exchange = async {
        let connected = TcpStream::connect((args.host.as_str(), args.port)).await;
        let mut stream =
            connected.map_err(|error| Failure::retryable(codes::UNREACHABLE, format!("{what}: {error}")))?;
        let Some(expected) = &args.expect else { return Ok(Answer::done(false, Value::Null)) };
        let mut said = vec![];
        let mut part = [0; 512];
        while said.len() < BANNER_BYTES_MAX {
            let read = stream.read(&mut part).await;
            match read
                .map_err(|error| Failure::retryable(codes::CONNECTION_LOST, format!("{what}: {error}")))?
            {
                0 => break,
                length => said.extend_from_slice(&part[..length]),
            }
            let text = String::from_utf8_lossy(&said);
            if text.contains(expected.as_str()) {
                return Ok(Answer::done(false, text.into()));
            }
        }
        let text: String = String::from_utf8_lossy(&said).chars().take(200).collect();
        Err(Failure::retryable(codes::TCP_BANNER, format!("{what}: `{text}` does not contain `{expected}`")))
    };
    let late = || Failure::retryable(codes::TIMEOUT, format!("{what}: not in time"));
    tokio::time::timeout(limit, exchange).await.unwrap_or_else(|_| Err(late()))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    /// Accepts one connection, says `answer`, and returns what it was asked.
    async fn serve(answer: Vec<u8>) -> (u16, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let task = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut asked = vec![0; 4096];
            let length =
                if answer.starts_with(b"HTTP") { stream.read(&mut asked).await.expect("read") } else { 0 };
            // The other side may have heard enough before all is said.
            drop(stream.write_all(&answer).await);
            String::from_utf8_lossy(&asked[..length]).into_owned()
        });
        (port, task)
    }

    fn request(port: u16, rest: &Value) -> args::Http {
        let mut args = json!({"url": format!("http://127.0.0.1:{port}/path?q=1")});
        args.as_object_mut().expect("a map").extend(rest.as_object().cloned().unwrap_or_default());
        serde_json::from_value(args).expect("the keys of http")
    }

    async fn ask(answer: &str, rest: Value) -> (Result<Answer, Failure>, String) {
        let (port, task) = serve(answer.as_bytes().to_vec()).await;
        let result = http(&request(port, &rest), LIMIT).await;
        (result, task.await.expect("served"))
    }

    #[tokio::test]
    async fn a_request_carries_what_the_step_says_and_gives_the_answer_back() {
        let rest = json!({"method": "POST", "headers": {"X-A": "1"}, "body": {"a": 1}, "expect": [201]});
        let answer = "HTTP/1.1 201 Created\r\ncontent-length: 8\r\nx-b: 2\r\n\r\n{\"id\":7}";
        let (result, asked) = ask(answer, rest).await;
        let Ok(Answer::Done { changed: true, result, .. }) = result else { panic!("{result:?}") };
        assert_eq!((&result["status"], &result["body"]["id"]), (&json!(201), &json!(7)));
        assert_eq!((&result["headers"]["x-b"], &result["cut"]), (&json!("2"), &json!(false)));
        assert!(asked.starts_with("POST /path?q=1 HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("x-a: 1\r\n") && asked.contains("content-type: application/json"), "{asked}");
        assert!(asked.ends_with("{\"a\":1}"), "{asked}");
    }

    #[tokio::test]
    async fn an_unexpected_status_is_classified_and_a_redirect_is_not_followed() {
        use FailureClass::{Permanent, Retryable, Unknown};
        let rows = [
            (302, "GET", Permanent),
            (404, "GET", Permanent),
            (429, "POST", Retryable),
            (500, "GET", Retryable),
            (500, "POST", Unknown),
            (502, "PUT", Unknown),
            (503, "POST", Retryable),
        ];
        for (status, method, class) in rows {
            let answer = format!(
                "HTTP/1.1 {status} X\r\nretry-after: 3\r\nlocation: /x\r\ncontent-length: 2\r\n\r\nno"
            );
            let failure = ask(&answer, json!({"method": method})).await.0.expect_err("unexpected");
            assert_eq!(
                (failure.class, failure.code.as_str()),
                (class, codes::HTTP_STATUS),
                "{status} {method}"
            );
            assert_eq!(failure.retry_after_ms, Some(3_000));
            assert!(!failure.message.contains("q=1"), "a query may hold a key: {}", failure.message);
        }
    }

    #[tokio::test]
    async fn a_long_answer_is_cut_and_a_broken_one_is_a_matter_of_the_method() {
        let body = "x".repeat(BODY_BYTES_MAX + 10);
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let Ok(Answer::Done { changed: false, result, .. }) = ask(&answer, json!({})).await.0 else {
            panic!("done")
        };
        assert_eq!(result["cut"], true);
        assert_eq!(result["body"].as_str().map(str::len), Some(BODY_BYTES_MAX));

        let half = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf";
        for (method, class) in [("GET", FailureClass::Retryable), ("POST", FailureClass::Unknown)] {
            let failure = ask(half, json!({"method": method})).await.0.expect_err("half");
            assert_eq!((failure.class, failure.code.as_str()), (class, codes::CONNECTION_LOST));
        }
    }

    #[tokio::test]
    async fn nobody_there_is_told_from_a_bad_request() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        drop(listener);
        let failure = http(&request(port, &json!({"method": "POST"})), LIMIT).await.expect_err("nobody");
        assert_eq!((failure.class, failure.code.as_str()), (FailureClass::Retryable, codes::UNREACHABLE));
        for rest in [json!({"url": "ftp://x/"}), json!({"url": "/x"}), json!({"method": "A B"})] {
            let failure = http(&request(port, &rest), LIMIT).await.expect_err("bad");
            assert_eq!(failure.code, codes::BAD_REQUEST, "{rest}");
        }
        let connect = args::Tcp { host: "127.0.0.1".into(), port, expect: None };
        assert_eq!(tcp(&connect, LIMIT).await.expect_err("nobody").code, codes::UNREACHABLE);
    }

    #[tokio::test]
    async fn a_port_answers_with_the_expected_text_or_not() {
        let connect = |port, expect: Option<&str>| args::Tcp {
            host: "127.0.0.1".into(),
            port,
            expect: expect.map(Into::into),
        };
        let (port, task) = serve(b"SSH-2.0-x\r\n".to_vec()).await;
        let answer = tcp(&connect(port, Some("SSH-2.0")), LIMIT).await;
        assert_eq!(answer, Ok(Answer::done(false, "SSH-2.0-x\r\n".into())));
        task.await.expect("served");
        let (port, _task) = serve(b"HELO".to_vec()).await;
        let failure = tcp(&connect(port, Some("SSH")), LIMIT).await.expect_err("another text");
        assert_eq!((failure.class, failure.code.as_str()), (FailureClass::Retryable, codes::TCP_BANNER));
        let (port, _task) = serve(vec![]).await;
        assert_eq!(tcp(&connect(port, None), LIMIT).await, Ok(Answer::done(false, Value::Null)));
    }
}

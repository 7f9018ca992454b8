//! Bodies in the binary form, as clients that are written in Go send them.

use http::Method;
use serde_json::json;

use crate::conformance::fixtures::config_maps;
use crate::conformance::server::{Answer, Server};

const BINARY: &str = "application/vnd.kubernetes.protobuf";
/// The beginning of every body.
const MAGIC: &[u8] = b"k8s\0";

/// A field of a message with a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    [&[number << 3 | 2, length][..], content].concat()
}

/// An entry of a map.
fn entry(number: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
    field(number, &[field(1, name), field(2, value)].concat())
}

/// An object of the core group with a name, a label, and the fields in `rest`.
fn body(kind: &str, rest: &[u8]) -> Vec<u8> {
    let types = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
    let metadata = [field(1, b"a"), field(2, b""), entry(11, b"colour", b"red")].concat();
    let raw = [&field(1, &metadata)[..], rest].concat();
    [MAGIC, &field(1, &types), &field(2, &raw), &field(3, b""), &field(4, b"")].concat()
}

async fn send(server: &Server, method: Method, url: &str, body: Vec<u8>) -> Answer {
    server.call(method, url, &[("content-type", BINARY), ("accept", "application/json")], body).await
}

pub(crate) async fn a_binary_body_is_an_object(server: &Server) {
    let ns = server.namespace().await;
    let maps = config_maps(&ns);
    let data = [entry(2, b"one", b"1"), entry(2, b"none", b""), entry(3, b"raw", &[0, 255])].concat();
    let made = send(server, Method::POST, &maps, body("ConfigMap", &data)).await.ok(201);
    assert_eq!(made["data"], json!({"one": "1", "none": ""}));
    assert_eq!(made["binaryData"], json!({"raw": "AP8="}));
    assert_eq!(made["metadata"]["labels"], json!({"colour": "red"}));
    let kept = entry(2, b"two", b"2");
    let replaced = send(server, Method::PUT, &format!("{maps}/a"), body("ConfigMap", &kept)).await.ok(200);
    assert_eq!((&replaced["data"], replaced.get("binaryData")), (&json!({"two": "2"}), None));

    let secrets = format!("/api/v1/namespaces/{ns}/secrets");
    let data = [entry(2, b"key", b"value"), field(3, b"Opaque"), entry(4, b"more", b"text")].concat();
    let made = send(server, Method::POST, &secrets, body("Secret", &data)).await.ok(201);
    assert_eq!(made["data"], json!({"key": "dmFsdWU=", "more": "dGV4dA=="}));
    let accounts = format!("/api/v1/namespaces/{ns}/serviceaccounts");
    let made =
        send(server, Method::POST, &accounts, body("ServiceAccount", &field(3, &field(1, b"p")))).await;
    assert_eq!(made.ok(201)["imagePullSecrets"], json!([{"name": "p"}]));
}

pub(crate) async fn a_binary_delete_has_options(server: &Server) {
    let ns = server.namespace().await;
    let url = format!("{}/a", config_maps(&ns));
    send(server, Method::POST, &config_maps(&ns), body("ConfigMap", &[])).await.ok(201);
    let options = |raw: &[u8]| {
        let types = [field(1, b"v1"), field(2, b"DeleteOptions")].concat();
        [MAGIC, &field(1, &types), &field(2, raw)].concat()
    };
    let other = field(2, &field(1, b"another-uid"));
    let refused = send(server, Method::DELETE, &url, options(&other)).await;
    assert_eq!((refused.status, refused.text("/reason")), (409, "Conflict"));
    send(server, Method::DELETE, &url, options(&field(5, b"All"))).await.ok(200);
    server.get(&url).await.ok(200);
    send(server, Method::DELETE, &url, options(&[])).await.ok(200);
    assert_eq!(server.get(&url).await.status, 404);
}

pub(crate) async fn a_body_that_is_no_binary_object_is_a_bad_request(server: &Server) {
    let maps = config_maps(&server.namespace().await);
    let whole = body("ConfigMap", &[]);
    let secret = body("Secret", &[]);
    for bad in [b"{}".to_vec(), whole[..whole.len() / 2].to_vec(), secret] {
        let answer = send(server, Method::POST, &maps, bad.clone()).await;
        assert_eq!((answer.status, answer.text("/reason")), (400, "BadRequest"), "{bad:?}: {answer:?}");
    }
}

//! A scripted API server for this module's tests: answers in order, and remembers what it was asked.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;

use http::StatusCode;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::BoxError;

use crate::action::k8s::client::Cluster;
use crate::action::request::ObjectRef;
use crate::action::request::Origin;
use crate::action::request::Selector;
use crate::time::SystemClock;

/// One answer: status and body, or a broken connection.
pub(crate) type Step = Result<(u16, Value), std::io::ErrorKind>;

/// What was asked: method, path with query, body (null if there was none).
pub(crate) type Asked = (String, String, Value);

pub(crate) struct Script {
    pub(crate) cluster: Cluster,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Script {
    /// Discovery is answered out of turn; everything else by `steps`, then with 500.
    pub(crate) fn new(steps: Vec<Step>) -> Self {
        let steps = Arc::new(Mutex::new(VecDeque::from(steps)));
        let asked = Arc::new(Mutex::new(vec![]));
        let log = Arc::clone(&asked);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (steps, log) = (Arc::clone(&steps), Arc::clone(&log));
            async move {
                let (head, body) = request.into_parts();
                let path = head.uri.to_string();
                if let Some(list) = discovery(&path) {
                    return Ok::<_, BoxError>(response(200, &list));
                }
                let body = body.collect().await?.to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                log.lock().expect("unpoisoned").push((head.method.to_string(), path, body));
                match steps.lock().expect("unpoisoned").pop_front() {
                    Some(Ok((code, body))) => Ok(response(code, &body)),
                    Some(Err(kind)) => Err(std::io::Error::from(kind).into()),
                    None => Ok(response(500, &json!("the script is over"))),
                }
            }
        });
        let client = Client::new(service, "default");
        Self { cluster: Cluster::of_client(client, Arc::new(SystemClock::new())), asked }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("unpoisoned").clone()
    }
}

/// A text body is sent as it is, so that a script can answer what is no JSON.
fn response(code: u16, body: &Value) -> http::Response<Body> {
    let bytes = body.as_str().map_or_else(|| body.to_string().into_bytes(), |text| text.as_bytes().to_vec());
    let response = http::Response::builder().status(StatusCode::from_u16(code).expect("a status"));
    response.body(Body::from(bytes)).expect("a response")
}

fn discovery(path: &str) -> Option<Value> {
    let resource = |name, kind, namespaced| json!({"name": name, "kind": kind, "namespaced": namespaced});
    let resources = match path {
        "/api/v1" => vec![
            resource("pods/status", "Pod", true),
            resource("pods", "Pod", true),
            resource("configmaps", "ConfigMap", true),
            resource("secrets", "Secret", true),
            resource("events", "Event", true),
            resource("nodes", "Node", false),
        ],
        "/apis/kubevirt.io/v1" => vec![
            resource("virtualmachines", "VirtualMachine", true),
            resource("virtualmachineinstances", "VirtualMachineInstance", true),
        ],
        _ => return None,
    };
    Some(json!({"kind": "APIResourceList", "resources": resources}))
}

pub(crate) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
           "message": message})
}

/// The answer of a server that knows the kind and has no such object.
pub(crate) fn absent(plural: &str, name: &str) -> Value {
    let mut status = status(404, "NotFound", &format!("{plural} \"{name}\" not found"));
    status["details"] = json!({"name": name, "kind": plural});
    status
}

pub(crate) fn vm(name: &str) -> ObjectRef {
    ObjectRef {
        api: "kubevirt.io/v1".into(),
        kind: "VirtualMachine".into(),
        namespace: Some("default".into()),
        all_namespaces: false,
        select: Selector::Name(name.into()),
        optional: false,
    }
}

pub(crate) fn origin() -> Origin {
    Origin { run: "01run".into(), workflow: "vm-stop".into(), unit: "halt".into(), attempt: 1 }
}

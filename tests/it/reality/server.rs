//! A real API server that knows the platform's kinds, emptied between two cases.

use futures::StreamExt;
use futures::stream;
use http::Request;
use kube::Client;
use serde_json::Value;
use serde_json::json;
use windrow::sim::crew::Crew;
use windrow::sim::crew::Watched;
use windrow::time::Clock;
use windrow::time::SystemClock;

use crate::paths::definitions;
use crate::paths::kinds::KINDS;

/// How many requests are under way at once.
const AT_ONCE: usize = 16;
/// How long a kind, or a deletion, takes at most on a busy machine.
const SOON: std::time::Duration = std::time::Duration::from_mins(1);
/// How often something without a watch is looked at.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(100);
/// The label of what the server makes by itself for each API.
const OF_SERVER: &str = "kube-aggregator.kubernetes.io/automanaged";

pub(crate) struct Server {
    pub(crate) client: Client,
}

impl Server {
    /// Defines the kinds and waits until all are served.
    pub(crate) async fn set_up(client: Client) -> Self {
        let server = Self { client };
        for definition in definitions::all() {
            let url = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            send(&server.client, "POST", url, &definition)
                .await
                .unwrap_or_else(|error| panic!("{error}: {definition}"));
        }
        for kind in KINDS.iter().filter(|kind| kind.is_custom()) {
            let url = format!("/apis/{}/{}", kind.api_version(), kind.resource.name);
            until(async || send(&server.client, "GET", &url, &Value::Null).await.is_ok(), &url).await;
        }
        server.collects_garbage().await;
        server
    }

    /// Waits until the collector of garbage knows the kinds: it looks for new ones twice a minute.
    async fn collects_garbage(&self) {
        let maps = "/api/v1/namespaces/default/configmaps";
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
        let owner = send(&self.client, "POST", maps, &owner).await.unwrap();
        let kind = KINDS.iter().rfind(|kind| kind.is_custom() && kind.resource.namespaced).unwrap();
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
        let owned = json!({
            "apiVersion": kind.api_version(), "kind": kind.resource.kind,
            "metadata": {"name": "owned", "ownerReferences": [reference]},
        });
        let collection = kind.url("default");
        send(&self.client, "POST", &collection, &owned).await.unwrap();
        send(&self.client, "DELETE", &format!("{maps}/owner"), &json!({})).await.unwrap();
        let url = format!("{collection}/owned");
        until(async || send(&self.client, "GET", &url, &Value::Null).await.is_err(), "garbage is collected")
            .await;
    }

    /// Deletes everything but the namespaces, whatever holds it.
    pub(crate) async fn wipe(&self) {
        let kinds: Vec<Watched> = Crew::watched().filter(|kind| kind.kind != "Namespace").collect();
        let gone = async || {
            let left = stream::iter(&kinds).map(|kind| self.wipe_kind(kind)).buffer_unordered(AT_ONCE);
            left.fold(0, async |sum, left| sum + left).await == 0
        };
        until(gone, "the server is empty").await;
    }

    /// Deletes the objects of a kind and says how many there were.
    async fn wipe_kind(&self, kind: &Watched) -> usize {
        let collection = collection(kind, "");
        let list = send(&self.client, "GET", &collection, &Value::Null).await.unwrap();
        let items = list["items"].as_array().into_iter().flatten();
        let own = |item: &&Value| {
            item["metadata"]["labels"].get(OF_SERVER).is_none()
                && item["metadata"]["name"] != "extension-apiserver-authentication"
        };
        let items: Vec<&Value> = items.filter(own).collect();
        for item in &items {
            let text = |name: &str| item["metadata"][name].as_str().unwrap_or_default();
            let url = format!("{}/{}", self::collection(kind, text("namespace")), text("name"));
            if item["metadata"]["finalizers"].is_array() {
                let free = json!({"metadata": {"finalizers": null}});
                drop(send(&self.client, "PATCH", &url, &free).await);
            }
            let now = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
            drop(send(&self.client, "DELETE", &url, &now).await);
        }
        items.len()
    }
}

/// The URL of the objects of a kind; in all namespaces if `namespace` is empty.
fn collection(kind: &Watched, namespace: &str) -> String {
    let root = match kind.group {
        "" => format!("/api/{}", kind.version),
        group => format!("/apis/{group}/{}", kind.version),
    };
    match namespace {
        "" => format!("{root}/{}", kind.plural),
        space => format!("{root}/namespaces/{space}/{}", kind.plural),
    }
}

/// Sends a request; a PATCH is a merge patch.
pub(crate) async fn send(client: &Client, method: &str, url: &str, body: &Value) -> kube::Result<Value> {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { vec![] } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(url).header("content-type", content_type);
    client.request(request.body(body).unwrap()).await
}

/// Waits until `is` says yes.
async fn until(is: impl AsyncFn() -> bool, what: &str) {
    let clock = SystemClock::new();
    let deadline = clock.after(SOON);
    while !is().await {
        assert!(clock.now() < deadline, "not within {SOON:?}: {what}");
        clock.sleep(LOOK_EVERY).await;
    }
}

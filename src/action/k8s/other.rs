//! `k8s.subresource`, `k8s.logs` and `k8s.raw`.

use http::Method;
use http::header::ACCEPT;
use http::header::CONTENT_TYPE;
use kube::api::LogParams;
use kube::core::Request;
use serde_json::{Value, json};

use crate::action::args;
use crate::action::codes;
use crate::action::k8s::classify::Intent;
use crate::action::k8s::client::Ask;
use crate::action::k8s::client::Reply;
use crate::action::k8s::client::bad_request;
use crate::action::k8s::client::is_url_part;
use crate::action::k8s::site::JSON;
use crate::action::k8s::site::MERGE_PATCH;
use crate::action::k8s::site::Site;
use crate::action::request::Answer;
use crate::action::request::ObjectRef;
use crate::failure::Failure;

/// The aggregated API behind KubeVirt's verbs (`domain.md` §1.7).
const KUBEVIRT_VERBS: &str = "subresources.kubevirt.io";
/// The last lines of a log that are taken if the step does not say.
const TAIL_LINES_DEFAULT: u32 = 200;
/// How much of a log is kept (E13); it goes into the journal.
const LOG_BYTES_MAX: usize = 256 << 10;

impl Site<'_> {
    /// Calls a subresource of the target.
    pub(crate) async fn subresource(
        &self,
        target: &ObjectRef,
        args: &args::Subresource,
    ) -> Result<Answer, Failure> {
        if !args.path.split('/').all(is_url_part) {
            return Err(Failure::permanent(
                codes::BAD_REQUEST,
                format!("`{}` is not a subresource", args.path),
            ));
        }
        let place = self.place(target).await?;
        let resource = &place.kind.resource;
        let kubevirt = args.api.is_none() && resource.group == "kubevirt.io" && args.path != "status";
        let own = &resource.api_version;
        let verbs = kubevirt.then(|| format!("{KUBEVIRT_VERBS}/{}", resource.version));
        let api = args.api.as_ref().or(verbs.as_ref()).unwrap_or(own);
        let method = method(args.method.as_deref(), if kubevirt { Method::PUT } else { Method::PATCH })?;
        let content_type = if method == Method::PATCH { MERGE_PATCH } else { JSON };
        let intent = if method == Method::GET { Intent::Read } else { Intent::Subresource };
        let ask = Ask { intent, limit: self.limit, what: format!("{} {}", args.path, target.describe()) };
        let collection = place.kind.path(api, place.namespace.as_deref());
        let path = format!("{collection}/{}/{}", place.name, args.path);
        let http = self.request(method, &path, "", content_type, args.body.as_ref())?;
        let reply = self.cluster.call(http, &ask).await?;
        self.accepted(&place, &reply, &ask).await?;
        Ok(Answer::done(intent != Intent::Read, body_of(&reply)))
    }

    /// Reads the end of a pod's log.
    pub(crate) async fn logs(&self, target: &ObjectRef, args: args::Logs) -> Result<Answer, Failure> {
        let place = self.place(target).await?;
        let params = LogParams {
            container: args.container,
            tail_lines: Some(args.tail.unwrap_or(TAIL_LINES_DEFAULT).into()),
            previous: args.previous,
            ..LogParams::default()
        };
        let http = Request::new(place.collection())
            .logs(&place.name, &params)
            .map_err(|error| bad_request(&error))?;
        let ask = Ask { limit: self.limit, ..Ask::read(format!("read the log of {}", target.describe())) };
        let reply = self.cluster.call(http, &ask).await?;
        self.accepted(&place, &reply, &ask).await?;
        Ok(Answer::done(false, end_of(&reply.body).into()))
    }

    /// Sends any request to the API server.
    pub(crate) async fn raw(&self, args: &args::Raw) -> Result<Answer, Failure> {
        if !args.path.starts_with('/') {
            return Err(Failure::permanent(codes::BAD_REQUEST, format!("`{}` is not a path", args.path)));
        }
        let method = method(args.method.as_deref(), Method::GET)?;
        let intent = if method == Method::GET { Intent::Read } else { Intent::Write };
        let ask = Ask { intent, limit: self.limit, what: format!("{method} {}", args.path) };
        let body = match &args.body {
            None => vec![],
            Some(Value::String(text)) => text.clone().into_bytes(),
            Some(value) => value.to_string().into_bytes(),
        };
        let http = http::Request::builder().method(method).uri(&args.path).header(ACCEPT, JSON);
        let http = http.header(CONTENT_TYPE, args.content_type.as_deref().unwrap_or(JSON));
        let reply = self.cluster.call(http.body(body).map_err(|error| bad_request(&error))?, &ask).await?;
        if let Some(refusal) = reply.refusal() {
            return Err(refusal.classify(intent, &ask.what));
        }
        let result = json!({"status": reply.code.as_u16(), "body": body_of(&reply)});
        Ok(Answer::done(intent != Intent::Read, result))
    }
}

fn method(text: Option<&str>, default: Method) -> Result<Method, Failure> {
    let unusable =
        |text| Failure::permanent(codes::BAD_REQUEST, format!("`{text}` is not an HTTP method here"));
    match text {
        None => Ok(default),
        Some("GET") => Ok(Method::GET),
        Some("PUT") => Ok(Method::PUT),
        Some("POST") => Ok(Method::POST),
        Some("PATCH") => Ok(Method::PATCH),
        Some("DELETE") => Ok(Method::DELETE),
        Some(other) => Err(unusable(other)),
    }
}

/// JSON as it is, other text as text, nothing as null: KubeVirt's verbs answer 202 without a body.
fn body_of(reply: &Reply) -> Value {
    match serde_json::from_slice(&reply.body) {
        Ok(value) => value,
        Err(_) if reply.body.is_empty() => Value::Null,
        Err(_) => end_of(&reply.body).into(),
    }
}

/// The end of a text, with a mark where the beginning is cut off.
fn end_of(bytes: &[u8]) -> String {
    let cut = bytes.len().saturating_sub(LOG_BYTES_MAX);
    let text = String::from_utf8_lossy(&bytes[cut..]);
    if cut == 0 { text.into_owned() } else { format!("[{cut} bytes cut]\n{text}") }
}

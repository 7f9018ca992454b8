//! What a refusal or a broken connection means (`domain.md` §7). Several signs have two meanings; the reason and the
//! message of the server decide.

use std::error::Error;
use std::io;

use http::HeaderMap;
use http::StatusCode;
use http::header::RETRY_AFTER;
use hyper_util::client::legacy;
use kube::core::Status;

use crate::action::codes;
use crate::failure::Failure;
use crate::failure::FailureClass;

/// What a request was meant to do: a broken write may have happened, a broken read is just repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Reads, or only pretends to write.
    Read,
    /// Writes an object.
    Write,
    /// Writes through a subresource, where 409 speaks about the object's state and not about its version.
    Subresource,
}

impl Intent {
    /// The class of a request whose fate is not known.
    const fn lost(self) -> FailureClass {
        match self {
            Self::Read => FailureClass::Retryable,
            Self::Write | Self::Subresource => FailureClass::Unknown,
        }
    }
}

/// The least delay before a throttled request is repeated: the server always says one second (kubernetes#117734).
const THROTTLE_MS_MIN: u64 = 1_000;
/// The least delay before an eviction is repeated.
const EVICTION_MS_MIN: u64 = 5_000;
/// How long the certificate of a webhook may be refused: one that is being renewed is accepted again before (domain.md §7).
const WEBHOOK_CERTIFICATE_MS_MAX: u64 = 5 * 60 * 1_000;
/// How much of an answer that nobody understands is shown.
const EXCERPT_CHARS_MAX: usize = 200;

/// An answer that is no success.
#[derive(Debug)]
pub struct Refusal<'a> {
    /// The HTTP status.
    pub code: StatusCode,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The body, usually a `Status`.
    pub body: &'a [u8],
}

impl Refusal<'_> {
    /// The body as a `Status`, unless it is something else.
    pub fn status(&self) -> Option<Status> {
        let value: serde_json::Value = serde_json::from_slice(self.body).ok()?;
        let is_status = value.get("kind").and_then(serde_json::Value::as_str) == Some("Status");
        is_status.then(|| serde_json::from_value(value).ok()).flatten()
    }

    /// 404 for that very object, from a server that knows the kind (L4).
    pub fn is_absence_of(&self, name: &str) -> bool {
        let status = self.status().filter(|_| self.code == StatusCode::NOT_FOUND);
        status.is_some_and(|status| {
            status.reason == "NotFound" && status.details.is_some_and(|details| details.name == name)
        })
    }

    /// What it means. `what` says what was asked, for instance `patch VirtualMachine default/web`.
    pub fn classify(&self, intent: Intent, what: &str) -> Failure {
        let status = self.status();
        let text = status.as_ref().map_or_else(|| self.excerpt(), |status| status.message.clone());
        let (class, code) = match &status {
            Some(status) => {
                self.by_message(status, intent).unwrap_or_else(|| self.by_code(Some(status), intent))
            }
            None => self.by_code(None, intent),
        };
        let said = if text.is_empty() { format!("HTTP {}", self.code) } else { text };
        let causes = status.iter().flat_map(|status| &status.details).flat_map(|details| &details.causes);
        let new = causes.filter(|cause| !cause.message.is_empty() && !said.contains(&cause.message));
        let causes = new.map(|cause| format!("{}: {}", cause.field, cause.message));
        let message = [format!("{what}: {said}")].into_iter().chain(causes).collect::<Vec<_>>().join("; ");
        Failure {
            retry_after_ms: self.retry_after_ms(code, status.as_ref()),
            give_up_after_ms: (code == codes::WEBHOOK_CERTIFICATE).then_some(WEBHOOK_CERTIFICATE_MS_MAX),
            ..Failure::new(class, code, message)
        }
    }

    /// Meanings that the server puts into words only.
    fn by_message(&self, status: &Status, intent: Intent) -> Option<(FailureClass, &'static str)> {
        use FailureClass::{Permanent, Retryable};
        let text = status.message.to_lowercase();
        let has = |part: &str| text.contains(part);
        let found = match self.code.as_u16() {
            // KubeVirt's interceptor of evictions answers as a webhook that denies (domain.md §4.1); as long as the VM
            // runs, one that cannot migrate stays where it is.
            429 if has("not live-migratable") => (Permanent, codes::EVICTION_BLOCKED),
            429 if has("disruption budget") || has("eviction") => (Retryable, codes::EVICTION_BLOCKED),
            500 if has("failed calling webhook") || has("failed to call webhook") => {
                match (has("x509") || has("certificate"), has("expired")) {
                    (true, true) => (Permanent, codes::WEBHOOK_CERTIFICATE),
                    (true, false) => (Retryable, codes::WEBHOOK_CERTIFICATE),
                    (false, _) => (Retryable, codes::WEBHOOK_FAILED),
                }
            }
            _ if has("denied the request") || has("denied request") => {
                let passes = has("in progress") || has("until") && has("complete");
                if passes { (Retryable, codes::ADMISSION_WAIT) } else { (Permanent, codes::ADMISSION_DENIED) }
            }
            500 if has("already underway") => (Retryable, codes::UNDERWAY),
            500.. if has("etcdserver:") || has("leader changed") => (intent.lost(), codes::ETCD_UNCERTAIN),
            403 if has("exceeded quota") => (Permanent, codes::QUOTA),
            403 if has("being terminated") => (Permanent, codes::TERMINATING),
            _ => return None,
        };
        Some(found)
    }

    fn by_code(&self, status: Option<&Status>, intent: Intent) -> (FailureClass, &'static str) {
        use FailureClass::{Permanent, Retryable, Unknown};
        match (self.code.as_u16(), status) {
            (401, _) => (Permanent, codes::UNAUTHORIZED),
            (403, _) => (Permanent, codes::FORBIDDEN),
            (404, Some(_)) => (Permanent, codes::NOT_FOUND),
            (409, Some(status)) => match status.reason.as_str() {
                "AlreadyExists" => (Permanent, codes::ALREADY_EXISTS),
                _ if is_field_conflict(status) => (Permanent, codes::FIELD_CONFLICT),
                _ if status.message.contains("has been modified") => (Retryable, codes::CONFLICT),
                // Unknown: the wanted state may be there already, so the world is looked at first (§1.7).
                _ if intent == Intent::Subresource => (Unknown, codes::WRONG_STATE),
                _ => (Retryable, codes::CONFLICT),
            },
            (410, _) => (Retryable, codes::EXPIRED),
            (422, Some(_)) => (Permanent, codes::INVALID),
            (429, _) => (Retryable, codes::THROTTLED),
            // Between client and server, a page instead of a Status: the request may have passed.
            (503, None) if self.is_page() => (intent.lost(), codes::BAD_ANSWER),
            (503, _) => (Retryable, codes::UNAVAILABLE),
            (504, _) => (intent.lost(), codes::TIMEOUT),
            (500, Some(status)) if status.reason == "ServerTimeout" => (intent.lost(), codes::TIMEOUT),
            (500, Some(_)) => (intent.lost(), codes::SERVER_ERROR),
            (400..=499, Some(_)) => (Permanent, codes::BAD_REQUEST),
            _ => (intent.lost(), codes::BAD_ANSWER),
        }
    }

    fn retry_after_ms(&self, code: &str, status: Option<&Status>) -> Option<u64> {
        let header = self.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let detail = || Some(u64::from(status?.details.as_ref()?.retry_after_seconds)).filter(|s| *s > 0);
        let asked = header.or_else(detail).map(|seconds| seconds.saturating_mul(1_000));
        let least = match code {
            codes::THROTTLED => Some(THROTTLE_MS_MIN),
            codes::EVICTION_BLOCKED => Some(EVICTION_MS_MIN),
            _ => None,
        };
        asked.max(least)
    }

    fn is_page(&self) -> bool {
        self.body.trim_ascii_start().starts_with(b"<")
    }

    fn excerpt(&self) -> String {
        String::from_utf8_lossy(self.body).trim().chars().take(EXCERPT_CHARS_MAX).collect()
    }
}

fn is_field_conflict(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "FieldManagerConflict")
}

/// A success whose body is not what was promised.
pub fn unreadable(intent: Intent, what: &str, error: &dyn Error) -> Failure {
    Failure::new(intent.lost(), codes::BAD_ANSWER, format!("{what}: {error}"))
}

/// No answer within the time.
pub fn timed_out(intent: Intent, what: &str) -> Failure {
    Failure::new(intent.lost(), codes::TIMEOUT, format!("{what}: no answer in time"))
}

/// No answer at all: the connection was never there, or it broke.
pub fn transport(error: &(dyn Error + 'static), intent: Intent, what: &str) -> Failure {
    let chain: Vec<&(dyn Error + 'static)> = std::iter::successors(Some(error), |e| (*e).source()).collect();
    let texts: Vec<String> = chain.iter().map(ToString::to_string).collect();
    let (class, code) = match texts.join(" ").to_lowercase() {
        text if text.contains("certificate") && text.contains("expired") => {
            (FailureClass::Permanent, codes::CERTIFICATE)
        }
        text if text.contains("invalid peer certificate") || text.contains("alert: badcertificate") => {
            (FailureClass::Permanent, codes::CERTIFICATE_REFUSED)
        }
        _ if chain.iter().any(|error| never_sent(*error)) => (FailureClass::Retryable, codes::UNREACHABLE),
        _ => (intent.lost(), codes::CONNECTION_LOST),
    };
    // The last error of the chain is the one that says something.
    Failure::new(class, code, format!("{what}: {}", texts.last().map_or("", String::as_str)))
}

fn never_sent(error: &(dyn Error + 'static)) -> bool {
    let by_client = error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect);
    let by_system = error.downcast_ref::<io::Error>();
    by_client || by_system.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::{Value, json};

    use super::*;
    use crate::action::k8s::script::status;
    use crate::failure::FailureClass::{Permanent, Retryable, Unknown};

    fn classify(code: u16, body: &[u8], intent: Intent) -> Failure {
        let code = StatusCode::from_u16(code).expect("a status");
        Refusal { code, headers: &HeaderMap::new(), body }
            .classify(intent, "patch VirtualMachine default/web")
    }

    /// `domain.md` §7, row by row: status, reason, message; class and code for a write.
    const ROWS: &[(u16, &str, &str, FailureClass, &str)] = &[
        (
            409,
            "Conflict",
            "the object has been modified; please apply your changes",
            Retryable,
            codes::CONFLICT,
        ),
        (409, "AlreadyExists", "jobs.batch \"x\" already exists", Permanent, codes::ALREADY_EXISTS),
        (422, "Invalid", "spec.running: Invalid value", Permanent, codes::INVALID),
        (
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
            Permanent,
            codes::INVALID,
        ),
        (
            403,
            "Forbidden",
            "pods \"x\" is forbidden: exceeded quota: q, requested: cpu=2",
            Permanent,
            codes::QUOTA,
        ),
        (403, "Forbidden", "namespace x because it is being terminated", Permanent, codes::TERMINATING),
        (403, "Forbidden", "User \"x\" cannot patch resource", Permanent, codes::FORBIDDEN),
        (401, "Unauthorized", "Unauthorized", Permanent, codes::UNAUTHORIZED),
        (400, "BadRequest", "unknown field", Permanent, codes::BAD_REQUEST),
        (404, "NotFound", "virtualmachines \"web\" not found", Permanent, codes::NOT_FOUND),
        (405, "MethodNotAllowed", "not here", Permanent, codes::BAD_REQUEST),
        (
            422,
            "Invalid",
            "admission webhook \"v\" denied the request: Cannot update VM runStrategy until restore \"r\" completes",
            Retryable,
            codes::ADMISSION_WAIT,
        ),
        (
            403,
            "Forbidden",
            "admission webhook \"v\" denied the request: Cannot update vm disks or volumes until snapshot s completes",
            Retryable,
            codes::ADMISSION_WAIT,
        ),
        (
            400,
            "BadRequest",
            "admission webhook \"v\" denied the request: there is vmbackup in progress",
            Retryable,
            codes::ADMISSION_WAIT,
        ),
        (
            409,
            "Conflict",
            "admission webhook \"v\" denied the request: PVC a/b is already used by other VM",
            Permanent,
            codes::ADMISSION_DENIED,
        ),
        (
            422,
            "Invalid",
            "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
            Permanent,
            codes::ADMISSION_DENIED,
        ),
        (
            500,
            "InternalError",
            "failed calling webhook \"v\": Post \"https://x\": connection refused",
            Retryable,
            codes::WEBHOOK_FAILED,
        ),
        (
            500,
            "InternalError",
            "failed calling webhook \"v\": no endpoints available for service",
            Retryable,
            codes::WEBHOOK_FAILED,
        ),
        (
            500,
            "InternalError",
            "failed calling webhook \"v\": context deadline exceeded",
            Retryable,
            codes::WEBHOOK_FAILED,
        ),
        (
            500,
            "InternalError",
            "failed calling webhook \"v\": x509: certificate signed by unknown authority",
            Retryable,
            codes::WEBHOOK_CERTIFICATE,
        ),
        (
            500,
            "InternalError",
            "failed calling webhook \"v\": x509: certificate has expired or is not yet valid",
            Permanent,
            codes::WEBHOOK_CERTIFICATE,
        ),
        (
            500,
            "InternalError",
            "Internal error: unable to complete request: stop/start already underway",
            Retryable,
            codes::UNDERWAY,
        ),
        (500, "InternalError", "etcdserver: request timed out", Unknown, codes::ETCD_UNCERTAIN),
        (500, "InternalError", "rpc error: leader changed", Unknown, codes::ETCD_UNCERTAIN),
        (503, "ServiceUnavailable", "etcdserver: leader changed", Unknown, codes::ETCD_UNCERTAIN),
        (500, "InternalError", "something broke", Unknown, codes::SERVER_ERROR),
        (500, "ServerTimeout", "try again", Unknown, codes::TIMEOUT),
        (429, "TooManyRequests", "too many requests, please try again later", Retryable, codes::THROTTLED),
        (
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
            Retryable,
            codes::EVICTION_BLOCKED,
        ),
        (
            429,
            "TooManyRequests",
            "admission webhook \"virt-launcher-eviction-interceptor\" denied the request: Eviction triggered evacuation",
            Retryable,
            codes::EVICTION_BLOCKED,
        ),
        (
            503,
            "ServiceUnavailable",
            "the server is currently unable to handle the request",
            Retryable,
            codes::UNAVAILABLE,
        ),
        (504, "Timeout", "request did not complete within the allotted timeout", Unknown, codes::TIMEOUT),
        (410, "Expired", "The provided continue parameter is too old", Retryable, codes::EXPIRED),
    ];

    #[test]
    fn each_row_of_the_table_has_its_class_and_code() {
        for (code, reason, message, class, expected) in ROWS {
            let body = status(*code, reason, message).to_string();
            let failure = classify(*code, body.as_bytes(), Intent::Write);
            assert_eq!((failure.class, failure.code.as_str()), (*class, *expected), "{code} {message}");
            assert!(
                failure.message.contains(message) && failure.message.contains("default/web"),
                "{failure:?}"
            );
            let read = classify(*code, body.as_bytes(), Intent::Read);
            assert_ne!(read.class, Unknown, "a read has no effect: {code} {message}");
        }
    }

    #[test]
    fn a_webhook_whose_certificate_is_refused_is_given_up_after_five_minutes() {
        let refused = |text: &str| {
            let body = status(500, "InternalError", &format!("failed calling webhook \"v\": {text}"));
            classify(500, body.to_string().as_bytes(), Intent::Write).give_up_after_ms
        };
        assert_eq!(refused("x509: certificate signed by unknown authority"), Some(300_000));
        assert_eq!(refused("connection refused"), None);
    }

    #[test]
    fn a_409_of_a_subresource_speaks_about_the_state_of_the_object() {
        let refused = |message| status(409, "Conflict", message).to_string();
        let failure = classify(409, refused("VM is already running").as_bytes(), Intent::Subresource);
        assert_eq!((failure.class, failure.code.as_str()), (Unknown, codes::WRONG_STATE));
        let failure = classify(409, refused("the object has been modified").as_bytes(), Intent::Subresource);
        assert_eq!(failure.code, codes::CONFLICT);
    }

    #[test]
    fn another_field_manager_is_no_matter_of_time() {
        let mut body = status(409, "Conflict", "Apply failed with 1 conflict");
        body["details"] = json!({"causes": [
            {"reason": "FieldManagerConflict", "field": ".spec.x", "message": "conflict with \"kubectl\""}]});
        let failure = classify(409, body.to_string().as_bytes(), Intent::Write);
        assert_eq!((failure.class, failure.code.as_str()), (Permanent, codes::FIELD_CONFLICT));
        assert!(failure.message.ends_with(".spec.x: conflict with \"kubectl\""), "{}", failure.message);
    }

    #[test]
    fn bodies_that_are_no_status_are_not_believed() {
        let rows: &[(u16, &[u8], FailureClass, &str)] = &[
            (502, b"<html>Bad Gateway</html>", Unknown, codes::BAD_ANSWER),
            (502, br#"{"error": "bad gateway"}"#, Unknown, codes::BAD_ANSWER),
            (500, b"\xff\xfe", Unknown, codes::BAD_ANSWER),
            (404, b"<html>no</html>", Unknown, codes::BAD_ANSWER),
            (409, b"", Unknown, codes::BAD_ANSWER),
            (302, b"", Unknown, codes::BAD_ANSWER),
            (503, b"<html>no backend</html>", Unknown, codes::BAD_ANSWER),
            (503, b"service unavailable", Retryable, codes::UNAVAILABLE),
            (401, b"", Permanent, codes::UNAUTHORIZED),
            (429, b"", Retryable, codes::THROTTLED),
        ];
        for (code, body, class, expected) in rows {
            let failure = classify(*code, body, Intent::Write);
            assert_eq!((failure.class, failure.code.as_str()), (*class, *expected), "{code} {body:?}");
        }
    }

    #[test]
    fn the_wish_of_the_server_is_the_least_delay() {
        let delay = |code: u16, header: Option<&'static str>, body: Value| {
            let mut headers = HeaderMap::new();
            header.map(|text| headers.insert(RETRY_AFTER, HeaderValue::from_static(text)));
            let body = body.to_string();
            let code = StatusCode::from_u16(code).expect("a status");
            Refusal { code, headers: &headers, body: body.as_bytes() }
                .classify(Intent::Write, "x")
                .retry_after_ms
        };
        assert_eq!(delay(429, Some("7"), status(429, "TooManyRequests", "later")), Some(7_000));
        assert_eq!(delay(429, None, status(429, "TooManyRequests", "later")), Some(1_000));
        assert_eq!(delay(429, Some("1"), status(429, "TooManyRequests", "disruption budget")), Some(5_000));
        let mut detailed = status(503, "ServiceUnavailable", "soon");
        detailed["details"] = json!({"retryAfterSeconds": 3});
        assert_eq!(delay(503, None, detailed), Some(3_000));
        assert_eq!(delay(422, None, status(422, "Invalid", "no")), None);
    }

    #[test]
    fn a_connection_that_never_was_is_told_from_one_that_broke() {
        let io = |kind: io::ErrorKind, text: &'static str| io::Error::new(kind, text);
        let rows = [
            (io(io::ErrorKind::ConnectionRefused, "refused"), Retryable, Retryable, codes::UNREACHABLE),
            (io(io::ErrorKind::ConnectionReset, "reset by peer"), Unknown, Retryable, codes::CONNECTION_LOST),
            (io(io::ErrorKind::UnexpectedEof, "eof"), Unknown, Retryable, codes::CONNECTION_LOST),
            (
                io(io::ErrorKind::Other, "invalid peer certificate: Expired"),
                Permanent,
                Permanent,
                codes::CERTIFICATE,
            ),
            (
                io(io::ErrorKind::Other, "x509: certificate has expired"),
                Permanent,
                Permanent,
                codes::CERTIFICATE,
            ),
            (
                io(io::ErrorKind::Other, "invalid peer certificate: UnknownIssuer"),
                Permanent,
                Permanent,
                codes::CERTIFICATE_REFUSED,
            ),
        ];
        for (error, write, read, code) in rows {
            let failure = transport(&error, Intent::Write, "x");
            assert_eq!((failure.class, failure.code.as_str()), (write, code), "{error}");
            assert_eq!(transport(&error, Intent::Read, "x").class, read, "{error}");
        }
    }

    #[test]
    fn only_a_status_that_names_the_object_is_an_absence() {
        let absence = |body: Value| {
            let body = body.to_string();
            let code = StatusCode::NOT_FOUND;
            Refusal { code, headers: &HeaderMap::new(), body: body.as_bytes() }.is_absence_of("web")
        };
        assert!(absence(crate::action::k8s::script::absent("virtualmachines", "web")));
        assert!(!absence(crate::action::k8s::script::absent("virtualmachines", "other")));
        assert!(!absence(status(404, "NotFound", "the server could not find the requested resource")));
        assert!(!absence(json!({"message": "Not Found"})));
    }
}

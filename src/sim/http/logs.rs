//! The log of a pod.

use axum::response::Response;
use http::Method;
use serde_json::Value;

use crate::sim::cluster::Cluster;
use crate::sim::cluster::lock;
use crate::sim::failure::Failure;
use crate::sim::http::request::Request;
use crate::sim::http::text;
use crate::sim::kinds;
use crate::sim::kinds::PODS;
use crate::sim::meta;
use crate::sim::world::Key;
use crate::sim::world::POD_LOG;

/// Answers with the log: what the annotation of the container or of the pod holds, else when each container started.
pub(super) fn answer(cluster: &Cluster, request: &Request, key: &Key) -> Result<Response, Failure> {
    if request.method != Method::GET {
        return Err(Failure::method_not_allowed());
    }
    let kind = kinds::of(PODS).expect("the table has pods");
    let pod = lock(&cluster.inner().registry).get(kind, key)?;
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
    let names: Vec<&str> =
        containers.into_iter().flatten().map(|container| meta::text(container, "/name")).collect();
    let container = match (request.query.get("container"), names.as_slice()) {
        ("", [only, ..]) => *only,
        (wanted, names) if names.contains(&wanted) => wanted,
        (wanted, _) => {
            let message = format!("container {wanted} is not valid for pod {}", key.name);
            return Err(Failure::bad_request(message));
        }
    };
    let annotations = &pod["metadata"]["annotations"];
    let held = annotations.get(format!("{POD_LOG}.{container}")).unwrap_or(&annotations[POD_LOG]);
    let log = match held.as_str() {
        Some(log) => log.to_owned(),
        None => started(&pod, container),
    };
    Ok(text(200, tail(&log, request.query.get("tailLines"))))
}

fn started(pod: &Value, container: &str) -> String {
    let statuses = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let status = statuses.into_iter().flatten().find(|status| status["name"] == container);
    match status.and_then(|status| status.pointer("/state/running/startedAt")).and_then(Value::as_str) {
        Some(at) => format!("{at} {container} started\n"),
        None => String::new(),
    }
}

fn tail(log: &str, lines: &str) -> String {
    let Ok(wanted) = lines.parse::<usize>() else { return log.to_owned() };
    let all: Vec<&str> = log.split_inclusive('\n').collect();
    all[all.len().saturating_sub(wanted)..].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_shown_if_asked() {
        assert_eq!(tail("a\nb\nc\n", "2"), "b\nc\n");
        assert_eq!(tail("a\nb", "9"), "a\nb");
        assert_eq!(tail("a\nb\n", ""), "a\nb\n");
    }
}

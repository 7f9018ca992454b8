//! Discovery: which groups, versions and kinds there are.

use axum::response::Response;
use http::Method;
use serde_json::{Value, json};

use crate::sim::failure::Failure;
use crate::sim::http::json_response;
use crate::sim::http::refusal;
use crate::sim::http::request::PLATFORM_GROUP;
use crate::sim::http::request::Request;
use crate::sim::http::response;
use crate::sim::http::text;
use crate::sim::kinds;
use crate::sim::kinds::KINDS;
use crate::sim::kinds::Kind;
use crate::sim::kinds::NAMESPACES;
use crate::sim::kinds::PODS;
use crate::sim::subresource;

const STATUS_VERBS: &[&str] = &["get", "patch", "update"];
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A resource that has no objects: only questions can be posted.
struct Question {
    group: &'static str,
    plural: &'static str,
    kind: &'static str,
}

const QUESTIONS: &[Question] = &[
    Question { group: "authentication.k8s.io", plural: "selfsubjectreviews", kind: "SelfSubjectReview" },
    Question {
        group: "authorization.k8s.io",
        plural: "selfsubjectaccessreviews",
        kind: "SelfSubjectAccessReview",
    },
    Question {
        group: "authorization.k8s.io",
        plural: "selfsubjectrulesreviews",
        kind: "SelfSubjectRulesReview",
    },
];

/// What the aggregated API of KubeVirt serves (domain.md §1.7).
const PLATFORM_RESOURCES: &[(&str, &[&str])] =
    &[("virtualmachines", subresource::OF_VM), ("virtualmachineinstances", subresource::OF_INSTANCE)];

/// Answers a request about discovery; none if it is about something else.
pub(super) fn answer(request: &Request) -> Option<Response> {
    let parts: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
    let aggregated = request.accept.contains("as=APIGroupDiscoveryList")
        && request.accept.contains("g=apidiscovery.k8s.io;v=v2;");
    let body = match parts.as_slice() {
        ["api" | "apis"] if request.method != Method::GET => {
            return Some(refusal(&Failure::method_not_allowed()));
        }
        ["api"] if aggregated => return Some(aggregate(true)),
        ["apis"] if aggregated => return Some(aggregate(false)),
        ["api"] => json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
        }),
        ["apis"] => json!({
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": all_groups().iter().filter(|(group, _)| !group.is_empty()).map(group).collect::<Value>(),
        }),
        ["api", version] => match resources("", version) {
            Some(list) => list,
            None => return Some(refusal(&Failure::no_resource())),
        },
        ["apis", name] => match all_groups().iter().find(|(group, _)| group == name) {
            Some(found) => {
                let mut one = group(found);
                one["kind"] = "APIGroup".into();
                one["apiVersion"] = "v1".into();
                one
            }
            None => return Some(text(404, "404 page not found\n")),
        },
        ["apis", group, version] => match resources(group, version) {
            Some(list) => list,
            None => return Some(text(404, "404 page not found\n")),
        },
        _ => return None,
    };
    Some(json_response(200, &body))
}

/// The groups of the table and those without objects.
fn all_groups() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut groups = kinds::groups();
    for question in QUESTIONS {
        if !groups.iter().any(|(group, _)| *group == question.group) {
            groups.push((question.group, vec!["v1"]));
        }
    }
    groups.push((PLATFORM_GROUP, vec!["v1"]));
    groups
}

fn group((name, versions): &(&str, Vec<&str>)) -> Value {
    let version = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({"name": name, "versions": versions, "preferredVersion": versions[0]})
}

/// The kinds of a version, and what can be asked of them.
fn resources(group: &str, version: &str) -> Option<Value> {
    let mut list = vec![];
    for kind in KINDS.iter().filter(|k| k.resource.group == group && k.versions.contains(&version)) {
        list.push(resource(kind));
        for (name, kind_name, verbs) in subresources(kind) {
            list.push(json!({
                "name": format!("{}/{name}", kind.resource.plural),
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": kind_name,
                "verbs": verbs,
            }));
        }
    }
    for question in QUESTIONS.iter().filter(|question| question.group == group && version == "v1") {
        list.push(json!({
            "name": question.plural,
            "singularName": question.kind.to_lowercase(),
            "namespaced": false,
            "kind": question.kind,
            "verbs": ["create"],
        }));
    }
    if group == PLATFORM_GROUP && version == "v1" {
        for (plural, names) in PLATFORM_RESOURCES {
            for name in *names {
                list.push(json!({
                    "name": format!("{plural}/{name}"),
                    "singularName": "",
                    "namespaced": true,
                    "kind": "",
                    "verbs": ["update"],
                }));
            }
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    (!list.is_empty()).then(|| {
        json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": group_version,
            "resources": list,
        })
    })
}

fn resource(kind: &Kind) -> Value {
    let mut entry = json!({
        "name": kind.resource.plural,
        "singularName": kind.singular(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": kind.verbs(),
    });
    if !kind.short_names.is_empty() {
        entry["shortNames"] = kind.short_names.into();
    }
    if !kind.categories.is_empty() {
        entry["categories"] = kind.categories.into();
    }
    entry
}

fn subresources(kind: &Kind) -> Vec<(&'static str, &'static str, &'static [&'static str])> {
    let mut list = vec![];
    if kind.status {
        list.push(("status", kind.kind, STATUS_VERBS));
    }
    if kind.resource == PODS {
        list.push(("log", "Pod", &["get"][..]));
    }
    if kind.resource == NAMESPACES {
        list.push(("finalize", "Namespace", &["update"][..]));
    }
    list
}

/// Everything in one answer (apidiscovery.k8s.io/v2).
fn aggregate(core: bool) -> Response {
    let groups = all_groups();
    let groups = groups.iter().filter(|(group, _)| group.is_empty() == core);
    let items: Vec<Value> = groups
        .map(|(group, versions)| {
            let versions = versions.iter().map(|version| {
                json!({
                    "version": version,
                    "resources": aggregated_resources(group, version),
                    "freshness": "Current",
                })
            });
            json!({
                "metadata": {"name": group, "creationTimestamp": null},
                "versions": versions.collect::<Value>(),
            })
        })
        .collect();
    let body = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    });
    response(200, AGGREGATED, body.to_string())
}

fn aggregated_resources(group: &str, version: &str) -> Value {
    let kinds = KINDS.iter().filter(|k| k.resource.group == group && k.versions.contains(&version));
    let scope = |namespaced: bool| if namespaced { "Namespaced" } else { "Cluster" };
    let kind_of = |kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut list: Vec<Value> = kinds
        .map(|kind| {
            let mut entry = json!({
                "resource": kind.resource.plural,
                "responseKind": kind_of(kind.kind),
                "scope": scope(kind.namespaced),
                "singularResource": kind.singular(),
                "verbs": kind.verbs(),
            });
            if !kind.short_names.is_empty() {
                entry["shortNames"] = kind.short_names.into();
            }
            if !kind.categories.is_empty() {
                entry["categories"] = kind.categories.into();
            }
            let below = subresources(kind).into_iter().map(|(name, kind_name, verbs)| {
                json!({"subresource": name, "responseKind": kind_of(kind_name), "verbs": verbs})
            });
            let below: Vec<Value> = below.collect();
            if !below.is_empty() {
                entry["subresources"] = below.into();
            }
            entry
        })
        .collect();
    for question in QUESTIONS.iter().filter(|question| question.group == group) {
        list.push(json!({
            "resource": question.plural,
            "responseKind": kind_of(question.kind),
            "scope": scope(false),
            "singularResource": question.kind.to_lowercase(),
            "verbs": ["create"],
        }));
    }
    list.into()
}

//! OpenAPI: enough for clients that look up what a kind accepts. Schemas are open: the server checks itself.

use axum::response::Response;
use serde_json::{Map, Value, json};

use crate::sim::http::json_response;
use crate::sim::http::request::Request;
use crate::sim::http::text;
use crate::sim::kinds;
use crate::sim::kinds::KINDS;
use crate::sim::kinds::Kind;

/// Answers a request about OpenAPI; none if it is about something else.
pub(super) fn answer(request: &Request) -> Option<Response> {
    let path = request.path.trim_end_matches('/');
    if path == "/openapi/v2" {
        return Some(json_response(200, &version_2()));
    }
    if path == "/openapi/v3" {
        return Some(json_response(200, &index()));
    }
    let group_version = path.strip_prefix("/openapi/v3/")?;
    let (group, version) = match group_version.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => (String::new(), (*version).to_owned()),
        ["apis", group, version] => ((*group).to_owned(), (*version).to_owned()),
        _ => return Some(text(404, "404 page not found\n")),
    };
    let kinds: Vec<&Kind> = served(&group, &version).collect();
    if kinds.is_empty() {
        return Some(text(404, "404 page not found\n"));
    }
    Some(json_response(200, &version_3(&kinds, &version)))
}

fn served(group: &str, version: &str) -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().filter(move |kind| kind.resource.group == group && kind.versions.contains(&version))
}

fn prefix(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The documents that there are.
fn index() -> Value {
    let mut paths = Map::new();
    for (group, versions) in kinds::groups() {
        for version in versions {
            let prefix = prefix(group, version);
            let url = format!("/openapi/v3/{prefix}?hash={}", env!("CARGO_PKG_VERSION"));
            paths.insert(prefix, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

fn names(kind: &Kind, version: &str) -> Value {
    json!({"group": kind.resource.group, "version": version, "kind": kind.kind})
}

/// The name of a kind's schema.
fn schema_name(kind: &Kind, version: &str) -> String {
    let group: Vec<&str> = kind.resource.group.split('.').rev().filter(|part| !part.is_empty()).collect();
    let group = if group.is_empty() { "io.k8s.api.core".to_owned() } else { group.join(".") };
    format!("{group}.{version}.{}", kind.kind)
}

fn schema(kind: &Kind, version: &str) -> Value {
    json!({
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        },
        "x-kubernetes-preserve-unknown-fields": true,
        "x-kubernetes-group-version-kind": [names(kind, version)],
    })
}

/// One group in OpenAPI 3: paths with the methods that clients look up, and open schemas.
fn version_3(kinds: &[&Kind], version: &str) -> Value {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for kind in kinds {
        schemas.insert(schema_name(kind, version), schema(kind, version));
        let collection = collection_path(kind, version);
        let reference = json!({"$ref": format!("#/components/schemas/{}", schema_name(kind, version))});
        let answer = json!({"200": {
            "description": "OK",
            "content": {"application/json": {"schema": reference}},
        }});
        let operation = |action: &str, medias: &[&str]| {
            let content: Map<String, Value> =
                medias.iter().map(|media| ((*media).to_owned(), json!({"schema": reference}))).collect();
            let mut operation = json!({
                "parameters": parameters("schema"),
                "responses": answer,
                "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": names(kind, version),
            });
            if !medias.is_empty() {
                operation["requestBody"] = json!({"content": content});
            }
            operation
        };
        paths.insert(
            format!("{collection}/{{name}}"),
            json!({
                "get": operation("get", &[]),
                "put": operation("put", &["*/*"]),
                "patch": operation("patch", PATCHES),
                "delete": operation("delete", &["*/*"]),
            }),
        );
        paths.insert(collection, json!({"get": operation("list", &[]), "post": operation("post", &["*/*"])}));
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// Strategic merge is left out: clients that find it here expect its merge keys in the schema, and know them
/// themselves otherwise.
const PATCHES: &[&str] =
    &["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];

fn collection_path(kind: &Kind, version: &str) -> String {
    let prefix = prefix(kind.resource.group, version);
    let scope = if kind.namespaced { "namespaces/{namespace}/" } else { "" };
    format!("/{prefix}/{scope}{}", kind.resource.plural)
}

/// The parameters of a write; `schema` wraps the type in version 3.
fn parameters(style: &str) -> Value {
    ["dryRun", "fieldManager", "fieldValidation", "force"]
        .iter()
        .map(|name| {
            let kind = if *name == "force" { "boolean" } else { "string" };
            let mut parameter = json!({"name": name, "in": "query"});
            if style == "schema" {
                parameter["schema"] = json!({"type": kind, "uniqueItems": true});
            } else {
                parameter["type"] = kind.into();
                parameter["uniqueItems"] = true.into();
            }
            parameter
        })
        .collect()
}

/// Everything in OpenAPI 2.
fn version_2() -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for kind in KINDS {
        for version in kind.versions {
            definitions.insert(schema_name(kind, version), schema(kind, version));
            let reference = json!({"$ref": format!("#/definitions/{}", schema_name(kind, version))});
            let operation = |action: &str| {
                json!({
                    "consumes": ["application/json"],
                    "produces": ["application/json"],
                    "parameters": parameters("type"),
                    "responses": {"200": {"description": "OK", "schema": reference}},
                    "x-kubernetes-action": action,
                    "x-kubernetes-group-version-kind": names(kind, version),
                })
            };
            let collection = collection_path(kind, version);
            let mut patch = operation("patch");
            patch["consumes"] = PATCHES.into();
            paths.insert(format!("{collection}/{{name}}"), json!({"get": operation("get"), "patch": patch}));
            paths.insert(collection, json!({"get": operation("list"), "post": operation("post")}));
        }
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1.33.4"},
        "paths": paths,
        "definitions": definitions,
    })
}

//! In which form an answer goes out.

use serde_json::{Value, json};

use crate::sim::events;
use crate::sim::failure::Failure;
use crate::sim::http::request::Request;
use crate::sim::http::table;
use crate::sim::kinds::Kind;
use crate::sim::kinds::NEW_EVENTS;
use crate::time::Timestamp;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The objects themselves.
    Full,
    /// Their metadata only.
    Metadata,
    /// Rows for people.
    Table,
}

/// The first form in the client's list that the server has.
pub(super) fn form(request: &Request) -> Result<Form, Failure> {
    if request.accept.trim().is_empty() {
        return Ok(Form::Full);
    }
    for entry in request.accept.split(',') {
        let mut parts = entry.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        if !matches!(media, "application/json" | "*/*" | "application/*") {
            continue;
        }
        let wanted = parts.find_map(|part| part.strip_prefix("as="));
        match wanted {
            None => return Ok(Form::Full),
            Some("Table") => return Ok(Form::Table),
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => return Ok(Form::Metadata),
            Some(_) => {}
        }
    }
    let message = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
    Err(Failure::new(406, "NotAcceptable", message))
}

/// How one kind goes out to one client.
#[derive(Debug, Clone)]
pub(super) struct Encoder {
    /// The kind.
    pub(super) kind: &'static Kind,
    /// The form.
    pub(super) form: Form,
    /// `apiVersion` that the client asked for.
    pub(super) api_version: String,
    /// How much of each object a row of a table carries.
    include: String,
}

impl Encoder {
    /// For the answers to one request.
    pub(super) fn new(kind: &'static Kind, version: &str, request: &Request) -> Result<Self, Failure> {
        Ok(Self {
            kind,
            form: form(request)?,
            api_version: kind.api_version_of(version),
            include: request.query.get("includeObject").to_owned(),
        })
    }

    /// One object.
    pub(super) fn object(&self, object: &Value, now: Timestamp) -> Value {
        match self.form {
            Form::Full => self.versioned(object),
            Form::Metadata => metadata_only(object),
            Form::Table => {
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                self.table(&metadata, [object], true, now)
            }
        }
    }

    /// One object of a watch; only the first table of a stream says what its columns are.
    pub(super) fn watched(&self, object: &Value, first: bool, now: Timestamp) -> Value {
        match self.form {
            Form::Table => {
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                self.table(&metadata, [object], first, now)
            }
            _ => self.object(object, now),
        }
    }

    /// A list.
    pub(super) fn list<'a>(
        &self,
        metadata: &Value,
        objects: impl IntoIterator<Item = &'a Value>,
        now: Timestamp,
    ) -> Value {
        let objects = objects.into_iter();
        match self.form {
            Form::Full => json!({
                "kind": format!("{}List", self.kind.kind),
                "apiVersion": self.api_version,
                "metadata": metadata,
                "items": objects.map(|object| self.item(object)).collect::<Vec<_>>(),
            }),
            Form::Metadata => json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": objects.map(metadata_only).collect::<Vec<_>>(),
            }),
            Form::Table => self.table(metadata, objects, true, now),
        }
    }

    fn table<'a>(
        &self,
        metadata: &Value,
        objects: impl IntoIterator<Item = &'a Value>,
        with_columns: bool,
        now: Timestamp,
    ) -> Value {
        let rows = objects.into_iter().map(|object| {
            let mut row = json!({"cells": table::cells(self.kind, object, now)});
            match self.include.as_str() {
                "None" => {}
                "Object" => row["object"] = self.versioned(object),
                _ => row["object"] = metadata_only(object),
            }
            row
        });
        let rows: Vec<Value> = rows.collect();
        let columns = if with_columns { table::columns(self.kind) } else { Value::Null };
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": columns,
            "rows": rows,
        })
    }

    /// An object in a list: the kinds with Go types leave out there what the list says already.
    fn item(&self, object: &Value) -> Value {
        let mut item = self.versioned(object);
        if !self.kind.custom
            && let Some(item) = item.as_object_mut()
        {
            item.shift_remove("apiVersion");
            item.shift_remove("kind");
        }
        item
    }

    fn versioned(&self, object: &Value) -> Value {
        let mut object = match self.kind.resource {
            NEW_EVENTS => events::in_new_form(object),
            _ => object.clone(),
        };
        object["apiVersion"] = self.api_version.as_str().into();
        object["kind"] = self.kind.kind.into();
        object
    }
}

fn metadata_only(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

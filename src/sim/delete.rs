//! Deleting objects: preconditions, grace periods, finalizers, propagation.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::sim::failure::Failure;
use crate::sim::kinds::Kind;
use crate::sim::kinds::NAMESPACES;
use crate::sim::kinds::PODS;
use crate::sim::meta;
use crate::sim::registry::Caller;
use crate::sim::registry::Registry;
use crate::sim::world::Key;

/// The finalizer that waits for dependents.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer that waits until dependents are released.
pub(super) const ORPHAN: &str = "orphan";
/// A pod's grace period in seconds if it names none.
const POD_GRACE: i64 = 30;

/// `DeleteOptions` as a client sends them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DeleteOptions {
    /// Seconds that a pod gets to end.
    pub grace_period_seconds: Option<i64>,
    /// What must be true of the object.
    pub preconditions: Option<Preconditions>,
    /// `Foreground`, `Background` or `Orphan`.
    pub propagation_policy: Option<String>,
    /// The older way to say `Orphan`.
    pub orphan_dependents: Option<bool>,
    /// `["All"]` for a trial.
    pub dry_run: Vec<String>,
}

/// What must be true of an object that is to be deleted.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Preconditions {
    /// Its uid.
    pub uid: Option<String>,
    /// Its version.
    pub resource_version: Option<String>,
}

/// What a delete came to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Deleted {
    /// The object is gone; its last state.
    Gone(Arc<Value>),
    /// It stays until its finalizers or its grace period end.
    Marked(Arc<Value>),
}

impl Registry {
    /// Deletes an object, or marks it if something holds it.
    pub(super) fn delete(
        &mut self,
        kind: &'static Kind,
        key: &Key,
        options: &DeleteOptions,
        caller: &Caller,
    ) -> Result<Deleted, Failure> {
        let object = self.get(kind, key)?;
        check_preconditions(kind, &object, options)?;
        self.admit_delete(key, &object, caller)?;
        let grace = grace(kind, &object, options);
        let finalizers = wanted_finalizers(&object, options)?;
        let held = !finalizers.is_empty() || grace > 0 || kind.resource == NAMESPACES;
        let deleted = if held {
            let marked = mark(kind, &object, grace, &finalizers, caller);
            if *object == marked || caller.dry_run {
                Deleted::Marked(object)
            } else {
                Deleted::Marked(self.store.put(key, marked))
            }
        } else {
            if !caller.dry_run {
                self.store.remove(key);
            }
            Deleted::Gone(Arc::new(mark(kind, &object, grace, &finalizers, caller)))
        };
        let (Deleted::Gone(after) | Deleted::Marked(after)) = &deleted;
        let body = options_body(options);
        self.record("delete", key, "", &after.clone(), &body, caller);
        Ok(deleted)
    }
}

fn options_body(options: &DeleteOptions) -> Value {
    let mut body = json!({});
    if let Some(grace) = options.grace_period_seconds {
        body["gracePeriodSeconds"] = grace.into();
    }
    if let Some(policy) = &options.propagation_policy {
        body["propagationPolicy"] = policy.as_str().into();
    }
    if let Some(Preconditions { uid: Some(uid), .. }) = &options.preconditions {
        body["preconditions"] = json!({"uid": uid});
    }
    body
}

fn check_preconditions(kind: &Kind, object: &Value, options: &DeleteOptions) -> Result<(), Failure> {
    let Some(wanted) = &options.preconditions else { return Ok(()) };
    let name = meta::name(object);
    if let Some(uid) = &wanted.uid
        && uid != meta::uid(object)
    {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            meta::uid(object)
        );
        return Err(Failure::precondition(kind, name, &why));
    }
    if let Some(version) = &wanted.resource_version
        && version != meta::version(object)
    {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
            meta::version(object)
        );
        return Err(Failure::precondition(kind, name, &why));
    }
    Ok(())
}

/// How many seconds the object gets. Only pods on a node get any.
fn grace(kind: &Kind, object: &Value, options: &DeleteOptions) -> i64 {
    let ended = matches!(meta::text(object, "/status/phase"), "Succeeded" | "Failed");
    if kind.resource != PODS || ended || meta::text(object, "/spec/nodeName").is_empty() {
        return 0;
    }
    let own = object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    options.grace_period_seconds.unwrap_or_else(|| own.unwrap_or(POD_GRACE)).max(0)
}

fn wanted_finalizers(object: &Value, options: &DeleteOptions) -> Result<Vec<String>, Failure> {
    let policy = match (options.propagation_policy.as_deref(), options.orphan_dependents) {
        (Some(_), Some(_)) => {
            let message = "orphanDependents and deletionPropagation cannot be both set";
            return Err(Failure::bad_request(message));
        }
        (Some(policy), None) => Some(policy),
        (None, Some(true)) => Some("Orphan"),
        (None, Some(false)) => Some("Background"),
        (None, None) => None,
    };
    let mut finalizers: Vec<String> = meta::finalizers(object).into_iter().map(str::to_owned).collect();
    let wanted = match policy {
        None => return Ok(finalizers),
        Some("Foreground") => Some(FOREGROUND),
        Some("Orphan") => Some(ORPHAN),
        Some("Background") => None,
        Some(other) => {
            let message = format!(
                "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: {other:?}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
            );
            return Err(Failure::new(422, "Invalid", message));
        }
    };
    finalizers.retain(|f| f != FOREGROUND && f != ORPHAN);
    finalizers.extend(wanted.map(str::to_owned));
    Ok(finalizers)
}

/// The object with the marks of a delete.
fn mark(kind: &Kind, object: &Value, grace: i64, finalizers: &[String], caller: &Caller) -> Value {
    let mut marked = object.clone();
    let names: Vec<&str> = finalizers.iter().map(String::as_str).collect();
    meta::set_finalizers(&mut marked, &names);
    let before = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    let shorter = before.is_none_or(|before| grace < before);
    if !meta::is_deleting(object) || shorter {
        let seconds = u64::try_from(grace).unwrap_or(0);
        let at = meta::rfc3339(caller.now + Duration::from_secs(seconds));
        meta::set(&mut marked, "deletionTimestamp", Some(at.into()));
        meta::set(&mut marked, "deletionGracePeriodSeconds", Some(grace.into()));
    }
    if !meta::is_deleting(object) && meta::generation(object) > 0 {
        meta::set(&mut marked, "generation", Some((meta::generation(object) + 1).into()));
    }
    if kind.resource == NAMESPACES {
        marked["status"]["phase"] = "Terminating".into();
        meta::set(&mut marked, "deletionGracePeriodSeconds", None);
    }
    marked
}

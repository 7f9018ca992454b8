//! `k8s.patch` and what undoes it, `k8s.restore`.

use http::Method;
use serde_json::{Value, json};

use crate::action::args;
use crate::action::codes;
use crate::action::k8s::changes;
use crate::action::k8s::changes::Change;
use crate::action::k8s::delete;
use crate::action::k8s::site::MERGE_PATCH;
use crate::action::k8s::site::Place;
use crate::action::k8s::site::Site;
use crate::action::k8s::site::missing;
use crate::action::k8s::site::written;
use crate::action::naming::LAST_WRITE;
use crate::action::request::Answer;
use crate::action::request::ObjectRef;
use crate::action::request::Request;
use crate::failure::Failure;

/// RFC 6902.
const JSON_PATCH: &str = "application/json-patch+json";
/// Lists merge by key; core kinds only.
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// Finds the changes in a patch, the object before and the object after.
type Compare = fn(&Value, &Value, &Value) -> Vec<Change>;

impl Site<'_> {
    /// Patches the target.
    pub(crate) async fn patch(
        &self,
        target: &ObjectRef,
        request: &Request,
        args: args::Patch,
    ) -> Result<Answer, Failure> {
        let place = self.place(target).await?;
        let before = self.existing(request.object.as_ref(), target).await?;
        let version = before.pointer("/metadata/resourceVersion").filter(|_| args.optimistic).cloned();
        let (content_type, body, found): (_, _, Compare) = match (args.merge, args.json, args.strategic) {
            (Some(patch), None, None) => {
                (MERGE_PATCH, self.merge_body(&place, patch, version)?, changes::of_merge)
            }
            (None, None, Some(patch)) => {
                (STRATEGIC_PATCH, self.merge_body(&place, patch, version)?, changes::of_merge)
            }
            (None, Some(Value::Array(patch)), None) => {
                let mark = (place.takes_mark() && !self.dry_run).then(|| self.origin.last_write());
                (JSON_PATCH, json_body(patch, version, mark, &before), changes::of_json_patch)
            }
            _ => {
                let message =
                    "a patch is exactly one of `merge`, `strategic` and a list of `json` operations";
                return Err(Failure::permanent(codes::BAD_REQUEST, message));
            }
        };
        let http = self.request(Method::PATCH, &place.path(), "", content_type, Some(&body))?;
        let after = self.write(&place, http, &self.ask("patch", target)).await?;
        let changes = found(&body, &before, &after);
        Ok(written(changes::any(&changes), after, Some(&changes)))
    }

    fn merge_body(&self, place: &Place, mut patch: Value, version: Option<Value>) -> Result<Value, Failure> {
        self.mark(place, &mut patch)?;
        if let Some(version) = version {
            patch["metadata"]["resourceVersion"] = version;
        }
        Ok(patch)
    }

    /// Puts back what a write changed, if all of it still holds what was written.
    pub(crate) async fn restore(&self, target: &ObjectRef, args: &args::Restore) -> Result<Answer, Failure> {
        let place = self.place(target).await?;
        let live = self.live(target).await?;
        if let Some(uid) = args.changes.iter().find_map(delete::created_uid) {
            return match live {
                Some(live) => self.delete_exactly(&place, &live, uid, &args::Delete::default()).await,
                None => Ok(Answer::done(false, Value::Null)),
            };
        }
        let live = live.ok_or_else(|| missing(target))?;
        let operations = changes::undo(&args.changes, &live).map_err(|paths| {
            let message =
                format!("{}: changed by somebody else since: {}", target.describe(), paths.join(", "));
            Failure::permanent(codes::RESTORE_CONFLICT, message)
        })?;
        if operations.is_empty() {
            return Ok(written(false, live.as_ref().clone(), None));
        }
        let version = live.pointer("/metadata/resourceVersion").cloned();
        let mark = place.takes_mark().then(|| self.origin.last_write());
        // With the version: what was compared above must still be there when the server writes.
        let body = json_body(operations, version, mark, &live);
        let http = self.request(Method::PATCH, &place.path(), "", JSON_PATCH, Some(&body))?;
        let after = self.write(&place, http, &self.ask("restore", target)).await?;
        let changes = changes::of_json_patch(&body, &live, &after);
        Ok(written(true, after, Some(&changes)))
    }
}

/// A JSON patch with the expected version and the mark. The mark is left out where the object has no annotations:
/// making the map could wipe out one that somebody else has just made.
fn json_body(mut patch: Vec<Value>, version: Option<Value>, mark: Option<String>, before: &Value) -> Value {
    let has_annotations = before.pointer("/metadata/annotations").is_some_and(Value::is_object);
    if let Some(mark) = mark.filter(|_| has_annotations) {
        let pointer = format!("/metadata/annotations/{}", LAST_WRITE.replace('/', "~1"));
        patch.push(json!({"op": "add", "path": pointer, "value": mark}));
    }
    if let Some(version) = version {
        patch.push(json!({"op": "replace", "path": "/metadata/resourceVersion", "value": version}));
    }
    Value::Array(patch)
}

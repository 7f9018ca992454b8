//! `k8s.create` and `k8s.apply`.

use std::sync::Arc;

use http::Method;
use serde_json::Value;

use crate::action::args;
use crate::action::codes;
use crate::action::k8s::changes;
use crate::action::k8s::delete;
use crate::action::k8s::read::Found;
use crate::action::k8s::read::last_manager;
use crate::action::k8s::read::read_with_managers;
use crate::action::k8s::site::JSON;
use crate::action::k8s::site::Site;
use crate::action::k8s::site::object_in;
use crate::action::k8s::site::written;
use crate::action::naming::last_writer;
use crate::action::request::Answer;
use crate::action::request::ObjectRef;
use crate::action::request::Request;
use crate::failure::Failure;

/// Server-side apply; JSON is YAML.
const APPLY_PATCH: &str = "application/apply-patch+yaml";

impl Site<'_> {
    /// Creates an object. If it exists and an earlier attempt of this unit made it, it is adopted, unless it has
    /// ended already (C3).
    pub(crate) async fn create(&self, manifest: &Value) -> Result<Answer, Failure> {
        let target = described(manifest)?;
        let place = self.place(&target).await?;
        let mut body = manifest.clone();
        self.mark(&place, &mut body)?;
        let ask = self.ask("create", &target);
        let http = self.request(Method::POST, &place.collection(), "", JSON, Some(&body))?;
        let reply = self.cluster.call(http, &ask).await?;
        match self.accepted(&place, &reply, &ask).await {
            Err(failure) if failure.code == codes::ALREADY_EXISTS && !self.dry_run => {
                self.adopt(&target, failure).await
            }
            Err(failure) => Err(failure),
            Ok(()) => {
                let object = object_in(&reply, &ask)?;
                let changes = [delete::creation(&object)];
                Ok(written(!self.dry_run, object, Some(&changes)))
            }
        }
    }

    async fn adopt(&self, target: &ObjectRef, exists: Failure) -> Result<Answer, Failure> {
        let Found::One(Some(object)) = read_with_managers(self.cluster, target).await? else {
            return Err(Failure::retryable(
                codes::CONFLICT,
                format!("{}: and now it is gone", exists.message),
            ));
        };
        if !self.origin.wrote_in_any_attempt(&object) {
            let owner = match (last_writer(&object), last_manager(&object)) {
                (Some(writer), _) => format!("Windrow's {writer}"),
                (None, Some((manager, time))) => format!("{manager} at {time}"),
                (None, None) => "somebody else".to_owned(),
            };
            return Err(Failure::permanent(
                codes::ALREADY_EXISTS,
                format!("{}; written by {owner}", exists.message),
            ));
        }
        if !self.origin.wrote(&object) && has_ended(&object) {
            let message = format!("{} was made by an earlier attempt and has ended", target.describe());
            return Err(Failure::permanent(codes::EXISTS_FINISHED, message));
        }
        let changes = [delete::creation(&object)];
        Ok(written(true, object.as_ref().clone(), Some(&changes)))
    }

    /// Applies a manifest.
    pub(crate) async fn apply(&self, request: &Request, args: &args::Apply) -> Result<Answer, Failure> {
        let target = described(&args.manifest)?;
        let place = self.place(&target).await?;
        let before = match request.object.as_ref().filter(|object| object.is_object()) {
            Some(object) => Some(Arc::clone(object)),
            None => self.live(&target).await?,
        };
        let mut body = args.manifest.clone();
        self.mark(&place, &mut body)?;
        let force = if args.force { "&force=true" } else { "" };
        let http = self.request(Method::PATCH, &place.path(), force, APPLY_PATCH, Some(&body))?;
        let after = self.write(&place, http, &self.ask("apply", &target)).await?;
        let changes = match &before {
            Some(before) => changes::of_merge(&args.manifest, before, &after),
            None => vec![delete::creation(&after)],
        };
        Ok(written(changes::any(&changes), after, Some(&changes)))
    }

    /// What the server would say to a write.
    pub(crate) async fn dry_run(&self, request: &Request, args: args::DryRun) -> Result<Answer, Failure> {
        let site = Site { dry_run: true, ..self.clone() };
        let target = || {
            let missing =
                || Failure::permanent(codes::BAD_REQUEST, "a dry run of a patch or delete needs a target");
            request.target.as_ref().ok_or_else(missing)
        };
        let answer = match (&args.manifest, args.delete) {
            (None, true) => site.delete(target()?, request, &args::Delete::default()).await?,
            (Some(manifest), false) => match site.create(manifest).await {
                Err(failure) if failure.code == codes::ALREADY_EXISTS => {
                    site.apply(request, &args::Apply { manifest: manifest.clone(), force: false }).await?
                }
                result => result?,
            },
            _ => {
                let (merge, json, strategic) = (args.merge, args.json, args.strategic);
                site.patch(target()?, request, args::Patch { merge, json, strategic, optimistic: false })
                    .await?
            }
        };
        Ok(match answer {
            Answer::Done { result, .. } => Answer::done(false, result),
            failed @ Answer::Failed(_) => failed,
        })
    }
}

fn described(manifest: &Value) -> Result<ObjectRef, Failure> {
    let what = "a manifest is one object with apiVersion, kind and metadata.name; generateName is never used";
    ObjectRef::of_manifest(manifest).ok_or_else(|| Failure::permanent(codes::BAD_REQUEST, what))
}

/// The object is on its way out, or says that its work is over.
fn has_ended(object: &Value) -> bool {
    let phase = object.pointer("/status/phase").and_then(Value::as_str);
    let over = |condition: &Value| {
        let is = |key, text| condition.get(key).and_then(Value::as_str) == Some(text);
        (is("type", "Failed") || is("type", "Complete")) && is("status", "True")
    };
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    object.pointer("/metadata/deletionTimestamp").is_some()
        || matches!(phase, Some("Failed" | "Succeeded"))
        || object.pointer("/status/complete") == Some(&Value::Bool(true))
        || conditions.is_some_and(|conditions| conditions.iter().any(over))
}

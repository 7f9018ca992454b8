//! `k8s.delete`: only the object that was meant.

use http::Method;
use serde_json::{Value, json};

use crate::action::args;
use crate::action::args::Propagation;
use crate::action::codes;
use crate::action::k8s::changes::Change;
use crate::action::k8s::site::JSON;
use crate::action::k8s::site::Place;
use crate::action::k8s::site::Site;
use crate::action::k8s::site::version_of;
use crate::action::request::Answer;
use crate::action::request::ObjectRef;
use crate::action::request::Request;
use crate::failure::Failure;

/// The change that a creation is: the whole object was not there.
pub(crate) fn creation(object: &Value) -> Change {
    let uid = object.pointer("/metadata/uid").cloned().unwrap_or_default();
    Change { path: String::new(), before: None, after: Some(json!({"metadata": {"uid": uid}})) }
}

/// The uid of the object, if the change is a creation.
pub(crate) fn created_uid(change: &Change) -> Option<&str> {
    let whole = change.path.is_empty() && change.before.is_none();
    change.after.as_ref().filter(|_| whole)?.pointer("/metadata/uid")?.as_str()
}

impl Site<'_> {
    /// Deletes the target, if it is still the one that was read.
    pub(crate) async fn delete(
        &self,
        target: &ObjectRef,
        request: &Request,
        args: &args::Delete,
    ) -> Result<Answer, Failure> {
        let place = self.place(target).await?;
        let before = match request.object.as_ref().filter(|object| object.is_object()) {
            Some(object) => Some(object.clone()),
            None => self.live(target).await?,
        };
        let Some(before) = before else { return Ok(Answer::done(false, Value::Null)) };
        let uid = args.uid.as_deref().or_else(|| before.pointer("/metadata/uid")?.as_str());
        let uid = uid.ok_or_else(|| {
            Failure::permanent(
                codes::BAD_REQUEST,
                format!("{}: it was read without a uid", target.describe()),
            )
        })?;
        self.delete_exactly(&place, &before, uid, args).await
    }

    /// Deletes the object with that uid. Nothing is changed if it is gone, or another has taken its name.
    pub(crate) async fn delete_exactly(
        &self,
        place: &Place,
        before: &Value,
        uid: &str,
        args: &args::Delete,
    ) -> Result<Answer, Failure> {
        let ask = self.ask("delete", &place.target);
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}});
        if let Some(grace) = args.grace {
            options["gracePeriodSeconds"] = grace.into();
        }
        if let Some(propagation) = args.propagation {
            options["propagationPolicy"] = match propagation {
                Propagation::Foreground => "Foreground",
                Propagation::Background => "Background",
                Propagation::Orphan => "Orphan",
            }
            .into();
        }
        let http = self.request(Method::DELETE, &place.path(), "", JSON, Some(&options))?;
        let reply = self.cluster.call(http, &ask).await?;
        match self.accepted(place, &reply, &ask).await {
            Err(failure) if failure.code == codes::NOT_FOUND => Ok(Answer::done(false, Value::Null)),
            Err(failure) if failure.code == codes::CONFLICT => {
                let live = self.live(&place.target).await?;
                let same = live
                    .is_some_and(|live| live.pointer("/metadata/uid").and_then(Value::as_str) == Some(uid));
                if same { Err(failure) } else { Ok(Answer::done(false, Value::Null)) }
            }
            Err(failure) => Err(failure),
            Ok(()) => Ok(Answer::Done {
                changed: before.pointer("/metadata/deletionTimestamp").is_none() && !self.dry_run,
                object: version_of(before),
                result: json!({"uid": uid}),
                changes: None,
            }),
        }
    }
}

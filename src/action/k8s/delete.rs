//! `k8s.delete` and `k8s.evict`: only the object that was meant.

use http::Method;
use serde_json::{Value, json};

use crate::action::args;
use crate::action::args::Propagation;
use crate::action::codes;
use crate::action::k8s::changes::Change;
use crate::action::k8s::read;
use crate::action::k8s::site::JSON;
use crate::action::k8s::site::Place;
use crate::action::k8s::site::Site;
use crate::action::k8s::site::version_of;
use crate::action::request::Answer;
use crate::action::request::ObjectRef;
use crate::action::request::Request;
use crate::action::request::Selector;
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
    /// Deletes the target, if it is still the one that was read, or each object that the target binds now.
    pub(crate) async fn delete(
        &self,
        target: &ObjectRef,
        request: &Request,
        args: &args::Delete,
    ) -> Result<Answer, Failure> {
        if !matches!(target.select, Selector::Name(_)) {
            return self.delete_each(target, args).await;
        }
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

    /// Asks for the eviction of the target, a pod, if it is still the one that was read. Budgets and KubeVirt may refuse
    /// it with 429; one that is gone, or leaving, needs none.
    pub(crate) async fn evict(
        &self,
        target: &ObjectRef,
        request: &Request,
        args: &args::Evict,
    ) -> Result<Answer, Failure> {
        let place = self.place(target).await?;
        let before = self.existing(request.object.as_ref(), target).await?;
        if before.pointer("/metadata/deletionTimestamp").is_some() {
            return Ok(Answer::done(false, Value::Null));
        }
        let mut options = json!({"preconditions": {"uid": before.pointer("/metadata/uid")}});
        if let Some(grace) = args.grace {
            options["gracePeriodSeconds"] = grace.into();
        }
        let body = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": place.name, "namespace": place.namespace}, "deleteOptions": options,
        });
        let ask = self.ask("evict", target);
        let path = format!("{}/eviction", place.path());
        let reply =
            self.cluster.call(self.request(Method::POST, &path, "", JSON, Some(&body))?, &ask).await?;
        match self.accepted(&place, &reply, &ask).await {
            Err(failure) if failure.code == codes::NOT_FOUND => Ok(Answer::done(false, Value::Null)),
            Err(failure) => Err(failure),
            Ok(()) => Ok(Answer::Done {
                changed: !self.dry_run,
                object: version_of(&before),
                result: json!({"uid": before.pointer("/metadata/uid")}),
                changes: None,
            }),
        }
    }

    async fn delete_each(&self, target: &ObjectRef, args: &args::Delete) -> Result<Answer, Failure> {
        if args.uid.is_some() {
            return Err(Failure::permanent(
                codes::BAD_REQUEST,
                "`uid` is for one object, and the target is a list",
            ));
        }
        let mut gone = vec![];
        for object in read::read(self.cluster, target).await?.into_objects() {
            let text = |key: &str| object.pointer(key).and_then(Value::as_str).map(str::to_owned);
            let (Some(name), Some(uid)) = (text("/metadata/name"), text("/metadata/uid")) else { continue };
            let one = ObjectRef {
                namespace: text("/metadata/namespace"),
                all_namespaces: false,
                select: Selector::Name(name),
                ..target.clone()
            };
            let place = self.place(&one).await?;
            if let Answer::Done { changed: true, .. } =
                self.delete_exactly(&place, &object, &uid, args).await?
            {
                gone.push(uid);
            }
        }
        Ok(Answer::done(!gone.is_empty(), json!({"uids": gone})))
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
        if self.dry_run {
            // A server that finds options in the body does not look for any in the URL.
            options["dryRun"] = json!(["All"]);
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

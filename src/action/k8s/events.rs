//! `k8s.events`: what the cluster has noted about an object.

use serde_json::Value;

use crate::action::args;
use crate::action::k8s::read;
use crate::action::k8s::site::Site;
use crate::action::request::Answer;
use crate::action::request::ObjectRef;
use crate::action::request::Selector;
use crate::failure::Failure;

impl Site<'_> {
    /// Reads the events about the target, the latest last.
    pub(crate) async fn events(&self, target: &ObjectRef, args: &args::Events) -> Result<Answer, Failure> {
        let place = self.place(target).await?;
        let live = self.live(target).await?;
        let uid = live.as_ref().and_then(|object| object.pointer("/metadata/uid")?.as_str());
        let mut fields = if let Some(uid) = uid {
            format!("involvedObject.uid={uid}")
        } else {
            // Events outlive the object by an hour.
            let kind = &place.kind.resource.kind;
            format!("involvedObject.kind={kind},involvedObject.name={}", place.name)
        };
        if let Some(wanted) = &args.r#type {
            fields.push_str(&format!(",type={wanted}"));
        }
        let about = ObjectRef {
            api: "v1".into(),
            kind: "Event".into(),
            all_namespaces: place.namespace.is_none(),
            namespace: place.namespace,
            select: Selector::Match { labels: None, fields: Some(fields) },
            optional: false,
        };
        let mut events = read::read(self.cluster, &about).await?.into_objects();
        events.sort_by_cached_key(|event| last_seen(event).unwrap_or_default().to_owned());
        Ok(Answer::done(false, events.into_iter().map(std::sync::Arc::unwrap_or_clone).collect()))
    }
}

/// When an event happened last, by the clock of whoever noted it: RFC 3339.
pub fn last_seen(event: &Value) -> Option<&str> {
    let places = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
    places.into_iter().find_map(|place| event.pointer(place)?.as_str())
}

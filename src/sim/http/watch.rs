//! Watches: a stream of what happens to the objects of a kind.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::body::Bytes;
use axum::response::Response;
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use crate::sim::cluster::Cluster;
use crate::sim::cluster::lock;
use crate::sim::failure::Failure;
use crate::sim::http::list::number;
use crate::sim::http::list::too_large;
use crate::sim::http::negotiate::Encoder;
use crate::sim::http::request::Request;
use crate::sim::http::request::Target;
use crate::sim::http::response;
use crate::sim::http::selector::Selector;
use crate::sim::meta;
use crate::sim::store::Change;
use crate::sim::store::Forgotten;
use crate::sim::store::Happened;
use crate::sim::trouble::WatchTrouble;
use crate::time::Timestamp;

/// How long a watch lasts if the client does not say; the least that kube-apiserver grants.
const LASTS: Duration = Duration::from_mins(30);
/// How often a client that asks for it is told the version that it has seen.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// Answers a watch.
pub(super) fn answer(cluster: &Cluster, request: &Request) -> Result<Response, Failure> {
    let Target::Collection { kind, version, namespace } = &request.target else {
        return Err(Failure::no_resource());
    };
    let encoder = Encoder::new(kind, version, request)?;
    let selector = Selector::parse(kind, &request.query)?;
    let from = number(request, "resourceVersion")?;
    let initial = request.query.has("sendInitialEvents").then(|| request.query.flag("sendInitialEvents"));
    let bookmarks = request.query.flag("allowWatchBookmarks");
    check_match(request, initial)?;
    let inner = cluster.inner();
    let now = inner.clock.now();
    let lasts = number(request, "timeoutSeconds")?.map_or(LASTS, Duration::from_secs);
    let mut watch = Watch {
        changed: inner.changed.subscribe(),
        outages: inner.outages.subscribe(),
        trouble: lock(&inner.trouble).watch(&*inner.clock),
        cluster: cluster.clone(),
        encoder,
        selector,
        namespace: Some(namespace.clone()).filter(|namespace| !namespace.is_empty()),
        seen: 0,
        delayed: VecDeque::new(),
        lines: VecDeque::new(),
        ends_at: now + lasts,
        bookmark_at: bookmarks.then(|| inner.clock.after(BOOKMARK_EVERY)),
        first: true,
        end: None,
    };
    let current = watch.begin(initial.unwrap_or(from.is_none()), from)?;
    if initial == Some(true) && bookmarks {
        watch.bookmark(current, true);
    }
    let body = Body::from_stream(stream::unfold(watch, |mut watch| async move {
        let line = watch.next().await?;
        Some((line, watch))
    }));
    Ok(response(200, "application/json", body))
}

/// `sendInitialEvents` and `resourceVersionMatch` belong together.
fn check_match(request: &Request, initial: Option<bool>) -> Result<(), Failure> {
    let given = request.query.get("resourceVersionMatch");
    let why = match (initial, given) {
        (None, "") | (Some(_), "NotOlderThan") => return Ok(()),
        (None, _) => "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        (Some(_), _) => "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
    };
    let message = format!("ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: {why}");
    Err(Failure::new(422, "Invalid", message))
}

/// How a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    Broken,
}

/// A watch that runs.
struct Watch {
    cluster: Cluster,
    changed: Receiver<u64>,
    outages: Receiver<u64>,
    trouble: WatchTrouble,
    encoder: Encoder,
    selector: Selector,
    namespace: Option<String>,
    /// The version up to which changes have been looked at.
    seen: u64,
    /// Versions that may be told from a later moment on.
    delayed: VecDeque<(Timestamp, u64)>,
    lines: VecDeque<Bytes>,
    ends_at: Timestamp,
    bookmark_at: Option<Timestamp>,
    first: bool,
    end: Option<End>,
}

impl Watch {
    /// Finds the version to start from; tells what is there already if that is wanted.
    fn begin(&mut self, initial: bool, from: Option<u64>) -> Result<u64, Failure> {
        let cluster = self.cluster.clone();
        cluster.inner().with(|registry| {
            let current = registry.store.revision();
            if let Some(asked) = from.filter(|asked| *asked > current) {
                return Err(too_large(asked, current));
            }
            self.seen = if initial { current } else { from.unwrap_or(current) };
            if initial {
                let resource = self.encoder.kind.stored;
                let namespace = self.namespace.clone();
                let objects: Vec<Arc<Value>> = registry
                    .store
                    .scan(resource, namespace.as_deref(), None)
                    .map(|(_, object)| object.clone())
                    .filter(|object| self.selector.matches(object))
                    .collect();
                for object in objects {
                    self.tell("ADDED", &object);
                }
            }
            Ok(current)
        })
    }

    /// The next piece of the stream.
    async fn next(&mut self) -> Option<Result<Bytes, io::Error>> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(Ok(line));
            }
            match self.end {
                Some(End::Closed) => return None,
                Some(End::Broken) => {
                    self.end = Some(End::Closed);
                    return Some(Err(io::Error::from(io::ErrorKind::ConnectionReset)));
                }
                None => {}
            }
            self.look();
            if self.lines.is_empty() && self.end.is_none() {
                self.wait().await;
            }
        }
    }

    /// Waits until there may be something to tell.
    async fn wait(&mut self) {
        let clock = self.cluster.inner().clock.clone();
        let delayed = self.delayed.front().map(|(at, _)| *at);
        let moments = [self.bookmark_at, self.trouble.gone_at, delayed];
        let at = moments.into_iter().flatten().fold(self.ends_at, Timestamp::min);
        tokio::select! {
            changed = self.changed.changed() => if changed.is_err() { self.end = Some(End::Closed) },
            outage = self.outages.changed() => {
                self.end = Some(if outage.is_ok() { End::Broken } else { End::Closed });
            }
            () = clock.sleep_until(at) => {}
        }
    }

    /// Takes in what has happened.
    fn look(&mut self) {
        let now = self.cluster.inner().clock.now();
        let current = *self.changed.borrow_and_update();
        if self.trouble.gone_at.is_some_and(|at| now >= at) {
            self.give_up(&Failure::expired(self.seen, current));
            return;
        }
        if !self.trouble.silent {
            self.tell_changes(current, now);
        }
        if now >= self.ends_at {
            if self.bookmark_at.is_some() && !self.trouble.silent {
                self.bookmark(self.seen, false);
            }
            self.end = Some(End::Closed);
        } else if self.bookmark_at.is_some_and(|at| now >= at) {
            self.bookmark_at = Some(self.cluster.inner().clock.after(BOOKMARK_EVERY));
            if !self.trouble.silent {
                self.bookmark(self.seen, false);
            }
        }
    }

    fn tell_changes(&mut self, current: u64, now: Timestamp) {
        let told = match self.trouble.lag {
            None => current,
            Some(lag) => {
                let last = self.delayed.back().map_or(self.seen, |(_, revision)| *revision);
                if current > last {
                    self.delayed.push_back((now + lag, current));
                }
                let mut told = self.seen;
                while let Some((_, revision)) = self.delayed.pop_front_if(|(at, _)| *at <= now) {
                    told = revision;
                }
                told
            }
        };
        if told <= self.seen {
            return;
        }
        let cluster = self.cluster.clone();
        let changes: Result<Vec<Change>, Forgotten> = {
            let registry = lock(&cluster.inner().registry);
            let mine = |change: &&Change| self.concerns(change) && change.revision <= told;
            registry.store.since(self.seen).map(|changes| changes.filter(mine).cloned().collect())
        };
        match changes {
            Ok(changes) => {
                self.seen = told;
                for change in &changes {
                    self.tell_change(change);
                }
            }
            Err(forgotten) => self.give_up(&Failure::expired(self.seen, forgotten.oldest)),
        }
    }

    fn concerns(&self, change: &Change) -> bool {
        let here = self.namespace.as_ref().is_none_or(|namespace| **namespace == *change.key.namespace);
        change.key.resource == self.encoder.kind.stored && here
    }

    /// A change as a selector sees it: what begins to match is new, what no longer matches is gone.
    fn tell_change(&mut self, change: &Change) {
        let before = change.before.as_deref().filter(|before| self.selector.matches(before));
        let after = Some(&*change.object)
            .filter(|_| change.happened != Happened::Deleted)
            .filter(|object| self.selector.matches(object));
        match (before, after) {
            (None, None) => {}
            (None, Some(object)) => self.tell("ADDED", object),
            (Some(_), Some(object)) => self.tell("MODIFIED", object),
            (Some(before), None) => {
                let mut last = before.clone();
                let version = change.revision.to_string();
                meta::set(&mut last, "resourceVersion", Some(version.into()));
                self.tell("DELETED", &last);
            }
        }
    }

    fn tell(&mut self, what: &str, object: &Value) {
        let now = self.cluster.inner().clock.now();
        let object = self.encoder.watched(object, self.first, now);
        self.first = false;
        self.push(&json!({"type": what, "object": object}));
    }

    fn bookmark(&mut self, revision: u64, initial: bool) {
        let mut metadata = json!({"resourceVersion": revision.to_string(), "creationTimestamp": null});
        if initial {
            metadata["annotations"] = json!({INITIAL_END: "true"});
        }
        let object = json!({
            "kind": self.encoder.kind.kind,
            "apiVersion": self.encoder.api_version,
            "metadata": metadata,
        });
        let now = self.cluster.inner().clock.now();
        let object = self.encoder.watched(&object, self.first, now);
        self.push(&json!({"type": "BOOKMARK", "object": object}));
    }

    fn give_up(&mut self, failure: &Failure) {
        self.push(&json!({"type": "ERROR", "object": failure.status()}));
        self.end = Some(End::Closed);
    }

    fn push(&mut self, event: &Value) {
        let mut line = event.to_string();
        line.push('\n');
        self.lines.push_back(line.into());
    }
}

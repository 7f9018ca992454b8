//! The host of the controllers: tells them what changed, carries out what they want, and wakes them in time.

use std::sync::Weak;
use std::time::Duration;

use crate::sim::agenda::Agenda;
use crate::sim::agenda::Task;
use crate::sim::cluster::Inner;
use crate::sim::registry::Caller;
use crate::sim::registry::Registry;
use crate::sim::store::Change;
use crate::sim::store::Happened;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::time::Clock;
use crate::time::Timestamp;

/// How many reconciliations run before others get their turn.
const BATCH: usize = 256;
/// After how long a controller tries again when one of its writes was refused.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// The controllers with their tasks, and what they have seen.
struct Host {
    agenda: Agenda,
    seen: u64,
}

/// What one round came to.
enum Round {
    /// There is more to do at once.
    Busy,
    /// Nothing to do before this moment, if any.
    Idle(Option<Timestamp>),
}

/// Runs the controllers until the cluster is dropped.
pub(super) async fn drive(cluster: Weak<Inner>) {
    let Some(inner) = cluster.upgrade() else { return };
    let mut changed = inner.changed.subscribe();
    let clock = inner.clock.clone();
    let controllers = inner.with(|registry| registry.platform.controllers.clone());
    let mut host = Host { agenda: Agenda::new(controllers), seen: 0 };
    drop(inner);
    loop {
        let Some(inner) = cluster.upgrade() else { return };
        changed.mark_unchanged();
        let round = inner.with(|registry| host.round(registry, &*clock));
        if matches!(round, Round::Idle(_)) && host.agenda.is_settled() {
            inner.settled.send_replace(host.seen);
        }
        drop(inner);
        match round {
            Round::Busy => tokio::task::yield_now().await,
            Round::Idle(None) => {
                if changed.changed().await.is_err() {
                    return;
                }
            }
            Round::Idle(Some(at)) => {
                tokio::select! {
                    still = changed.changed() => if still.is_err() { return },
                    () = clock.sleep_until(at) => {}
                }
            }
        }
    }
}

impl Host {
    fn round(&mut self, registry: &mut Registry, clock: &dyn Clock) -> Round {
        let now = clock.now();
        for _ in 0..BATCH {
            self.look(registry, now, clock.speed());
            match self.agenda.take(now) {
                Some((task, controller)) => self.reconcile(registry, task, &*controller, now, clock),
                None if self.seen == registry.store.revision() => return Round::Idle(self.agenda.next()),
                None => {}
            }
        }
        Round::Busy
    }

    /// Takes in the changes since the last look. Each controller notices them after its lag.
    fn look(&mut self, registry: &mut Registry, now: Timestamp, speed: f64) {
        let changes: Vec<Change> = match registry.store.since(self.seen) {
            Ok(changes) => changes.cloned().collect(),
            Err(_) => everything(registry),
        };
        self.seen = registry.store.revision();
        for change in changes {
            registry.collect(&change, now);
            self.agenda.tell(&change.key, &change.object, now, speed);
        }
    }

    fn reconcile(
        &mut self,
        registry: &mut Registry,
        task: Task,
        controller: &dyn Controller,
        now: Timestamp,
        clock: &dyn Clock,
    ) {
        let context = Context { view: &registry.store, now, speed: clock.speed(), faults: &registry.faults };
        let reconciled = controller.reconcile(&context, &task.1);
        let caller = Caller::controller(controller.name(), now);
        for write in &reconciled.writes {
            if let Err(failure) = registry.carry_out(write, &caller) {
                tracing::debug!(controller = controller.name(), key = %task.1, %failure, "a write is refused");
                self.agenda.plan(task.clone(), clock.after(RETRY));
            }
        }
        if let Some(at) = reconciled.again_at {
            // Not before the clock has moved: a controller that is never content must not stop the world.
            self.agenda.plan(task, at.max(now + Duration::from_millis(1)));
        }
    }
}

/// All objects, as if each had just changed.
fn everything(registry: &Registry) -> Vec<Change> {
    let revision = registry.store.revision();
    let objects = registry.store.all();
    objects
        .map(|(key, object)| Change {
            revision,
            key: key.clone(),
            happened: Happened::Modified,
            object: object.clone(),
            before: None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::sim::cluster::Cluster;
    use crate::sim::cluster::Options;
    use crate::sim::kinds::CONFIG_MAPS;
    use crate::sim::meta;
    use crate::sim::world::Key;
    use crate::sim::world::Platform;
    use crate::sim::world::Reconciled;
    use crate::sim::world::Write;
    use crate::time::SystemClock;

    /// Counts `data.n` of a map up to three, one step in ten seconds.
    struct Counter;

    impl Controller for Counter {
        fn name(&self) -> &'static str {
            "counter"
        }

        fn concerns(&self, changed: &Key, _object: &Value) -> Option<Key> {
            (changed.resource == CONFIG_MAPS).then(|| changed.clone())
        }

        fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
            let Some(map) = context.view.get(key) else { return Reconciled::default() };
            let at = meta::text(&map, "/data/at").parse().unwrap_or(context.now);
            let n: u32 = meta::text(&map, "/data/n").parse().unwrap_or(0);
            if n == 3 {
                return Reconciled::default();
            }
            if context.now < at {
                return Reconciled { writes: vec![], again_at: Some(at) };
            }
            let next = (context.now + Duration::from_secs(10)).to_string();
            let patch = json!({"data": {"n": (n + 1).to_string(), "at": next}});
            Reconciled { writes: vec![Write::Patch(key.clone(), patch)], again_at: None }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn controllers_are_woken_by_changes_and_by_time_and_come_to_rest() {
        let clock = Arc::new(SystemClock::starting_at(Timestamp::from_millis(0), 1.0));
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
        let options = Options { empty: true, fixtures: vec![map.to_string()], ..Options::default() };
        let platform = Platform { controllers: vec![Arc::new(Counter)], ..Platform::default() };
        let cluster = Cluster::start_with(options, platform, clock.clone()).expect("it starts");
        let counted = || {
            let map = cluster.objects().into_iter().find(|(key, _)| key.resource == CONFIG_MAPS);
            meta::text(&map.expect("seeded").1, "/data/n").to_owned()
        };
        cluster.settled().await;
        assert_eq!(counted(), "1");
        clock.sleep(Duration::from_secs(11)).await;
        cluster.settled().await;
        assert_eq!(counted(), "2");
        clock.sleep(Duration::from_mins(1)).await;
        cluster.settled().await;
        assert_eq!(counted(), "3");
        let writes = cluster.audit().into_iter().filter(|entry| entry.manager == "counter");
        assert!(writes.clone().all(|entry| entry.controller));
        assert_eq!(writes.count(), 3);
    }
}

//! The host of the controllers: tells them what changed, carries out what they want, and wakes them in time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::Weak;
use std::time::Duration;

use crate::sim::cluster::Inner;
use crate::sim::registry::Caller;
use crate::sim::registry::Registry;
use crate::sim::store::Change;
use crate::sim::store::Happened;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::time::Clock;
use crate::time::Timestamp;
use crate::time::shorten;

/// How many reconciliations run before others get their turn.
const BATCH: usize = 256;
/// After how long a controller tries again when one of its writes was refused.
const RETRY: Duration = Duration::from_secs(1);

/// One object in the eyes of one controller: the controller's place in the list, and the object.
type Task = (usize, Key);

/// The tasks with the moments at which they are due, each once.
#[derive(Debug, Default)]
struct Queue {
    due: BTreeMap<Task, Timestamp>,
    order: BTreeSet<(Timestamp, Task)>,
}

impl Queue {
    /// Plans a task; an earlier plan for it stands.
    fn plan(&mut self, task: Task, at: Timestamp) {
        let earlier = self.due.get(&task).copied();
        if earlier.is_some_and(|earlier| earlier <= at) {
            return;
        }
        if let Some(later) = earlier {
            self.order.remove(&(later, task.clone()));
        }
        self.due.insert(task.clone(), at);
        self.order.insert((at, task));
    }

    fn pop(&mut self, now: Timestamp) -> Option<Task> {
        let first = self.order.first().filter(|(at, _)| *at <= now)?.clone();
        self.order.remove(&first);
        self.due.remove(&first.1);
        Some(first.1)
    }

    fn next(&self) -> Option<Timestamp> {
        self.order.first().map(|(at, _)| *at)
    }
}

/// The controllers, what they have seen, and what they are to look at.
struct Host {
    controllers: Vec<Arc<dyn Controller>>,
    queue: Queue,
    /// The tasks that a change has caused, and not only the passing of time.
    reactions: BTreeSet<Task>,
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
    let mut host = Host { controllers, queue: Queue::default(), reactions: BTreeSet::new(), seen: 0 };
    drop(inner);
    loop {
        let Some(inner) = cluster.upgrade() else { return };
        changed.mark_unchanged();
        let round = inner.with(|registry| host.round(registry, &*clock));
        if matches!(round, Round::Idle(_)) && host.reactions.is_empty() {
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
            match self.queue.pop(now) {
                Some(task) => {
                    self.reactions.remove(&task);
                    self.reconcile(registry, task, now, clock);
                }
                None if self.seen == registry.store.revision() => return Round::Idle(self.queue.next()),
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
            for (i, controller) in self.controllers.iter().enumerate() {
                if let Some(key) = controller.concerns(&change.key, &change.object) {
                    let task = (i, key);
                    self.reactions.insert(task.clone());
                    self.queue.plan(task, now + shorten(controller.lag(), speed));
                }
            }
        }
    }

    fn reconcile(&mut self, registry: &mut Registry, task: Task, now: Timestamp, clock: &dyn Clock) {
        let controller = self.controllers[task.0].clone();
        let context = Context { view: &registry.store, now, speed: clock.speed(), faults: &registry.faults };
        let reconciled = controller.reconcile(&context, &task.1);
        let caller = Caller::controller(controller.name(), now);
        for write in &reconciled.writes {
            if let Err(failure) = registry.carry_out(write, &caller) {
                tracing::debug!(controller = controller.name(), key = %task.1, %failure, "a write is refused");
                self.queue.plan(task.clone(), clock.after(RETRY));
            }
        }
        if let Some(at) = reconciled.again_at {
            // Not before the clock has moved: a controller that is never content must not stop the world.
            self.queue.plan(task, at.max(now + Duration::from_millis(1)));
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
    use serde_json::{Value, json};

    use super::*;
    use crate::sim::cluster::Cluster;
    use crate::sim::cluster::Options;
    use crate::sim::kinds::CONFIG_MAPS;
    use crate::sim::meta;
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

    #[test]
    fn the_earliest_plan_of_a_task_stands() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        let task = |name: &str| (0, Key::new(CONFIG_MAPS, "default", name));
        let mut queue = Queue::default();
        queue.plan(task("a"), at(5));
        queue.plan(task("a"), at(9));
        queue.plan(task("b"), at(4));
        queue.plan(task("b"), at(2));
        assert_eq!(queue.next(), Some(at(2)));
        assert_eq!(queue.pop(at(3)), Some(task("b")));
        assert_eq!(queue.pop(at(3)), None);
        assert_eq!(queue.pop(at(9)), Some(task("a")));
        assert_eq!(queue.next(), None);
    }
}

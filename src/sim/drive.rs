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
    let mut host = Host { controllers, queue: Queue::default(), seen: 0 };
    drop(inner);
    loop {
        let Some(inner) = cluster.upgrade() else { return };
        changed.mark_unchanged();
        let round = inner.with(|registry| host.round(registry, &*clock));
        if matches!(round, Round::Idle(_)) {
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
                Some(task) => self.reconcile(registry, task, now, clock),
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
                    self.queue.plan((i, key), now + shorten(controller.lag(), speed));
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

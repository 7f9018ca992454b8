//! What the controllers are to look at, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::time::Timestamp;
use crate::time::shorten;

/// One object in the eyes of one controller: the controller's place in the list, and the object.
pub(super) type Task = (usize, Key);

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

/// The controllers and their tasks.
pub(super) struct Agenda {
    controllers: Vec<Arc<dyn Controller>>,
    queue: Queue,
    /// The tasks that a change has caused, and not only the passing of time.
    reactions: BTreeSet<Task>,
}

impl Agenda {
    /// No task yet.
    pub(super) fn new(controllers: Vec<Arc<dyn Controller>>) -> Self {
        Self { controllers, queue: Queue::default(), reactions: BTreeSet::new() }
    }

    /// Tells each controller of a change, which it notices after its lag.
    pub(super) fn tell(&mut self, key: &Key, object: &Value, now: Timestamp, speed: f64) {
        for (i, controller) in self.controllers.iter().enumerate() {
            if let Some(concerned) = controller.concerns(key, object) {
                let task = (i, concerned);
                self.reactions.insert(task.clone());
                self.queue.plan(task, now + shorten(controller.lag(), speed));
            }
        }
    }

    /// Has a task done at this moment at the latest.
    pub(super) fn plan(&mut self, task: Task, at: Timestamp) {
        self.queue.plan(task, at);
    }

    /// A task that is due, with its controller.
    pub(super) fn take(&mut self, now: Timestamp) -> Option<(Task, Arc<dyn Controller>)> {
        let task = self.queue.pop(now)?;
        self.reactions.remove(&task);
        let controller = self.controllers[task.0].clone();
        Some((task, controller))
    }

    /// When the next task is due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.queue.next()
    }

    /// True if the controllers have reacted to every change that they were told of.
    pub(super) fn is_settled(&self) -> bool {
        self.reactions.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::kinds::CONFIG_MAPS;

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

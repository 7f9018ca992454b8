//! Who holds which lock, and who is next (E8). Kept in memory by the runner; rebuilt from the runs' summaries.
//!
//! A run asks for its whole set at once and gets all of it or none, so that runs of different trees never wait for
//! each other in a circle by themselves. Per key it is first come, first served. A run tree is one owner: a child gets
//! what an ancestor holds, ahead of everybody. Only children that want further locks can close a circle, and the
//! request that would do so is refused.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::engine::limits;
use crate::id::RunId;

/// The key of a lock.
pub type LockKey = Arc<str>;

/// All locks of the runs of one store.
#[derive(Debug, Clone, Default)]
pub struct LockTable {
    held: BTreeMap<LockKey, Holding>,
    queue: VecDeque<Request>,
}

/// A lock that is held.
#[derive(Debug, Clone)]
struct Holding {
    /// The root of the tree that holds it.
    owner: RunId,
    /// The runs of the tree that asked for it.
    runs: BTreeSet<RunId>,
}

#[derive(Debug, Clone)]
struct Request {
    run: RunId,
    owner: RunId,
    keys: BTreeSet<LockKey>,
}

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// The run holds all of them.
    Now,
    /// It waits for its turn.
    Queued,
}

/// Why a request was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// Two trees would wait for each other for ever.
    #[error("run {run} and run {other} would wait for each other: {other} waits for a lock of {run}")]
    Cycle {
        /// The root of the tree that asked.
        run: RunId,
        /// The root of the tree that waits for it already.
        other: RunId,
    },
    /// `lock_wait = "0s"`, and the lock is taken.
    #[error("the lock {key} is held by run {holder}")]
    Taken {
        /// Which lock.
        key: LockKey,
        /// Whose it is, or whose turn it is before this run's.
        holder: RunId,
    },
    /// More runs queue than the store allows.
    #[error("{max} runs queue for locks already")]
    QueueFull {
        /// The limit.
        max: usize,
    },
}

/// A lock for people: who holds it, who waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockView {
    /// Which lock.
    pub key: LockKey,
    /// The tree that holds it.
    pub holder: Option<RunId>,
    /// The runs that wait for it, in order.
    pub queue: Vec<RunId>,
}

impl LockTable {
    /// Asks for `keys` on behalf of `run`, which belongs to the tree of `owner`; with `at_once` it is refused
    /// rather than queued.
    ///
    /// # Errors
    /// Nothing is held or queued then.
    pub fn request(
        &mut self,
        run: RunId,
        owner: RunId,
        keys: &[LockKey],
        at_once: bool,
    ) -> Result<Grant, LockError> {
        let request = Request { run, owner, keys: keys.iter().cloned().collect() };
        let wanted = self.queue.iter().flat_map(|queued| &queued.keys).cloned().collect();
        let Some(key) = self.obstacle(&request, &wanted) else {
            self.hold(&request);
            return Ok(Grant::Now);
        };
        if at_once {
            let holder = self.in_the_way(&key, owner).unwrap_or(run);
            return Err(LockError::Taken { key, holder });
        }
        if self.queue.len() >= limits::LOCK_QUEUE_MAX {
            return Err(LockError::QueueFull { max: limits::LOCK_QUEUE_MAX });
        }
        self.queue.push_back(request);
        if let Some(other) = self.cycle(owner) {
            self.queue.pop_back();
            return Err(LockError::Cycle { run: owner, other });
        }
        Ok(Grant::Queued)
    }

    /// Puts back what the store says at the start: `run` holds `keys`. First all that hold, by `restore`; then those
    /// that queue, by `request`, in the order in which they were created.
    pub fn restore(&mut self, run: RunId, owner: RunId, keys: &[LockKey]) {
        self.hold(&Request { run, owner, keys: keys.iter().cloned().collect() });
    }

    /// Gives up all that `run` holds or queues for. Returns the runs whose turn has come, in order.
    pub fn release(&mut self, run: RunId) -> Vec<RunId> {
        self.queue.retain(|request| request.run != run);
        self.held.retain(|_, holding| {
            holding.runs.remove(&run);
            !holding.runs.is_empty()
        });
        self.grant()
    }

    /// Takes the lock from whoever holds it. Returns the tree that held it and the runs whose turn has come.
    pub fn break_lock(&mut self, key: &str) -> Option<(RunId, Vec<RunId>)> {
        let holding = self.held.remove(key)?;
        Some((holding.owner, self.grant()))
    }

    /// True if `run` has what it asked for.
    pub fn holds(&self, run: RunId) -> bool {
        self.held.values().any(|holding| holding.runs.contains(&run))
    }

    /// Every lock that is held or wanted, by key.
    pub fn view(&self) -> Vec<LockView> {
        let wanted = self.queue.iter().flat_map(|request| &request.keys);
        let keys: BTreeSet<_> = self.held.keys().chain(wanted).cloned().collect();
        let view = |key: LockKey| LockView {
            holder: self.held.get(&key).map(|holding| holding.owner),
            queue: self.queue.iter().filter(|r| r.keys.contains(&key)).map(|r| r.run).collect(),
            key,
        };
        keys.into_iter().map(view).collect()
    }

    /// The first key that the request cannot have now, given the keys that earlier requests wait for.
    fn obstacle(&self, request: &Request, wanted: &BTreeSet<LockKey>) -> Option<LockKey> {
        let blocked = |key: &&LockKey| match self.held.get(*key) {
            Some(holding) => holding.owner != request.owner,
            None => wanted.contains(*key),
        };
        request.keys.iter().find(blocked).cloned()
    }

    fn hold(&mut self, request: &Request) {
        for key in &request.keys {
            let new = || Holding { owner: request.owner, runs: BTreeSet::new() };
            self.held.entry(key.clone()).or_insert_with(new).runs.insert(request.run);
        }
    }

    /// Gives out what is free, first come first served.
    fn grant(&mut self) -> Vec<RunId> {
        let mut granted = vec![];
        let mut wanted = BTreeSet::new();
        let mut waiting = VecDeque::new();
        for request in std::mem::take(&mut self.queue) {
            if self.obstacle(&request, &wanted).is_none() {
                self.hold(&request);
                granted.push(request.run);
            } else {
                wanted.extend(request.keys.iter().cloned());
                waiting.push_back(request);
            }
        }
        self.queue = waiting;
        granted
    }

    /// Whose lock, or whose earlier request, keeps `owner` from `key`.
    fn in_the_way(&self, key: &LockKey, owner: RunId) -> Option<RunId> {
        let queued = || self.queue.iter().find(|request| request.keys.contains(key));
        let holder = self.held.get(key).map(|holding| holding.owner);
        holder.or_else(|| queued().map(|request| request.owner)).filter(|other| *other != owner)
    }

    /// A tree that waits, over any number of others, for one of `owner`, while `owner` waits for it.
    fn cycle(&self, owner: RunId) -> Option<RunId> {
        let mut seen = BTreeSet::new();
        let mut open = self.waits_for(owner);
        while let Some(other) = open.pop() {
            if !seen.insert(other) {
                continue;
            }
            let next = self.waits_for(other);
            if next.contains(&owner) {
                return Some(other);
            }
            open.extend(next);
        }
        None
    }

    /// The trees that hold, or are to get earlier, what the requests of `owner` want.
    fn waits_for(&self, owner: RunId) -> Vec<RunId> {
        let mut others = BTreeSet::new();
        for (position, request) in self.queue.iter().enumerate().filter(|(_, r)| r.owner == owner) {
            for key in &request.keys {
                let holder = self.held.get(key).map(|holding| holding.owner);
                // What the tree holds already it need not wait for.
                if holder == Some(owner) {
                    continue;
                }
                let earlier = self.queue.iter().take(position).filter(|r| r.keys.contains(key));
                others.extend(holder.into_iter().chain(earlier.map(|request| request.owner)));
            }
        }
        others.remove(&owner);
        others.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(number: u8) -> RunId {
        RunId::new(0, u128::from(number))
    }

    fn keys(text: &str) -> Vec<LockKey> {
        text.split_whitespace().map(Arc::from).collect()
    }

    /// Requests of root runs.
    fn ask(table: &mut LockTable, number: u8, wanted: &str) -> Grant {
        table.request(run(number), run(number), &keys(wanted), false).expect("a root closes no circle")
    }

    #[test]
    fn a_set_is_granted_as_a_whole_and_in_the_order_of_asking() {
        let mut table = LockTable::default();
        assert_eq!(ask(&mut table, 1, "a b"), Grant::Now);
        assert_eq!(ask(&mut table, 2, "b c"), Grant::Queued);
        assert_eq!(ask(&mut table, 3, "c"), Grant::Queued, "run 2 came first for c");
        assert_eq!(ask(&mut table, 4, "d"), Grant::Now);
        assert_eq!(table.release(run(4)), []);
        assert_eq!(table.release(run(1)), [run(2)]);
        assert_eq!(table.release(run(2)), [run(3)]);
        assert_eq!(table.release(run(3)), []);
        assert_eq!(table.view(), []);
    }

    #[test]
    fn who_does_not_wait_is_told_the_holder() {
        let mut table = LockTable::default();
        ask(&mut table, 1, "a");
        let refused = table.request(run(2), run(2), &keys("a"), true);
        assert_eq!(refused, Err(LockError::Taken { key: "a".into(), holder: run(1) }));
        assert_eq!(table.view()[0].queue, []);
    }

    #[test]
    fn a_child_gets_what_its_root_holds_ahead_of_all_others() {
        let mut table = LockTable::default();
        ask(&mut table, 1, "a");
        ask(&mut table, 2, "a");
        assert_eq!(table.request(run(11), run(1), &keys("a"), false), Ok(Grant::Now));
        assert_eq!(table.release(run(11)), [], "the root still holds it");
        assert_eq!(table.release(run(1)), [run(2)]);
    }

    #[test]
    fn a_child_that_would_close_a_circle_is_refused_with_both_names() {
        let mut table = LockTable::default();
        ask(&mut table, 1, "a");
        ask(&mut table, 2, "b");
        assert_eq!(table.request(run(11), run(1), &keys("b"), false), Ok(Grant::Queued));
        let refused = table.request(run(12), run(2), &keys("a"), false);
        assert_eq!(refused, Err(LockError::Cycle { run: run(2), other: run(1) }));
        assert_eq!(table.release(run(2)), [run(11)]);
    }

    #[test]
    fn a_circle_through_a_third_tree_is_seen_too() {
        let mut table = LockTable::default();
        for (number, key) in [(1, "a"), (2, "b"), (3, "c")] {
            ask(&mut table, number, key);
        }
        assert_eq!(table.request(run(11), run(1), &keys("b"), false), Ok(Grant::Queued));
        assert_eq!(table.request(run(12), run(2), &keys("c"), false), Ok(Grant::Queued));
        let refused = table.request(run(13), run(3), &keys("a"), false);
        assert!(matches!(refused, Err(LockError::Cycle { .. })), "{refused:?}");
    }

    #[test]
    fn a_broken_lock_goes_to_the_next_and_its_old_holder_keeps_the_rest() {
        let mut table = LockTable::default();
        ask(&mut table, 1, "a b");
        ask(&mut table, 2, "a");
        assert_eq!(table.break_lock("a"), Some((run(1), vec![run(2)])));
        assert_eq!(table.break_lock("z"), None);
        let holders: Vec<_> = table.view().into_iter().map(|lock| lock.holder).collect();
        assert_eq!(holders, [Some(run(2)), Some(run(1))]);
    }

    proptest! {
        #[test]
        fn no_key_has_two_owners_nobody_starves_and_the_table_empties(
            requests in prop::collection::vec((0_u8..12, prop::collection::btree_set(0_u8..5, 1..4)), 1..40),
        ) {
            let mut table = LockTable::default();
            let mut holding: BTreeMap<RunId, Vec<LockKey>> = BTreeMap::new();
            let mut waiting: BTreeMap<RunId, Vec<LockKey>> = BTreeMap::new();
            for (number, wanted) in requests {
                let run = run(number);
                let keys: Vec<LockKey> = wanted.iter().map(|key| key.to_string().into()).collect();
                if holding.contains_key(&run) || waiting.contains_key(&run) {
                    let granted = table.release(run);
                    holding.remove(&run);
                    waiting.remove(&run);
                    for run in granted {
                        let keys = waiting.remove(&run).expect("only who waits is granted");
                        holding.insert(run, keys);
                    }
                } else if table.request(run, run, &keys, false) == Ok(Grant::Now) {
                    holding.insert(run, keys);
                } else {
                    waiting.insert(run, keys);
                }
                let mut all: Vec<_> = holding.values().flatten().collect();
                let count = all.len();
                all.sort();
                all.dedup();
                prop_assert_eq!(all.len(), count, "a key is held twice");
                prop_assert!(waiting.is_empty() || !holding.is_empty(), "all wait and nobody holds");
            }
            while let Some(run) = holding.keys().next().copied() {
                holding.remove(&run);
                for run in table.release(run) {
                    let keys = waiting.remove(&run).expect("only who waits is granted");
                    holding.insert(run, keys);
                }
            }
            prop_assert!(waiting.is_empty());
            prop_assert_eq!(table.view(), vec![]);
        }
    }
}

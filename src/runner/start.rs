//! How a run begins.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::sync::oneshot;

use crate::engine;
use crate::engine::Command;
use crate::engine::Event;
use crate::engine::RunState;
use crate::engine::event::Actor;
use crate::engine::event::Created;
use crate::engine::event::Inherited;
use crate::engine::event::Trigger;
use crate::engine::locks::Grant;
use crate::failure::Failure;
use crate::id::RunId;
use crate::plan::Plan;
use crate::runner::Error;
use crate::runner::Host;
use crate::runner::codes;
use crate::runner::host::lock;
use crate::runner::run_task::Message;
use crate::runner::secret_inputs::Kept;
use crate::time::Timestamp;

/// A run that somebody wants.
#[derive(Debug, Clone)]
pub struct Start {
    /// Its plan.
    pub plan: Arc<Plan>,
    /// All inputs, checked and complete.
    pub inputs: Value,
    /// Why.
    pub trigger: Trigger,
    /// Who.
    pub by: Actor,
    /// Starting twice with the same key gives the same run.
    pub key: Option<Arc<str>>,
    /// What is taken over from an earlier run (E11).
    pub inherited: Option<Box<Inherited>>,
    /// The run's id; random if none.
    pub id: Option<RunId>,
}

impl Host {
    /// Starts a run; on return its first event is durable. With a key that was used before, that run is returned.
    ///
    /// # Errors
    /// Paused, locks held with `lock_wait = "0s"`, expressions that cannot be evaluated, a cluster that does not
    /// answer, a store that cannot be written.
    pub async fn start(&self, start: Start) -> Result<RunId, Error> {
        let Some(key) = start.key.clone() else { return self.start_new(start).await };
        let shared = &self.shared;
        let _turn = shared.turns.take(key.clone()).await;
        let Some(known) = shared.store.run_of_key(&key)? else { return self.start_new(start).await };
        // One that an earlier process left open goes on: that is what whoever asks again wants.
        if shared.store.summary(known)?.is_some_and(|line| !line.status.is_terminal()) {
            shared.deliver(known, Message::Due);
        }
        Ok(known)
    }

    async fn start_new(&self, start: Start) -> Result<RunId, Error> {
        let shared = &self.shared;
        if let Some(id) = start.id {
            if shared.store.summary(id)?.is_some() {
                return Ok(id);
            }
        }
        let is_child = matches!(start.trigger, Trigger::Parent { .. });
        if shared.paused.load(Ordering::Acquire) && !is_child {
            let text =
                "nothing new is started: `windrow pause --all` is in force; `windrow unpause --all` ends it";
            return Err(Error::Refused(Failure::retryable(codes::PAUSED, text)));
        }
        if shared.remember_plan(&start.plan) {
            let definition = start.plan.normalised();
            shared.store.put_definition(&start.plan.digest, &definition).await?;
        }
        let cluster = if start.plan.needs_cluster() { Some(self.cluster_uid().await?) } else { None };
        let now = shared.clock.now();
        let id = start.id.unwrap_or_else(|| new_id(now));
        let kept = self.keep_inputs(&start).await?;
        let (run, events) = self.first_events(id, &start, kept, cluster, now)?;
        let (reply, answer) = oneshot::channel();
        shared.begin(start.plan, run, events, reply);
        answer.await.unwrap_or_else(|_| Err(lost()))?;
        Ok(id)
    }

    /// The uid that identifies the cluster of this process.
    ///
    /// # Errors
    /// There is no cluster, or it does not answer.
    pub async fn cluster_uid(&self) -> Result<Arc<str>, Error> {
        let cluster = self.shared.executor.cluster().map_err(Error::Cluster)?;
        cluster.uid().await.map(Into::into).map_err(Error::Cluster)
    }

    /// `Created`, and `LocksGranted` if the locks are free.
    fn first_events(
        &self,
        id: RunId,
        start: &Start,
        kept: Kept,
        cluster: Option<Arc<str>>,
        now: Timestamp,
    ) -> Result<(RunState, Vec<Event>), Error> {
        let mut created = Created {
            workflow: start.plan.workflow.name.clone(),
            digest: start.plan.digest.clone(),
            cluster,
            inputs: kept.inputs,
            secrets: kept.hashes,
            trigger: start.trigger.clone(),
            by: start.by.clone(),
            key: start.key.clone(),
            locks: vec![],
            lock_deadline: None,
            timeout_ms: None,
            inherited: start.inherited.clone(),
        };
        let draft = RunState::create(id, now, &created);
        let (locks, durations) = self
            .evaluate(&start.plan, &draft, |evaluator| (evaluator.locks(), evaluator.workflow_durations()));
        let (timeout, lock_wait) = durations.map_err(Error::Refused)?;
        created.locks = locks.map_err(Error::Refused)?;
        created.timeout_ms = timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        let granted = self.request_locks(id, &created, lock_wait.is_some_and(|wait| wait.is_zero()))?;
        created.lock_deadline = lock_wait.filter(|_| !granted).map(|wait| now + wait);
        let has_locks = !created.locks.is_empty();
        let (mut run, mut events) = engine::decide::create(&start.plan, id, created, now);
        if granted && has_locks {
            events.extend(engine::decide::advance(&start.plan, &mut run, Command::GrantLocks, now)?);
        }
        Ok((run, events))
    }

    /// Takes or queues for the locks of a new run; true if it has them all.
    fn request_locks(&self, id: RunId, created: &Created, at_once: bool) -> Result<bool, Error> {
        if created.locks.is_empty() {
            return Ok(true);
        }
        let owner = owner_of(id, &created.trigger);
        lock(&self.shared.locks)
            .request(id, owner, &created.locks, at_once)
            .map(|grant| grant == Grant::Now)
            .map_err(|refusal| Error::Refused(Failure::retryable(codes::LOCK_HELD, refusal.to_string())))
    }
}

/// The root of a run's tree, which owns the locks of the whole tree (E8).
pub(super) fn owner_of(run: RunId, trigger: &Trigger) -> RunId {
    match trigger {
        Trigger::Parent { root, .. } => *root,
        Trigger::Manual | Trigger::Retry(_) | Trigger::Rollback(_) => run,
    }
}

fn new_id(now: Timestamp) -> RunId {
    let mut random = [0; 16];
    // Without a source of randomness ids of one millisecond would collide, which the store notices.
    getrandom::fill(&mut random).ok();
    RunId::new(u64::try_from(now.as_millis()).unwrap_or(0), u128::from_be_bytes(random))
}

fn lost() -> Error {
    crate::journal::store::Error::Unusable("the run stopped before its first event was durable".to_owned())
        .into()
}

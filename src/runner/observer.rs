//! Reading the world for a unit, once or again and again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;

use crate::action::Executor;
use crate::action::evidence::Baseline;
use crate::action::k8s::watch::Subscription;
use crate::action::request::ObjectRef;
use crate::evaluate::ReadPlan;
use crate::evaluate::Readings;
use crate::failure::Failure;
use crate::failure::FailureClass;
use crate::time::SharedClock;
use crate::time::Timestamp;

/// A watch may be silent: everything is read again at this beat (C5).
const BEAT: Duration = Duration::from_secs(15);
/// The beat where the cluster allows no watch.
const POLL_BEAT: Duration = Duration::from_secs(3);
/// Changes that come closer together than this are read once.
const GAP_MIN: Duration = Duration::from_millis(200);
/// Events are looked at so often at most: they cost a request for each object.
const EVENTS_EVERY: Duration = Duration::from_secs(5);

/// Reads what a [`ReadPlan`] says. Watches what it has read, so that it can say when to read again.
pub(super) struct Observer {
    executor: Arc<Executor>,
    clock: SharedClock,
    plan: ReadPlan,
    subscriptions: BTreeMap<ObjectRef, Subscription>,
    bell: Arc<Notify>,
    baseline: Baseline,
    events_at: Option<Timestamp>,
    /// What events told at the last look at them: it stands until the next one.
    happened: Vec<String>,
    keeps_managed_fields: bool,
}

impl Observer {
    /// Reads once, or with [`Observer::changed`] as often as something changes.
    pub(super) fn new(executor: Arc<Executor>, clock: SharedClock, plan: ReadPlan) -> Self {
        Self {
            executor,
            clock,
            plan,
            subscriptions: BTreeMap::new(),
            bell: Arc::new(Notify::new()),
            baseline: Baseline::default(),
            events_at: None,
            happened: vec![],
            keeps_managed_fields: false,
        }
    }

    /// Keeps `metadata.managedFields`, to tell who wrote.
    pub(super) fn with_managed_fields(mut self) -> Self {
        self.keeps_managed_fields = true;
        self
    }

    /// Reads everything live, once.
    pub(super) async fn read(&self) -> Readings {
        let mut readings = self.read_plan(&self.plan).await;
        for (unit, plan) in self.plan.again() {
            let again = self.read_plan(plan).await;
            readings.unreadable = readings.unreadable.or(again.unreadable);
            readings.again.insert(unit.clone(), again.values);
        }
        readings
    }

    async fn read_plan(&self, plan: &ReadPlan) -> Readings {
        let mut readings = Readings::default();
        for reading in plan.readings() {
            let outcome = match plan.locate(reading, &readings) {
                Ok(None) => Ok(Value::Null),
                Ok(Some(object)) => self.executor.read(&object, self.keeps_managed_fields).await,
                Err(failure) => Err(failure),
            };
            let bound = outcome.and_then(|value| crate::evaluate::bind(&mut readings, reading, value));
            if let Err(failure) = bound {
                readings.unreadable = Some(failure);
                break;
            }
        }
        readings
    }

    /// The same, with watches on everything that is read and with evidence of known failures.
    pub(super) async fn watch(&mut self) -> Readings {
        // Subscribed before the read where the name is known: a change between the two is not missed.
        self.subscribe(&Readings::default());
        let mut readings = self.read().await;
        self.subscribe(&readings);
        let objects: Vec<&Value> = readings.objects().collect();
        let now = self.clock.now();
        let every = crate::time::shorten(EVENTS_EVERY, self.clock.speed());
        if self.events_at.is_none_or(|at| now >= at + every) {
            self.events_at = Some(now);
            // They only explain: a cluster that does not give them fails nothing.
            self.happened = self.executor.happened(&objects, &mut self.baseline).await.unwrap_or_default();
        }
        let said = self.executor.said(&objects).into_iter();
        readings.evidence = said.chain(self.happened.iter().cloned()).collect();
        readings
    }

    fn subscribe(&mut self, readings: &Readings) {
        for reading in self.plan.readings() {
            let Ok(Some(object)) = self.plan.locate(reading, readings) else { continue };
            let subscribe = || self.executor.subscribe(&object, self.bell.clone());
            self.subscriptions.entry(object.clone()).or_insert_with(subscribe);
        }
    }

    /// Waits until it is worth reading again: something changed, somebody pokes, or the beat.
    pub(super) async fn changed(&self, poke: &Notify) {
        let polls = self.subscriptions.values().any(|subscription| subscription.must_poll().is_some());
        let beat = if polls { POLL_BEAT } else { BEAT };
        self.clock.sleep(GAP_MIN).await;
        tokio::select! {
            () = self.bell.notified() => {}
            () = poke.notified() => {}
            () = self.clock.sleep(beat) => {}
        }
    }
}

/// True for a failure to read that may pass.
pub(super) fn may_pass(failure: &Failure) -> bool {
    failure.class != FailureClass::Permanent
}

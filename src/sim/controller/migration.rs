//! KubeVirt's migration controller and what virt-handler does on both nodes: an instance moves while it runs
//! (domain.md §4.1).

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::instance::enter;
use crate::sim::controller::kubelet;
use crate::sim::controller::launcher;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::CONTROLLERS_FROZEN;
use crate::sim::fault::MIGRATION_FAILS;
use crate::sim::fault::MIGRATION_PENDING_QUOTA;
use crate::sim::fault::MIGRATION_SLOW;
use crate::sim::fault::MIGRATION_UNSTABLE;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::MIGRATIONS;
use crate::sim::kinds::PODS;
use crate::sim::object::Conditions;
use crate::sim::object::deleting;
use crate::sim::object::has_finalizer;
use crate::sim::object::is_final;
use crate::sim::object::is_true;
use crate::sim::object::items;
use crate::sim::object::key_of;
use crate::sim::object::moment;
use crate::sim::object::name;
use crate::sim::object::namespace;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::object::with_finalizer;
use crate::sim::object::without_finalizers;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;
use crate::sim::world::View;
use crate::time::Timestamp;

/// Keeps a migration until it is over. One of a fixture that is already under way has none and is left alone.
const FINALIZER: &str = "kubevirt.io/migrationJobFinalize";
/// The label of a migration with the name of its instance.
const OF_INSTANCE: &str = "kubevirt.io/vmi-name";
/// How many migrations run at once, and how many leave one node (KV pkg/virt-config/virt-config.go:38-44).
const AT_ONCE: usize = 5;
const FROM_ONE_NODE: usize = 2;
/// How long a target pod may find no node, and may be pending (KV
/// pkg/virt-controller/watch/migration/migration.go:82,95).
const UNSCHEDULABLE_LIMIT: Duration = Duration::from_mins(5);
const PENDING_LIMIT: Duration = Duration::from_mins(15);
/// How long each of the short phases takes.
const STEP: Duration = Duration::from_secs(1);
/// How long the memory is copied, and how long with the fault `migration-slow`.
const COPY: Duration = Duration::from_secs(8);
const SLOW_COPY: Duration = Duration::from_mins(5);
/// From the start of the copy to the failure of the fault `migration-fails`.
const FAILURE: Duration = Duration::from_secs(5);
/// From the end to the crash of the fault `migration-unstable` (kubevirt#13112).
const AFTERMATH: Duration = Duration::from_secs(5);
/// How often a migration that waits for something looks again.
const POLL: Duration = Duration::from_secs(2);

/// KubeVirt's migration controller.
pub(super) struct Migrations;

impl Controller for Migrations {
    fn name(&self) -> &'static str {
        "virt-controller"
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        match changed.resource {
            MIGRATIONS => Some(changed.clone()),
            PODS => {
                let job = launcher::migration_job(object)?;
                Some(Key::new(MIGRATIONS, &changed.namespace, job))
            }
            _ => None,
        }
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "virtualmachineinstance-migration-controller");
        let Some(migration) = context.view.get(key) else { return turn.end() };
        let phase = text(&migration, "/status/phase");
        let own = has_finalizer(&migration, FINALIZER);
        if turn.fault(CONTROLLERS_FROZEN) || !own && !phase.is_empty() {
            return turn.end();
        }
        if !own && !deleting(&migration) {
            let label = json!({ OF_INSTANCE: text(&migration, "/spec/vmiName") });
            turn.patch(key, &migration, json!({ "metadata": { "labels": label } }));
            turn.patch(key, &migration, with_finalizer(&migration, FINALIZER));
        }
        let instance =
            context.view.get(&Key::new(INSTANCES, &key.namespace, text(&migration, "/spec/vmiName")));
        let job =
            Job { key, migration: &migration, instance, pod: launcher::target_of(context.view, &migration) };
        job.advance(&mut turn, phase);
        turn.end()
    }
}

/// A migration, its instance, and the pod that it moves into.
struct Job<'a> {
    key: &'a Key,
    migration: &'a Value,
    instance: Option<Arc<Value>>,
    pod: Option<Arc<Value>>,
}

impl Job<'_> {
    fn advance(&self, turn: &mut Turn<'_>, phase: &str) {
        let since = self.since(phase).unwrap_or(turn.now());
        if ["Succeeded", "Failed"].contains(&phase) {
            return self.finish(turn, phase, since);
        }
        let Some(instance) = self.instance.as_deref().filter(|instance| !is_final(instance)) else {
            return self.fail(turn, "the virtual machine instance has ended");
        };
        if deleting(self.migration) {
            return self.abort(turn, instance);
        }
        match phase {
            "" => self.enter(turn, "Pending"),
            "Pending" => self.wait_for_a_place(turn, instance),
            "Scheduling" => self.wait_for_the_pod(turn, since),
            "Scheduled" => self.hand_over(turn, instance),
            "PreparingTarget" if turn.passed(since, STEP) => self.enter(turn, "TargetReady"),
            "TargetReady" if turn.passed(since, STEP) => {
                let started = turn.now().to_string();
                self.state(turn, instance, json!({ "startTimestamp": started }));
                self.enter(turn, "Running");
            }
            "Running" => self.copy(turn, instance, since),
            _ => {}
        }
    }

    /// When the migration entered a phase.
    fn since(&self, phase: &str) -> Option<Timestamp> {
        let entered = items(self.migration, "/status/phaseTransitionTimestamps");
        let entry = entered.iter().rev().find(|entry| text(entry, "/phase") == phase)?;
        moment(entry, "/phaseTransitionTimestamp")
    }

    fn enter(&self, turn: &mut Turn<'_>, phase: &str) {
        enter(turn, self.key, self.migration, phase);
    }

    /// What the instance says of this migration (domain.md §4.1: the truth is there).
    fn state(&self, turn: &mut Turn<'_>, instance: &Value, state: Value) {
        turn.status(&key_of(INSTANCES, instance), instance, json!({ "migrationState": state }));
    }

    fn wait_for_a_place(&self, turn: &mut Turn<'_>, instance: &Value) {
        if self.instance.as_deref().is_some_and(deleting) || text(instance, "/status/phase") != "Running" {
            return turn.again_after(POLL);
        }
        if turn.fault(MIGRATION_PENDING_QUOTA) {
            let mut conditions = Conditions::of(self.migration, turn.now());
            conditions.set("migrationRejectedByResourceQuota", "True", "", "");
            let status = json!({ "conditions": conditions.into_value() });
            turn.status(self.key, self.migration, status);
            return turn.again_after(POLL);
        }
        let home = text(instance, "/status/nodeName");
        let others = under_way(turn.context.view, self.migration);
        let leaving = others.iter().filter(|other| *other == home).count();
        if others.len() >= AT_ONCE || leaving >= FROM_ONE_NODE {
            return turn.again_after(POLL);
        }
        turn.create(PODS, launcher::target_pod(instance, self.migration));
        let message = format!("Created migration target pod for {}", name(instance));
        turn.event(self.key, "Normal", "SuccessfulCreate", &message);
        self.enter(turn, "Scheduling");
    }

    fn wait_for_the_pod(&self, turn: &mut Turn<'_>, since: Timestamp) {
        turn.again_after(POLL);
        let Some(pod) = self.pod.as_deref() else { return };
        if text(pod, "/status/phase") == "Running" && is_true(pod, "Ready") {
            self.enter(turn, "Scheduled");
        } else if deleting(pod) {
            self.fail(turn, "the target pod was deleted");
        } else if text(pod, "/spec/nodeName").is_empty() && turn.passed(since, UNSCHEDULABLE_LIMIT) {
            self.fail(turn, "target pod is unschedulable for 5m0s");
        } else if turn.passed(since, PENDING_LIMIT) {
            self.fail(turn, "target pod is pending for 15m0s");
        }
    }

    /// The target pod runs: both virt-handlers hear of the migration.
    fn hand_over(&self, turn: &mut Turn<'_>, instance: &Value) {
        let Some(pod) = self.pod.as_deref() else { return self.fail(turn, "the target pod is gone") };
        let (home, target) = (text(instance, "/status/nodeName"), text(pod, "/spec/nodeName"));
        let source = launcher::pod_of(turn.context.view, instance);
        let mut state = json!({
            "migrationUid": uid(self.migration),
            "sourceNode": home,
            "sourcePod": source.as_deref().map(name),
            "targetNode": target,
            "targetPod": name(pod),
        });
        for old in [
            "completed",
            "failed",
            "failureReason",
            "abortRequested",
            "abortStatus",
            "startTimestamp",
            "endTimestamp",
        ] {
            state[old] = Value::Null;
        }
        self.state(turn, instance, state);
        let active = json!({ "activePods": { uid(pod): target } });
        turn.status(&key_of(INSTANCES, instance), instance, active);
        self.enter(turn, "PreparingTarget");
    }

    fn copy(&self, turn: &mut Turn<'_>, instance: &Value, since: Timestamp) {
        if turn.fault(MIGRATION_FAILS) {
            if turn.passed(since, FAILURE) {
                let reason = "Live migration failed error encountered during MigrateToURI3 libvirt api call: \
                              virError(Code=38, Domain=7, Message='Cannot recv data: Connection reset by peer')";
                self.fail(turn, reason);
            }
            return;
        }
        let takes = if turn.fault(MIGRATION_SLOW) { SLOW_COPY } else { COPY };
        if turn.passed(since, takes) {
            self.arrive(turn, instance);
        }
    }

    /// The guest runs on the target; the launcher on the source ends.
    fn arrive(&self, turn: &mut Turn<'_>, instance: &Value) {
        let Some(pod) = self.pod.as_deref() else { return self.fail(turn, "the target pod is gone") };
        let key = key_of(INSTANCES, instance);
        let target = text(pod, "/spec/nodeName");
        let source = launcher::pod_of(turn.context.view, instance);
        let ended = turn.now().to_string();
        self.state(turn, instance, json!({ "completed": true, "endTimestamp": ended }));
        let mut status = json!({ "nodeName": target, "evacuationNodeName": null });
        if let Some(source) = source.as_deref() {
            status["activePods"] = json!({ uid(source): null, uid(pod): target });
            kubelet::complete(turn, &key_of(PODS, source), source);
        }
        turn.status(&key, instance, status);
        let labels = json!({ "kubevirt.io/nodeName": target, "kubevirt.io/migrationTargetNodeName": target });
        turn.patch(&key, instance, json!({ "metadata": { "labels": labels } }));
        let message = format!("The VirtualMachineInstance migrated to node {target}.");
        turn.event(&key, "Normal", "Migrated", &message);
        self.enter(turn, "Succeeded");
    }

    fn fail(&self, turn: &mut Turn<'_>, reason: &str) {
        self.enter(turn, "Failed");
        turn.event(self.key, "Warning", "FailedMigration", reason);
        if let Some(instance) = self.instance.as_deref().filter(|instance| self.is_of(instance)) {
            let ended = turn.now().to_string();
            let state =
                json!({ "completed": true, "failed": true, "failureReason": reason, "endTimestamp": ended });
            self.state(turn, instance, state);
        }
    }

    /// A migration that is deleted is aborted (domain.md §4.1).
    fn abort(&self, turn: &mut Turn<'_>, instance: &Value) {
        if self.is_of(instance) {
            self.state(turn, instance, json!({ "abortRequested": true, "abortStatus": "Succeeded" }));
        }
        self.fail(turn, "Migration aborted");
    }

    /// True if the instance speaks of this migration.
    fn is_of(&self, instance: &Value) -> bool {
        text(instance, "/status/migrationState/migrationUid") == uid(self.migration)
    }

    /// What is left of a migration that is over: the target pod of one that failed, the object if it was deleted.
    fn finish(&self, turn: &mut Turn<'_>, phase: &str, since: Timestamp) {
        if phase == "Failed"
            && let Some(pod) = self.pod.as_deref().filter(|pod| !deleting(pod))
        {
            turn.delete(&key_of(PODS, pod));
        }
        if deleting(self.migration) {
            turn.patch(self.key, self.migration, without_finalizers(self.migration, &[FINALIZER]));
        }
        let instance =
            self.instance.as_deref().filter(|instance| self.is_of(instance) && !is_final(instance));
        if let Some(instance) = instance.filter(|_| phase == "Succeeded" && turn.fault(MIGRATION_UNSTABLE))
            && turn.passed(since, AFTERMATH)
        {
            enter(turn, &key_of(INSTANCES, instance), instance, "Failed");
        }
    }
}

/// The nodes that the other migrations leave which have a place.
fn under_way(view: &dyn View, but: &Value) -> Vec<String> {
    let migrations = view.list(MIGRATIONS, None);
    let busy = migrations.iter().filter(|other| {
        uid(other) != uid(but)
            && !["", "Pending", "Succeeded", "Failed"].contains(&text(other, "/status/phase"))
    });
    busy.map(|other| {
        let instance = view.get(&Key::new(INSTANCES, namespace(other), text(other, "/spec/vmiName")));
        instance.as_deref().map_or("", |instance| text(instance, "/status/nodeName")).to_owned()
    })
    .collect()
}

//! The status of a VM: what people see of it.

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::vm::Machine;
use crate::sim::controller::vm::VM_GENERATION;
use crate::sim::controller::vm_disks::Disks;
use crate::sim::object::Conditions;
use crate::sim::object::annotation;
use crate::sim::object::condition;
use crate::sim::object::deleting;
use crate::sim::object::is_final;
use crate::sim::object::is_true;
use crate::sim::object::items;
use crate::sim::object::text;
use crate::sim::strategy::Strategy;
use crate::time::Timestamp;

/// Conditions of the VM that are not those of its instance.
const OWN: [&str; 3] = ["Ready", "Failure", "RestartRequired"];

/// What `printableStatus` is made of.
struct Facts<'a> {
    machine: &'a Machine<'a>,
    strategy: Option<Strategy>,
    phase: &'a str,
    unbound: bool,
    starting: bool,
}

impl Facts<'_> {
    fn alive(&self) -> bool {
        self.machine.instance.is_some_and(|instance| !is_final(instance))
    }

    /// The reason for which virt-controller could not sync the instance.
    fn not_synced(&self, wanted: &str) -> bool {
        let synced = self.machine.instance.and_then(|instance| condition(instance, "Synchronized"));
        synced.is_some_and(|synced| text(synced, "/reason") == wanted)
    }

    fn has(&self, kind: &str, status: &str) -> bool {
        let found = self.machine.instance.and_then(|instance| condition(instance, kind));
        found.is_some_and(|found| text(found, "/status") == status)
    }

    /// True if KubeVirt 1.7.4 thinks that the VM is to run: a stopped RerunOnFailure counts, which is kubevirt#18424.
    fn set_to_start(&self) -> bool {
        match self.strategy {
            Some(Strategy::Always | Strategy::RerunOnFailure) => true,
            Some(Strategy::Once) => self.machine.instance.is_none(),
            Some(Strategy::Manual) => self.machine.start_asked(),
            Some(Strategy::Halted) | None => false,
        }
    }

    fn failed_to_start(&self) -> bool {
        self.machine.vm.pointer("/status/startFailure/consecutiveFailCount").is_some_and(|count| count != 0)
    }
}

fn migrating(facts: &Facts<'_>) -> bool {
    let state = facts.machine.instance.map(|instance| &instance["status"]["migrationState"]);
    state.is_some_and(|state| state.is_object() && state["completed"] != json!(true))
}

/// A value of `printableStatus` and when it is shown.
type Shown = (&'static str, fn(&Facts<'_>) -> bool);

/// The first that fits is shown (domain.md §1.3, VMC:2515-2555).
const SHOWN: &[Shown] = &[
    ("Terminating", |f| deleting(f.machine.vm)),
    ("Stopping", |f| f.alive() && (f.machine.instance.is_some_and(deleting) || f.machine.stop_asked())),
    ("Migrating", migrating),
    ("Paused", |f| f.has("Paused", "True")),
    ("Running", |f| f.phase == "Running"),
    ("ErrorPvcNotFound", |f| f.not_synced("FailedPvcNotFound")),
    ("DataVolumeError", |f| f.machine.disks == Disks::Failing),
    ("ErrorUnschedulable", |f| f.alive() && f.has("PodScheduled", "False")),
    ("Provisioning", |f| f.machine.disks == Disks::Provisioning),
    ("WaitingForVolumeBinding", |f| f.unbound && (f.alive() || f.set_to_start())),
    ("ErrImagePull", |f| f.not_synced("ErrImagePull")),
    ("ImagePullBackOff", |f| f.not_synced("ImagePullBackOff")),
    ("Starting", |f| f.starting || f.alive()),
    ("CrashLoopBackOff", |f| !f.alive() && f.failed_to_start()),
    ("Stopped", |f| !f.alive()),
];

/// The status of the VM as it is now, as a merge patch. The queue of requests and failures are not part of it.
pub(super) fn status(machine: &Machine<'_>, now: Timestamp, unbound: bool, starting: bool) -> Value {
    let instance = machine.instance;
    let facts = Facts {
        machine,
        strategy: Strategy::of(machine.vm),
        phase: instance.map_or("", |instance| text(instance, "/status/phase")),
        unbound,
        starting,
    };
    let shown = SHOWN.iter().find(|(_, fits)| fits(&facts)).map_or("Unknown", |(name, _)| *name);
    let observed = instance.and_then(|instance| annotation(instance, VM_GENERATION)?.parse::<i64>().ok());
    let mut status = json!({
        "created": instance.is_some(),
        "ready": instance.is_some_and(|instance| is_true(instance, "Ready")),
        "printableStatus": shown,
        "desiredGeneration": machine.generation(),
        "conditions": conditions(machine, now),
    });
    if let Some(observed) = observed {
        status["observedGeneration"] = observed.into();
    }
    status
}

fn conditions(machine: &Machine<'_>, now: Timestamp) -> Value {
    let mut conditions = Conditions::of(machine.vm, now);
    match machine.instance.map(|instance| condition(instance, "Ready")) {
        None => conditions.set("Ready", "False", "VMINotExists", "VMI does not exist"),
        Some(None) => {
            conditions.set("Ready", "False", "VMIConditionMissing", "VMI is missing the Ready condition");
        }
        Some(Some(_)) => conditions.copy(machine.instance, "Ready"),
    }
    // Without an instance the conditions of the last one stay: AgentConnected True on a stopped VM means nothing.
    if let Some(instance) = machine.instance {
        let kinds =
            |object| items(object, "/status/conditions").iter().map(|condition| text(condition, "/type"));
        for kind in kinds(machine.vm).chain(kinds(instance)).filter(|kind| !OWN.contains(kind)) {
            conditions.copy(machine.instance, kind);
        }
    }
    if machine.restart_required() {
        let message = "a non-live-updatable field was changed in the template spec";
        conditions.set("RestartRequired", "True", "RestartRequired", message);
    } else {
        conditions.remove("RestartRequired");
    }
    conditions.into_value()
}

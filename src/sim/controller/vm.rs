//! KubeVirt's VM controller: keeps the instance of a VM as its run strategy wants it.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::turn::Turn;
use crate::sim::controller::vm_disks;
use crate::sim::controller::vm_disks::Disks;
use crate::sim::controller::vm_status;
use crate::sim::fault::CONTROLLERS_FROZEN;
use crate::sim::fault::VM_TERMINATING;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::DATA_VOLUMES;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::object::annotation;
use crate::sim::object::claims;
use crate::sim::object::deleting;
use crate::sim::object::has_finalizer;
use crate::sim::object::is_final;
use crate::sim::object::items;
use crate::sim::object::moment;
use crate::sim::object::name;
use crate::sim::object::namespace;
use crate::sim::object::owned_by;
use crate::sim::object::owner;
use crate::sim::object::patch_between;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::object::with_finalizer;
use crate::sim::object::without_finalizers;
use crate::sim::strategy::Strategy;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;
use crate::time::Timestamp;
use crate::time::shorten;

/// Keeps a VM or an instance until the controller has cleaned up (domain.md §1.5).
pub(super) const CONTROLLER_FINALIZER: &str = "kubevirt.io/virtualMachineControllerFinalize";
/// The generation of the VM that an instance was made of (domain.md §1.4).
pub(super) const VM_GENERATION: &str = "kubevirt.io/vm-generation";
/// The template that an instance was made of, as JSON: the stand-in for KubeVirt's controller revisions.
pub(super) const STARTED_WITH: &str = "sim/started-with";
/// Back-off before the second start after failures: this times the square of their number, at most `BACK_OFF_MAX`.
const BACK_OFF: Duration = Duration::from_secs(10);
/// KubeVirt's default for the longest crash loop delay.
const BACK_OFF_MAX: Duration = Duration::from_mins(5);
/// How often a VM that waits for a claim looks again, because claims do not name their VM.
const CLAIM_POLL: Duration = Duration::from_secs(1);

/// KubeVirt's VM controller.
pub(super) struct VirtualMachines;

impl Controller for VirtualMachines {
    fn name(&self) -> &'static str {
        "virt-controller"
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        if changed.resource == DATA_VOLUMES {
            let vm = owner(object, "VirtualMachine")?;
            return Some(Key::new(VIRTUAL_MACHINES, &changed.namespace, text(vm, "/name")));
        }
        let of_a_vm = [VIRTUAL_MACHINES, INSTANCES].contains(&changed.resource);
        of_a_vm.then(|| Key { resource: VIRTUAL_MACHINES, ..changed.clone() })
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "virtualmachine-controller");
        if turn.fault(CONTROLLERS_FROZEN) {
            return turn.end();
        }
        let Some(vm) = context.view.get(key) else { return turn.end() };
        let instance_key = Key { resource: INSTANCES, ..key.clone() };
        let instance = context.view.get(&instance_key);
        let instance = instance.as_deref();
        let disks = vm_disks::state(&turn, key, &vm);
        let machine = Machine { key, instance_key: &instance_key, vm: &vm, instance, disks };
        if deleting(&vm) {
            machine.go(&mut turn);
        } else if !has_finalizer(&vm, CONTROLLER_FINALIZER) {
            turn.patch(key, &vm, with_finalizer(&vm, CONTROLLER_FINALIZER));
        }
        if !deleting(&vm) {
            vm_disks::make(&mut turn, key, &vm);
        }
        let deed = Strategy::of(&vm)
            .filter(|_| !deleting(&vm))
            .and_then(|strategy| machine.act(&mut turn, strategy));
        machine.status(&mut turn, deed == Some(Deed::Create));
        turn.end()
    }
}

/// What is known of the instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instance {
    Absent,
    Alive,
    Succeeded,
    Failed,
    /// Deleted and kept by finalizers, whatever its phase: never counted as a failure to re-run (VMC:969-1178).
    Leaving,
}

/// What must hold besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Ever,
    /// A start request is first in the queue.
    StartAsked,
    /// A start request is first in the queue, or the strategy was switched since the controller last acted.
    StartAskedOrSwitched,
    /// A stop request for this instance is first in the queue.
    StopAsked,
}

/// What the controller does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// Create an instance, after the back-off of earlier failures.
    Create,
    /// Delete the instance.
    Delete,
    /// Delete the instance and queue a start.
    DeleteAndRerun,
    /// Switch the spec to Always.
    SwitchOn,
}

/// One cell of the table of strategies.
struct Row {
    strategy: Strategy,
    instance: Instance,
    when: When,
    deed: Deed,
    source: &'static str,
}

const fn row(strategy: Strategy, instance: Instance, when: When, deed: Deed, source: &'static str) -> Row {
    Row { strategy, instance, when, deed, source }
}

/// The first row that fits is done; none: nothing is to be done.
const ROWS: &[Row] = &[
    row(Strategy::Always, Instance::Absent, When::Ever, Deed::Create, "§1.1 Always: creates, recreates"),
    row(
        Strategy::Always,
        Instance::Succeeded,
        When::Ever,
        Deed::Delete,
        "§1.1 Always: deletes and recreates",
    ),
    row(Strategy::Always, Instance::Failed, When::Ever, Deed::Delete, "§1.1 Always: deletes and recreates"),
    row(
        Strategy::Always,
        Instance::Alive,
        When::StopAsked,
        Deed::Delete,
        "§1.7 restart: stop+start requests",
    ),
    row(
        Strategy::RerunOnFailure,
        Instance::Absent,
        When::StartAskedOrSwitched,
        Deed::Create,
        "§1.1 RerunOnFailure: only on a start request or when just switched to it",
    ),
    row(
        Strategy::RerunOnFailure,
        Instance::Failed,
        When::Ever,
        Deed::DeleteAndRerun,
        "§1.1 RerunOnFailure: Failed is deleted and started again",
    ),
    row(
        Strategy::RerunOnFailure,
        Instance::Succeeded,
        When::Ever,
        Deed::Delete,
        "§1.1 RerunOnFailure: Succeeded is deleted and stays off",
    ),
    row(
        Strategy::RerunOnFailure,
        Instance::Alive,
        When::StopAsked,
        Deed::Delete,
        "§1.7 stop request, strategy kept",
    ),
    row(
        Strategy::Manual,
        Instance::Absent,
        When::StartAsked,
        Deed::Create,
        "§1.1 Manual: on a start request",
    ),
    row(Strategy::Manual, Instance::Alive, When::StopAsked, Deed::Delete, "§1.7 stop request"),
    row(Strategy::Manual, Instance::Succeeded, When::StopAsked, Deed::Delete, "§1.1 Manual: until a request"),
    row(Strategy::Manual, Instance::Failed, When::StopAsked, Deed::Delete, "§1.1 Manual: until a request"),
    row(Strategy::Once, Instance::Absent, When::Ever, Deed::Create, "§1.1 Once: creates"),
    row(Strategy::Halted, Instance::Absent, When::StartAsked, Deed::SwitchOn, "§1.1 Halted: a queued start"),
    row(Strategy::Halted, Instance::Alive, When::Ever, Deed::Delete, "§1.6 stop deletes the VMI"),
    row(Strategy::Halted, Instance::Succeeded, When::Ever, Deed::Delete, "§1.1 Halted: deleted"),
    row(Strategy::Halted, Instance::Failed, When::Ever, Deed::Delete, "§1.1 Halted: deleted"),
];

/// A VM and its instance.
pub(super) struct Machine<'a> {
    pub(super) key: &'a Key,
    pub(super) instance_key: &'a Key,
    pub(super) vm: &'a Value,
    pub(super) instance: Option<&'a Value>,
    pub(super) disks: Disks,
}

/// True if the instance has ended and never ran. One without a history (an object of a fixture) may have run.
fn failed_early(instance: &Value) -> bool {
    let history = items(instance, "/status/phaseTransitionTimestamps");
    is_final(instance) && !history.is_empty() && since_phase(instance, "Running").is_none()
}

/// When the instance entered a phase.
pub(super) fn since_phase(instance: &Value, phase: &str) -> Option<Timestamp> {
    let entered = items(instance, "/status/phaseTransitionTimestamps");
    let entry = entered.iter().rev().find(|entry| text(entry, "/phase") == phase)?;
    moment(entry, "/phaseTransitionTimestamp")
}

impl Machine<'_> {
    fn state(&self) -> Instance {
        match self.instance {
            None => Instance::Absent,
            Some(instance) if deleting(instance) => Instance::Leaving,
            Some(instance) => match text(instance, "/status/phase") {
                "Succeeded" => Instance::Succeeded,
                "Failed" => Instance::Failed,
                _ => Instance::Alive,
            },
        }
    }

    /// The first request of the queue; the ones behind it wait.
    fn request(&self) -> Option<&Value> {
        items(self.vm, "/status/stateChangeRequests").first()
    }

    /// True if a start is the next thing in the queue.
    pub(super) fn start_asked(&self) -> bool {
        self.request().is_some_and(|request| text(request, "/action") == "Start")
    }

    /// True if a stop of just this instance is the next thing in the queue.
    pub(super) fn stop_asked(&self) -> bool {
        let asked = self.request().filter(|request| text(request, "/action") == "Stop");
        matches!((asked, self.instance), (Some(stop), Some(instance)) if text(stop, "/uid") == uid(instance))
    }

    /// The deed of the table.
    fn deed(&self, strategy: Strategy) -> Option<Deed> {
        let state = self.state();
        let holds = |when| match when {
            When::Ever => true,
            When::StartAsked => self.start_asked(),
            When::StartAskedOrSwitched => {
                self.start_asked() || text(self.vm, "/status/runStrategy") != strategy.name()
            }
            When::StopAsked => self.stop_asked(),
        };
        let row = ROWS.iter().find(|r| r.strategy == strategy && r.instance == state && holds(r.when));
        row.map(|row| {
            tracing::trace!(key = %self.key, source = row.source, "transition");
            row.deed
        })
    }

    /// Does what the table says, and says what that was.
    fn act(&self, turn: &mut Turn<'_>, strategy: Strategy) -> Option<Deed> {
        let held = |turn: &mut Turn<'_>| self.disks != Disks::Ready || self.backing_off(turn);
        let deed = self.deed(strategy).filter(|deed| *deed != Deed::Create || !held(turn));
        match deed {
            None => {}
            Some(Deed::Create) => {
                turn.create(INSTANCES, self.new_instance());
                let of = name(self.vm);
                let message =
                    format!("Started the virtual machine by creating the new virtual machine instance {of}");
                turn.event(self.key, "Normal", "SuccessfulCreate", &message);
            }
            Some(Deed::Delete) => self.delete(turn),
            Some(Deed::DeleteAndRerun) => {
                self.delete(turn);
                turn.status(self.key, self.vm, json!({ "stateChangeRequests": [{ "action": "Start" }] }));
            }
            Some(Deed::SwitchOn) if self.vm["spec"]["running"].is_boolean() => {
                turn.patch(self.key, self.vm, json!({ "spec": { "running": true } }));
            }
            Some(Deed::SwitchOn) => {
                turn.patch(self.key, self.vm, json!({ "spec": { "runStrategy": Strategy::Always.name() } }));
            }
        }
        // A VM that was never started shows no strategy that was acted on (VMC:2425-2451).
        if self.instance.is_some() || !text(self.vm, "/status/runStrategy").is_empty() {
            turn.status(self.key, self.vm, json!({ "runStrategy": strategy.name() }));
        }
        deed
    }

    fn delete(&self, turn: &mut Turn<'_>) {
        turn.delete(self.instance_key);
        let of = self.instance.map_or("", uid);
        let message = format!("Stopped the virtual machine by deleting the virtual machine instance {of}");
        turn.event(self.key, "Normal", "SuccessfulDelete", &message);
    }

    /// True while starts that failed hold back the next one.
    fn backing_off(&self, turn: &mut Turn<'_>) -> bool {
        let retry_at = moment(self.vm, "/status/startFailure/retryAfterTimestamp");
        retry_at.is_some_and(|at| !turn.passed(at, Duration::ZERO))
    }

    /// A deleted VM: its instance goes first.
    fn go(&self, turn: &mut Turn<'_>) {
        match self.instance {
            Some(instance) if !deleting(instance) => turn.delete(self.instance_key),
            Some(_) => {}
            None if turn.fault(VM_TERMINATING) => {}
            None => turn.patch(self.key, self.vm, without_finalizers(self.vm, &[CONTROLLER_FINALIZER])),
        }
    }

    /// The instance that the template describes.
    fn new_instance(&self) -> Value {
        let template = &self.vm["spec"]["template"];
        let mut metadata = json!({
            "name": name(self.vm),
            "namespace": namespace(self.vm),
            "labels": template["metadata"]["labels"],
            "annotations": template["metadata"]["annotations"],
            "ownerReferences": [owned_by(self.vm)],
            "finalizers": [CONTROLLER_FINALIZER],
        });
        if metadata["labels"].is_null() {
            metadata["labels"] = json!({});
        }
        metadata["annotations"][VM_GENERATION] = self.generation().to_string().into();
        metadata["annotations"][STARTED_WITH] = template["spec"].to_string().into();
        let mut spec = template["spec"].clone();
        if self.start_asked() && self.request().is_some_and(|request| request["data"]["paused"] == "True") {
            spec["startStrategy"] = "Paused".into();
        }
        json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": metadata,
            "spec": spec,
        })
    }

    pub(super) fn generation(&self) -> i64 {
        self.vm.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(1)
    }

    /// The claims of the VM that exist and are not bound yet. Looks again soon if there is one.
    fn unbound_claims(&self, turn: &mut Turn<'_>) -> bool {
        let view = turn.context.view;
        let unbound = claims(self.vm, "/spec/template/spec/volumes").any(|claim| {
            let claim = view.get(&Key::new(CLAIMS, &self.key.namespace, claim));
            claim.is_some_and(|claim| text(&claim, "/status/phase") != "Bound")
        });
        if unbound {
            turn.again_after(CLAIM_POLL);
        }
        unbound
    }

    fn status(&self, turn: &mut Turn<'_>, starting: bool) {
        let unbound = self.unbound_claims(turn);
        self.trim_requests(turn);
        self.count_failure(turn);
        let status = vm_status::status(self, turn.now(), unbound, starting);
        turn.status(self.key, self.vm, status);
        if let Some(instance) = self.instance.filter(|instance| !deleting(instance)) {
            let patch = self.live_update(instance);
            turn.patch(self.instance_key, instance, patch);
        }
    }

    /// Takes the first request off the queue once it is done.
    fn trim_requests(&self, turn: &mut Turn<'_>) {
        let Some(request) = self.request() else { return };
        let done = match (text(request, "/action"), self.instance) {
            ("Stop", None) => true,
            ("Stop", Some(instance)) => text(request, "/uid") != uid(instance),
            (_, instance) => instance.is_some_and(|instance| !deleting(instance) && !is_final(instance)),
        };
        if done {
            let rest = &items(self.vm, "/status/stateChangeRequests")[1..];
            let rest = if rest.is_empty() { Value::Null } else { rest.into() };
            turn.status(self.key, self.vm, json!({ "stateChangeRequests": rest }));
        }
    }

    /// Counts an instance that ended without ever running; forgets the failures once one runs (domain.md §1.1, §1.4).
    fn count_failure(&self, turn: &mut Turn<'_>) {
        let failure = &self.vm["status"]["startFailure"];
        let restarts = [Strategy::Always, Strategy::RerunOnFailure, Strategy::Once];
        if !Strategy::of(self.vm).is_some_and(|strategy| restarts.contains(&strategy)) {
            return turn.status(self.key, self.vm, json!({ "startFailure": null }));
        }
        let Some(instance) = self.instance else { return };
        if since_phase(instance, "Running").is_some() {
            turn.status(self.key, self.vm, json!({ "startFailure": null }));
        } else if failed_early(instance)
            && !deleting(instance)
            && text(failure, "/lastFailedVMIUID") != uid(instance)
        {
            let count = failure["consecutiveFailCount"].as_u64().unwrap_or(0).saturating_add(1);
            let factor = u32::try_from(count.saturating_mul(count)).unwrap_or(u32::MAX);
            let delay = BACK_OFF.saturating_mul(factor).min(BACK_OFF_MAX);
            let retry_at = turn.now() + shorten(delay, turn.context.speed);
            let failure = json!({
                "consecutiveFailCount": count,
                "lastFailedVMIUID": uid(instance),
                "retryAfterTimestamp": retry_at.to_string(),
            });
            turn.status(self.key, self.vm, json!({ "startFailure": failure }));
        }
    }

    /// Node selector and affinity go to the running instance (§1.4); an unchanged template moves its generation along.
    fn live_update(&self, instance: &Value) -> Value {
        let spec = &self.vm["spec"]["template"]["spec"];
        let mut patch = json!({});
        for field in LIVE_UPDATED {
            if spec.get(field) != instance["spec"].get(field) {
                let new = spec.get(field).unwrap_or(&Value::Null);
                patch["spec"][field] = patch_between(&instance["spec"][field], new);
            }
        }
        if !self.restart_required() {
            patch["metadata"]["annotations"][VM_GENERATION] = self.generation().to_string().into();
        }
        patch
    }

    /// True if the template differs from the one that the instance was started with in what only a restart changes.
    pub(super) fn restart_required(&self) -> bool {
        let started = self.instance.and_then(|instance| annotation(instance, STARTED_WITH));
        let started = started.and_then(|text| serde_json::from_str::<Value>(text).ok());
        started.is_some_and(|started| {
            restart_part(&started) != restart_part(&self.vm["spec"]["template"]["spec"])
        })
    }
}

/// Fields of the template that reach a running instance (VMC:774-805).
const LIVE_UPDATED: [&str; 2] = ["nodeSelector", "affinity"];

fn restart_part(spec: &Value) -> Value {
    let mut rest = spec.clone();
    if let Some(fields) = rest.as_object_mut() {
        fields.retain(|field, _| !LIVE_UPDATED.contains(&field.as_str()));
    }
    rest
}

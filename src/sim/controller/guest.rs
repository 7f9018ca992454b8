//! virt-handler: starts the guest on its node, watches it, and shuts it down.
//!
//! What a guest does by itself is ordered through the annotation `sim/guest` of its instance: at once `shutdown` or
//! `crash`, some seconds after its start `powers-off`, `io-error` or `fills-disk`; `no-agent` never reports.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::instance::enter;
use crate::sim::controller::launcher;
use crate::sim::controller::longhorn;
use crate::sim::controller::node;
use crate::sim::controller::turn::Turn;
use crate::sim::controller::vm::since_phase;
use crate::sim::fault::ENGINE_RESTARTED;
use crate::sim::fault::GUEST_POWERS_OFF;
use crate::sim::fault::IO_ERROR;
use crate::sim::fault::NO_ACPI;
use crate::sim::fault::START_FAILS;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::PODS;
use crate::sim::object::Conditions;
use crate::sim::object::annotation;
use crate::sim::object::claims;
use crate::sim::object::condition;
use crate::sim::object::deleting;
use crate::sim::object::is_final;
use crate::sim::object::items;
use crate::sim::object::namespace;
use crate::sim::object::owner;
use crate::sim::object::text;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;
use crate::time::Timestamp;

/// Orders the guest to do something by itself.
pub(in crate::sim) const GUEST: &str = "sim/guest";
/// When virt-handler began to shut the guest down.
const SHUTDOWN_AT: &str = "sim/shutdown-at";
/// From the pod to a domain that runs.
const DOMAIN_START: Duration = Duration::from_secs(2);
/// From power on to a guest agent that answers.
const BOOT: Duration = Duration::from_secs(10);
/// From power on to what goes wrong with the faults of the guest.
const MISHAP: Duration = Duration::from_secs(3);
/// How often QEMU meets a device that is dead.
const DEVICE_POLL: Duration = Duration::from_secs(5);
/// From ACPI to power off.
const ACPI_SHUTDOWN: Duration = Duration::from_secs(8);

/// What a domain that cannot be started says.
const SYNC_FAILED: &str = "server error. command SyncVMI failed: \"LibvirtError(Code=1, Domain=10, Message='internal \
                           error: process exited while connecting to monitor')\"";

/// virt-handler's part of an instance.
pub(super) struct Guests;

impl Controller for Guests {
    fn name(&self) -> &'static str {
        "virt-handler"
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        if changed.resource == INSTANCES {
            return Some(changed.clone());
        }
        let instance =
            (changed.resource == PODS).then(|| owner(object, "VirtualMachineInstance")).flatten()?;
        Some(Key::new(INSTANCES, &changed.namespace, text(instance, "/name")))
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "virt-handler");
        let Some(instance) = context.view.get(key) else { return turn.end() };
        let node = text(&instance, "/status/nodeName");
        let owned = ["Scheduled", "Running"].contains(&text(&instance, "/status/phase"));
        if !owned || is_final(&instance) {
            return turn.end();
        }
        if node::is_down(context, node) {
            turn.again_after(node::DOWN_POLL);
            return turn.end();
        }
        let pod = launcher::pod_of(context.view, &instance);
        let guest = Guest { key, instance: &instance, pod: pod.as_deref() };
        guest.live(&mut turn);
        turn.end()
    }
}

struct Guest<'a> {
    key: &'a Key,
    instance: &'a Value,
    pod: Option<&'a Value>,
}

impl Guest<'_> {
    fn live(&self, turn: &mut Turn<'_>) {
        match annotation(self.instance, GUEST) {
            Some("shutdown") => {
                return self.end(turn, "Succeeded", "The VirtualMachineInstance was shut down.");
            }
            Some("crash") => return self.end(turn, "Failed", "The VirtualMachineInstance crashed."),
            _ => {}
        }
        if deleting(self.instance) || self.pod.is_some_and(deleting) {
            return self.shut_down(turn);
        }
        if text(self.instance, "/status/phase") == "Scheduled" {
            let since = since_phase(self.instance, "Scheduled").unwrap_or(turn.now());
            if turn.passed(since, DOMAIN_START) {
                self.power_on(turn);
            }
            return;
        }
        let paused = condition(self.instance, "Paused").is_some();
        match annotation(self.instance, GUEST) {
            Some("powers-off") if self.has_run(turn, MISHAP) => {
                self.end(turn, "Succeeded", "The VirtualMachineInstance was shut down.");
            }
            Some("io-error") if !paused && self.has_run(turn, MISHAP) => self.pause(turn),
            Some("fills-disk") if !paused && self.has_run(turn, MISHAP) => {
                for handle in self.handles(turn) {
                    longhorn::written(turn, &handle, 100);
                }
                self.pause(turn);
            }
            _ if !paused && self.holds_dead_device(turn) => self.pause(turn),
            Some("no-agent") => {}
            _ if !paused && self.has_run(turn, BOOT) => self.report_agent(turn),
            _ => {}
        }
    }

    /// QEMU stops a guest whose disk gives errors (domain.md §1.5).
    fn pause(&self, turn: &mut Turn<'_>) {
        let mut conditions = Conditions::of(self.instance, turn.now());
        let message = "VMI was paused, low-level IO error detected";
        conditions.set("Paused", "True", "PausedIOError", message);
        turn.status(self.key, self.instance, json!({ "conditions": conditions.into_value() }));
    }

    /// An engine that started after the guest gave it another device (domain-cases.md 29).
    fn holds_dead_device(&self, turn: &mut Turn<'_>) -> bool {
        if !turn.fault(ENGINE_RESTARTED) {
            return false;
        }
        turn.again_after(DEVICE_POLL);
        let Some(since) = since_phase(self.instance, "Running") else { return false };
        let started = |handle: &String| longhorn::engine_started_at(turn.context.view, handle);
        self.handles(turn).iter().any(|handle| started(handle).is_some_and(|started| started > since))
    }

    /// The volumes of Longhorn that the guest has.
    fn handles(&self, turn: &Turn<'_>) -> Vec<String> {
        let claim = |name| turn.context.view.get(&Key::new(CLAIMS, namespace(self.instance), name));
        let claims = claims(self.instance, "/spec/volumes").filter_map(claim);
        claims.map(|claim| text(&claim, "/spec/volumeName").to_owned()).collect()
    }

    fn has_run(&self, turn: &mut Turn<'_>, duration: Duration) -> bool {
        since_phase(self.instance, "Running").is_some_and(|since| turn.passed(since, duration))
    }

    /// The domain runs (domain.md §1.5).
    fn power_on(&self, turn: &mut Turn<'_>) {
        if turn.fault(START_FAILS) {
            turn.event(self.key, "Warning", "SyncFailed", SYNC_FAILED);
            return self.end(turn, "Failed", "The VirtualMachineInstance crashed.");
        }
        enter(turn, self.key, self.instance, "Running");
        let mut conditions = Conditions::of(self.instance, turn.now());
        match self.not_migratable(turn) {
            None => conditions.set("LiveMigratable", "True", "", ""),
            Some(message) => conditions.set("LiveMigratable", "False", "DisksNotLiveMigratable", &message),
        }
        conditions.set("StorageLiveMigratable", "True", "", "");
        if text(self.instance, "/spec/startStrategy") == "Paused" {
            conditions.set("Paused", "True", "PausedByUser", "VMI was paused by user");
        }
        let volumes: Vec<Value> = claims(self.instance, "/spec/volumes")
            .map(|claim| json!({ "name": claim, "target": "" }))
            .collect();
        turn.status(
            self.key,
            self.instance,
            json!({ "conditions": conditions.into_value(), "volumeStatus": volumes }),
        );
        // Only a guest that is started has a mishap: one that ran before the fault goes on.
        for (fault, mishap) in [(GUEST_POWERS_OFF, "powers-off"), (IO_ERROR, "io-error")] {
            if turn.fault(fault) {
                turn.patch(
                    self.key,
                    self.instance,
                    json!({ "metadata": { "annotations": { GUEST: mishap } } }),
                );
            }
        }
        turn.event(self.key, "Normal", "Created", "VirtualMachineInstance defined.");
        turn.event(self.key, "Normal", "Started", "VirtualMachineInstance started.");
    }

    /// Names the first claim that is not RWX: access modes decide (domain.md §4.1).
    fn not_migratable(&self, turn: &Turn<'_>) -> Option<String> {
        let space = namespace(self.instance);
        let shared = |claim: &str| {
            let claim = turn.context.view.get(&Key::new(CLAIMS, space, claim));
            claim.is_some_and(|claim| {
                items(&claim, "/spec/accessModes").iter().any(|mode| mode == "ReadWriteMany")
            })
        };
        let claim = claims(self.instance, "/spec/volumes").find(|claim| !shared(claim))?;
        Some(format!(
            "cannot migrate VMI: PVC {claim} is not shared, live migration requires that all PVCs must be shared \
             (using ReadWriteMany access mode)"
        ))
    }

    /// The guest has booted and its agent answers.
    fn report_agent(&self, turn: &mut Turn<'_>) {
        let mut conditions = Conditions::of(self.instance, turn.now());
        conditions.set("AgentConnected", "True", "", "");
        let status = json!({
            "conditions": conditions.into_value(),
            "guestOSInfo": { "id": "opensuse-leap", "name": "openSUSE Leap", "prettyName": "openSUSE Leap 15.6" },
            "interfaces": [{ "name": "default", "ipAddress": self.pod.map_or("", |pod| text(pod, "/status/podIP")) }],
        });
        turn.status(self.key, self.instance, status);
    }

    /// ACPI until the grace period ends, then the power is cut (domain.md §1.6, VH:1564-1690). The phase stays Running.
    fn shut_down(&self, turn: &mut Turn<'_>) {
        if self.instance.pointer("/spec/domain/features/acpi/enabled") == Some(&json!(false)) {
            return self.end(turn, "Succeeded", "The VirtualMachineInstance was shut down.");
        }
        let Some(since) = shutdown_at(self.instance) else {
            let now = turn.now().to_string();
            turn.patch(
                self.key,
                self.instance,
                json!({ "metadata": { "annotations": { SHUTDOWN_AT: now } } }),
            );
            turn.event(self.key, "Normal", "ShuttingDown", "Signaled Graceful Shutdown");
            return;
        };
        let grace = Duration::from_secs(u64::try_from(self.grace()).unwrap_or(0));
        let answers = !turn.fault(NO_ACPI) && condition(self.instance, "Paused").is_none();
        if turn.passed(since, grace) {
            self.end(turn, "Failed", "The VirtualMachineInstance was killed after its grace period.");
        } else if answers && turn.passed(since, ACPI_SHUTDOWN) {
            self.end(turn, "Succeeded", "The VirtualMachineInstance was shut down.");
        }
    }

    /// Seconds of grace: those of the instance, or of the pod if that is deleted with fewer.
    fn grace(&self) -> i64 {
        let of_pod = self.pod.filter(|pod| deleting(pod));
        let of_pod = of_pod.and_then(|pod| pod.pointer("/metadata/deletionGracePeriodSeconds")?.as_i64());
        of_pod.map_or(launcher::grace(self.instance), |seconds| seconds.min(launcher::grace(self.instance)))
    }

    fn end(&self, turn: &mut Turn<'_>, phase: &str, message: &str) {
        enter(turn, self.key, self.instance, phase);
        let kind = if phase == "Failed" { "Warning" } else { "Normal" };
        turn.event(self.key, kind, "Stopped", message);
    }
}

/// When virt-handler began to shut the guest down, if it did.
pub(super) fn shutdown_at(instance: &Value) -> Option<Timestamp> {
    annotation(instance, SHUTDOWN_AT)?.parse().ok()
}

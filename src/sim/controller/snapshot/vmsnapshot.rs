//! VirtualMachineSnapshot: holds the VM, has its content made, and tells how far it is (domain.md §3.2).

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::snapshot::API_VERSION;
use crate::sim::controller::snapshot::CONTENT_FINALIZER;
use crate::sim::controller::snapshot::backups;
use crate::sim::controller::snapshot::claim_of;
use crate::sim::controller::snapshot::class_for;
use crate::sim::controller::snapshot::content_name;
use crate::sim::controller::snapshot::disks;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::CONTROLLERS_FROZEN;
use crate::sim::fault::SNAPSHOT_EXCLUDES_VOLUME;
use crate::sim::kinds::DATA_VOLUMES;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::PODS;
use crate::sim::kinds::SNAPSHOT_CONTENTS;
use crate::sim::kinds::SNAPSHOTS;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::object::Conditions;
use crate::sim::object::claims;
use crate::sim::object::condition;
use crate::sim::object::deleting;
use crate::sim::object::has_finalizer;
use crate::sim::object::is_final;
use crate::sim::object::is_true;
use crate::sim::object::moment;
use crate::sim::object::name;
use crate::sim::object::namespace;
use crate::sim::object::owner;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::object::with_finalizer;
use crate::sim::object::without_finalizers;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// Keeps a snapshot until its content is gone.
const FINALIZER: &str = "snapshot.kubevirt.io/vmsnapshot-protection";
/// Keeps a VM while a snapshot of it is taken (domain.md §1.5).
const SOURCE_FINALIZER: &str = "snapshot.kubevirt.io/snapshot-source-protection";
/// How long a snapshot may take if it does not say (domain.md §3.2).
const DEADLINE: Duration = Duration::from_mins(5);
/// How often what waits for the VM, its claims or the content looks again.
const POLL: Duration = Duration::from_secs(1);

/// KubeVirt's snapshot controller.
pub(super) struct VirtualMachineSnapshots;

impl Controller for VirtualMachineSnapshots {
    fn name(&self) -> &'static str {
        "virt-controller"
    }

    fn concerns(&self, changed: &Key, object: &Value) -> Option<Key> {
        match changed.resource {
            SNAPSHOTS => Some(changed.clone()),
            SNAPSHOT_CONTENTS => {
                let of = text(object, "/spec/virtualMachineSnapshotName");
                (!of.is_empty()).then(|| Key::new(SNAPSHOTS, &changed.namespace, of))
            }
            _ => None,
        }
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "snapshot-controller");
        let Some(snapshot) = context.view.get(key).filter(|_| !turn.fault(CONTROLLERS_FROZEN)) else {
            return turn.end();
        };
        let vm_key = Key::new(VIRTUAL_MACHINES, &key.namespace, text(&snapshot, "/spec/source/name"));
        let vm = context.view.get(&vm_key);
        let content_key = Key::new(SNAPSHOT_CONTENTS, &key.namespace, &content_name(&snapshot));
        let content = context.view.get(&content_key);
        let work = Work {
            key,
            snapshot: &snapshot,
            vm_key: &vm_key,
            vm: vm.as_deref(),
            content_key: &content_key,
            content: content.as_deref(),
        };
        if deleting(&snapshot) {
            work.go(&mut turn);
        } else if !has_finalizer(&snapshot, FINALIZER) {
            turn.patch(key, &snapshot, with_finalizer(&snapshot, FINALIZER));
        } else {
            work.advance(&mut turn);
        }
        turn.end()
    }
}

/// A snapshot and what it is about.
struct Work<'a> {
    key: &'a Key,
    snapshot: &'a Value,
    vm_key: &'a Key,
    vm: Option<&'a Value>,
    content_key: &'a Key,
    content: Option<&'a Value>,
}

impl Work<'_> {
    fn phase(&self) -> &str {
        text(self.snapshot, "/status/phase")
    }

    fn advance(&self, turn: &mut Turn<'_>) {
        if !["", "InProgress"].contains(&self.phase()) {
            self.unlock(turn);
            return self.follow_content(turn);
        }
        if self.content.is_some_and(|content| !text(content, "/status/creationTime").is_empty()) {
            return self.succeed(turn);
        }
        if self.is_late(turn) {
            return self.fail(turn);
        }
        let held = self.lock(turn);
        if held.is_ok() && self.content.is_none() {
            self.make_content(turn);
        }
        self.report(turn, &held);
    }

    /// True once the deadline has passed; zero means none.
    fn is_late(&self, turn: &mut Turn<'_>) -> bool {
        let deadline = duration(text(self.snapshot, "/spec/failureDeadline")).unwrap_or(DEADLINE);
        let since = moment(self.snapshot, "/metadata/creationTimestamp");
        !deadline.is_zero() && since.is_some_and(|since| turn.passed(since, deadline))
    }

    /// Holds the VM, or says why that cannot be (KV pkg/storage/snapshot/source.go).
    fn lock(&self, turn: &mut Turn<'_>) -> Result<(), String> {
        let Some(vm) = self.vm else {
            turn.again_after(POLL);
            return Err("Source does not exist".to_owned());
        };
        if text(vm, "/status/snapshotInProgress") == &*self.key.name {
            return Ok(());
        }
        turn.again_after(POLL);
        if let Some(why) = self.obstacle(turn, vm) {
            return Err(why);
        }
        if !has_finalizer(vm, SOURCE_FINALIZER) {
            turn.patch(self.vm_key, vm, with_finalizer(vm, SOURCE_FINALIZER));
        }
        turn.status(self.vm_key, vm, json!({ "snapshotInProgress": &*self.key.name }));
        Err("Source not locked".to_owned())
    }

    fn obstacle(&self, turn: &Turn<'_>, vm: &Value) -> Option<String> {
        let other = text(vm, "/status/snapshotInProgress");
        if !other.is_empty() {
            return Some(format!("Snapshot {other:?} in progress"));
        }
        let view = turn.context.view;
        let space = &*self.key.namespace;
        let instance = view.get(&Key { resource: INSTANCES, ..self.vm_key.clone() });
        let pods = view.list(PODS, Some(space));
        for disk in disks(vm) {
            let claim = disk.claim;
            let Some(found) = claim_of(view, space, &disk) else {
                return Some(format!("PVC {space}/{claim} does not exist"));
            };
            let filled = view
                .get(&Key::new(DATA_VOLUMES, space, claim))
                .is_none_or(|volume| text(&volume, "/status/phase") == "Succeeded");
            if deleting(&found) || text(&found, "/status/phase") != "Bound" || !filled {
                return Some(format!("PVC {space}/{claim} is not bound or not populated yet"));
            }
            let uses = |pod: &Value| {
                let ended = is_final(pod);
                !ended && claims(pod, "/spec/volumes").any(|used| used == claim)
            };
            if let Some(pod) = pods.iter().find(|pod| instance.is_none() && uses(pod)) {
                return Some(format!("PVC {space}/{claim} is used by pod {}", name(pod)));
            }
        }
        None
    }

    /// Lets the VM go.
    fn unlock(&self, turn: &mut Turn<'_>) {
        let Some(vm) = self.vm else { return };
        if text(vm, "/status/snapshotInProgress") == &*self.key.name {
            turn.status(self.vm_key, vm, json!({ "snapshotInProgress": null }));
            turn.patch(self.vm_key, vm, without_finalizers(vm, &[SOURCE_FINALIZER]));
        }
    }

    /// Writes down the VM and the claims that belong to the snapshot. One that cannot be in it is left out without a
    /// word (SNAP:687-722).
    fn make_content(&self, turn: &mut Turn<'_>) {
        let Some(vm) = self.vm else { return };
        let view = turn.context.view;
        let last = disks(vm).count().saturating_sub(1);
        let mut backups = vec![];
        for (i, disk) in disks(vm).enumerate() {
            let Some(claim) = claim_of(view, &self.key.namespace, &disk) else { continue };
            let left_out = turn.fault(SNAPSHOT_EXCLUDES_VOLUME) && i == last;
            match class_for(view, &claim) {
                Ok(Some(_)) if !left_out => {}
                Ok(_) => continue,
                Err(why) => {
                    tracing::debug!(key = %self.key, why, "no content is made");
                    return turn.again_after(POLL * 5);
                }
            }
            backups.push(json!({
                "volumeName": disk.volume,
                "persistentVolumeClaim": { "metadata": essence(&claim), "spec": claim["spec"] },
                "volumeSnapshotName": format!("vmsnapshot-{}-volume-{}", uid(self.snapshot), disk.volume),
            }));
        }
        let content = json!({
            "apiVersion": API_VERSION,
            "kind": "VirtualMachineSnapshotContent",
            "metadata": {
                "name": &*self.content_key.name,
                "namespace": &*self.key.namespace,
                "finalizers": [CONTENT_FINALIZER],
            },
            "spec": {
                "virtualMachineSnapshotName": &*self.key.name,
                "source": { "virtualMachine": { "metadata": essence(vm), "spec": vm["spec"] } },
                "volumeBackups": backups,
            },
        });
        turn.create(SNAPSHOT_CONTENTS, content);
        let message = format!("Successfully created VirtualMachineSnapshotContent {}", self.content_key.name);
        turn.event(self.key, "Normal", "SuccessfulVirtualMachineSnapshotContentCreate", &message);
    }

    fn report(&self, turn: &mut Turn<'_>, held: &Result<(), String>) {
        let (progressing, why) = match held {
            Ok(()) => ("True", "Source locked and operation in progress"),
            Err(why) => ("False", why.as_str()),
        };
        let mut status = json!({ "phase": "InProgress", "readyToUse": false });
        status["conditions"] = self.conditions(turn, progressing, why, "False", "Not ready");
        if let Some(vm) = self.vm {
            status["sourceUID"] = uid(vm).into();
        }
        if held.is_ok() {
            self.add_indications(turn, &mut status);
        }
        if let Some(content) = self.content {
            status["virtualMachineSnapshotContentName"] = name(content).into();
            status["error"] = content["status"]["error"].clone();
        }
        turn.status(self.key, self.snapshot, status);
    }

    /// What a running source says about the quality of the snapshot (SNAP:865-902).
    fn add_indications(&self, turn: &Turn<'_>, status: &mut Value) {
        let instance = turn.context.view.get(&Key { resource: INSTANCES, ..self.vm_key.clone() });
        let Some(instance) = instance else { return };
        let mut found = vec![("Online", "the snapshot was taken while the VM ran")];
        match is_true(&instance, "AgentConnected") {
            true => found.push(("GuestAgent", "the guest agent froze the file systems")),
            false => found.push(("NoGuestAgent", "without a guest agent the snapshot is crash-consistent")),
        }
        if condition(&instance, "Paused").is_some() {
            found.push(("Paused", "the VM was paused"));
        }
        status["indications"] = found.iter().map(|(indication, _)| *indication).collect();
        status["sourceIndications"] = found
            .iter()
            .map(|(indication, message)| json!({ "indication": indication, "message": message }))
            .collect();
    }

    /// Succeeded says only that all parts were begun; whether they can be used follows (SNAP:801-812).
    fn succeed(&self, turn: &mut Turn<'_>) {
        let mut status = json!({ "phase": "Succeeded" });
        status["creationTime"] =
            self.content.map_or(Value::Null, |content| content["status"]["creationTime"].clone());
        turn.status(self.key, self.snapshot, status);
        self.follow_content(turn);
    }

    fn fail(&self, turn: &mut Turn<'_>) {
        let mut conditions = Conditions::of(self.snapshot, turn.now());
        conditions.set("Progressing", "False", "Operation failed", "");
        conditions.set("Ready", "False", "Not ready", "");
        conditions.set("Failure", "True", "snapshot deadline exceeded", "");
        let conditions = conditions.into_value();
        let status = json!({ "phase": "Failed", "readyToUse": false, "conditions": conditions });
        turn.status(self.key, self.snapshot, status);
    }

    /// Ready or not, the volumes and the error are those of the content, also long after it has been made.
    fn follow_content(&self, turn: &mut Turn<'_>) {
        if self.phase() == "Failed" {
            return;
        }
        let Some(content) = self.content else {
            let conditions = self.conditions(turn, "False", "Operation complete", "False", "Not ready");
            return turn.status(
                self.key,
                self.snapshot,
                json!({ "readyToUse": false, "conditions": conditions }),
            );
        };
        let ready = content["status"]["readyToUse"] == json!(true);
        let (is_ready, why) = if ready { ("True", "Operation complete") } else { ("False", "Not ready") };
        let backed: Vec<&str> = backups(content).map(|backup| text(backup, "/volumeName")).collect();
        let all: Vec<String> =
            disks(&content["spec"]["source"]["virtualMachine"]).map(|disk| disk.volume.to_owned()).collect();
        let (included, excluded): (Vec<String>, Vec<String>) =
            all.into_iter().partition(|volume| backed.contains(&volume.as_str()));
        let mut volumes = json!({ "includedVolumes": included });
        if !excluded.is_empty() {
            volumes["excludedVolumes"] = excluded.into();
        }
        let status = json!({
            "readyToUse": ready,
            "virtualMachineSnapshotContentName": name(content),
            "error": content["status"]["error"],
            "snapshotVolumes": volumes,
            "conditions": self.conditions(turn, "False", "Operation complete", is_ready, why),
        });
        turn.status(self.key, self.snapshot, status);
    }

    fn conditions(
        &self,
        turn: &Turn<'_>,
        progressing: &str,
        progress: &str,
        ready: &str,
        readiness: &str,
    ) -> Value {
        let mut conditions = Conditions::of(self.snapshot, turn.now());
        conditions.set("Progressing", progressing, progress, "");
        conditions.set("Ready", ready, readiness, "");
        conditions.into_value()
    }

    /// A deleted snapshot takes its content along, unless it is to be kept.
    fn go(&self, turn: &mut Turn<'_>) {
        self.unlock(turn);
        let kept = text(self.snapshot, "/spec/deletionPolicy") == "Retain";
        match self.content {
            Some(content) if !kept => {
                turn.status(self.key, self.snapshot, json!({ "phase": "Deleting", "readyToUse": false }));
                if !deleting(content) {
                    turn.delete(self.content_key);
                }
                turn.again_after(POLL);
            }
            _ => turn.patch(self.key, self.snapshot, without_finalizers(self.snapshot, &[FINALIZER])),
        }
    }
}

/// What a content keeps of the metadata of an object.
fn essence(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut kept = json!({ "name": name(object), "namespace": namespace(object), "uid": uid(object) });
    for field in ["labels", "annotations"] {
        if metadata[field].is_object() {
            kept[field] = metadata[field].clone();
        }
    }
    if owner(object, "VirtualMachine").is_some() || owner(object, "DataVolume").is_some() {
        kept["ownerReferences"] = metadata["ownerReferences"].clone();
    }
    kept
}

/// A duration as Go writes it, of hours, minutes and seconds.
fn duration(text: &str) -> Option<Duration> {
    let mut total = 0;
    let mut number = String::new();
    for c in text.chars() {
        let unit = match c {
            '0'..='9' => {
                number.push(c);
                continue;
            }
            'h' => 3_600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        total += number.parse::<u64>().ok()?.checked_mul(unit)?;
        number.clear();
    }
    // Go writes a duration of nothing without a unit, too.
    (number.is_empty() || number == "0").then_some(()).filter(|()| !text.is_empty())?;
    Some(Duration::from_secs(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_read_as_go_writes_them() {
        for (text, seconds) in [
            ("5m0s", Some(300)),
            ("1h", Some(3_600)),
            ("0s", Some(0)),
            ("0", Some(0)),
            ("", None),
            ("soon", None),
        ] {
            assert_eq!(duration(text), seconds.map(Duration::from_secs), "{text}");
        }
    }
}

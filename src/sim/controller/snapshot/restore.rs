//! VirtualMachineRestore: gives a VM the disks and the spec of a snapshot (domain.md §3.3, RST:192-314).
//!
//! A restore is complete when the control plane is done. Whether anything was copied is not its business.

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::snapshot::content_name;
use crate::sim::controller::snapshot::restored;
use crate::sim::controller::snapshot::restored::Disk;
use crate::sim::controller::turn::Turn;
use crate::sim::fault::CONTROLLERS_FROZEN;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::DATA_VOLUMES;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::RESTORES;
use crate::sim::kinds::SNAPSHOT_CONTENTS;
use crate::sim::kinds::SNAPSHOTS;
use crate::sim::kinds::STORAGE_CLASSES;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::object::Conditions;
use crate::sim::object::condition;
use crate::sim::object::deleting;
use crate::sim::object::has_finalizer;
use crate::sim::object::is_final;
use crate::sim::object::is_true;
use crate::sim::object::items;
use crate::sim::object::moment;
use crate::sim::object::name;
use crate::sim::object::owned_by;
use crate::sim::object::owner;
use crate::sim::object::patch_between;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::object::with_finalizer;
use crate::sim::object::without_finalizers;
use crate::sim::strategy::Strategy;
use crate::sim::subresource;
use crate::sim::world::Call;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// Keeps a restore until the VM is free again.
const FINALIZER: &str = "snapshot.kubevirt.io/vmrestore-protection";
/// How long a target may run on with the policy WaitGracePeriod (RST:390-446).
const GRACE: Duration = Duration::from_mins(5);
/// How often what waits for the VM or its claims looks again.
const POLL: Duration = Duration::from_secs(1);

/// KubeVirt's restore controller.
pub(super) struct VirtualMachineRestores;

impl Controller for VirtualMachineRestores {
    fn name(&self) -> &'static str {
        "virt-controller"
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        (changed.resource == RESTORES).then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "restore-controller");
        let Some(restore) = context.view.get(key).filter(|_| !turn.fault(CONTROLLERS_FROZEN)) else {
            return turn.end();
        };
        let vm_key = Key::new(VIRTUAL_MACHINES, &key.namespace, text(&restore, "/spec/target/name"));
        let vm = context.view.get(&vm_key);
        let work = Work { key, restore: &restore, vm_key: &vm_key, vm: vm.as_deref() };
        if deleting(&restore) {
            work.unlock(&mut turn);
            turn.patch(key, &restore, without_finalizers(&restore, &[FINALIZER]));
        } else if restore["status"]["complete"] == json!(true) || is_true(&restore, "Failure") {
            work.unlock(&mut turn);
        } else {
            work.advance(&mut turn);
        }
        turn.end()
    }
}

/// A restore and the VM that it is for.
struct Work<'a> {
    key: &'a Key,
    restore: &'a Value,
    vm_key: &'a Key,
    vm: Option<&'a Value>,
}

impl Work<'_> {
    /// One step; each takes it as long as it takes to notice the one before.
    fn advance(&self, turn: &mut Turn<'_>) {
        turn.again_after(POLL);
        if !self.take_possession(turn) {
            return;
        }
        if self.restore["status"]["complete"].is_null() {
            let conditions = self.conditions(turn, "True", "Initializing VirtualMachineRestore", "False");
            let status = json!({ "complete": false, "conditions": conditions });
            return turn.status(self.key, self.restore, status);
        }
        let Some(content) = self.content(turn) else {
            let why = format!("VirtualMachineSnapshot {} not found", text(self.restore, SNAPSHOT));
            return self.wait(turn, &why);
        };
        let begun = !items(self.restore, "/status/restores").is_empty();
        if !begun && !self.target_is_ready(turn) {
            return;
        }
        let disks = restored::disks(self.restore, &content);
        if !begun {
            let restores: Vec<Value> = disks.iter().map(Disk::record).collect();
            turn.status(self.key, self.restore, json!({ "restores": restores }));
            return self.wait(turn, "Creating new PVCs");
        }
        if !self.claims_are_bound(turn, &disks) {
            return;
        }
        if self.put(turn, &content, &disks) || self.clear(turn) {
            return;
        }
        self.complete(turn);
    }

    /// Marks the VM and makes it the owner: when it is deleted the restore goes, too (kubevirt#13956).
    fn take_possession(&self, turn: &mut Turn<'_>) -> bool {
        if !has_finalizer(self.restore, FINALIZER) {
            turn.patch(self.key, self.restore, with_finalizer(self.restore, FINALIZER));
            return false;
        }
        let Some(vm) = self.vm else { return true };
        let mut ready = true;
        if owner(self.restore, "VirtualMachine").is_none() {
            let owners = json!({ "metadata": { "ownerReferences": [owned_by(vm)] } });
            turn.patch(self.key, self.restore, owners);
            ready = false;
        }
        if text(vm, "/status/restoreInProgress").is_empty() {
            turn.status(self.vm_key, vm, json!({ "restoreInProgress": &*self.key.name }));
            ready = false;
        }
        ready
    }

    fn unlock(&self, turn: &mut Turn<'_>) {
        let Some(vm) = self.vm else { return };
        if text(vm, "/status/restoreInProgress") == &*self.key.name {
            turn.status(self.vm_key, vm, json!({ "restoreInProgress": null }));
        }
    }

    fn content(&self, turn: &Turn<'_>) -> Option<Value> {
        let view = turn.context.view;
        let snapshot = view.get(&Key::new(SNAPSHOTS, &self.key.namespace, text(self.restore, SNAPSHOT)))?;
        let content = Key::new(SNAPSHOT_CONTENTS, &self.key.namespace, &content_name(&snapshot));
        view.get(&content).map(|content| (*content).clone())
    }

    /// Ready is a target without an instance, whatever phase that is in (RST:651-666).
    fn target_is_ready(&self, turn: &mut Turn<'_>) -> bool {
        let instance_key = Key { resource: INSTANCES, ..self.vm_key.clone() };
        let Some(instance) = turn.context.view.get(&instance_key) else { return true };
        let policy = text(self.restore, "/spec/targetReadinessPolicy");
        let since = moment(self.restore, "/metadata/creationTimestamp").unwrap_or(turn.now());
        match policy {
            "StopTarget" => {
                if !deleting(&instance) && !is_final(&instance) {
                    self.stop_target(turn);
                }
                self.wait(turn, "Automatically stopping the restore target");
            }
            "FailImmediate" => self.fail(turn, "Restore target must be stopped before the restore"),
            "WaitEventually" => self.wait(turn, "Waiting for the restore target to be stopped"),
            _ if turn.passed(since, GRACE) => {
                self.fail(turn, "Restore target failed to be ready within 5m0s")
            }
            _ => {
                let why = "Waiting for the restore target to be stopped, for 5m0s at most";
                let told =
                    condition(self.restore, "Progressing").is_some_and(|told| text(told, "/reason") == why);
                if !told {
                    turn.event(self.key, "Warning", "RestoreTargetNotReady", why);
                }
                self.wait(turn, why);
            }
        }
        false
    }

    fn stop_target(&self, turn: &mut Turn<'_>) {
        let call = Call {
            view: turn.context.view,
            key: self.vm_key,
            name: "stop",
            body: &Value::Null,
            now: turn.now(),
            faults: turn.context.faults,
        };
        if let Ok(answer) = subresource::serve(&call) {
            turn.add(answer.writes);
        }
    }

    /// Makes the claims, and waits until those are bound whose class does not wait itself (RST:448-573).
    fn claims_are_bound(&self, turn: &mut Turn<'_>, disks: &[Disk<'_>]) -> bool {
        let mut all = true;
        for disk in disks {
            let key = Key::new(CLAIMS, &self.key.namespace, &disk.claim);
            let Some(claim) = turn.context.view.get(&key) else {
                turn.create(CLAIMS, disk.new_claim(self.restore));
                all = false;
                continue;
            };
            if restored::is_of(&claim, self.restore) {
                let class = Key::new(STORAGE_CLASSES, "", text(&claim, "/spec/storageClassName"));
                let class = turn.context.view.get(&class);
                let waits = class.is_some_and(|class| text(&class, "/volumeBindingMode") != "Immediate");
                all &= waits || text(&claim, "/status/phase") == "Bound";
            } else {
                // InPlace: the old one goes first, and its data with it (RST:517-556).
                if !deleting(&claim) {
                    turn.delete(&key);
                }
                all = false;
            }
        }
        if !all {
            self.wait(turn, "Waiting for new PVCs to be populated");
        }
        all
    }

    /// Gives the VM the spec of the snapshot with the new disks, and the DataVolumes for them. True if there was
    /// anything to do.
    fn put(&self, turn: &mut Turn<'_>, content: &Value, disks: &[Disk<'_>]) -> bool {
        if self.restore["status"]["deletedDataVolumes"].is_array() {
            return false;
        }
        let source = &content["spec"]["source"]["virtualMachine"];
        let mut wanted = restored::spec(source, disks);
        let mut obsolete: Vec<&str> = vec![];
        if let Some(vm) = self.vm {
            let old = items(vm, "/spec/dataVolumeTemplates").iter().map(name);
            let kept = |old: &str| items(&wanted, "/dataVolumeTemplates").iter().any(|new| name(new) == old);
            obsolete.extend(old.filter(|old| !kept(old)));
            for field in ["running", "runStrategy"] {
                wanted[field] = vm["spec"][field].clone();
            }
            self.make_data_volumes(turn, disks, vm);
            let mut patch = json!({ "spec": patch_between(&vm["spec"], &wanted) });
            patch["metadata"]["annotations"][restored::LAST] = uid(self.restore).into();
            turn.patch(self.vm_key, vm, patch);
        } else {
            if let Some(spec) = wanted.as_object_mut() {
                spec.remove("running");
                spec.insert("runStrategy".to_owned(), Strategy::Halted.name().into());
            }
            match restored::new_vm(source, wanted, self.vm_key, self.restore) {
                Ok(vm) => turn.create(VIRTUAL_MACHINES, vm),
                Err(why) => {
                    self.wait(turn, &why);
                    return true;
                }
            }
        }
        turn.status(self.key, self.restore, json!({ "deletedDataVolumes": obsolete }));
        true
    }

    /// The DataVolumes of the new claims, filled already, before the VM asks for them.
    fn make_data_volumes(&self, turn: &mut Turn<'_>, disks: &[Disk<'_>], vm: &Value) {
        for volume in disks.iter().filter_map(|disk| disk.data_volume(vm)) {
            if turn.context.view.get(&Key::new(DATA_VOLUMES, &self.key.namespace, name(&volume))).is_none() {
                turn.create(DATA_VOLUMES, volume);
            }
        }
    }

    /// Deletes the DataVolumes that the VM does not have any more; their claims and volumes follow (RST:1085-1100). True
    /// if one is still there.
    fn clear(&self, turn: &mut Turn<'_>) -> bool {
        let mut left = false;
        for volume in items(self.restore, "/status/deletedDataVolumes") {
            let key = Key::new(DATA_VOLUMES, &self.key.namespace, volume.as_str().unwrap_or_default());
            if let Some(found) = turn.context.view.get(&key) {
                left = true;
                if !deleting(&found) {
                    turn.delete(&key);
                }
            }
        }
        left
    }

    fn complete(&self, turn: &mut Turn<'_>) {
        let mut conditions = Conditions::of(self.restore, turn.now());
        conditions.set("Progressing", "False", "Operation complete", "");
        conditions.set("Ready", "True", "Operation complete", "");
        let status = json!({
            "complete": true,
            "restoreTime": turn.now().to_string(),
            "conditions": conditions.into_value(),
        });
        turn.status(self.key, self.restore, status);
        let message = format!("Successfully completed VirtualMachineRestore {}", self.key.name);
        turn.event(self.key, "Normal", "VirtualMachineRestoreComplete", &message);
    }

    fn wait(&self, turn: &mut Turn<'_>, why: &str) {
        let conditions = self.conditions(turn, "True", why, "False");
        turn.status(self.key, self.restore, json!({ "conditions": conditions }));
    }

    /// For good: only deleting the restore helps (domain.md §3.3).
    fn fail(&self, turn: &mut Turn<'_>, why: &str) {
        let mut conditions = Conditions::of(self.restore, turn.now());
        conditions.set("Progressing", "False", why, "");
        conditions.set("Ready", "False", why, "");
        conditions.set("Failure", "True", why, "");
        turn.status(self.key, self.restore, json!({ "conditions": conditions.into_value() }));
        turn.event(self.key, "Warning", "VirtualMachineRestoreError", why);
    }

    fn conditions(&self, turn: &Turn<'_>, progressing: &str, why: &str, ready: &str) -> Value {
        let mut conditions = Conditions::of(self.restore, turn.now());
        conditions.set("Progressing", progressing, why, "");
        conditions.set("Ready", ready, why, "");
        conditions.into_value()
    }
}

/// Where a restore names its snapshot.
const SNAPSHOT: &str = "/spec/virtualMachineSnapshotName";

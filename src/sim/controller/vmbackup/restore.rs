//! Harvester's restores: new claims, the VM on them and started, then the old claims deleted (domain.md §3.8;
//! HRST:594-650,1304-1382).

use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::CLAIM_TEMPLATES;
use crate::sim::controller::HARVESTER;
use crate::sim::controller::csi_snapshot;
use crate::sim::controller::turn::Turn;
use crate::sim::controller::vmbackup::POLL;
use crate::sim::kinds::BACKUPS;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::HARVESTER_RESTORES;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::object::Conditions;
use crate::sim::object::deleting;
use crate::sim::object::items;
use crate::sim::object::name;
use crate::sim::object::owned_by;
use crate::sim::object::owner;
use crate::sim::object::patch_between;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::strategy::Strategy;
use crate::sim::subresource;
use crate::sim::world::Call;
use crate::sim::world::Context;
use crate::sim::world::Controller;
use crate::sim::world::Key;
use crate::sim::world::Reconciled;

/// How far a restore is at most before its VM is started (HRST:1296).
const BEFORE_START: u64 = 90;
/// Marks a VM that was started by its restore, so that it happens once.
const STARTED: &str = "sim/started-by-restore";

/// Harvester's restore controller.
pub(super) struct Restores;

impl Controller for Restores {
    fn name(&self) -> &'static str {
        HARVESTER
    }

    fn lag(&self) -> Duration {
        Duration::from_millis(400)
    }

    fn concerns(&self, changed: &Key, _: &Value) -> Option<Key> {
        (changed.resource == HARVESTER_RESTORES).then(|| changed.clone())
    }

    fn reconcile(&self, context: &Context<'_>, key: &Key) -> Reconciled {
        let mut turn = Turn::new(context, "harvester-vm-restore-controller");
        let Some(restore) = context.view.get(key) else { return turn.end() };
        let backup = Key::new(
            BACKUPS,
            text(&restore, "/spec/virtualMachineBackupNamespace"),
            text(&restore, "/spec/virtualMachineBackupName"),
        );
        let done = deleting(&restore) || restore["status"]["complete"] == json!(true);
        if let Some(backup) = context.view.get(&backup).filter(|_| !done) {
            let vm_key = Key::new(VIRTUAL_MACHINES, &key.namespace, text(&restore, "/spec/target/name"));
            let vm = context.view.get(&vm_key);
            Work { key, restore: &restore, backup: &backup, vm_key: &vm_key, vm: vm.as_deref() }
                .advance(&mut turn);
            turn.again_after(POLL);
        }
        turn.end()
    }
}

/// A restore, what it is made of and for.
struct Work<'a> {
    key: &'a Key,
    restore: &'a Value,
    backup: &'a Value,
    vm_key: &'a Key,
    vm: Option<&'a Value>,
}

impl Work<'_> {
    fn is_new(&self) -> bool {
        self.restore["spec"]["newVM"] == json!(true)
    }

    fn volumes(&self) -> &[Value] {
        items(self.backup, "/status/volumeBackups")
    }

    fn claim(&self, volume: &Value) -> String {
        format!("restore-{}-{}-{}", name(self.backup), uid(self.restore), text(volume, "/volumeName"))
    }

    /// One step; each takes it as long as it takes to notice the one before.
    fn advance(&self, turn: &mut Turn<'_>) {
        if !self.restore["status"]["restores"].is_array() {
            return self.begin(turn);
        }
        if !self.claims_are_bound(turn) || !self.vm_is_put(turn) {
            return;
        }
        let Some(vm) = self.vm else { return };
        if owner(self.restore, "VirtualMachine").is_none() {
            let owners = json!({ "metadata": { "ownerReferences": [owned_by(vm)] } });
            return turn.patch(self.key, self.restore, owners);
        }
        if vm["metadata"]["annotations"][STARTED] != uid(self.restore) {
            return self.start(turn, vm);
        }
        if vm["status"]["ready"] == json!(true) {
            self.complete(turn);
        }
    }

    fn begin(&self, turn: &mut Turn<'_>) {
        let restores: Vec<Value> = self
            .volumes()
            .iter()
            .map(|volume| {
                let claim = &volume["persistentVolumeClaim"];
                json!({
                    "volumeName": text(volume, "/volumeName"),
                    "volumeBackupName": text(volume, "/name"),
                    "persistentVolumeClaimSpec": {
                        "metadata": { "name": self.claim(volume) },
                        "spec": claim["spec"],
                    },
                    "progress": 0,
                })
            })
            .collect();
        let old = self.volumes().iter().map(|volume| text(volume, "/persistentVolumeClaim/metadata/name"));
        let deleted: Vec<&str> = if self.is_new() { vec![] } else { old.collect() };
        let mut conditions = Conditions::of(self.restore, turn.now());
        conditions.set("InProgress", "True", "", "Initializing VirtualMachineRestore");
        conditions.set("Ready", "False", "", "Initializing VirtualMachineRestore");
        let status = json!({
            "complete": false,
            "progress": 0,
            "restores": restores,
            "deletedVolumes": deleted,
            "conditions": conditions.into_value(),
        });
        turn.status(self.key, self.restore, status);
    }

    /// Makes the claims, which belong to the restore (HRST:1053).
    fn claims_are_bound(&self, turn: &mut Turn<'_>) -> bool {
        let mut all = true;
        for volume in self.volumes() {
            let key = Key::new(CLAIMS, &self.key.namespace, &self.claim(volume));
            if let Some(claim) = turn.context.view.get(&key) {
                all &= text(&claim, "/status/phase") == "Bound";
                continue;
            }
            all = false;
            let old = &volume["persistentVolumeClaim"]["spec"];
            let spec = csi_snapshot::claim_spec(old, text(volume, "/name"));
            turn.create(
                CLAIMS,
                json!({
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {
                        "name": &*key.name,
                        "namespace": &*key.namespace,
                        "ownerReferences": [owned_by(self.restore)],
                    },
                    "spec": spec,
                }),
            );
        }
        all
    }

    /// The VM gets the spec of the backup with the new claims, switched off, and a list of claims to match (HRST:682).
    fn vm_is_put(&self, turn: &mut Turn<'_>) -> bool {
        let mut spec = self.backup["status"]["source"]["spec"].clone();
        spec["running"] = Value::Null;
        spec["runStrategy"] = Strategy::Halted.name().into();
        let mut listed = vec![];
        for volume in self.volumes() {
            let claim = self.claim(volume);
            let of_vm = spec.pointer_mut("/template/spec/volumes").and_then(Value::as_array_mut);
            let wanted = text(volume, "/volumeName");
            let found = of_vm.and_then(|all| all.iter_mut().find(|of_vm| text(of_vm, "/name") == wanted));
            if let Some(found) = found {
                found["persistentVolumeClaim"]["claimName"] = claim.as_str().into();
            }
            let mut wanted = volume["persistentVolumeClaim"]["spec"].clone();
            if let Some(fields) = wanted.as_object_mut() {
                fields.remove("volumeName");
            }
            listed.push(json!({ "metadata": { "name": claim }, "spec": wanted }));
        }
        let templates = Value::from(listed).to_string();
        let Some(vm) = self.vm else {
            let mut metadata = self.backup["status"]["source"]["metadata"].clone();
            metadata["name"] = (*self.vm_key.name).into();
            metadata["namespace"] = (*self.vm_key.namespace).into();
            metadata["annotations"][CLAIM_TEMPLATES] = templates.into();
            let vm = json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": spec,
            });
            turn.create(VIRTUAL_MACHINES, vm);
            return false;
        };
        if vm["metadata"]["annotations"][CLAIM_TEMPLATES] == templates.as_str() {
            return true;
        }
        let mut patch = json!({ "spec": patch_between(&vm["spec"], &spec) });
        patch["metadata"]["annotations"][CLAIM_TEMPLATES] = templates.into();
        turn.patch(self.vm_key, vm, patch);
        turn.status(self.key, self.restore, json!({ "progress": BEFORE_START, "targetUID": uid(vm) }));
        false
    }

    fn start(&self, turn: &mut Turn<'_>, vm: &Value) {
        let mark = json!({ "metadata": { "annotations": { STARTED: uid(self.restore) } } });
        turn.patch(self.vm_key, vm, mark);
        let call = Call {
            view: turn.context.view,
            key: self.vm_key,
            name: "start",
            body: &Value::Null,
            now: turn.now(),
            faults: turn.context.faults,
        };
        if let Ok(answer) = subresource::serve(&call) {
            turn.add(answer.writes);
        }
    }

    /// The VM is ready: the old claims go, unless they are to be kept.
    fn complete(&self, turn: &mut Turn<'_>) {
        let kept = text(self.restore, "/spec/deletionPolicy") == "retain";
        for claim in items(self.restore, "/status/deletedVolumes").iter().filter_map(Value::as_str) {
            let key = Key::new(CLAIMS, &self.key.namespace, claim);
            if !kept && turn.context.view.get(&key).is_some_and(|claim| !deleting(&claim)) {
                turn.delete(&key);
            }
        }
        let mut conditions = Conditions::of(self.restore, turn.now());
        conditions.set("InProgress", "False", "", "Operation complete");
        conditions.set("Ready", "True", "", "Operation complete");
        let status = json!({
            "complete": true,
            "progress": 100,
            "restoreTime": turn.now().to_string(),
            "conditions": conditions.into_value(),
        });
        turn.status(self.key, self.restore, status);
    }
}

//! The DataVolumes of a VM: made from its templates, made again when one is missing, and waited for (domain.md §1.3,
//! §2.4; VMC:511-549, KV pkg/storage/types/dv.go:171-212).

use serde_json::Value;
use serde_json::json;

use crate::sim::controller::turn::Turn;
use crate::sim::kinds::DATA_VOLUMES;
use crate::sim::object::condition;
use crate::sim::object::items;
use crate::sim::object::owned_by;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::world::Key;

/// How the DataVolumes of a VM are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Disks {
    /// All that the VM can start with.
    Ready,
    /// One is being filled.
    Provisioning,
    /// One has failed, for now or for good.
    Failing,
}

/// Makes the DataVolumes of the templates that are missing.
pub(super) fn make(turn: &mut Turn<'_>, key: &Key, vm: &Value) {
    for template in items(vm, "/spec/dataVolumeTemplates") {
        let name = text(template, "/metadata/name");
        if turn.context.view.get(&Key::new(DATA_VOLUMES, &key.namespace, name)).is_some() {
            continue;
        }
        let mut metadata = template["metadata"].clone();
        metadata["namespace"] = (*key.namespace).into();
        metadata["labels"]["kubevirt.io/created-by"] = uid(vm).into();
        metadata["ownerReferences"] = json!([owned_by(vm)]);
        let volume = json!({
            "apiVersion": "cdi.kubevirt.io/v1beta1",
            "kind": "DataVolume",
            "metadata": metadata,
            "spec": template["spec"],
        });
        turn.create(DATA_VOLUMES, volume);
        turn.event(key, "Normal", "SuccessfulDataVolumeCreate", &format!("Created DataVolume {name}"));
    }
}

/// The worst of the DataVolumes that the VM mounts.
pub(super) fn state(turn: &Turn<'_>, key: &Key, vm: &Value) -> Disks {
    let templates = items(vm, "/spec/dataVolumeTemplates");
    let mounted = items(vm, "/spec/template/spec/volumes").iter();
    let names = mounted.map(|volume| text(volume, "/dataVolume/name")).filter(|name| !name.is_empty());
    let states = names.map(|name| {
        let volume = turn.context.view.get(&Key::new(DATA_VOLUMES, &key.namespace, name));
        match volume.as_deref() {
            None if templates.iter().any(|template| text(template, "/metadata/name") == name) => {
                Disks::Provisioning
            }
            // A claim of that name, without a DataVolume, is as good.
            None => Disks::Ready,
            Some(volume) if is_failing(volume) => Disks::Failing,
            Some(volume) => match text(volume, "/status/phase") {
                "Succeeded" | "WaitForFirstConsumer" | "PendingPopulation" => Disks::Ready,
                _ => Disks::Provisioning,
            },
        }
    });
    states.max().unwrap_or(Disks::Ready)
}

fn is_failing(volume: &Value) -> bool {
    let running = condition(volume, "Running");
    let broken = running.is_some_and(|running| {
        text(running, "/status") == "False"
            && ["Error", "ImagePullFailed"].contains(&text(running, "/reason"))
    });
    broken || text(volume, "/status/phase") == "Failed"
}

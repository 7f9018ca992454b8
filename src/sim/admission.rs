//! The platform's webhooks: what KubeVirt and Harvester change in an object and what they refuse.
//!
//! Harvester's mutating webhook has failure policy Ignore, all the others Fail (domain.md §0, §1.2): the fault
//! `mutation-skipped` makes it time out, and then the object is stored as it was sent.

mod backup;
mod image;
mod migration;
mod snapshot;

use std::sync::Arc;

use serde_json::Value;

use crate::sim::controller::CLAIM_TEMPLATES;
use crate::sim::controller::HARVESTER as HARVESTER_CONTROLLERS;
use crate::sim::controller::RUN_STRATEGY;
use crate::sim::controller::instance::HANDLER_FINALIZER;
use crate::sim::fault::MUTATION_SKIPPED;
use crate::sim::fault::STRATEGY_REWRITTEN;
use crate::sim::fault::VM_TERMINATING;
use crate::sim::kinds::BACKUPS;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::DATA_VOLUMES;
use crate::sim::kinds::HARVESTER_RESTORES;
use crate::sim::kinds::IMAGES;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::LONGHORN_SNAPSHOTS;
use crate::sim::kinds::MIGRATIONS;
use crate::sim::kinds::RESTORES;
use crate::sim::kinds::SNAPSHOTS;
use crate::sim::kinds::STORAGE_CLASSES;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::object::annotation;
use crate::sim::object::claims;
use crate::sim::object::deleting;
use crate::sim::object::has_finalizer;
use crate::sim::object::items;
use crate::sim::object::name;
use crate::sim::object::namespace;
use crate::sim::object::text;
use crate::sim::strategy::Strategy;
use crate::sim::world::Admission;
use crate::sim::world::Key;
use crate::sim::world::Operation;
use crate::sim::world::Refusal;

/// Harvester's setting default-vm-termination-grace-period-seconds (domain.md §1.2).
const HARVESTER_GRACE: i64 = 120;
/// KubeVirt's own default, for an instance that no VM made (KVT:39).
const KUBEVIRT_GRACE: i64 = 30;
/// Harvester's webhook, as its refusals name it.
const HARVESTER: &str = "validator.harvesterhci.io";
/// KubeVirt's webhook for VMs.
const KUBEVIRT: &str = "virtualmachine-validator.kubevirt.io";

/// The mutating webhooks, in one.
pub(super) fn mutate(admission: &Admission<'_>, new: &mut Value) {
    if !admission.subresource.is_empty() {
        return;
    }
    match admission.key.resource {
        VIRTUAL_MACHINES if !admission.faults.contains(&MUTATION_SKIPPED) => mutate_vm(admission, new),
        INSTANCES if admission.old.is_none() => mutate_instance(new),
        CLAIMS if admission.old.is_none() => mutate_claim(admission, new),
        IMAGES if admission.old.is_none() => image::mutate(admission, new),
        BACKUPS if admission.old.is_none() => backup::mutate(new),
        LONGHORN_SNAPSHOTS if admission.old.is_none() => snapshot::mutate_longhorn(admission, new),
        _ => {}
    }
}

/// Harvester's rewriting of a VM (domain.md §1.2, HMUT:170-199).
fn mutate_vm(admission: &Admission<'_>, new: &mut Value) {
    let started = admission.old.is_some_and(|old| Strategy::of(old) == Some(Strategy::Halted))
        && Strategy::of(new).is_some_and(|strategy| strategy != Strategy::Halted);
    if started && new["spec"]["running"].is_null() {
        let noted = annotation(new, RUN_STRATEGY).filter(|noted| !noted.is_empty());
        let strategy = noted.unwrap_or(Strategy::RerunOnFailure.name()).to_owned();
        new["spec"]["runStrategy"] = strategy.into();
    }
    if started && admission.faults.contains(&STRATEGY_REWRITTEN) {
        new["spec"]["runStrategy"] = Strategy::Manual.name().into();
    }
    let template = new.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut);
    if let Some(template) = template {
        template.entry("terminationGracePeriodSeconds").or_insert_with(|| HARVESTER_GRACE.into());
    }
}

/// KubeVirt's defaults of an instance.
fn mutate_instance(new: &mut Value) {
    if !has_finalizer(new, HANDLER_FINALIZER) {
        let mut held = items(new, "/metadata/finalizers").to_vec();
        held.push(HANDLER_FINALIZER.into());
        new["metadata"]["finalizers"] = held.into();
    }
    if new["spec"]["terminationGracePeriodSeconds"].is_null() {
        new["spec"]["terminationGracePeriodSeconds"] = KUBEVIRT_GRACE.into();
    }
}

/// A claim that names no class gets the default one: Kubernetes' own admission plugin.
fn mutate_claim(admission: &Admission<'_>, new: &mut Value) {
    let classes = admission.view.list(STORAGE_CLASSES, None);
    let is_default = |class: &&Arc<Value>| {
        annotation(class, "storageclass.kubernetes.io/is-default-class") == Some("true")
    };
    if let Some(class) = classes.iter().find(is_default)
        && new["spec"]["storageClassName"].is_null()
    {
        new["spec"]["storageClassName"] = name(class).into();
    }
}

/// The validating webhooks, in one. The first refusal is the answer.
pub(super) fn validate(admission: &Admission<'_>, new: &Value, operation: Operation) -> Result<(), Refusal> {
    let resource = admission.key.resource;
    match operation {
        Operation::Create | Operation::Update
            if resource == VIRTUAL_MACHINES && admission.subresource.is_empty() =>
        {
            if deleting(new) {
                let held = admission.faults.contains(&VM_TERMINATING).then(|| shared_claim(admission, new));
                return held.flatten().map_or(Ok(()), |message| Err(denied(HARVESTER, &message)));
            }
            template_complaint(new)
                .or_else(|| strategy_complaint(new))
                .or_else(|| network_complaint(new))
                .or_else(|| storage_complaint(admission.old, new))
                .map_or(Ok(()), |message| Err(denied(KUBEVIRT, &message)))?;
            shared_claim(admission, new)
                .or_else(|| backup::busy_vm(admission, new))
                .map_or(Ok(()), |message| Err(denied(HARVESTER, &message)))
        }
        Operation::Create if resource == BACKUPS => backup::backup_complaint(admission, new)
            .map_or(Ok(()), |message| Err(denied(HARVESTER, &message))),
        Operation::Create if resource == HARVESTER_RESTORES => backup::restore_complaint(admission, new)
            .map_or(Ok(()), |message| Err(denied(HARVESTER, &message))),
        Operation::Delete if resource == HARVESTER_RESTORES && !is_exempt(admission) => {
            backup::undeletable_restore(admission, new)
                .map_or(Ok(()), |message| Err(denied(HARVESTER, &message)))
        }
        Operation::Create | Operation::Update
            if resource == SNAPSHOTS && admission.subresource.is_empty() =>
        {
            snapshot::snapshot_complaint(admission, new)
                .map_or(Ok(()), |message| Err(denied(snapshot::OF_SNAPSHOTS, &message)))
        }
        Operation::Create | Operation::Update if resource == RESTORES && admission.subresource.is_empty() => {
            snapshot::restore_complaint(admission, new)
                .map_or(Ok(()), |message| Err(denied(snapshot::OF_RESTORES, &message)))
        }
        operation if resource == IMAGES && admission.subresource.is_empty() => {
            image::validate(admission, new, operation)
        }
        // Objects of fixtures have a status of their own and are taken as they are.
        Operation::Create if resource == MIGRATIONS && new["status"].is_null() => {
            let complaint = migration::complaint(admission, new);
            complaint.map_or(Ok(()), |message| Err(denied(migration::WEBHOOK, &message)))
        }
        Operation::Delete if resource == CLAIMS && !is_exempt(admission) && !is_restoring(admission) => {
            attached_claim(admission, new).map_or(Ok(()), |message| Err(denied(HARVESTER, &message)))
        }
        Operation::Delete if resource == DATA_VOLUMES && !is_exempt(admission) => {
            attached_disk(admission, new).map_or(Ok(()), |message| Err(denied(HARVESTER, &message)))
        }
        _ => Ok(()),
    }
}

/// A refusal as the API server passes it on.
fn denied(webhook: &str, message: &str) -> Refusal {
    Refusal {
        code: 422,
        reason: "Invalid",
        message: format!("admission webhook \"{webhook}\" denied the request: {message}"),
    }
}

fn template_complaint(vm: &Value) -> Option<String> {
    (!vm["spec"]["template"].is_object()).then(|| "missing virtual machine template.".to_owned())
}

/// KV pkg/virt-api/webhooks/validating-webhook/admitters/vms-admitter.go:228-280 (domain.md §1.8).
fn strategy_complaint(vm: &Value) -> Option<String> {
    let (running, strategy) = (&vm["spec"]["running"], &vm["spec"]["runStrategy"]);
    match (running.is_null(), strategy.as_str()) {
        (false, Some(_)) => Some(
            "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy \
             instead"
                .to_owned(),
        ),
        (true, None) => Some("RunStrategy must be specified".to_owned()),
        (true, Some(name)) if Strategy::named(name).is_none() => Some(format!("Invalid RunStrategy ({name})")),
        _ => None,
    }
}

/// KV pkg/network/admitter/netiface.go, binding.go (domain.md §1.8).
fn network_complaint(vm: &Value) -> Option<String> {
    let spec = &vm["spec"]["template"]["spec"];
    let interfaces = items(spec, "/domain/devices/interfaces");
    let networks = items(spec, "/networks");
    for (i, interface) in interfaces.iter().enumerate() {
        let wanted = text(interface, "/name");
        let Some(network) = networks.iter().find(|network| text(network, "/name") == wanted) else {
            return Some(format!(
                "spec.template.spec.domain.devices.interfaces[{i}].name '{wanted}' not found."
            ));
        };
        if interface.get("masquerade").is_some() && network.get("pod").is_none() {
            return Some("Masquerade interface only implemented with pod network".to_owned());
        }
    }
    let lonely = networks.iter().enumerate().find(|(_, network)| {
        !interfaces.iter().any(|interface| text(interface, "/name") == text(network, "/name"))
    });
    lonely.map(|(i, network)| {
        format!("spec.template.spec.networks[{i}].name '{}' not found.", text(network, "/name"))
    })
}

/// KV pkg/storage/admitters/vm-storage-status.go (domain.md §1.8): wait, then ask again.
fn storage_complaint(old: Option<&Value>, new: &Value) -> Option<String> {
    let old = old?;
    let strategy = |vm: &Value| (vm["spec"]["running"].clone(), vm["spec"]["runStrategy"].clone());
    let volumes = |vm: &Value| vm.pointer("/spec/template/spec/volumes").cloned();
    if let Some(snapshot) = new["status"]["snapshotInProgress"].as_str() {
        if volumes(old) != volumes(new) {
            return Some(format!("Cannot update vm disks or volumes until snapshot {snapshot:?} completes"));
        }
        if strategy(old) != strategy(new) {
            return Some(format!("Cannot update vm running state until snapshot {snapshot:?} completes"));
        }
    }
    let restore = new["status"]["restoreInProgress"].as_str()?;
    let starts = strategy(old) != strategy(new) && Strategy::of(new) != Some(Strategy::Halted);
    starts.then(|| format!("Cannot update VM runStrategy until restore {restore:?} completes"))
}

/// A claim of the VM that another VM has too, though it is not RWX (HVAL:554).
fn shared_claim(admission: &Admission<'_>, new: &Value) -> Option<String> {
    const VOLUMES: &str = "/spec/template/spec/volumes";
    let space = namespace(new);
    let others = admission.view.list(VIRTUAL_MACHINES, Some(space));
    let mut others = others.iter().filter(|other| name(other) != name(new));
    claims(new, VOLUMES).find_map(|claim| {
        let found = admission.view.get(&Key::new(CLAIMS, space, claim))?;
        let shareable = items(&found, "/spec/accessModes").iter().any(|mode| mode == "ReadWriteMany");
        let taken = !shareable && others.any(|other| claims(other, VOLUMES).any(|taken| taken == claim));
        taken.then(|| {
            format!("PVC {space}/{claim} is already used by other VM, please use a shareable RWX volume.")
        })
    })
}

/// The garbage collector may delete what it likes, and so may Harvester itself (domain.md §5.1).
fn is_exempt(admission: &Admission<'_>) -> bool {
    ["generic-garbage-collector", "namespace-controller", HARVESTER_CONTROLLERS].contains(&admission.manager)
}

/// A restore in place deletes claims under a VM that still names them (domain.md §3.3).
fn is_restoring(admission: &Admission<'_>) -> bool {
    admission.manager == "virt-controller"
}

/// A claim that VMs use (domain.md §5.1, HV pkg/webhook/resources/persistentvolumeclaim/validator.go:107).
fn attached_claim(admission: &Admission<'_>, claim: &Value) -> Option<String> {
    let vms = admission.view.list(VIRTUAL_MACHINES, Some(namespace(claim)));
    let uses = |vm: &Value| claims(vm, "/spec/template/spec/volumes").any(|used| used == name(claim));
    let owners: Vec<String> =
        vms.iter().filter(|vm| uses(vm)).map(|vm| format!("{}/{}", namespace(vm), name(vm))).collect();
    let list = owners.join(", ");
    let volume = name(claim);
    (!owners.is_empty())
        .then(|| format!("can not delete the volume {volume} which is currently attached to VMs: {list}"))
}

/// A DataVolume whose claim a VM lists (domain.md §5.1, HV pkg/webhook/resources/datavolume/validator.go:73-86).
fn attached_disk(admission: &Admission<'_>, volume: &Value) -> Option<String> {
    let vms = admission.view.list(VIRTUAL_MACHINES, Some(namespace(volume)));
    let lists = |vm: &Value| {
        let listed =
            annotation(vm, CLAIM_TEMPLATES).and_then(|text| serde_json::from_str::<Value>(text).ok());
        let listed = listed.unwrap_or_default();
        listed.as_array().into_iter().flatten().any(|claim| name(claim) == name(volume))
    };
    let vm = vms.iter().find(|vm| lists(vm))?;
    let (space, disk, vm) = (namespace(volume), name(volume), name(vm));
    Some(format!("can not delete DataVolume {space}/{disk} which is attached to VM {space}/{vm}"))
}

/// An object that was admitted: what the webhooks make of `new`, or their refusal.
#[cfg(test)]
pub(in crate::sim) fn admit(
    admission: &Admission<'_>,
    mut new: Value,
    operation: Operation,
) -> Result<Value, Refusal> {
    mutate(admission, &mut new);
    validate(admission, &new, operation).map(|()| new)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sim::contents;
    use crate::sim::world::Fault;
    use crate::sim::world::Resource;
    use crate::sim::world::View;

    /// A cluster of a few objects.
    struct Few(Vec<(Key, Value)>);

    impl View for Few {
        fn get(&self, key: &Key) -> Option<Arc<Value>> {
            self.0.iter().find(|(held, _)| held == key).map(|(_, object)| Arc::new(object.clone()))
        }

        fn list(&self, resource: Resource, _: Option<&str>) -> Vec<Arc<Value>> {
            let held = self.0.iter().filter(|(key, _)| key.resource == resource);
            held.map(|(_, object)| Arc::new(object.clone())).collect()
        }
    }

    fn ask(
        old: Option<&Value>,
        new: &Value,
        faults: &[Fault],
        others: Vec<(Key, Value)>,
        operation: Operation,
        resource: Resource,
    ) -> Result<Value, String> {
        let key = crate::sim::object::key_of(resource, new);
        let view = Few(others);
        let admission =
            Admission { view: &view, key: &key, old, subresource: "", manager: "kubectl", faults };
        admit(&admission, new.clone(), operation).map_err(|refusal| refusal.message)
    }

    fn update(old: &Value, new: &Value, faults: &[Fault]) -> Result<Value, String> {
        ask(Some(old), new, faults, vec![], Operation::Update, VIRTUAL_MACHINES)
    }

    #[test]
    fn a_start_gets_the_noted_strategy_and_not_the_one_asked_for() {
        let running = |value: bool| {
            let mut vm = contents::vm("a", Strategy::Halted);
            vm["spec"] = json!({ "running": value, "template": vm["spec"]["template"] });
            vm
        };
        let with = |strategy, noted: Option<&str>| {
            let mut vm = contents::vm("a", strategy);
            vm["metadata"]["annotations"] = noted.map_or(json!({}), |noted| json!({ RUN_STRATEGY: noted }));
            vm
        };
        let halted = with(Strategy::Halted, None);
        for (old, new, faults, expected) in [
            (&halted, with(Strategy::Always, None), &[][..], json!("RerunOnFailure")),
            (&halted, with(Strategy::Always, Some("Manual")), &[], json!("Manual")),
            (&halted, with(Strategy::Always, Some("")), &[], json!("RerunOnFailure")),
            (&halted, with(Strategy::Always, Some("Manual")), &[MUTATION_SKIPPED], json!("Always")),
            (&with(Strategy::Manual, None), with(Strategy::Always, Some("Manual")), &[], json!("Always")),
            (&running(false), with(Strategy::Always, None), &[], json!("RerunOnFailure")),
            (&running(false), running(true), &[], Value::Null),
        ] {
            let stored = update(old, &new, faults).expect("is admitted");
            assert_eq!(stored["spec"]["runStrategy"], expected, "{} {}", new["spec"], new["metadata"]);
        }
    }

    #[test]
    fn a_vm_without_grace_period_gets_harvesters_and_keeps_its_own() {
        let mut vm = contents::vm("a", Strategy::Halted);
        let spec = |vm: &Value| vm["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].clone();
        vm["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 30.into();
        assert_eq!(spec(&update(&vm, &vm, &[]).expect("is admitted")), 30);
        vm["spec"]["template"]["spec"]
            .as_object_mut()
            .expect("a map")
            .remove("terminationGracePeriodSeconds");
        assert_eq!(spec(&update(&vm, &vm, &[]).expect("is admitted")), HARVESTER_GRACE);
    }

    #[test]
    fn refusals_have_the_words_of_the_real_webhooks() {
        let good = contents::vm("a", Strategy::Halted);
        let changed = |change: &dyn Fn(&mut Value)| {
            let mut vm = good.clone();
            change(&mut vm);
            vm
        };
        let kubevirt = "admission webhook \"virtualmachine-validator.kubevirt.io\" denied the request: ";
        for (new, expected) in [
            (
                changed(&|vm| vm["spec"]["running"] = false.into()),
                "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use \
                 RunStrategy instead",
            ),
            (changed(&|vm| vm["spec"]["runStrategy"] = Value::Null), "RunStrategy must be specified"),
            (changed(&|vm| vm["spec"]["runStrategy"] = "Stopped".into()), "Invalid RunStrategy (Stopped)"),
            (changed(&|vm| vm["spec"]["template"] = Value::Null), "missing virtual machine template."),
            (
                changed(&|vm| vm["spec"]["template"]["spec"]["networks"] = json!([])),
                "spec.template.spec.domain.devices.interfaces[0].name 'default' not found.",
            ),
            (
                changed(&|vm| {
                    let networks = json!([{ "name": "default", "multus": { "networkName": "vlan1" } }]);
                    vm["spec"]["template"]["spec"]["networks"] = networks;
                }),
                "Masquerade interface only implemented with pod network",
            ),
            (
                changed(&|vm| {
                    vm["status"]["snapshotInProgress"] = "snap-1".into();
                    vm["spec"]["runStrategy"] = "Manual".into();
                }),
                "Cannot update vm running state until snapshot \"snap-1\" completes",
            ),
            (
                changed(&|vm| {
                    vm["status"]["snapshotInProgress"] = "snap-1".into();
                    vm["spec"]["template"]["spec"]["volumes"] = json!([]);
                }),
                "Cannot update vm disks or volumes until snapshot \"snap-1\" completes",
            ),
            (
                changed(&|vm| {
                    vm["status"]["restoreInProgress"] = "restore-1".into();
                    vm["spec"]["runStrategy"] = "Always".into();
                }),
                "Cannot update VM runStrategy until restore \"restore-1\" completes",
            ),
        ] {
            assert_eq!(update(&good, &new, &[]), Err(format!("{kubevirt}{expected}")));
        }
        assert!(update(&good, &good, &[]).is_ok());
    }

    #[test]
    fn a_volume_is_neither_shared_unasked_nor_deleted_under_a_vm() {
        let taken = contents::vm("b", Strategy::Halted);
        let mut wanted = contents::vm("a", Strategy::Halted);
        wanted["spec"]["template"]["spec"]["volumes"] = taken["spec"]["template"]["spec"]["volumes"].clone();
        let claim = |mode: &str| {
            let mut claim = contents::claim("b-disk");
            claim["spec"]["accessModes"] = json!([mode]);
            claim
        };
        let others = |mode: &str| {
            let at =
                |resource, object: &Value| (crate::sim::object::key_of(resource, object), object.clone());
            vec![at(VIRTUAL_MACHINES, &taken), at(CLAIMS, &claim(mode))]
        };
        let create = |mode| ask(None, &wanted, &[], others(mode), Operation::Create, VIRTUAL_MACHINES);
        let refusal = create("ReadWriteOnce").expect_err("is taken");
        assert!(
            refusal.ends_with(
                "PVC default/b-disk is already used by other VM, please use a shareable RWX volume."
            )
        );
        assert!(create("ReadWriteMany").is_ok());
        let gone = claim("ReadWriteMany");
        let refusal = ask(Some(&gone), &gone, &[], others("ReadWriteMany"), Operation::Delete, CLAIMS);
        let refusal = refusal.expect_err("is attached");
        assert!(
            refusal
                .ends_with("can not delete the volume b-disk which is currently attached to VMs: default/b")
        );
        assert!(ask(Some(&gone), &gone, &[], vec![], Operation::Delete, CLAIMS).is_ok());
    }
}

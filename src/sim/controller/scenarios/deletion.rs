//! What becomes of a deleted VM and of what belongs to it (domain.md §5.1, §5.3).

use serde_json::Value;
use serde_json::json;

use crate::sim::contents;
use crate::sim::controller::LONGHORN_SPACE;
use crate::sim::controller::scenarios::Scene;
use crate::sim::fault::NODE_DEAD;
use crate::sim::fault::VM_TERMINATING;
use crate::sim::kinds::CLAIMS;
use crate::sim::kinds::DATA_VOLUMES;
use crate::sim::kinds::LONGHORN_VOLUMES;
use crate::sim::kinds::NODES;
use crate::sim::kinds::PODS;
use crate::sim::kinds::SECRETS;
use crate::sim::kinds::VIRTUAL_MACHINES;
use crate::sim::kinds::VOLUME_ATTACHMENTS;
use crate::sim::kinds::VOLUMES;
use crate::sim::object::deleting;
use crate::sim::object::items;
use crate::sim::object::text;
use crate::sim::strategy::Strategy;
use crate::sim::world::Key;
use crate::sim::world::Write;

fn delete_vm(scene: &mut Scene) {
    scene.0.write(Write::Delete(Scene::key(VIRTUAL_MACHINES)), "test");
}

fn has_vm(scene: &Scene) -> bool {
    scene.0.get(VIRTUAL_MACHINES, "default", "a").is_some()
}

#[test]
fn a_vm_takes_the_disks_of_its_templates_along_and_leaves_its_claims_and_secrets() {
    let mut vm = contents::vm("a", Strategy::Always);
    let spec = json!({ "source": { "blank": {} }, "pvc": contents::claim("d")["spec"] });
    vm["spec"]["dataVolumeTemplates"] = json!([{ "metadata": { "name": "d" }, "spec": spec }]);
    let volumes = vm["spec"]["template"]["spec"]["volumes"].as_array_mut().expect("a list");
    volumes.push(json!({ "name": "disk-1", "dataVolume": { "name": "d" } }));
    let mut scene = Scene::with(vm, &[]);
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a-cloudinit", "namespace": "default" } });
    scene.0.write(Write::Create(SECRETS, secret), "test");
    scene.wait(90);
    assert_eq!(scene.phase(), "Running");
    assert_eq!(scene.0.list(LONGHORN_VOLUMES).len(), 2);
    delete_vm(&mut scene);
    scene.wait(60);
    assert!(!has_vm(&scene) && scene.instance().is_none());
    assert!(scene.0.list(DATA_VOLUMES).is_empty() && scene.0.get(CLAIMS, "default", "d").is_none());
    assert!(scene.0.get(CLAIMS, "default", "a-disk").is_some(), "§5.1 UI-made VMs keep their claims");
    assert!(scene.0.get(SECRETS, "default", "a-cloudinit").is_some(), "§5.1 not cascaded");
    assert_eq!(scene.0.list(LONGHORN_VOLUMES).len(), 1);
}

#[test]
fn marked_claims_go_with_their_vm() {
    let mut vm = contents::vm("a", Strategy::Always);
    vm["metadata"]["annotations"]["harvesterhci.io/removedPersistentVolumeClaims"] = "a-disk".into();
    let mut scene = Scene::with(vm, &[]);
    scene.wait(60);
    delete_vm(&mut scene);
    scene.wait(60);
    assert!(!has_vm(&scene) && scene.0.list(CLAIMS).is_empty() && scene.0.list(VOLUMES).is_empty());
}

#[test]
fn a_listed_claim_that_was_deleted_is_made_again_and_empty() {
    let mut scene = Scene::new(Strategy::Halted);
    scene.set_content("a-disk", "database");
    scene.patch(json!({ "spec": { "template": { "spec": { "volumes": [] } } } }));
    scene.0.write(Write::Delete(Key::new(CLAIMS, "default", "a-disk")), "test");
    scene.wait(60);
    assert_eq!(scene.content("a-disk"), "blank", "§1.9");
}

#[test]
fn a_claim_of_a_vm_cannot_be_deleted_before_the_vm() {
    let mut scene = Scene::new(Strategy::Halted);
    scene.0.write(Write::Delete(Key::new(CLAIMS, "default", "a-disk")), "test");
    let refused = scene.0.refusals.last().expect("is refused");
    assert!(
        refused.contains("can not delete the volume a-disk which is currently attached to VMs: default/a")
    );
}

#[test]
fn a_vm_that_nothing_lets_go_stays_in_terminating() {
    let mut scene = Scene::with(contents::vm("a", Strategy::Always), &[VM_TERMINATING]);
    scene.wait(60);
    delete_vm(&mut scene);
    scene.wait(600);
    assert!(has_vm(&scene) && scene.instance().is_none());
    assert_eq!(scene.shown(), "Terminating");
    scene.patch(json!({ "metadata": { "finalizers": [] } }));
    assert!(!has_vm(&scene), "nothing refuses that");
}

/// domain-cases.md 40: the refusal names the real blocker.
#[test]
fn a_vm_that_shares_a_claim_cannot_be_let_go() {
    let mut scene = Scene::with(contents::vm("a", Strategy::Halted), &[]);
    let mut other = contents::vm("b", Strategy::Halted);
    other["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = "late".into();
    scene.patch(json!({ "spec": { "template": { "spec": { "volumes": other["spec"]["template"]["spec"]["volumes"] } } } }));
    scene.0.write(Write::Create(VIRTUAL_MACHINES, other), "test");
    scene.wait(10);
    let mut claim = contents::claim("late");
    claim["spec"]["accessModes"] = json!(["ReadWriteOnce"]);
    scene.0.write(Write::Create(CLAIMS, claim), "test");
    scene.wait(30);
    scene.0.faults = vec![VM_TERMINATING];
    delete_vm(&mut scene);
    scene.wait(30);
    scene.patch(json!({ "metadata": { "finalizers": [] } }));
    assert!(has_vm(&scene));
    let refused = scene.0.refusals.last().expect("is refused");
    assert!(
        refused.ends_with("PVC default/late is already used by other VM, please use a shareable RWX volume."),
        "{refused}"
    );
}

/// Nothing of it goes by itself until somebody says that the node is dead (domain.md §4.2, §5.3).
#[test]
fn a_dead_node_keeps_pod_and_attachment_until_it_is_out_of_service() {
    let mut vm = contents::vm("a", Strategy::Always);
    vm["spec"]["template"]["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": "node-2" });
    let mut scene = Scene::with(vm, &[]);
    scene.wait(60);
    scene.0.faults = vec![NODE_DEAD];
    delete_vm(&mut scene);
    scene.wait(20 * 60);
    let node = scene.0.get(NODES, "", "node-2").expect("is there");
    let taints = |node: &Value| items(node, "/spec/taints").to_vec();
    assert!(taints(&node).iter().all(|taint| text(taint, "/key") != "node.kubernetes.io/out-of-service"));
    assert_eq!((scene.phase().as_str(), scene.shown().as_str()), ("Failed", "Terminating"));
    assert!(scene.pod().is_some_and(|pod| deleting(&pod)));
    assert_eq!(scene.0.list(VOLUME_ATTACHMENTS).len(), 1);

    let mut declared = taints(&node);
    declared.push(
        json!({ "key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute" }),
    );
    scene.0.write(
        Write::Patch(Key::new(NODES, "", "node-2"), json!({ "spec": { "taints": declared } })),
        "test",
    );
    scene.wait(60);
    assert!(!has_vm(&scene) && scene.0.list(VOLUME_ATTACHMENTS).is_empty());
    let launchers =
        scene.0.list(PODS).into_iter().filter(|pod| text(pod, "/metadata/namespace") == "default");
    assert_eq!(launchers.count(), 0);
    let handle =
        text(&scene.0.get(CLAIMS, "default", "a-disk").expect("stays"), "/spec/volumeName").to_owned();
    let volume = scene.0.get(LONGHORN_VOLUMES, LONGHORN_SPACE, &handle).expect("stays");
    assert_eq!(text(&volume, "/status/state"), "detached");
}

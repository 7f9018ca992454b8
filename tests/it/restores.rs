//! The outcomes of a restore (manual §6.4): made with kubectl and nothing else, with vm-restore, and with a vm-restore
//! that does not keep the old volumes. What Longhorn says of a volume is held against what is on it.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use kube::Api;
use kube::Client;
use kube::api::ApiResource;
use kube::api::DynamicObject;
use kube::api::GroupVersionKind;
use kube::api::Patch;
use kube::api::PatchParams;
use kube::api::PostParams;
use kube::runtime::wait::await_condition;
use serde_json::Value;
use serde_json::json;
use windrow::definition::Library;
use windrow::definition::model::Expectation;
use windrow::definition::model::Rehearsal;
use windrow::rehearsal::Stage;

use crate::rehearsals::rehearse_on;
use crate::support::stage;

/// The group of snapshots and restores of KubeVirt; Harvester has restores of its own.
const SNAPSHOT: &str = "snapshot.kubevirt.io";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("workflows")
}

fn shipped() -> Arc<Library> {
    Arc::new(Library::load(&[folder()]))
}

/// The shipped workflows, but vm-restore does not keep the volumes.
fn unguarded() -> Arc<Library> {
    let text = std::fs::read_to_string(folder().join("vm-restore.toml")).unwrap();
    let (before, rest) = text.split_once("[steps.guard]").unwrap();
    let (_, after) = rest.split_once("[steps.restore]").unwrap();
    let (after, _) = after.split_once("[[rehearsals]]").unwrap();
    let after = after.replace(r#"after = ["guard"]"#, r#"after = ["stop"]"#);
    let edited = tempfile::tempdir().unwrap();
    std::fs::write(edited.path().join("vm-restore.toml"), format!("{before}[steps.restore]{after}")).unwrap();
    let library = Library::load(&[edited.path().to_owned(), folder()]);
    let workflow = library.get("vm-restore").unwrap();
    assert!(workflow.steps.iter().all(|step| step.name.as_str() != "guard"));
    Arc::new(library)
}

/// A run on the objects of a fixture, under a fault.
fn case(fixture: &str, faults: &[&str], inputs: &[(&str, &str)]) -> Rehearsal {
    let fixture = folder().join("fixtures").join(fixture);
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), Value::from(*value));
    Rehearsal {
        name: faults.join(" "),
        inputs: inputs.iter().map(own).collect(),
        fixture: Some(std::fs::read_to_string(fixture).unwrap()),
        faults: faults.iter().map(|&fault| fault.to_owned()).collect(),
        already: vec![],
        approve: false,
        expect: Expectation::default(),
    }
}

/// The word of a run, and its state.
fn word(view: &Value) -> [&str; 2] {
    ["/verdict/name", "/state"].map(|place| view.pointer(place).and_then(Value::as_str).unwrap_or_default())
}

/// A way from a disk to its data: claim, volume, Longhorn's handle, and what is on it. A volume that a copy has not filled
/// has no word on it.
type Disk = (String, String, String, Option<String>);

/// What is in the cluster.
struct Objects(Vec<(&'static str, Value)>);

impl Objects {
    fn of(stage: &Stage) -> Self {
        let all = stage.cluster.objects().into_iter();
        Self(all.map(|(key, object)| (key.resource.plural, Arc::unwrap_or_clone(object))).collect())
    }

    fn all(&self, plural: &str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |(kind, _)| *kind == plural).map(|(_, object)| object)
    }

    fn find(&self, plural: &str, name: &str) -> &Value {
        self.all(plural).find(|object| object["metadata"]["name"] == name).unwrap_or(&Value::Null)
    }

    /// The disks of a VM by their names.
    fn disks(&self, vm: &str) -> BTreeMap<String, Disk> {
        let disk = |volume: &Value| {
            let claim = [&volume["dataVolume"]["name"], &volume["persistentVolumeClaim"]["claimName"]];
            let claim = claim.into_iter().find_map(Value::as_str)?;
            let bound = self.find("persistentvolumeclaims", claim)["spec"]["volumeName"].as_str()?;
            let volume_of = self.find("persistentvolumes", bound);
            let handle = volume_of["spec"]["csi"]["volumeHandle"].as_str()?;
            self.all("volumes").find(|stored| stored["metadata"]["name"] == handle)?;
            let stamp = volume_of["metadata"]["annotations"]["sim/content-stamp"].as_str().map(str::to_owned);
            let name = volume["name"].as_str()?.to_owned();
            Some((name, (claim.to_owned(), bound.to_owned(), handle.to_owned(), stamp)))
        };
        let volumes = &self.find("virtualmachines", vm)["spec"]["template"]["spec"]["volumes"];
        volumes.as_array().into_iter().flatten().filter_map(disk).collect()
    }

    /// The VMs of the fixture that run with a network, by name.
    fn connected(&self) -> Vec<String> {
        let is_up = |instance: &&Value| {
            let interfaces = instance["spec"]["domain"]["devices"]["interfaces"].as_array();
            interfaces.is_some_and(|all| all.iter().any(|interface| interface["state"] != "down"))
        };
        let instances = self.all("virtualmachineinstances").filter(is_up);
        let names = instances.filter_map(|instance| instance["metadata"]["name"].as_str()).map(str::to_owned);
        names.filter(|name| name.starts_with("served")).collect()
    }

    fn has_data(&self, vm: &str) -> bool {
        self.disks(vm).values().all(|(.., stamp)| stamp.is_some())
    }

    /// What the manual found green in each of the four cases: restore, snapshot, disk and claim.
    fn signals(&self, vm: &str) -> Vec<(&'static str, bool)> {
        let holds = |kind: &'static str, place: &str, wanted: Value| {
            let of_restore = |object: &&Value| {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                !["datavolumes", "persistentvolumeclaims"].contains(&kind) || name.starts_with("restore-")
            };
            let found: Vec<_> = self.all(kind).filter(of_restore).collect();
            let is_green = |object: &&Value| object.pointer(place) == Some(&wanted);
            (kind, !found.is_empty() && found.iter().all(is_green))
        };
        let restored = &self.find("virtualmachines", vm)["metadata"]["annotations"];
        assert!(restored.is_object(), "KubeVirt notes its restore");
        vec![
            holds("virtualmachinerestores", "/status/complete", true.into()),
            holds("virtualmachinesnapshots", "/status/readyToUse", true.into()),
            holds("virtualmachinesnapshotcontents", "/status/readyToUse", true.into()),
            holds("volumesnapshots", "/status/readyToUse", true.into()),
            holds("volumesnapshotcontents", "/status/readyToUse", true.into()),
            holds("datavolumes", "/status/phase", "Succeeded".into()),
            holds("persistentvolumeclaims", "/status/phase", "Bound".into()),
        ]
    }
}

/// What somebody does who has only kubectl and the manual.
struct Kubectl(Client);

impl Kubectl {
    fn api(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group, version, kind);
        Api::default_namespaced_with(self.0.clone(), &ApiResource::from_gvk(&kind))
    }

    /// Manual §6.3, with a VM that is off.
    async fn restore(&self, vm: &str) {
        let restores = self.api(SNAPSHOT, "v1beta1", "VirtualMachineRestore");
        let restore = serde_json::from_value(json!({
            "apiVersion": "snapshot.kubevirt.io/v1beta1",
            "kind": "VirtualMachineRestore",
            "metadata": { "name": "by-hand" },
            "spec": {
                "target": { "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": vm },
                "virtualMachineSnapshotName": format!("{vm}-before"),
            },
        }));
        restores.create(&PostParams::default(), &restore.unwrap()).await.unwrap();
        let vms = self.api("kubevirt.io", "v1", "VirtualMachine");
        let is_complete = |restore: Option<&DynamicObject>| {
            restore.is_some_and(|restore| restore.data["status"]["complete"] == true)
        };
        await_condition(restores, "by-hand", is_complete).await.unwrap();
        let is_free = |vm: Option<&DynamicObject>| {
            vm.is_some_and(|vm| vm.data["status"]["restoreInProgress"].is_null())
        };
        await_condition(vms.clone(), vm, is_free).await.unwrap();
        let start = Patch::Merge(json!({ "spec": { "runStrategy": "Always" } }));
        vms.patch(vm, &PatchParams::default(), &start).await.unwrap();
    }
}

/// Manual §6.4: the first two lose everything, and nothing but the data says so.
const OUTCOMES: [(&str, &str); 4] = [
    ("restore-clone-failed", "lost"),
    ("restore-clone-initiated", "lost"),
    ("restore-degraded-heals", "verified"),
    ("restore-degraded-stays", "usable"),
];

#[tokio::test(start_paused = true)]
async fn a_restore_made_with_kubectl_is_judged_by_its_data_while_every_other_signal_is_green() {
    let library = shipped();
    for (fault, expected) in OUTCOMES {
        let case = case("snapshot-templates.yaml", &[fault], &[("vm", "templated"), ("within", "10m")]);
        let stage = stage(&library, &case, 1.0).await;
        Kubectl(Client::new(stage.cluster.service(), "default")).restore("templated").await;
        let (view, judgement) = rehearse_on(&stage, "restore-verify", &case).await;
        let state = if expected == "lost" { "Failed" } else { "Succeeded" };
        assert_eq!(word(&view), [expected, state], "{fault}: {:?}", judgement.left);
        let objects = Objects::of(&stage);
        assert_eq!(
            objects.has_data("templated"),
            expected != "lost",
            "{fault}: {:?}",
            objects.disks("templated")
        );
        for (signal, is_green) in objects.signals("templated") {
            assert!(is_green, "{fault}: {signal}");
        }
    }
}

/// A VM that only mounts its claims keeps the old ones, so that there is no race: the word changes with time.
#[tokio::test(start_paused = true)]
async fn a_copy_that_still_runs_is_pending_and_verified_once_it_is_done() {
    let library = shipped();
    let fault = &["restore-clone-initiated"];
    let soon = case("snapshot-claims.yaml", fault, &[("vm", "paged"), ("within", "1m")]);
    let later = case("snapshot-claims.yaml", fault, &[("vm", "paged"), ("within", "30m")]);
    let stage = stage(&library, &soon, 1.0).await;
    Kubectl(Client::new(stage.cluster.service(), "default")).restore("paged").await;
    for (case, expected, is_there) in
        [(soon, ["pending", "Failed"], false), (later, ["verified", "Succeeded"], true)]
    {
        let run = stage.start("restore-verify", &case).await.unwrap();
        let view = stage.attend(run, &case, |_| {}).await.unwrap();
        assert_eq!((word(&view), Objects::of(&stage).has_data("paged")), (expected, is_there));
    }
}

#[tokio::test(start_paused = true)]
async fn vm_restore_keeps_the_source_and_with_it_the_data() {
    let library = shipped();
    for (fault, alone) in OUTCOMES {
        let expected = if alone == "lost" { "verified" } else { alone };
        let inputs = [("vm", "templated"), ("snapshot", "templated-before"), ("verified_within", "10m")];
        let case = case("snapshot-templates.yaml", &[fault], &inputs);
        let stage = stage(&library, &case, 1.0).await;
        let (view, _) = rehearse_on(&stage, "vm-restore", &case).await;
        assert_eq!(word(&view), [expected, "Succeeded"], "{fault}: {}", view["failure"]);
        let objects = Objects::of(&stage);
        assert!(objects.has_data("templated"), "{fault}: {:?}", objects.disks("templated"));
        let kept = objects.all("persistentvolumes").filter(|volume| volume["status"]["phase"] == "Released");
        assert_eq!(kept.count(), 1, "{fault}: the old volume is still there");
    }
}

/// The way back is lost as well: a person is told.
#[tokio::test(start_paused = true)]
async fn without_its_guard_vm_restore_loses_what_kubectl_loses() {
    let library = unguarded();
    for (fault, expected) in OUTCOMES {
        let inputs = [("vm", "templated"), ("snapshot", "templated-before"), ("verified_within", "10m")];
        let case = case("snapshot-templates.yaml", &[fault], &inputs);
        let stage = stage(&library, &case, 1.0).await;
        let (view, _) = rehearse_on(&stage, "vm-restore", &case).await;
        let state = if expected == "lost" { "Held" } else { "Succeeded" };
        assert_eq!(word(&view), [expected, state], "{fault}: {}", view["failure"]);
        assert_eq!(Objects::of(&stage).has_data("templated"), expected != "lost", "{fault}");
    }
}

/// Both kinds of VMs, several disks, both policies: after a rollback each disk leads to the same volume with the same
/// data as before. Nothing may write to a disk meanwhile.
#[tokio::test(start_paused = true)]
async fn a_restore_that_is_taken_back_gives_every_disk_its_volume_and_imports_nothing() {
    let library = shipped();
    let rehearsals = &library.get("vm-restore").unwrap().rehearsals;
    let names = ["data-does-not-arrive-in-time", "claims-are-given-back", "in-place-is-taken-back"];
    for case in rehearsals.iter().filter(|case| names.contains(&case.name.as_str())) {
        let stage = stage(&library, case, 1.0).await;
        let vm = case.inputs["vm"].as_str().unwrap();
        let before = Objects::of(&stage).disks(vm);
        let written = stage.cluster.audit().len();
        let (view, _) = rehearse_on(&stage, "vm-restore", case).await;
        assert_eq!(view["state"], "RolledBack", "{}: {}", case.name, view["failure"]);
        assert_eq!(Objects::of(&stage).disks(vm), before, "{}", case.name);
        let audit = stage.cluster.audit();
        let made = audit[written..].iter().filter(|entry| entry.verb == "create" && entry.resource == "pods");
        let importers: Vec<_> = made.filter(|pod| pod.name.contains("importer")).collect();
        assert!(importers.is_empty(), "{}: {importers:?}", case.name);
    }
}

/// They have the same addresses.
#[tokio::test(start_paused = true)]
async fn a_vm_restored_as_a_new_one_is_never_on_the_network_together_with_the_old_one() {
    let library = shipped();
    let rehearsals = &library.get("vm-restore-as-new").unwrap().rehearsals;
    let case = rehearsals.iter().find(|case| case.name == "good").unwrap();
    let stage = stage(&library, case, 1.0).await;
    let run = stage.start("vm-restore-as-new", case).await.unwrap();
    let mut seen = BTreeSet::new();
    let view = stage
        .attend(run, case, |_| {
            seen.insert(Objects::of(&stage).connected());
        })
        .await
        .unwrap();
    assert_eq!(word(&view), ["verified", "Succeeded"], "{}", view["failure"]);
    let alone = [vec!["served".to_owned()], vec![], vec!["served-2".to_owned()]];
    assert_eq!(seen, alone.into());
}

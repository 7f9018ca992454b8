//! When two states of a cluster are the same (design.md R5): one function, used by every claim that a run left the
//! cluster as it was, or as another run left it.
//!
//! Compared are the set of objects, spec, labels, annotations, data; of each claim the way to its content; of each VM
//! its strategy, what is queued, whether it runs and where; cordons and taints. Not compared are uids, times, statuses.

mod exceptions;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::sim::controller::CONTENT_STAMP;
use crate::sim::controller::image;
use crate::sim::controller::longhorn::backing;
use crate::sim::object::annotation;
use crate::sim::object::deleting;
use crate::sim::object::is_true;
use crate::sim::object::items;
use crate::sim::object::name;
use crate::sim::object::namespace;
use crate::sim::object::owner;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::strategy::Strategy;

pub use exceptions::EXCEPTIONS;
pub use exceptions::Exception;
pub use exceptions::RECREATED;

/// Holds the uid of a claim or a DataVolume among its fields; it is not compared itself.
const UID: &str = "(uid)";

/// The compared fields of an object by path.
type Fields = BTreeMap<String, String>;

/// What differs between two states, as one sentence per field or object; empty if they are equal.
pub fn differences(before: &[Value], after: &[Value]) -> Vec<String> {
    differences_except(before, after, &[])
}

/// The same without the annotations whose name begins with one of `annotations`: the marks that the tool which is
/// rehearsed leaves on purpose.
pub fn differences_except(before: &[Value], after: &[Value], annotations: &[&str]) -> Vec<String> {
    let (before, after) = (normal_form(before, annotations), normal_form(after, annotations));
    let objects: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let mut found = vec![];
    for object in objects {
        match (before.get(object), after.get(object)) {
            (Some(_), None) => found.push(format!("{object} is gone")),
            (None, Some(_)) => found.push(format!("{object} is new")),
            (Some(old), Some(new)) => compare(object, old, new, &mut found),
            (None, None) => {}
        }
    }
    found
}

fn compare(object: &str, old: &Fields, new: &Fields, found: &mut Vec<String>) {
    let recreated = old.get(UID) != new.get(UID);
    let excepted = |path: &str| {
        path == UID || recreated && RECREATED.iter().any(|exception| exception.covers(object, path))
    };
    let paths: BTreeSet<&String> = old.keys().chain(new.keys()).filter(|path| !excepted(path)).collect();
    for path in paths {
        let (was, is) = (old.get(path), new.get(path));
        if was != is {
            let show = |value: Option<&String>| value.map_or("absent", String::as_str).to_owned();
            found.push(format!("{object}: {path} was {}, is {}", show(was), show(is)));
        }
    }
}

/// The kind with its group, as people name it.
fn kind_of(object: &Value) -> String {
    let kind = text(object, "/kind");
    match text(object, "/apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}"),
        None => kind.to_owned(),
    }
}

const ANY_UID: &str = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
static UIDS: LazyLock<Regex> = LazyLock::new(|| Regex::new(ANY_UID).expect("a constant pattern"));
static UIDS_OF_RESTORES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&format!("(restore|vmsnapshot)-{ANY_UID}")).expect("a constant pattern"));

/// A name with `*` for each uid in it, which is another one each time.
pub fn without_uids(name: &str) -> Cow<'_, str> {
    UIDS.replace_all(name, "*")
}

fn normal_form(objects: &[Value], annotations: &[&str]) -> BTreeMap<String, Fields> {
    let state = State { objects };
    let mut all: BTreeSet<(String, Fields)> = BTreeSet::new();
    for object in objects {
        let kind = kind_of(object);
        let excepted = |path: &str| EXCEPTIONS.iter().any(|e| e.kind == kind && path.starts_with(e.field));
        if excepted("") || state.is_part(object) {
            continue;
        }
        let place = if namespace(object).is_empty() { "" } else { "/" };
        // Names that are made of a uid are told apart by what is in the objects.
        let called = without_uids(name(object));
        let identity = format!("{kind} {}{place}{called}", namespace(object));
        let mut fields = state.fields(object);
        let marked = |path: &str| {
            path.strip_prefix("annotations.")
                .is_some_and(|name| annotations.iter().any(|mark| name.starts_with(mark)))
        };
        fields.retain(|path, _| !excepted(path) && !marked(path));
        for value in fields.values_mut() {
            if let Cow::Owned(plain) = UIDS_OF_RESTORES.replace_all(value, "$1-*") {
                *value = plain;
            }
        }
        all.insert((identity, fields));
    }
    let mut numbered = BTreeMap::new();
    for (identity, fields) in all {
        let number =
            (1..).map(|number| if number == 1 { identity.clone() } else { format!("{identity}#{number}") });
        let free = number.into_iter().find(|identity| !numbered.contains_key(identity));
        numbered.insert(free.unwrap_or(identity), fields);
    }
    numbered
}

/// All objects of a cluster.
struct State<'a> {
    objects: &'a [Value],
}

impl State<'_> {
    fn of_kind(&self, kind: &'static str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |object| text(object, "/kind") == kind)
    }

    /// True for an object that is a part of another one here: the instance of a VM, the pod of an instance, the volume
    /// of a claim.
    fn is_part(&self, object: &Value) -> bool {
        match text(object, "/kind") {
            "VirtualMachineInstance" => owner(object, "VirtualMachine").is_some(),
            "Pod" => owner(object, "VirtualMachineInstance").is_some(),
            // Each VM, claim and disk below is compared with what it is a part of.
            "VolumeAttachment" | "Engine" | "Replica" => self.has_volume(object),
            "Volume" => self.of_kind("PersistentVolume").any(|volume| name(volume) == name(object)),
            "VolumeImportSource" | "VolumeCloneSource" => owner(object, "DataVolume").is_some(),
            "BackingImage" => self.images().any(|of| *image::backing_key(of).name == *name(object)),
            "StorageClass" => self.images().any(|of| image::class_name(of) == name(object)),
            "StorageProfile" => self.of_kind("StorageClass").any(|class| name(class) == name(object)),
            "VirtualMachineSnapshotContent" => self
                .of_kind("VirtualMachineSnapshot")
                .any(|of| name(of) == text(object, "/spec/virtualMachineSnapshotName")),
            "VolumeSnapshot" => {
                let owners = ["VirtualMachineSnapshotContent", "VirtualMachineBackup"];
                owners.iter().any(|owner| self.has_owner(object, owner))
            }
            "VolumeSnapshotContent" => self
                .of_kind("VolumeSnapshot")
                .any(|snapshot| uid(snapshot) == text(object, "/spec/volumeSnapshotRef/uid")),
            "Snapshot" | "Backup" => self.of_kind("VolumeSnapshotContent").any(|content| {
                text(content, "/status/snapshotHandle").rsplit('/').next() == Some(name(object))
            }),
            "PersistentVolume" => {
                let claim = text(object, "/spec/claimRef/uid");
                !claim.is_empty() && self.of_kind("PersistentVolumeClaim").any(|found| uid(found) == claim)
            }
            _ => false,
        }
    }

    fn images(&self) -> impl Iterator<Item = &Value> {
        self.of_kind("VirtualMachineImage")
    }

    /// True if the owner of that kind is there.
    fn has_owner(&self, object: &Value, kind: &'static str) -> bool {
        let owner = owner(object, kind).map_or("", |owner| text(owner, "/uid"));
        self.of_kind(kind).any(|found| uid(found) == owner)
    }

    /// True if the volume that an attachment, an engine or a replica belongs to is there.
    fn has_volume(&self, object: &Value) -> bool {
        let places = ["/spec/source/persistentVolumeName", "/spec/volumeName", "/spec/volume"];
        let volume = places.iter().map(|place| text(object, place)).find(|volume| !volume.is_empty());
        volume.is_some_and(|volume| self.of_kind("PersistentVolume").any(|found| name(found) == volume))
    }

    fn fields(&self, object: &Value) -> Fields {
        let mut fields = Fields::new();
        for part in ["labels", "annotations"] {
            flatten(part, &object["metadata"][part], &mut fields);
        }
        if deleting(object) {
            fields.insert("deletion".to_owned(), "requested".to_owned());
        }
        for (field, value) in object.as_object().into_iter().flatten() {
            if !["apiVersion", "kind", "metadata", "status"].contains(&field.as_str()) {
                flatten(field, value, &mut fields);
            }
        }
        match text(object, "/kind") {
            "VirtualMachine" => self.add_running(object, &mut fields),
            "VirtualMachineInstance" => drop(fields.insert("runs".to_owned(), whereabouts(object))),
            "PersistentVolumeClaim" => self.add_disk(object, &mut fields),
            "DataVolume" => drop(fields.insert(UID.to_owned(), uid(object).to_owned())),
            "VirtualMachineImage" => self.add_content(object, &mut fields),
            "VirtualMachineSnapshot" => {
                let (phase, ready) = (text(object, "/status/phase"), object["status"]["readyToUse"] == true);
                fields.insert("snapshot".to_owned(), format!("{phase}, ready: {ready}"));
            }
            "VirtualMachineBackup" => {
                let ready = object["status"]["readyToUse"] == true;
                fields.insert("backup".to_owned(), format!("ready: {ready}"));
            }
            "VirtualMachineRestore" => {
                let complete = object["status"]["complete"] == true;
                fields.insert("complete".to_owned(), complete.to_string());
            }
            "BackupTarget" => {
                let available = object["status"]["available"] == true;
                fields.insert("available".to_owned(), available.to_string());
            }
            "Node" if kind_of(object) == "Node" => add_taints(object, &mut fields),
            _ => {}
        }
        fields
    }

    /// The strategy in one form, the queue, and what runs where.
    fn add_running(&self, vm: &Value, fields: &mut Fields) {
        if let Some(strategy) = Strategy::of(vm) {
            fields.retain(|path, _| !["spec.running", "spec.runStrategy"].contains(&path.as_str()));
            fields.insert("strategy".to_owned(), strategy.name().to_owned());
        }
        for (i, request) in items(vm, "/status/stateChangeRequests").iter().enumerate() {
            fields.insert(format!("queue[{i}]"), text(request, "/action").to_owned());
        }
        let mut instances = self.of_kind("VirtualMachineInstance");
        let own = instances.find(|instance| {
            owner(instance, "VirtualMachine").is_some_and(|owner| text(owner, "/uid") == uid(vm))
        });
        fields.insert("runs".to_owned(), own.map_or("no".to_owned(), whereabouts));
    }

    /// Whether an image is there, and what is in it.
    fn add_content(&self, image: &Value, fields: &mut Fields) {
        let backing = self.of_kind("BackingImage").find(|of| *name(of) == *image::backing_key(image).name);
        fields.insert("imported".to_owned(), is_true(image, "Imported").to_string());
        fields.insert("content".to_owned(), backing.map_or("none", backing::stamp).to_owned());
    }

    /// From the claim over the volume and its handle to the content.
    fn add_disk(&self, claim: &Value, fields: &mut Fields) {
        let volume_name = text(claim, "/spec/volumeName");
        let mut volumes = self.of_kind("PersistentVolume");
        let volume = volumes.find(|volume| name(volume) == volume_name);
        let of_volume = |pointer: &str| volume.map_or("none", |volume| text(volume, pointer)).to_owned();
        let content = volume.and_then(|volume| annotation(volume, CONTENT_STAMP));
        fields.insert(UID.to_owned(), uid(claim).to_owned());
        fields.insert("disk.phase".to_owned(), text(claim, "/status/phase").to_owned());
        fields.insert("disk.handle".to_owned(), of_volume("/spec/csi/volumeHandle"));
        fields.insert("disk.reclaim".to_owned(), of_volume("/spec/persistentVolumeReclaimPolicy"));
        fields.insert("disk.content".to_owned(), content.unwrap_or("none").to_owned());
    }
}

/// Whether an instance runs, and where.
fn whereabouts(instance: &Value) -> String {
    let phase = text(instance, "/status/phase");
    let leaving = if deleting(instance) { ", leaving" } else { "" };
    let paused = if is_true(instance, "Paused") { ", paused" } else { "" };
    format!("{phase} on {}{paused}{leaving}", text(instance, "/status/nodeName"))
}

/// Taints as a set, without the time at which they were added.
fn add_taints(node: &Value, fields: &mut Fields) {
    fields.retain(|path, _| !path.starts_with("spec.taints"));
    for taint in items(node, "/spec/taints") {
        let (key, value, effect) = (text(taint, "/key"), text(taint, "/value"), text(taint, "/effect"));
        fields.insert(format!("taint {key}:{effect}"), format!("set to {value:?}"));
    }
}

/// The leaves of a tree by path.
fn flatten(path: &str, value: &Value, fields: &mut Fields) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(name, value)| flatten(&format!("{path}.{name}"), value, fields));
        }
        Value::Array(list) if !list.is_empty() => {
            list.iter().enumerate().for_each(|(i, value)| flatten(&format!("{path}[{i}]"), value, fields));
        }
        Value::Null => {}
        leaf => drop(fields.insert(path.to_owned(), leaf.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sim::contents;
    use crate::sim::controller::RUN_STRATEGY;
    use crate::sim::world::Founding;
    use crate::time::Timestamp;

    /// A cluster with a running VM, and one that is off.
    fn cluster() -> Vec<Value> {
        let now: Timestamp = "2026-09-06T12:00:00Z".parse().expect("RFC 3339");
        let mut objects =
            contents::contents(&Founding { now, speed: 1.0, further: &[], faults: &[], already: &[] });
        let mut off = contents::vm("off", Strategy::Halted);
        off["metadata"]["uid"] = "off".into();
        objects.push(off);
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "data": { "k": "dg==" } });
        objects.push(secret);
        objects
    }

    fn find<'a>(objects: &'a mut [Value], kind: &str, called: &str) -> &'a mut Value {
        let mut found = objects.iter_mut().filter(|object| object["kind"] == kind);
        found.find(|object| called.is_empty() || name(object) == called).expect("is there")
    }

    /// The pointers of all leaves below a value.
    fn leaves(path: &str, value: &Value, found: &mut Vec<String>) {
        let escaped = |name: &str| name.replace('~', "~0").replace('/', "~1");
        match value {
            Value::Object(map) => {
                map.iter().for_each(|(n, v)| leaves(&format!("{path}/{}", escaped(n)), v, found));
            }
            Value::Array(list) => {
                list.iter().enumerate().for_each(|(i, v)| leaves(&format!("{path}/{i}"), v, found));
            }
            Value::Null => {}
            _ => found.push(path.to_owned()),
        }
    }

    /// True if the leaf is one of the listed exceptions.
    fn is_excepted(object: &Value, pointer: &str) -> bool {
        let field = pointer.trim_start_matches("/metadata").trim_start_matches('/').replace('/', ".");
        let field = field.replace("~1", "/").replace("~0", "~");
        EXCEPTIONS.iter().any(|exception| exception.covers(&kind_of(object), &field))
    }

    #[test]
    fn a_state_equals_itself_in_any_order() {
        let objects = cluster();
        let turned: Vec<Value> = objects.iter().rev().cloned().collect();
        assert_eq!(differences(&objects, &turned), Vec::<String>::new());
    }

    /// Each leaf of spec, labels, annotations and data of each object is changed alone and must be noticed. What is
    /// part of another object is in the table of the next test.
    #[test]
    fn every_field_that_is_compared_is_noticed_when_it_changes() {
        let objects = cluster();
        let state = State { objects: &objects };
        let mut checked = 0;
        for (i, object) in objects.iter().enumerate() {
            if state.is_part(object) || ["Event", "Lease"].contains(&text(object, "/kind")) {
                continue;
            }
            let mut pointers = vec![];
            for (field, value) in object.as_object().expect("an object") {
                if !["apiVersion", "kind", "metadata", "status"].contains(&field.as_str()) {
                    leaves(&format!("/{field}"), value, &mut pointers);
                }
            }
            leaves("/metadata/labels", &object["metadata"]["labels"], &mut pointers);
            leaves("/metadata/annotations", &object["metadata"]["annotations"], &mut pointers);
            for pointer in pointers.iter().filter(|pointer| !is_excepted(object, pointer)) {
                let mut changed = objects.clone();
                let leaf = changed[i].pointer_mut(pointer).expect("is there");
                *leaf =
                    if pointer.ends_with("/runStrategy") { "Manual".into() } else { json!("something else") };
                assert!(!differences(&objects, &changed).is_empty(), "{} {pointer}", name(object));
                checked += 1;
            }
        }
        assert!(checked > 100, "{checked}");
    }

    type Change = fn(&mut Vec<Value>);

    fn all_are_noticed(changes: &[(&str, Change)]) {
        let objects = cluster();
        for (expected, change) in changes {
            let mut after = objects.clone();
            change(&mut after);
            let found = differences(&objects, &after);
            assert!(found.iter().any(|found| found.contains(expected)), "{expected}: {found:?}");
        }
    }

    #[test]
    fn objects_disks_and_nodes_are_noticed_when_they_change() {
        all_are_noticed(&[
            ("Secret s is gone", |all| all.retain(|object| object["kind"] != "Secret")),
            ("ConfigMap c is new", |all| {
                all.push(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c" } }));
            }),
            ("PersistentVolume left is new", |all| {
                let mut left = find(all, "PersistentVolume", "").clone();
                left["metadata"]["name"] = "left".into();
                left["spec"]["claimRef"]["uid"] = "nobody".into();
                all.push(left);
            }),
            ("disk.handle", |all| {
                find(all, "PersistentVolume", "")["spec"]["csi"]["volumeHandle"] = "other".into();
            }),
            ("disk.content was opensuse-leap-15.6, is lost", |all| {
                find(all, "PersistentVolume", "")["metadata"]["annotations"][CONTENT_STAMP] = "lost".into();
            }),
            ("disk.reclaim was Delete, is Retain", |all| {
                find(all, "PersistentVolume", "")["spec"]["persistentVolumeReclaimPolicy"] = "Retain".into();
            }),
            ("disk.phase was Bound, is Lost", |all| {
                find(all, "PersistentVolumeClaim", "")["status"]["phase"] = "Lost".into();
            }),
            ("deletion was absent, is requested", |all| {
                find(all, "Secret", "")["metadata"]["deletionTimestamp"] = "2026-09-06T12:00:00Z".into();
            }),
            ("spec.unschedulable was absent, is true", |all| {
                find(all, "Node", "node-1")["spec"]["unschedulable"] = true.into();
            }),
            ("taint k:NoSchedule was absent, is set to \"v\"", |all| {
                let taints = json!([{ "key": "k", "value": "v", "effect": "NoSchedule" }]);
                find(all, "Node", "node-1")["spec"]["taints"] = taints;
            }),
        ]);
    }

    #[test]
    fn a_vm_is_noticed_when_its_strategy_or_its_instance_changes() {
        all_are_noticed(&[
            ("strategy was RerunOnFailure, is Always", |all| {
                find(all, "VirtualMachine", "demo")["spec"]["runStrategy"] = "Always".into();
            }),
            ("strategy was RerunOnFailure, is Halted", |all| {
                let spec = &mut find(all, "VirtualMachine", "demo")["spec"];
                spec["runStrategy"] = Value::Null;
                spec["running"] = false.into();
            }),
            ("queue[0] was absent, is Start", |all| {
                let queue = json!([{ "action": "Start" }]);
                find(all, "VirtualMachine", "off")["status"]["stateChangeRequests"] = queue;
            }),
            ("runs was Running on node-", |all| {
                find(all, "VirtualMachineInstance", "")["status"]["nodeName"] = "elsewhere".into();
            }),
            ("is Failed on node-", |all| {
                find(all, "VirtualMachineInstance", "")["status"]["phase"] = "Failed".into();
            }),
            (", leaving", |all| {
                let metadata = &mut find(all, "VirtualMachineInstance", "")["metadata"];
                metadata["deletionTimestamp"] = "2026-09-06T12:00:00Z".into();
            }),
            (", paused", |all| {
                let conditions = json!([{ "type": "Paused", "status": "True" }]);
                find(all, "VirtualMachineInstance", "")["status"]["conditions"] = conditions;
            }),
            ("is no", |all| all.retain(|object| object["kind"] != "VirtualMachineInstance")),
        ]);
    }

    #[test]
    fn what_is_left_of_a_disk_is_noticed() {
        let objects = cluster();
        let gone = ["PersistentVolumeClaim", "PersistentVolume"];
        let mut changed = objects.clone();
        changed.retain(|object| !gone.contains(&text(object, "/kind")));
        let found = differences(&objects, &changed);
        let noticed = |end: &str| found.iter().filter(|line| line.ends_with(end)).count();
        assert_eq!(noticed(" is gone"), 1, "the claim: {found:?}");
        // The volume, its engine, three replicas, and two attachments: Longhorn's and that of Kubernetes.
        assert_eq!(noticed(" is new"), 7, "{found:?}");
    }

    #[test]
    fn a_claim_that_was_made_again_is_judged_by_what_is_on_it() {
        let objects = cluster();
        let again = |content: &str| {
            let mut changed = objects.clone();
            let claim = find(&mut changed, "PersistentVolumeClaim", "");
            claim["metadata"]["uid"] = "another".into();
            claim["spec"]["volumeName"] = "pvc-another".into();
            let volume = find(&mut changed, "PersistentVolume", "");
            volume["metadata"]["name"] = "pvc-another".into();
            volume["metadata"]["annotations"][CONTENT_STAMP] = content.into();
            volume["spec"]["csi"]["volumeHandle"] = "pvc-another".into();
            volume["spec"]["claimRef"]["uid"] = "another".into();
            let before = objects.clone();
            let parts = ["Engine", "Replica", "VolumeAttachment", "Volume"];
            let without = |mut all: Vec<Value>| {
                all.retain(|object| !parts.contains(&text(object, "/kind")));
                all
            };
            differences(&without(before), &without(changed))
        };
        assert_eq!(again("opensuse-leap-15.6"), Vec::<String>::new());
        assert_eq!(again("blank").len(), 1, "the data is lost");
        for because in RECREATED.iter().map(|exception| exception.because) {
            assert!(because.contains(": "), "{because} names its rehearsal and says why");
        }
    }

    #[test]
    fn what_may_differ_differs_without_a_word() {
        let objects = cluster();
        let mut changed = objects.clone();
        let demo = find(&mut changed, "VirtualMachine", "demo");
        demo["metadata"]["annotations"][RUN_STRATEGY] = "Manual".into();
        demo["metadata"]["annotations"]["sim/foreign-start"] = "x".into();
        demo["metadata"]["resourceVersion"] = "9".into();
        demo["status"]["printableStatus"] = "Odd".into();
        find(&mut changed, "Secret", "")["metadata"]["uid"] = "another".into();
        find(&mut changed, "Pod", "")["metadata"]["creationTimestamp"] = "2026-09-06T12:00:00Z".into();
        let off = find(&mut changed, "VirtualMachine", "off");
        off["spec"] = json!({ "running": false, "template": off["spec"]["template"] });
        changed.retain(|object| object["kind"] != "Lease");
        assert_eq!(differences(&objects, &changed), Vec::<String>::new());
        find(&mut changed, "Secret", "")["metadata"]["annotations"] = json!({ "tool.example/mark": "1" });
        assert_eq!(differences(&objects, &changed).len(), 1);
        assert_eq!(differences_except(&objects, &changed, &["tool.example/"]), Vec::<String>::new());
        for because in EXCEPTIONS.iter().map(|exception| exception.because) {
            assert!(because.contains(": "), "{because} names its rehearsal and says why");
        }
    }
}

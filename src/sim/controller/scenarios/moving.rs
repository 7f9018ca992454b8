//! What becomes of VMs that move, and of nodes that are emptied.

use serde_json::Value;
use serde_json::json;

use crate::sim::contents;
use crate::sim::controller::launcher;
use crate::sim::controller::scenarios::Scene;
use crate::sim::fault;
use crate::sim::kinds::INSTANCES;
use crate::sim::kinds::LONGHORN_VOLUMES;
use crate::sim::kinds::MIGRATIONS;
use crate::sim::kinds::NODES;
use crate::sim::kinds::PODS;
use crate::sim::object::annotation;
use crate::sim::object::items;
use crate::sim::object::label;
use crate::sim::object::text;
use crate::sim::object::uid;
use crate::sim::strategy::Strategy;
use crate::sim::world::Fault;
use crate::sim::world::Key;
use crate::sim::world::Write;

const REQUESTED: &str = "harvesterhci.io/drain-requested";
const STATUS: &str = "harvesterhci.io/maintain-status";

impl Scene {
    /// A scene whose VM runs, with faults that begin then.
    fn to_move(faults: &[Fault]) -> Self {
        let mut scene = Self::running(Strategy::Always);
        scene.0.faults = faults.to_vec();
        scene
    }

    fn migrate(&mut self) {
        let migration = json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceMigration",
            "metadata": { "name": "go", "namespace": "default" },
            "spec": { "vmiName": "a" },
        });
        self.0.write(Write::Create(MIGRATIONS, migration), "test");
    }

    fn migration(&self) -> String {
        let migration = self.0.get(MIGRATIONS, "default", "go");
        migration.map_or(String::new(), |migration| text(&migration, "/status/phase").to_owned())
    }

    fn home(&self) -> String {
        self.instance().map_or(String::new(), |instance| text(&instance, "/status/nodeName").to_owned())
    }

    fn launchers(&self) -> Vec<String> {
        let pods = self.0.list(PODS).into_iter();
        let own = pods.filter(|pod| label(pod, launcher::CREATED_BY).is_some());
        own.map(|pod| format!("{} {}", text(&pod, "/spec/nodeName"), text(&pod, "/status/phase"))).collect()
    }

    fn annotate(&mut self, node: &str, annotation: &str, value: Value) {
        let patch = json!({ "metadata": { "annotations": { annotation: value } } });
        self.0.write(Write::Patch(Key::new(NODES, "", node), patch), "test");
    }

    fn node(&self, name: &str) -> Value {
        (*self.0.get(NODES, "", name).expect("is there")).clone()
    }
}

#[test]
fn a_live_migration_keeps_the_instance_and_moves_pod_and_volume() {
    let mut scene = Scene::to_move(&[]);
    let (old, before) = (scene.home(), scene.instance().map(|instance| uid(&instance).to_owned()));
    scene.migrate();
    scene.wait(8);
    assert_eq!(scene.shown(), "Migrating");
    scene.wait(40);
    let new = scene.home();
    assert_eq!(scene.migration(), "Succeeded");
    assert_ne!(new, old);
    assert_eq!(scene.instance().map(|instance| uid(&instance).to_owned()), before);
    assert_eq!(scene.shown(), "Running");
    let mut expected = [format!("{old} Succeeded"), format!("{new} Running")];
    let mut found = scene.launchers();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    let volume = &scene.0.list(LONGHORN_VOLUMES)[0];
    let state = ["/status/state", "/spec/nodeID", "/spec/migrationNodeID", "/status/currentNodeID"];
    assert_eq!(state.map(|place| text(volume, place)), ["attached", &new, "", &new]);
}

#[test]
fn a_migration_that_breaks_or_is_deleted_leaves_the_guest_where_it_was() {
    for (faults, wait, deleted) in
        [(&[fault::MIGRATION_FAILS][..], 60, false), (&[fault::MIGRATION_SLOW], 30, true)]
    {
        let mut scene = Scene::to_move(faults);
        let old = scene.home();
        scene.migrate();
        scene.wait(wait);
        if deleted {
            scene.0.write(Write::Delete(Key::new(MIGRATIONS, "default", "go")), "test");
            scene.wait(60);
        }
        assert_eq!(scene.migration(), if deleted { "" } else { "Failed" });
        assert_eq!((scene.home(), scene.launchers()), (old.clone(), vec![format!("{old} Running")]));
        assert_eq!(scene.instance().expect("runs")["status"]["migrationState"]["failed"], true);
    }
}

#[test]
fn migrations_are_refused_in_kubevirts_words() {
    let mut scene = Scene::to_move(&[fault::MIGRATION_PENDING_QUOTA]);
    scene.migrate();
    scene.wait(5);
    scene.0.write(
        Write::Create(
            MIGRATIONS,
            json!({
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstanceMigration",
                "metadata": { "name": "second", "namespace": "default" },
                "spec": { "vmiName": "a" },
            }),
        ),
        "test",
    );
    let refused = scene.0.refusals.last().expect("is refused");
    assert!(refused.contains("in-flight migration detected"), "{refused}");
}

#[test]
fn a_node_is_emptied_and_only_then_in_maintenance() {
    let mut scene = Scene::to_move(&[]);
    let node = scene.home();
    scene.annotate(&node, REQUESTED, "true".into());
    scene.wait(5);
    assert_eq!(text(&scene.instance().expect("runs"), "/status/evacuationNodeName"), node);
    scene.wait(60);
    let drained = scene.node(&node);
    assert_eq!((annotation(&drained, REQUESTED), annotation(&drained, STATUS)), (None, Some("completed")));
    assert_eq!(drained["spec"]["unschedulable"], true);
    assert_ne!(scene.home(), node);
}

/// domain-cases.md 38 and its twin: what is not taken back comes back.
#[test]
fn to_uncordon_a_node_that_is_being_drained_or_to_forget_the_request_is_not_enough() {
    let mut scene = Scene::to_move(&[fault::MIGRATION_FAILS]);
    let node = scene.home();
    scene.annotate(&node, REQUESTED, "true".into());
    scene.wait(60);
    let uncordon = json!({ "spec": { "unschedulable": null } });
    scene.0.write(Write::Patch(Key::new(NODES, "", &node), uncordon), "test");
    scene.wait(10);
    assert_eq!(scene.node(&node)["spec"]["unschedulable"], true, "the drain goes on");

    scene.annotate(&node, REQUESTED, Value::Null);
    let tried = scene.0.list(MIGRATIONS).len();
    scene.wait(300);
    assert!(scene.0.list(MIGRATIONS).len() > tried, "the evacuation goes on");
    scene.call("evacuate/cancel", &json!({})).expect("is accepted");
    scene.wait(60);
    let names = |scene: &Scene| -> Vec<String> {
        scene.0.list(MIGRATIONS).iter().map(|m| text(m, "/metadata/name").to_owned()).collect()
    };
    let last = names(&scene);
    scene.wait(600);
    assert_eq!(names(&scene), last);
    let phases = items(&scene.instance().expect("runs"), "/status/phaseTransitionTimestamps").len();
    assert!(phases > 0 && scene.0.get(INSTANCES, "default", "a").is_some());
}

#[test]
fn a_drain_that_would_hurt_is_refused_without_a_word() {
    let mut vm = contents::vm("a", Strategy::Always);
    vm["spec"]["template"]["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": "node-2" });
    let mut scene = Scene::with(vm, &[]);
    scene.wait(60);
    scene.annotate("node-2", REQUESTED, "true".into());
    scene.wait(10);
    let node = scene.node("node-2");
    assert_eq!((annotation(&node, REQUESTED), annotation(&node, STATUS)), (None, None));
    assert!(node["spec"]["unschedulable"].is_null());
}

//! The platform behind the real API server, over HTTP: VMs are created, stopped, started and deleted as clients do it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::Value;
use serde_json::json;
use tower::ServiceExt as _;
use windrow::sim::Cluster;
use windrow::sim::Fault;
use windrow::sim::Options;
use windrow::sim::Strategy;
use windrow::sim::contents;
use windrow::sim::equal;
use windrow::sim::fault;
use windrow::time::Clock as _;
use windrow::time::SystemClock;

const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const SUBRESOURCES: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default";

/// A cluster on the paused clock, and a client.
struct Api {
    cluster: Cluster,
    clock: SystemClock,
}

impl Api {
    fn start(faults: &[Fault], fixtures: &[Value]) -> Self {
        let start_at = "2026-09-06T12:00:00Z".parse().unwrap();
        let clock = SystemClock::starting_at(start_at, 1.0);
        let options = Options {
            faults: faults.to_vec(),
            fixtures: fixtures.iter().map(Value::to_string).collect(),
            ..Options::default()
        };
        Self { cluster: Cluster::start(options, Arc::new(clock)).unwrap(), clock }
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let request =
            Request::builder().method(method).uri(path).header("content-type", kind).body(body).unwrap();
        let response = self.cluster.router().oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() })
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let (code, object) = self.send("GET", path, "application/json", &Value::Null).await;
        assert!(code == 200 || code == 404, "{code} {object}");
        (code == 200).then_some(object)
    }

    async fn merge(&self, path: &str, body: Value) -> (u16, Value) {
        self.send("PATCH", path, "application/merge-patch+json", &body).await
    }

    async fn verb(&self, vm: &str, verb: &str, body: Value) -> (u16, Value) {
        self.send("PUT", &format!("{SUBRESOURCES}/virtualmachines/{vm}/{verb}"), "application/json", &body)
            .await
    }

    async fn wait(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }

    /// Waits until `holds` is true of the object, or of null if there is none.
    async fn until(&self, path: &str, limit: u64, holds: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..limit * 10 {
            let object = self.get(path).await.unwrap_or_default();
            if holds(&object) {
                return object;
            }
            self.clock.sleep(Duration::from_millis(100)).await;
        }
        panic!("not within {limit} s: {:#}", self.get(path).await.unwrap_or_default());
    }

    async fn until_runs(&self, vm: &str) -> Value {
        let runs = |instance: &Value| instance["status"]["phase"] == "Running";
        self.until(&format!("{VMIS}/{vm}"), 60, runs).await;
        self.until(&format!("{VMS}/{vm}"), 5, |vm| vm["status"]["ready"] == true).await
    }

    async fn until_off(&self, vm: &str) -> Value {
        self.until(&format!("{VMIS}/{vm}"), 180, Value::is_null).await;
        self.until(&format!("{VMS}/{vm}"), 5, |vm| vm["status"]["printableStatus"] == "Stopped").await
    }

    fn state(&self) -> Vec<Value> {
        self.cluster.objects().into_iter().map(|(_, object)| (*object).clone()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_nobody_touches_is_at_rest() {
    let api = Api::start(&[], &[]);
    let demo = api.get(&format!("{VMS}/demo")).await.unwrap();
    assert_eq!(demo["status"]["printableStatus"], "Running");
    let before = api.state();
    api.wait(120).await;
    let written: Vec<String> = api
        .cluster
        .audit()
        .iter()
        .filter(|entry| entry.manager != "rehearsal" && entry.resource != "leases.coordination.k8s.io")
        .map(|entry| {
            format!("{} {} {} {} {}", entry.manager, entry.verb, entry.resource, entry.name, entry.body)
        })
        .collect();
    assert_eq!(written, Vec::<String>::new());
    assert_eq!(equal::differences(&before, &api.state()), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_stop_and_a_start_leave_the_cluster_as_it_was() {
    let api = Api::start(&[], &[]);
    let before = api.state();
    let demo = format!("{VMS}/demo");
    let (code, _) = api.merge(&demo, json!({ "spec": { "runStrategy": "Halted" } })).await;
    assert_eq!(code, 200);
    api.until(&demo, 5, |vm| vm["status"]["printableStatus"] == "Stopping").await;
    api.until_off("demo").await;
    let found = equal::differences(&before, &api.state());
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].contains("runs was Running on")
            && found[1].contains("strategy was RerunOnFailure, is Halted")
    );
    // The annotation notes RerunOnFailure, so Always lands as that (domain.md §1.2).
    let (_, stored) = api.merge(&demo, json!({ "spec": { "runStrategy": "Always" } })).await;
    assert_eq!(stored["spec"]["runStrategy"], "RerunOnFailure");
    api.until_runs("demo").await;
    assert_eq!(equal::differences(&before, &api.state()), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn vms_of_every_strategy_are_stopped_and_started_through_the_subresources() {
    for strategy in Strategy::ALL {
        let fixtures = [contents::claim("a-disk"), contents::vm("a", strategy)];
        let api = Api::start(&[], &fixtures);
        if [Strategy::Halted, Strategy::Manual].contains(&strategy) {
            api.until_off("a").await;
            assert_eq!(api.verb("a", "start", Value::Null).await, (202, Value::Null), "{strategy:?}");
        }
        let vm = api.until_runs("a").await;
        let kept = if strategy == Strategy::Halted { "RerunOnFailure" } else { strategy.name() };
        assert_eq!(vm["spec"]["runStrategy"], kept);
        let dry = json!({ "dryRun": ["All"] });
        assert_eq!(api.verb("a", "stop", dry).await, (202, Value::Null), "{strategy:?}");
        api.wait(20).await;
        assert_eq!(api.until_runs("a").await["metadata"]["generation"], vm["metadata"]["generation"]);
        assert_eq!(api.verb("a", "stop", Value::Null).await, (202, Value::Null), "{strategy:?}");
        let vm = api.until_off("a").await;
        let halts = [Strategy::Always, Strategy::Once].contains(&strategy);
        assert_eq!(vm["spec"]["runStrategy"], if halts { "Halted" } else { kept });
        let (code, answer) = api.verb("a", "stop", Value::Null).await;
        assert_eq!((code, &answer["reason"]), (409, &json!("Conflict")));
        let message = "Operation cannot be fulfilled on virtualmachine.kubevirt.io \"a\": VM is not running";
        assert_eq!(answer["message"], message);
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_restart_in_a_row_is_underway() {
    let api = Api::start(&[], &[]);
    let old = api.get(&format!("{VMIS}/demo")).await.unwrap();
    assert_eq!(api.verb("demo", "restart", json!({})).await.0, 202);
    let (code, answer) = api.verb("demo", "restart", json!({})).await;
    assert_eq!(code, 500);
    let message = "Internal error occurred: unable to complete request: stop/start already underway";
    assert_eq!(answer["message"], message);
    let another =
        |vmi: &Value| vmi["metadata"]["uid"] != old["metadata"]["uid"] && vmi["status"]["phase"] == "Running";
    api.until(&format!("{VMIS}/demo"), 60, another).await;
    let idle = |vm: &Value| vm["status"]["stateChangeRequests"].is_null() && vm["status"]["ready"] == true;
    api.until(&format!("{VMS}/demo"), 5, idle).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_vm_takes_its_instance_and_pod_along_and_nothing_else() {
    let api = Api::start(&[], &[]);
    let before = api.state();
    let demo = format!("{VMS}/demo");
    assert_eq!(api.send("DELETE", &demo, "application/json", &Value::Null).await.0, 200);
    api.until(&demo, 5, |vm| vm["status"]["printableStatus"] == "Terminating").await;
    api.until(&demo, 30, Value::is_null).await;
    api.wait(5).await;
    let after = api.state();
    assert_eq!(equal::differences(&before, &after), ["VirtualMachine.kubevirt.io default/demo is gone"]);
    let left = after.iter().filter(|object| object["metadata"]["name"].as_str().unwrap().contains("demo"));
    let left: Vec<&Value> =
        left.filter(|object| object["kind"] != "Event").map(|object| &object["kind"]).collect();
    assert_eq!(left, ["PersistentVolumeClaim"]);
}

#[tokio::test(start_paused = true)]
async fn whoever_starts_the_vm_in_the_middle_is_named_by_its_managed_fields() {
    let api = Api::start(&[fault::FOREIGN_START], &[]);
    let demo = format!("{VMS}/demo");
    api.merge(&demo, json!({ "spec": { "runStrategy": "Halted" } })).await;
    let vm = api.until(&demo, 10, |vm| vm["spec"]["runStrategy"] == "Always").await;
    let managers: Vec<&Value> =
        vm["metadata"]["managedFields"].as_array().unwrap().iter().map(|m| &m["manager"]).collect();
    assert!(managers.contains(&&json!("harvester-ui")), "{managers:?}");
    api.until(&format!("{VMIS}/demo"), 30, |vmi| vmi["metadata"]["deletionTimestamp"].is_null()).await;
    api.until_runs("demo").await;
}

#[tokio::test(start_paused = true)]
async fn the_webhooks_answer_in_their_own_words() {
    let api = Api::start(&[], &[]);
    let demo = format!("{VMS}/demo");
    for (patch, message) in [
        (json!({ "running": true }), "Running and RunStrategy are mutually exclusive"),
        (json!({ "runStrategy": null }), "RunStrategy must be specified"),
        (json!({ "runStrategy": "Stopped" }), "Invalid RunStrategy (Stopped)"),
    ] {
        let (code, answer) = api.merge(&demo, json!({ "spec": patch })).await;
        assert_eq!((code, &answer["reason"]), (422, &json!("Invalid")), "{answer}");
        let text = answer["message"].as_str().unwrap();
        let webhook = "admission webhook \"virtualmachine-validator.kubevirt.io\" denied the request: ";
        assert!(text.starts_with(&format!("{webhook}{message}")), "{text}");
    }
    let disk = "/api/v1/namespaces/default/persistentvolumeclaims/demo-disk";
    let (code, answer) = api.send("DELETE", disk, "application/json", &Value::Null).await;
    assert_eq!(code, 422);
    let message = "can not delete the volume demo-disk which is currently attached to VMs: default/demo";
    assert!(answer["message"].as_str().unwrap().ends_with(message), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_vm_on_a_node_that_is_down_comes_back_elsewhere_and_not_early() {
    let mut vm = contents::vm("a", Strategy::Always);
    vm["spec"]["template"]["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": "node-2" });
    let api = Api::start(&[fault::NODE_DOWN], &[contents::claim("a-disk"), vm]);
    let node = api.until("/api/v1/nodes/node-2", 60, |node| ready(node) == "Unknown").await;
    assert!(!tainted(&node, "kubevirt.io/drain"));
    api.until("/api/v1/nodes/node-2", 20, |node| tainted(node, "kubevirt.io/drain")).await;
    let out = |node: &Value| tainted(node, "node.kubernetes.io/out-of-service");
    api.wait(170).await;
    assert!(!out(&api.get("/api/v1/nodes/node-2").await.unwrap()));
    api.until("/api/v1/nodes/node-2", 20, out).await;
    // Whatever was on the node is elsewhere, except what may only run there.
    let a = api
        .until(&format!("{VMS}/a"), 60, |vm| vm["status"]["printableStatus"] == "ErrorUnschedulable")
        .await;
    assert_eq!(a["status"]["ready"], false);
    let demo = api.until_runs("demo").await;
    assert_eq!(demo["status"]["printableStatus"], "Running");
    let instance = api.get(&format!("{VMIS}/demo")).await.unwrap();
    assert_ne!(instance["status"]["nodeName"], "node-2");
}

/// The fixtures of the shipped workflows are what their first lines say.
#[tokio::test(start_paused = true)]
async fn vms_of_the_shipped_fixtures_are_in_their_state_from_the_first_moment() {
    for (fixture, faults, vm, shown) in [
        ("always-on", &[][..], "always-on", "Running"),
        ("claim-missing", &[], "no-claim", "Stopped"),
        ("deleting", &[], "deleting", "Terminating"),
        ("halted", &[], "halted", "Stopped"),
        ("halted-pending-claim", &[fault::PROVISION_FAILS], "pending-halted", "Stopped"),
        ("leaving", &[fault::STOP_HANGS], "leaving", "Stopped"),
        ("leftover-pod", &[], "leftover", "Stopped"),
        ("leftover-pod-on", &[], "leftover-on", "Running"),
        ("manual-off", &[], "manual", "Stopped"),
        ("manual-on", &[fault::SLOW_START], "manual-on", "Running"),
        ("off-pending-claim", &[fault::PROVISION_FAILS], "pending", "WaitingForVolumeBinding"),
        ("on-node-2", &[], "on-node-2", "Running"),
        ("once-ended", &[], "once", "Stopped"),
        ("once-on", &[], "once-on", "Running"),
        ("over-quota", &[], "poor", "Stopped"),
        ("paused-on", &[], "paused-on", "Paused"),
        ("rerun-off", &[], "rerun", "Stopped"),
        ("restore-in-progress", &[], "restoring", "Running"),
        ("running-false", &[], "old", "Stopped"),
        ("running-true", &[], "old", "Running"),
        ("snapshot-in-progress", &[], "snapshotted", "Running"),
        ("starts-paused", &[], "paused", "Stopped"),
        ("unschedulable", &[], "nowhere", "Stopped"),
    ] {
        let path = format!("{}/workflows/fixtures/{fixture}.yaml", env!("CARGO_MANIFEST_DIR"));
        let options = Options {
            faults: faults.to_vec(),
            fixtures: vec![std::fs::read_to_string(path).unwrap()],
            ..Options::default()
        };
        let clock = SystemClock::starting_at("2026-09-06T12:00:00Z".parse().unwrap(), 1.0);
        let api = Api { cluster: Cluster::start(options, Arc::new(clock)).unwrap(), clock };
        let found = api.get(&format!("{VMS}/{vm}")).await.unwrap_or_default();
        assert_eq!(found["status"]["printableStatus"], shown, "{fixture}: {found:#}");
        api.wait(60).await;
        let found = api.get(&format!("{VMS}/{vm}")).await.unwrap();
        assert_eq!(found["status"]["printableStatus"], shown, "{fixture} a minute later");
    }
}

fn ready(node: &Value) -> &str {
    let conditions = node["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|c| c["type"] == "Ready").and_then(|c| c["status"].as_str()).unwrap()
}

fn tainted(node: &Value, key: &str) -> bool {
    node["spec"]["taints"].as_array().is_some_and(|taints| taints.iter().any(|taint| taint["key"] == key))
}

const DISKS: &str = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes";

#[tokio::test(start_paused = true)]
async fn an_imported_disk_comes_and_goes_without_a_trace() {
    let api = Api::start(&[], &[]);
    let before = api.state();
    let disk = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": { "name": "disk" },
        "spec": {
            "source": { "http": { "url": "https://mirror.example/os.img" } },
            "storage": { "resources": { "requests": { "storage": "5Gi" } } },
        },
    });
    let (code, _) = api.send("POST", DISKS, "application/json", &disk).await;
    assert_eq!(code, 201);
    let path = format!("{DISKS}/disk");
    api.until(&path, 60, |disk| disk["status"]["phase"] == "ImportInProgress").await;
    let done = api.until(&path, 120, |disk| disk["status"]["phase"] == "Succeeded").await;
    assert_eq!(done["status"]["progress"], "100.0%");
    let claim = api.get("/api/v1/namespaces/default/persistentvolumeclaims/disk").await.unwrap();
    assert_eq!((&claim["status"]["phase"], &claim["spec"]["volumeMode"]), (&json!("Bound"), &json!("Block")));
    api.wait(60).await;
    let found = equal::differences(&before, &api.state());
    assert_eq!(found.len(), 2, "a DataVolume and its claim: {found:?}");

    let (code, _) = api.send("DELETE", &path, "application/json", &Value::Null).await;
    assert_eq!(code, 200);
    api.wait(60).await;
    assert_eq!(equal::differences(&before, &api.state()), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_disk_of_a_vm_is_not_deleted_under_it() {
    let api = Api::start(&[], &[contents::vm("off", Strategy::Halted)]);
    let disk = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": { "name": "off-disk" },
        "spec": { "source": { "blank": {} }, "storage": { "resources": { "requests": { "storage": "5Gi" } } } },
    });
    api.send("POST", DISKS, "application/json", &disk).await;
    let (code, refused) =
        api.send("DELETE", &format!("{DISKS}/off-disk"), "application/json", &Value::Null).await;
    let message = refused["message"].as_str().unwrap();
    assert_eq!(code, 422);
    assert!(
        message.ends_with("can not delete DataVolume default/off-disk which is attached to VM default/off"),
        "{message}"
    );
}

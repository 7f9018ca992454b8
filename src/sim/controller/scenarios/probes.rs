//! What pods see of guests in the network (manual §3.4).

use serde_json::Value;
use serde_json::json;

use crate::sim::contents;
use crate::sim::controller::scenarios::Scene;
use crate::sim::fault::NET_SPLIT;
use crate::sim::kinds::PODS;
use crate::sim::object::annotation;
use crate::sim::object::items;
use crate::sim::object::text;
use crate::sim::strategy::Strategy;
use crate::sim::world::Key;
use crate::sim::world::POD_LOG;
use crate::sim::world::Write;

/// A pod with a ping and a connection to the guest of `a`, on a node.
fn probe(node: &str, image: &str, address: &str, port: &str) -> Value {
    let container = |name: &str, command: &[&str]| json!({ "name": name, "image": image, "command": command, "terminationMessagePolicy": "FallbackToLogsOnError" });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "probe", "namespace": "default" },
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": { "kubernetes.io/hostname": node },
            "containers": [
                container("icmp", &["ping", "-c", "3", "-W", "2", address]),
                container("tcp", &["nc", "-z", "-w", "3", address, port]),
            ],
        },
    })
}

/// The phase of a probe's pod, and of its containers exit code and message.
fn probed(scene: &mut Scene, same_node: bool, port: &str) -> (String, Vec<(Option<u64>, String)>) {
    let instance = scene.instance().expect("runs");
    let own = text(&instance, "/status/nodeName");
    let other =
        ["node-1", "node-2", "node-3"].into_iter().find(|node| *node != own).expect("there are three");
    let node = if same_node { own } else { other };
    let address = text(&instance, "/status/interfaces/0/ipAddress");
    scene.0.write(Write::Create(PODS, probe(node, "busybox:1.36", address, port)), "test");
    scene.wait(30);
    let pod = scene.0.get(PODS, "default", "probe").expect("is there");
    let statuses = items(&pod, "/status/containerStatuses").iter();
    let ends = statuses.map(|status| {
        let ended = &status["state"]["terminated"];
        (ended["exitCode"].as_u64(), text(ended, "/message").to_owned())
    });
    (text(&pod, "/status/phase").to_owned(), ends.collect())
}

#[test]
fn a_probe_tells_whether_a_guest_answers_and_on_which_port() {
    for (faults, same_node, port, phase, codes) in [
        (&[][..], false, "22", "Succeeded", [0, 0]),
        (&[], false, "3389", "Failed", [0, 1]),
        (&[NET_SPLIT], false, "22", "Failed", [1, 1]),
        (&[NET_SPLIT], true, "22", "Succeeded", [0, 0]),
    ] {
        let mut scene = Scene::new(Strategy::Always);
        scene.0.faults = faults.to_vec();
        let (ended, ends) = probed(&mut scene, same_node, port);
        let found: Vec<u64> = ends.iter().filter_map(|(code, _)| *code).collect();
        assert_eq!((ended.as_str(), found.as_slice()), (phase, &codes[..]), "{faults:?} {port}");
        assert!(ends.iter().all(|(code, message)| (*code == Some(0)) == message.is_empty()), "{ends:?}");
        let pod = scene.0.get(PODS, "default", "probe").expect("is there");
        let log = annotation(&pod, &format!("{POD_LOG}.icmp")).unwrap_or_default();
        assert!(log.contains("3 packets transmitted"), "{log}");
        scene.0.write(Write::Delete(Key::new(PODS, "default", "probe")), "test");
        scene.wait(10);
        assert!(scene.0.get(PODS, "default", "probe").is_none());
    }
}

#[test]
fn a_paused_guest_and_an_address_that_nobody_has_are_silent() {
    let mut scene = Scene::new(Strategy::Always);
    scene.call("pause", &json!({})).expect("can be paused");
    scene.wait(5);
    assert_eq!(probed(&mut scene, false, "22").0, "Failed");
    let mut scene = Scene::new(Strategy::Always);
    scene.0.write(Write::Create(PODS, probe("node-1", "busybox:1.36", "10.52.3.254", "22")), "test");
    scene.wait(30);
    let pod = scene.0.get(PODS, "default", "probe").expect("is there");
    assert_eq!(text(&pod, "/status/phase"), "Failed");
}

#[test]
fn an_image_in_no_registry_is_never_pulled() {
    let mut scene = Scene::with(contents::vm("a", Strategy::Halted), &[]);
    scene
        .0
        .write(Write::Create(PODS, probe("node-1", "registry.invalid/probe:1", "10.52.0.9", "22")), "test");
    scene.wait(60);
    let pod = scene.0.get(PODS, "default", "probe").expect("is there");
    assert_eq!(text(&pod, "/status/phase"), "Pending");
    assert_eq!(text(&pod, "/status/containerStatuses/0/state/waiting/reason"), "ImagePullBackOff");
}

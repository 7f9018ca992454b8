//! `windrow sim`: the rehearsal cluster as a program of its own.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::Api;
use kube::api::DynamicObject;
use kube::api::ListParams;
use kube::api::ObjectMeta;
use kube::api::Patch;
use kube::api::PatchParams;
use kube::api::PostParams;
use kube::config::Kubeconfig;
use kube::core::ApiResource;
use kube::core::GroupVersionKind;
use rustix::process::Pid;
use rustix::process::Signal;
use serde_json::Value;
use serde_json::json;
use tokio::io::AsyncBufReadExt as _;
use tokio::io::BufReader;
use tokio::process::Child;

use crate::cli::site::Site;
use crate::cli::site::until;
use crate::support::controlplane::client_of;

const IDLE: &str = "
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: { name: idle }
spec: { runStrategy: Halted, template: { spec: { domain: {} } } }
";

/// A `windrow sim` that serves.
struct Sim {
    child: Child,
    address: String,
}

impl Sim {
    async fn start(site: &Site, args: &[&str]) -> Self {
        let mut command = site.command(&[&["sim"], args].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap().expect("it says where it listens");
        Self { child, address: line.strip_prefix("http://").unwrap().to_owned() }
    }

    /// Sends a signal and waits for the exit code.
    async fn end(mut self, signal: Signal) -> Option<i32> {
        let pid = Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        self.child.wait().await.unwrap().code()
    }
}

async fn client(site: &Site, file: &str) -> Client {
    let kubeconfig = std::fs::read_to_string(site.path(file)).unwrap();
    client_of(Kubeconfig::from_yaml(&kubeconfig).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sim_is_what_its_flags_say() {
    let site = Site::new();
    site.write("idle.yaml", IDLE);
    let flags = "--kubeconfig-out sim.kubeconfig --audit audit.jsonl --speed 50 --seed 7 --fault rbac-denied \
                 --fixture idle.yaml --empty";
    let sim = Sim::start(&site, &flags.split_whitespace().collect::<Vec<_>>()).await;
    let mode = std::fs::metadata(site.path("sim.kubeconfig")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let client = client(&site, "sim.kubeconfig").await;
    let nodes = Api::<Node>::all(client.clone()).list(&ListParams::default()).await.unwrap();
    assert!(nodes.items.is_empty(), "an empty cluster has no nodes");
    let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachine");
    let machines: Api<DynamicObject> =
        Api::default_namespaced_with(client.clone(), &ApiResource::from_gvk(&kind));
    machines.get("idle").await.unwrap();
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    let refused = machines.patch("idle", &PatchParams::default(), &label).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));

    let metadata = ObjectMeta { name: Some("made".to_owned()), ..ObjectMeta::default() };
    let made = ConfigMap { metadata, ..ConfigMap::default() };
    Api::default_namespaced(client).create(&PostParams::default(), &made).await.unwrap();
    let audit = until("the write in the audit log", async || {
        let text = std::fs::read_to_string(site.path("audit.jsonl")).unwrap();
        let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        entries.into_iter().find(|entry| entry["name"] == "made")
    })
    .await;
    assert_eq!((&audit["verb"], &audit["controller"]), (&json!("create"), &json!(false)));
    assert_eq!(sim.end(Signal::TERM).await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sim_that_is_interrupted_says_so_and_one_port_serves_one_sim() {
    let site = Site::new();
    let sim = Sim::start(&site, &["--empty"]).await;
    let second = site.expect(6, &["sim", "--empty", "--listen", &sim.address]).await;
    assert!(second.err.contains(&sim.address) && second.err.contains("in use"), "{}", second.err);
    assert_eq!(sim.end(Signal::INT).await, Some(130));
}

#[tokio::test]
async fn mistakes_in_the_flags_are_named() {
    let site = Site::new();
    site.write("odd.yaml", "apiVersion: v9\nkind: Thing\nmetadata: { name: x }\n");
    for (flags, words) in [
        ("--fault nonsense", "nonsense"),
        ("--speed 0.5", "--speed"),
        ("--fixture missing.yaml", "missing.yaml"),
        ("--fixture odd.yaml", "v9 Thing"),
        ("--audit no/such/directory", "no/such/directory"),
    ] {
        let flags: Vec<&str> = ["sim"].into_iter().chain(flags.split(' ')).collect();
        let said = site.expect(2, &flags).await;
        assert!(said.err.contains(words), "{flags:?}: {}", said.err);
    }
}

#[tokio::test]
async fn the_faults_are_listed_in_both_languages() {
    let site = Site::new();
    let english = site.expect(0, &["sim", "--list-faults"]).await.out;
    let mut command = site.command(&["sim", "--list-faults"]);
    let chinese = crate::cli::site::said(command.env("LANG", "zh_CN.UTF-8")).await.out;
    let all = site.expect(0, &["sim", "--list-faults", "--output", "json"]).await.json();
    let all = all.as_array().unwrap();
    assert_eq!((english.lines().count(), chinese.lines().count()), (all.len(), all.len()));
    for fault in all {
        let line = |text: &str| {
            let line = text.lines().find(|line| line.split(' ').next() == fault["name"].as_str());
            line.unwrap().to_owned()
        };
        assert!(line(&english).ends_with(fault["about"].as_str().unwrap()));
        assert!(line(&chinese).ends_with(fault["about_zh"].as_str().unwrap()));
    }
}

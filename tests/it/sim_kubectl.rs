//! kubectl against the rehearsal cluster: the commands that people use.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use windrow::sim::Cluster;
use windrow::sim::Options;
use windrow::sim::Platform;
use windrow::time::SystemClock;

/// A served cluster and a kubectl that talks to it.
struct Kubectl {
    cluster: Cluster,
    home: TempDir,
    stop: Option<oneshot::Sender<()>>,
}

/// What a command came to.
#[derive(Debug)]
struct Done {
    ok: bool,
    out: String,
    err: String,
}

impl Kubectl {
    async fn start(fixture: &str) -> Self {
        let options = Options { fixtures: vec![fixture.to_owned()], ..Options::default() };
        let cluster =
            Cluster::start_with(options, Platform::default(), Arc::new(SystemClock::new())).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let home = TempDir::new().unwrap();
        let config = Cluster::kubeconfig(listener.local_addr().unwrap());
        std::fs::write(home.path().join("config"), config).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = cluster.clone();
        tokio::spawn(async move { served.serve(listener, async { drop(stopped.await) }).await });
        Self { cluster, home, stop: Some(stop) }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .arg("--kubeconfig")
            .arg(self.home.path().join("config"))
            .args(arguments)
            .env("HOME", self.home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    async fn try_run(&self, arguments: &[&str], input: &str) -> Done {
        let mut child = self.command(arguments).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap().unwrap();
        Done {
            ok: output.status.success(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs a command that must succeed and returns what it printed.
    async fn run(&self, line: &str) -> String {
        self.feed(line, "").await
    }

    async fn feed(&self, line: &str, input: &str) -> String {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let done = self.try_run(&arguments, input).await;
        assert!(done.ok, "kubectl {line}: {}", done.err);
        assert!(
            !done.err.contains("panic") && !done.err.contains("nable to"),
            "kubectl {line}: {}",
            done.err
        );
        done.out
    }

    /// Runs a command that must fail and returns what it said.
    async fn refuse(&self, line: &str) -> String {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let done = self.try_run(&arguments, "").await;
        assert!(!done.ok, "kubectl {line} succeeded: {}", done.out);
        done.err
    }
}

impl Drop for Kubectl {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The server may have ended first.
            stop.send(()).unwrap_or_default();
        }
    }
}

const FIXTURE: &str = r#"
apiVersion: v1
kind: Node
metadata: { name: n1, labels: { "node-role.kubernetes.io/control-plane": "true" } }
status:
  conditions: [{ type: Ready, status: "True" }]
  nodeInfo: { kubeletVersion: v1.33.4 }
---
apiVersion: v1
kind: Pod
metadata:
  name: p1
  annotations: { "rehearsal.example/log": "first\nlast\n" }
spec:
  nodeName: n1
  containers: [{ name: main, image: "example/main:1" }]
status: { phase: Running, containerStatuses: [{ name: main, ready: true, restartCount: 2, state: {} }] }
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: { name: demo, labels: { tier: web } }
spec: { runStrategy: Always, template: { spec: { domain: {} } } }
status: { printableStatus: Running }
"#;

const NAMESPACE: &str = "
apiVersion: v1
kind: Namespace
metadata: { name: area }
---
apiVersion: v1
kind: ConfigMap
metadata: { name: inside, namespace: area }
";

const MAP: &str = "
apiVersion: v1
kind: ConfigMap
metadata: { name: m1 }
data: { a: one }
";

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_what_is_there() {
    let kubectl = Kubectl::start(FIXTURE).await;
    let nodes = kubectl.run("get nodes").await;
    assert!(nodes.contains("n1") && nodes.contains("Ready") && nodes.contains("control-plane"), "{nodes}");
    let machines = kubectl.run("get vm -A -o wide --show-labels").await;
    assert!(machines.contains("demo") && machines.contains("tier=web"), "{machines}");
    let all = kubectl.run("get all").await;
    assert!(all.contains("pod/p1") && all.contains("virtualmachine.kubevirt.io/demo"), "{all}");
    assert!(kubectl.run("get vm demo -o jsonpath={.spec.runStrategy}").await.contains("Always"));
    assert!(kubectl.run("get vm -l tier=web -o name").await.contains("demo"));
    assert_eq!(kubectl.run("get vm -l tier=db -o name").await, "");
    assert!(kubectl.run("get pods --field-selector spec.nodeName=n1 -o name").await.contains("p1"));
    assert!(kubectl.run("describe pod p1").await.contains("example/main:1"));
    assert!(kubectl.run("describe node n1").await.contains("default"));
    assert!(kubectl.run("describe vm demo").await.contains("Always"));
    assert_eq!(kubectl.run("logs p1").await, "first\nlast\n");
    assert_eq!(kubectl.run("logs p1 --tail=1 -c main").await, "last\n");
    assert!(kubectl.run("api-resources").await.contains("virtualmachineinstances"));
    assert!(kubectl.run("version").await.contains("Server Version: v1.33"));
    let missing = kubectl.refuse("get vm none").await;
    assert_eq!(
        missing.trim(),
        r#"Error from server (NotFound): virtualmachines.kubevirt.io "none" not found"#
    );
    assert!(kubectl.refuse("get nonsense").await.contains("the server doesn't have a resource type"));
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_changes_objects_in_every_way_it_knows() {
    let kubectl = Kubectl::start(FIXTURE).await;
    assert_eq!(kubectl.feed("apply -f -", MAP).await, "configmap/m1 created\n");
    assert_eq!(kubectl.feed("apply -f -", MAP).await, "configmap/m1 unchanged\n");
    assert_eq!(kubectl.feed("apply -f -", &MAP.replace("one", "two")).await, "configmap/m1 configured\n");
    assert_eq!(
        kubectl.feed("apply --server-side -f - --force-conflicts", MAP).await,
        "configmap/m1 serverside-applied\n"
    );
    kubectl.run(r#"patch cm m1 --type=merge -p {"data":{"b":"1"}}"#).await;
    kubectl.run(r#"patch cm m1 --type=json -p [{"op":"replace","path":"/data/b","value":"2"}]"#).await;
    kubectl.run(r#"patch cm m1 -p {"data":{"c":"3"}}"#).await;
    assert_eq!(kubectl.run("get cm m1 -o jsonpath={.data}").await, r#"{"a":"one","b":"2","c":"3"}"#);
    kubectl.run(r#"patch vm demo --type=merge -p {"spec":{"runStrategy":"Halted"}}"#).await;
    assert_eq!(kubectl.run("get vm demo -o jsonpath={.spec.runStrategy}").await, "Halted");
    let refused = kubectl.refuse(r#"patch vm demo --type=strategic -p {"spec":{}}"#).await;
    assert!(refused.contains("UnsupportedMediaType") || refused.contains("not supported"), "{refused}");
    kubectl.run("label vm demo tier=db --overwrite").await;
    kubectl.run("annotate vm demo note=x").await;
    let shown =
        kubectl.run("get vm demo -o jsonpath={.metadata.labels.tier}/{.metadata.annotations.note}").await;
    assert_eq!(shown, "db/x");
    kubectl.run("cordon n1").await;
    assert!(kubectl.run("get nodes").await.contains("Ready,SchedulingDisabled"));
    kubectl.run("uncordon n1").await;
    kubectl.run("taint node n1 a=b:NoSchedule").await;
    assert!(kubectl.run("get node n1 -o jsonpath={.spec.taints[0].key}").await.contains('a'));
    let stale = MAP.replace("m1", "m1, resourceVersion: \"1\"");
    let done = kubectl.try_run(&["replace", "-f", "-"], &stale).await;
    assert!(done.err.contains("the object has been modified"), "{}", done.err);
    let bad = kubectl.try_run(&["create", "-f", "-"], &MAP.replace("m1", "Bad_Name")).await;
    assert!(bad.err.contains("a lowercase RFC 1123 subdomain"), "{}", bad.err);
    assert_eq!(
        kubectl.feed("create -f - --dry-run=server", &MAP.replace("m1", "m2")).await,
        "configmap/m2 created (server dry run)\n"
    );
    kubectl.refuse("get cm m2").await;
    let edits = kubectl.cluster.audit().into_iter().filter(|entry| !entry.controller);
    assert!(edits.into_iter().all(|entry| entry.user_agent.starts_with("kubectl/")));
}

/// These commands send the binary form.
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_creates_and_asks_through_its_typed_clients() {
    let kubectl = Kubectl::start(FIXTURE).await;
    assert_eq!(kubectl.run("create namespace area").await, "namespace/area created\n");
    assert_eq!(
        kubectl.run("create configmap m1 --from-literal=a=one -n area").await,
        "configmap/m1 created\n"
    );
    assert_eq!(kubectl.run("get cm m1 -n area -o jsonpath={.data}").await, r#"{"a":"one"}"#);
    kubectl.run("create secret generic s1 --from-literal=key=value").await;
    assert_eq!(kubectl.run("get secret s1 -o jsonpath={.type}/{.data.key}").await, "Opaque/dmFsdWU=");
    assert_eq!(kubectl.run("create serviceaccount robot").await, "serviceaccount/robot created\n");
    assert!(kubectl.refuse("create serviceaccount robot").await.contains("already exists"));
    assert_eq!(kubectl.run("create cm m2 --dry-run=server").await, "configmap/m2 created (server dry run)\n");
    kubectl.refuse("get cm m2").await;
    assert_eq!(kubectl.run("auth can-i delete pods").await, "yes\n");
    assert!(kubectl.run("auth whoami").await.contains("system:serviceaccount:harvester-system:operator"));
    kubectl.run("drain n1 --force --grace-period=0 --timeout=20s").await;
    kubectl.refuse("get pod p1").await;
    assert!(kubectl.run("get nodes").await.contains("Ready,SchedulingDisabled"));
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_deletes_and_waits() {
    let kubectl = Kubectl::start(FIXTURE).await;
    kubectl.feed("create -f -", MAP).await;
    assert_eq!(kubectl.run("delete cm m1").await, "configmap \"m1\" deleted\n");
    kubectl.feed("create -f -", NAMESPACE).await;
    kubectl.run("delete ns area --timeout=20s").await;
    kubectl.refuse("get ns area").await;
    kubectl.run("wait --for=jsonpath={.status.printableStatus}=Running vm/demo --timeout=20s").await;
    kubectl.run("wait --for=condition=Ready node/n1 --timeout=20s").await;
    let mut waits = kubectl.command(&["wait", "--for=delete", "vm/demo", "--timeout=20s"]).spawn().unwrap();
    let mut watches = kubectl.command(&["get", "vm", "-w"]).spawn().unwrap();
    kubectl.run("delete vm demo").await;
    assert!(tokio::task::spawn_blocking(move || waits.wait()).await.unwrap().unwrap().success());
    watches.kill().unwrap();
    watches.wait().unwrap();
    kubectl.run("delete pod p1 --now --wait=false").await;
    assert!(kubectl.run("get pods").await.contains("Terminating"));
    kubectl.run("delete pod p1 --force --grace-period=0").await;
    kubectl.refuse("get pod p1").await;
}

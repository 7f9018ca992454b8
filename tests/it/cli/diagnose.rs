//! `windrow diagnose`: what is known about an object of a cluster.

use std::process::Stdio;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use kube::api::DynamicObject;
use kube::api::ObjectMeta;
use kube::api::PostParams;
use kube::config::Kubeconfig;
use kube::core::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::json;
use tokio::io::AsyncBufReadExt as _;
use tokio::io::BufReader;
use tokio::process::Child;

use super::site::Site;
use super::site::said;
use super::site::until;
use crate::support::controlplane::ControlPlane;
use crate::support::controlplane::client_of;

const LOST: &str = "
apiVersion: v1
kind: Pod
metadata: { name: lost, namespace: default }
spec:
  nodeSelector: { disk: none-has-this }
  containers: [{ name: c, image: example/c }]
";

/// A cluster with a pod that no node can take. It ends with the test.
async fn cluster(site: &Site, further: &[&str]) -> Child {
    site.write("lost.yaml", LOST);
    let args = ["sim", "--kubeconfig-out", "kubeconfig", "--fixture", "lost.yaml", "--speed", "20"];
    let mut child = site.command(&[&args[..], further].concat()).stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(child.stdout.take().unwrap()).lines().next_line().await.unwrap().unwrap();
    child
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_that_is_known_comes_with_cause_and_remedy() {
    let site = Site::new();
    let _cluster = cluster(&site, &[]).await;
    let args = ["diagnose", "pod", "default/lost", "--kubeconfig", "kubeconfig"];
    let found = until("the scheduler's verdict", async || {
        let found = site.windrow(&args).await;
        (found.code == 8).then_some(found)
    })
    .await;
    for words in ["Pod default/lost", "node affinity/selector", "cause:", "remedy:", "source:"] {
        assert!(found.out.contains(words), "{words} in {}", found.out);
    }
    let chinese = said(site.command(&args).env("LANG", "zh_CN.UTF-8")).await;
    assert!(chinese.out.contains("原因:") && chinese.out.contains("处置:"), "{}", chinese.out);
    let json = site.expect(8, &[&args[..], &["--output", "json"]].concat()).await.json();
    assert_eq!(json["findings"][0]["entry"], "node-selector", "{json:#}");
    assert_eq!(json["missing"], json!([]), "{json:#}");
}

/// The DataVolume itself only says that something failed: the container of a pod behind two claims says what.
#[tokio::test(flavor = "multi_thread")]
async fn an_import_that_fails_is_explained_by_what_works_for_it() {
    let site = Site::new();
    let _cluster = cluster(&site, &["--fault", "import-permission-denied"]).await;
    let kubeconfig = std::fs::read_to_string(site.path("kubeconfig")).unwrap();
    let client = client_of(Kubeconfig::from_yaml(&kubeconfig).unwrap()).await;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cdi.kubevirt.io", "v1beta1", "DataVolume"));
    let volumes: Api<DynamicObject> = Api::default_namespaced_with(client, &kind);
    let spec = json!({
        "source": { "http": { "url": "https://mirror.example/os.img" } },
        "pvc": { "accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "harvester-longhorn",
                 "resources": { "requests": { "storage": "1Gi" } } },
    });
    let volume = DynamicObject::new("imported", &kind).data(json!({ "spec": spec }));
    volumes.create(&PostParams::default(), &volume).await.unwrap();
    let args = ["diagnose", "dv", "imported", "--kubeconfig", "kubeconfig", "--output", "json"];
    // Before the container starts it waits for its volume, and that is told as well.
    let found = until("a failure that does not pass", async || {
        let found = site.windrow(&args).await;
        let first = (found.code == 8).then(|| found.json()["findings"][0].clone());
        first.filter(|first| first["class"] == "permanent")
    })
    .await;
    assert_eq!(
        (&found["entry"], &found["class"]),
        (&json!("import-block-device-denied"), &json!("permanent"))
    );
    // While the container waits for its restart the DataVolume says the same.
    let tells = format!("{} {}", found["object"], found["also"]);
    assert!(tells.contains("Pod default/importer-prime-"), "{found:#}");
    assert!(found["remedy"]["zh"].is_string(), "{found:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_is_looked_at_with_all_that_belongs_to_it() {
    let site = Site::new();
    let _cluster = cluster(&site, &[]).await;
    for kind in ["vm", "VirtualMachine", "virtualmachines.kubevirt.io"] {
        let args = ["diagnose", kind, "demo", "--kubeconfig", "kubeconfig", "--output", "json"];
        let json = site.expect(0, &args).await.json();
        let looked_at = json["looked_at"].to_string();
        for name in [
            "VirtualMachine default/demo",
            "VirtualMachineInstance default/demo",
            "Pod default/virt-launcher-demo",
            "PersistentVolumeClaim default/",
            "PersistentVolume ",
            "Volume longhorn-system/",
        ] {
            assert!(looked_at.contains(name), "{name} in {looked_at}");
        }
        assert_eq!(json["findings"], json!([]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_diagnosed_is_said() {
    let site = Site::new();
    let _cluster = cluster(&site, &[]).await;
    for (kind, object, words) in [
        ("virtualmachin", "default/demo", "did you mean"),
        ("vm", "default/nobody", "VirtualMachine default/nobody does not exist"),
        ("vm", "default/", "not an object name"),
        ("node", "default/node-1", "in no namespace"),
    ] {
        let said = site.expect(2, &["diagnose", kind, object, "--kubeconfig", "kubeconfig"]).await;
        assert!(said.err.contains(words), "{words} in {}", said.err);
    }
    site.expect(6, &["diagnose", "vm", "default/demo", "--kubeconfig", "none"]).await;
}

/// All kinds in one answer, objects of kinds that the server does not know, events: as a real server tells them.
#[test]
fn a_real_api_server_is_understood() {
    let Some(plane) = ControlPlane::shared() else { return };
    let kubeconfig = plane.kubeconfig();
    let kubeconfig = kubeconfig.to_str().unwrap();
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
        let site = Site::new();
        let metadata = ObjectMeta { name: Some("diagnosed".to_owned()), ..ObjectMeta::default() };
        let map = ConfigMap { metadata, ..ConfigMap::default() };
        Api::namespaced(plane.admin().await, "default").create(&PostParams::default(), &map).await.unwrap();
        for (kind, object) in
            [("configmap", "default/diagnosed"), ("cm", "default/diagnosed"), ("Namespace", "kube-system")]
        {
            let args = ["diagnose", kind, object, "--kubeconfig", kubeconfig, "--output", "json"];
            let json = site.expect(0, &args).await.json();
            assert_eq!(json["missing"], json!([]), "{json:#}");
            assert_eq!(json["looked_at"].as_array().map(Vec::len), Some(1), "{json:#}");
        }
        let args = ["diagnose", "confgmap", "default/diagnosed", "--kubeconfig", kubeconfig];
        let said = site.expect(2, &args).await;
        assert!(said.err.contains("did you mean `configmap`"), "{}", said.err);
    });
}

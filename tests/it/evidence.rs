//! What a run keeps of the world when something goes wrong.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Map;
use serde_json::Value;
use serde_json::json;
use tower::ServiceExt as _;
use windrow::action::Executor;
use windrow::action::k8s::client::Cluster;
use windrow::action::secret::Secrets;
use windrow::definition::Library;
use windrow::definition::model::Rehearsal;
use windrow::engine::event::Actor;
use windrow::engine::event::Event;
use windrow::engine::state::RunStatus;
use windrow::journal::MemoryStore;
use windrow::journal::Store as _;
use windrow::rehearsal::Stage;
use windrow::runner::Host;
use windrow::runner::host::Parts;
use windrow::service::Handle;
use windrow::service::operation::Operation;
use windrow::service::operation::Reply;
use windrow::time::SharedClock;
use windrow::time::SystemClock;

use crate::support::START;
use crate::support::stage;

/// An import that fails, and whose undo takes everything away that could tell why.
const IMPORTS: &str = r#"
schema = 1
name = "imports"
title = "Import a disk"
title_zh = "导入磁盘"
[steps.disk]
title = "Make the disk"
title_zh = "创建磁盘"
uses = "k8s.create"
[steps.disk.manifest]
apiVersion = "cdi.kubevirt.io/v1beta1"
kind = "DataVolume"
metadata = { name = "imported", namespace = "default" }
spec.source.http.url = "https://mirror.example/os.img"
spec.pvc.accessModes = ["ReadWriteMany"]
spec.pvc.volumeMode = "Block"
spec.pvc.storageClassName = "harvester-longhorn"
spec.pvc.resources.requests.storage = "1Gi"
[steps.disk.wait]
target = { api = "cdi.kubevirt.io/v1beta1", kind = "DataVolume", namespace = "default", name = "imported" }
track.phase = 'object.?status.?phase.orValue("")'
until = 'object.?status.?phase.orValue("") == "Succeeded"'
fail_if = 'object.?status.?restartCount.orValue(0) >= limit && elapsed > duration("1s")'
let.limit = '2'
timeout = "1h"
[[steps.disk.rollback]]
title = "Delete the disk"
title_zh = "删除磁盘"
uses = "k8s.delete"
target = { api = "cdi.kubevirt.io/v1beta1", kind = "DataVolume", namespace = "default", name = "imported" }
"#;

/// Objects that hold secrets, read by a condition that does not hold.
const SECRETS: &str = r#"
schema = 1
name = "secrets"
title = "Look at secrets"
title_zh = "查看机密"
[steps.look]
title = "Look"
title_zh = "查看"
uses = "assert"
read.secret = { api = "v1", kind = "Secret", namespace = "default", name = "cloud-init" }
read.vm = { api = "kubevirt.io/v1", kind = "VirtualMachine", namespace = "default", name = "with-secrets" }
that = 'secret != null && vm == null'
message = "there is a VM"
message_zh = "存在虚拟机"
"#;
const WITH_SECRETS: &str = "
apiVersion: v1
kind: Secret
metadata: { name: cloud-init, namespace: default }
data: { userdata: c3dvcmRmaXNoLTE= }
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: { name: with-secrets, namespace: default }
spec:
  runStrategy: Halted
  template:
    spec:
      domain: { devices: {} }
      volumes: [{ name: init, cloudInitNoCloud: { userData: swordfish-2, networkData: swordfish-3 } }]
";

/// A run of one of these on the rehearsal cluster, over by the time that this returns.
struct Past {
    stage: Stage,
    view: Value,
}

impl Past {
    async fn of(workflow: &str, text: &str, case: Rehearsal) -> Self {
        let file = format!("{workflow}.toml");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(&file), text).unwrap();
        let library = Arc::new(Library::load(&[folder.path().to_owned()]));
        let stage = stage(&library, &case, 1.0).await;
        let run = stage.start(workflow, &case).await.unwrap();
        stage.handle.end_of(run).await.unwrap();
        let Reply::Run { view } = ask(&stage, Operation::Show { run, events: true }).await.unwrap() else {
            panic!("no run")
        };
        Self { stage, view }
    }

    /// Each document that the run has kept.
    async fn documents(&self) -> Vec<Value> {
        let run = self.view["id"].as_str().unwrap().parse().unwrap();
        let mut documents = vec![];
        for kept in self.view["evidence"].as_array().unwrap() {
            let file = kept["file"].as_str().unwrap().into();
            match ask(&self.stage, Operation::Evidence { run, file }).await {
                Some(Reply::Evidence { document }) => documents.push(document),
                other => panic!("{other:?}"),
            }
        }
        documents
    }
}

async fn ask(stage: &Stage, operation: Operation) -> Option<Reply> {
    stage.handle.call(operation, Actor { name: "ana".into() }).await.ok()
}

fn case(faults: &[&str], fixture: Option<&str>) -> Rehearsal {
    Rehearsal {
        name: "case".to_owned(),
        faults: faults.iter().map(|fault| (*fault).to_owned()).collect(),
        fixture: fixture.map(str::to_owned),
        inputs: std::collections::BTreeMap::new(),
        already: vec![],
        approve: false,
        expect: windrow::definition::model::Expectation::default(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_import_keeps_what_its_undo_takes_away() {
    let past = Past::of("imports", IMPORTS, case(&["import-reset"], None)).await;
    assert_eq!(past.view["state"], "RolledBack", "{:#}", past.view);
    let documents = past.documents().await;
    let [document] = documents.as_slice() else { panic!("one moment: {documents:#?}") };
    assert_eq!(document["step"], "disk");
    assert_eq!(document["trouble"], "failed");
    assert_eq!(document["missing"], json!([]), "everything could be seen");

    let term = |key: &str| {
        let mut terms = document["conditions"].as_array().unwrap().iter();
        terms.find(|term| term["key"] == key).unwrap().clone()
    };
    let fail_if = term("fail_if");
    assert_eq!(fail_if["value"], true, "{fail_if:#}");
    assert_eq!(fail_if["parts"].as_object().unwrap().len(), 2, "{fail_if:#}");
    assert!(fail_if["names"]["object.status.restartCount"].as_u64().unwrap() >= 2, "{fail_if:#}");
    assert_eq!(fail_if["names"]["limit"], 2, "{fail_if:#}");
    assert_eq!(term("until")["value"], false);
    assert!(document["tracks"]["phase"]["value"].is_string());

    let objects = document["objects"].as_array().unwrap();
    let find = |start: &str| {
        let mut found = objects.iter().filter(|seen| seen["name"].as_str().unwrap().starts_with(start));
        found.next().unwrap_or_else(|| panic!("{start} in {objects:#?}")).clone()
    };
    find("DataVolume default/imported");
    find("PersistentVolumeClaim default/imported");
    find("PersistentVolumeClaim default/prime-");
    let importer = find("Pod default/importer-prime-");
    // Trying again may help, says the knowledge: the wait goes on until its own condition ends it.
    let reset = "Connection reset by peer";
    let ended = "/object/status/containerStatuses/0/lastState/terminated/message";
    assert!(importer.pointer(ended).unwrap().as_str().unwrap().contains(reset), "{importer:#}");
    let logs = importer["logs"].as_array().unwrap();
    let previous: Vec<_> = logs.iter().map(|log| log["previous"].as_bool().unwrap()).collect();
    assert_eq!(previous, [true, false], "{logs:#?}");
    assert!(logs[0]["text"].as_str().unwrap().contains(reset), "{logs:#?}");
    let reasons: Vec<_> =
        importer["events"].as_array().unwrap().iter().map(|e| e["reason"].clone()).collect();
    assert!(reasons.contains(&json!("BackOff")), "{reasons:?}");
    let findings = document["findings"].to_string();
    assert!(findings.contains(reset), "{findings}");
}

#[tokio::test(start_paused = true)]
async fn evidence_is_recorded_together_with_what_it_is_about() {
    let past = Past::of("imports", IMPORTS, case(&["import-reset"], None)).await;
    let events = past.view["events"].as_array().unwrap();
    let at = |name: &str| events.iter().position(|event| event["event"].get(name).is_some()).unwrap();
    let (failed, kept) = (at("failed"), at("evidence_kept"));
    assert_eq!(events[failed]["at"], events[kept]["at"], "one append");
    let undo = events[failed..].iter().position(|event| event["event"].get("attempt_started").is_some());
    assert!(kept < failed + undo.unwrap(), "before anything is undone");
}

#[tokio::test(start_paused = true)]
async fn secrets_are_masked_in_what_is_kept() {
    let past = Past::of("secrets", SECRETS, case(&[], Some(WITH_SECRETS))).await;
    assert_eq!(past.view["state"], "Failed", "{:#}", past.view);
    let documents = past.documents().await;
    let text = json!(documents).to_string();
    assert!(text.contains("VirtualMachine default/with-secrets"), "{text}");
    for secret in ["c3dvcmRmaXNoLTE=", "swordfish", "sealed:"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert_eq!(text.matches(windrow::action::secret::MASK).count(), 3, "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_comes_out_well_keeps_nothing() {
    let past = Past::of("imports", IMPORTS, case(&[], None)).await;
    assert_eq!(past.view["state"], "Succeeded");
    assert_eq!(past.view["evidence"], json!([]));
    let id: windrow::id::RunId = past.view["id"].as_str().unwrap().parse().unwrap();
    let made_up = Operation::Evidence { run: id, file: "0".repeat(64).into() };
    assert!(ask(&past.stage, made_up).await.is_none(), "only what the run names is given out");
}

/// The way to a cluster that never answers when it is asked for events.
fn silent_about_events(stage: &Stage) -> kube::Client {
    let cluster = stage.cluster.service();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let cluster = cluster.clone();
        async move {
            if request.uri().path().ends_with("/events") {
                std::future::pending::<()>().await;
            }
            cluster.oneshot(request).await
        }
    });
    kube::Client::new(service, "default")
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_seen_costs_some_seconds_and_changes_no_outcome() {
    let library = Arc::new(Library::from_texts([("imports.toml", IMPORTS)]));
    let case = case(&["import-reset"], None);
    let stage = stage(&library, &case, 1.0).await;
    let clock: SharedClock = Arc::new(SystemClock::starting_at(START, 1.0));
    let cluster = Cluster::of_client(silent_about_events(&stage), clock.clone());
    let store = Arc::new(MemoryStore::new());
    let executor = Arc::new(Executor::new(Secrets::new(None)).with_cluster(cluster));
    let parts = Parts { store: store.clone(), executor, clock, knowledge: library.knowledge() };
    let handle = Handle::new(Host::open(parts).unwrap(), store.clone(), library);
    let start = Operation::Start { workflow: "imports".to_owned(), inputs: Map::new(), key: None };
    let Reply::Started { run } = handle.call(start, Actor { name: "ana".into() }).await.unwrap() else {
        panic!("it starts")
    };
    assert_eq!(handle.end_of(run).await.unwrap(), RunStatus::RolledBack);
    let records = store.read(run).unwrap();
    let file = records.iter().find_map(|record| match &record.event {
        Event::EvidenceKept(evidence) => Some(evidence.file.clone()),
        _ => None,
    });
    let document: Value = serde_json::from_slice(&store.blob(&file.unwrap()).unwrap()).unwrap();
    assert!(document["missing"].to_string().contains("no more time"), "{:#}", document["missing"]);
    assert_eq!(document["objects"][0]["name"], "DataVolume default/imported", "what was seen is there");
    let failed = |event: &Event| matches!(event, Event::Failed { .. });
    let at = records.iter().find(|record| failed(&record.event)).unwrap().at;
    let end = records.last().unwrap().at;
    assert!(end.since(at) < Duration::from_mins(1), "{:?} between failure and end", end.since(at));
}

#[tokio::test(start_paused = true)]
async fn a_stall_is_kept_while_a_person_is_asked() {
    let text = IMPORTS.replace(
        "timeout = \"1h\"",
        "progress = 'double(object.?status.?progress.orValue(\"0%\").replace(\"%\", \"\").replace(\"N/A\", \"0\"))'\n\
         stall_after = \"5m\"\ntimeout = \"1h\"",
    );
    let library = Arc::new(Library::from_texts([("imports.toml", text.as_str())]));
    let case = case(&["import-stall"], None);
    let stage = stage(&library, &case, 1.0).await;
    let run = stage.start("imports", &case).await.unwrap();
    let mut changes = stage.handle.watch(run).unwrap();
    let mut view = Value::Null;
    while view["state"] != "Held" {
        view = changes.recv().await.unwrap().view;
    }
    assert_eq!(view["evidence"][0]["trouble"], "asked", "{view:#}");
}

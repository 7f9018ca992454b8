//! What is read to tell whether an interrupted attempt took effect (E3), and what secrets are in a request (L11).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use serde_json::json;
use windrow::action::request::ObjectRef;
use windrow::definition::Library;
use windrow::engine::RunState;
use windrow::engine::ask::Approval;
use windrow::engine::ask::AskReason;
use windrow::engine::ask::Choice;
use windrow::engine::event::Actor;
use windrow::engine::event::Blob;
use windrow::engine::event::Created;
use windrow::engine::event::Trigger;
use windrow::engine::state::Answered;
use windrow::engine::unit::Block;
use windrow::evaluate::CREATED;
use windrow::evaluate::Evaluator;
use windrow::evaluate::Readings;
use windrow::evaluate::Values;
use windrow::failure::Failure;
use windrow::id::RunId;
use windrow::plan;
use windrow::time::Timestamp;

const WORKFLOW: &str = r#"
schema = 1
name = "makes"
title = "Makes an object"
[inputs.vm]
type = "string"
[inputs.token]
type = "secret"
[steps.make]
uses = "k8s.create"
manifest = { apiVersion = "v1", kind = "ConfigMap", metadata = { name = "{{ inputs.vm }}-copy", namespace = "default" }, data = { token = "{{ inputs.token }}" } }
"#;

const APPROVED: &str = r#"
schema = 1
name = "approved"
title = "Goes on when somebody allows it"
[steps.allow]
uses = "approval"
read.config = { api = "v1", kind = "ConfigMap", namespace = "default", name = "web" }
subject = ["{{ config.metadata.uid }}"]
message = "may it go on?"
expires = "1h"
[steps.go]
after = ["allow"]
uses = "process"
command = ["true"]
idempotent = true
"#;

const WAITS: &str = r#"
schema = 1
name = "waits"
title = "Waits for a VM"
[inputs.vm]
type = "string"
[inputs.token]
type = "secret"
[steps.on]
uses = "k8s.wait"
target = { api = "kubevirt.io/v1", kind = "VirtualMachine", namespace = "default", name = "{{ inputs.vm }}" }
until = 'object.status.ready'
fail_if = 'object.spec.runStratgy == "Halted"'
timeout = "1m"
"#;

/// Everything stands in the event itself.
struct Inline;

impl Values for Inline {
    fn load(&self, blob: &Blob) -> Result<Arc<Value>, Failure> {
        match blob {
            Blob::Inline(value) => Ok(value.clone()),
            Blob::Side(digest) => Err(Failure::permanent("none", digest.to_string())),
        }
    }

    fn keep(&self, value: Arc<Value>) -> Result<Blob, Failure> {
        Ok(Blob::Inline(value))
    }
}

/// Evaluates for a run of a workflow in which nothing but these answers has happened.
fn evaluate<T>(name: &str, text: &str, answers: Vec<Answered>, with: impl FnOnce(Evaluator<'_>) -> T) -> T {
    let library = Library::from_texts([(format!("{name}.toml").as_str(), text)]);
    assert!(library.diagnostics().iter().all(|mistake| !mistake.is_error()), "{:?}", library.diagnostics());
    let name = name.parse().unwrap();
    let plan = plan::from_library(&library, &name).unwrap();
    let now = Timestamp::from_millis(1);
    let created = Created {
        workflow: name,
        digest: plan.digest.clone(),
        cluster: None,
        inputs: Arc::new(json!({ "vm": "web", "token": "env:TOKEN" })),
        secrets: BTreeMap::new(),
        trigger: Trigger::Manual,
        by: Actor { name: "a".into() },
        key: None,
        locks: vec![],
        lock_deadline: None,
        timeout_ms: None,
        inherited: None,
    };
    let run = RunState { answers, ..RunState::create(RunId::new(1, 1), now, &created) };
    let knowledge = library.knowledge();
    with(Evaluator { plan: &plan, run: &run, values: &Inline, knowledge: &knowledge, now, speed: 1.0 })
}

#[test]
fn the_object_that_a_step_creates_is_what_proves_it() {
    let unit = Block::forward("make".parse().unwrap()).unit(None);
    evaluate("makes", WORKFLOW, vec![], |evaluator| {
        let plan = evaluator.reads_to_prepare(&unit).unwrap().unwrap();
        assert!(plan.is_empty(), "nothing is needed before");
        let plan = evaluator.reads_to_observe(&unit).unwrap();
        let [reading] = plan.readings() else { panic!("{plan:?}") };
        assert_eq!(reading.name, CREATED);
        let manifest = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "web-copy", "namespace": "default" } });
        assert_eq!(plan.locate(reading, &Readings::default()).unwrap(), ObjectRef::of_manifest(&manifest));
    });
}

#[test]
fn a_secret_is_a_placeholder_until_the_request_is_sent() {
    let unit = Block::forward("make".parse().unwrap()).unit(None);
    let prepared =
        evaluate("makes", WORKFLOW, vec![], |evaluator| evaluator.prepare(&unit, &Readings::default()));
    let request = prepared.request.unwrap();
    assert_eq!(request.args["manifest"]["data"]["token"], "⟦secret:env:TOKEN⟧");
}

#[test]
fn a_step_that_reads_nothing_looks_again_at_what_was_approved_right_before_it() {
    let allow = Block::forward("allow".parse().unwrap()).unit(None);
    let go = Block::forward("go".parse().unwrap()).unit(None);
    let approval = Approval {
        subject: vec!["a".to_owned()],
        binds: String::new(),
        self_approve: false,
        expiry_declines: false,
        rejection_declines: false,
    };
    let answer = Answered {
        id: 1,
        unit: Some(allow.clone()),
        reason: AskReason::Approval(Box::new(approval)),
        choice: Choice::Approve,
        by: Some(Actor { name: "b".into() }),
        at: Timestamp::from_millis(1),
    };
    evaluate("approved", APPROVED, vec![answer], |evaluator| {
        let plan = evaluator.reads_to_prepare(&go).unwrap().unwrap();
        assert!(plan.readings().is_empty(), "{plan:?}");
        let [reading] = plan.again()[&allow].readings() else { panic!("{plan:?}") };
        assert_eq!(reading.name, "config");
    });
}

/// L7: a young object may lack a member; at a good end a condition that could not be evaluated is a mistake.
#[test]
fn a_mistyped_fail_if_does_not_pass_silently() {
    let unit = Block::forward("on".parse().unwrap()).unit(None);
    for (status, over, warns) in [
        (json!({}), false, None),
        (json!({ "ready": false }), false, None),
        (json!({ "ready": true }), true, Some("no such key: runStratgy")),
    ] {
        let object = json!({ "spec": { "runStrategy": "Always" }, "status": status });
        let readings =
            Readings { values: [("object".to_owned(), Arc::new(object))].into(), ..Readings::default() };
        let report = evaluate("waits", WAITS, vec![], |evaluator| evaluator.judge(&unit, &readings));
        assert_eq!(report.applies.is_some(), over, "{report:?}");
        let warning = report.warning.map(|failure| failure.message);
        assert_eq!(warning.is_some(), warns.is_some(), "{warning:?}");
        assert!(warns.is_none_or(|part| warning.unwrap_or_default().contains(part)));
    }
}

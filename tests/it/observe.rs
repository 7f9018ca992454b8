//! What is read to tell whether an interrupted attempt took effect (E3), and what secrets are in a request (L11).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use serde_json::json;
use windrow::action::request::ObjectRef;
use windrow::definition::Library;
use windrow::engine::RunState;
use windrow::engine::event::Actor;
use windrow::engine::event::Blob;
use windrow::engine::event::Created;
use windrow::engine::event::Trigger;
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

/// Evaluates for a run of the workflow above that has just begun.
fn evaluate<T>(with: impl FnOnce(Evaluator<'_>) -> T) -> T {
    let library = Library::from_texts([("makes.toml", WORKFLOW)]);
    let name = "makes".parse().unwrap();
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
    let run = RunState::create(RunId::new(1, 1), now, &created);
    let knowledge = library.knowledge();
    with(Evaluator { plan: &plan, run: &run, values: &Inline, knowledge: &knowledge, now, speed: 1.0 })
}

#[test]
fn the_object_that_a_step_creates_is_what_proves_it() {
    let unit = Block::forward("make".parse().unwrap()).unit(None);
    evaluate(|evaluator| {
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
    let request = evaluate(|evaluator| evaluator.prepare(&unit, &Readings::default()).request.unwrap());
    assert_eq!(request.args["manifest"]["data"]["token"], "⟦secret:env:TOKEN⟧");
}

//! Which preconditions of a run hold before it is started: read live, nothing written.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::action::Executor;
use crate::definition::knowledge::Knowledge;
use crate::engine::RunState;
use crate::engine::event::Actor;
use crate::engine::event::Blob;
use crate::engine::event::Created;
use crate::engine::event::Trigger;
use crate::engine::unit::Block;
use crate::evaluate::Evaluator;
use crate::evaluate::Standing;
use crate::evaluate::Values;
use crate::failure::Failure;
use crate::id::RunId;
use crate::id::StepName;
use crate::plan::Plan;
use crate::runner::observer::Observer;
use crate::time::SharedClock;

/// With what a preview reads the world.
pub struct Preview {
    /// What reads.
    pub executor: Arc<Executor>,
    /// Where the time comes from.
    pub clock: SharedClock,
    /// What is known about failures.
    pub knowledge: Arc<Knowledge>,
}

impl Preview {
    /// Whether the preconditions of each step hold now, in their order. Steps without any are left out.
    ///
    /// # Errors
    /// A plan that contradicts itself.
    pub async fn preconditions(
        &self,
        plan: &Plan,
        inputs: &Value,
    ) -> Result<BTreeMap<StepName, Vec<Standing>>, Failure> {
        let now = self.clock.now();
        let created = Created {
            workflow: plan.workflow.name.clone(),
            digest: plan.digest.clone(),
            cluster: None,
            inputs: Arc::new(inputs.clone()),
            secrets: BTreeMap::new(),
            trigger: Trigger::Manual,
            by: Actor { name: "plan".into() },
            key: None,
            locks: vec![],
            lock_deadline: None,
            timeout_ms: None,
            inherited: None,
        };
        let run = RunState::create(RunId::new(0, 0), now, &created);
        let (knowledge, speed) = (&self.knowledge, self.clock.speed());
        let evaluator = || Evaluator { plan, run: &run, values: &Nowhere, knowledge, now, speed };
        let mut found = BTreeMap::new();
        let steps = plan.workflow.steps.iter().chain(&plan.workflow.finally);
        for step in steps.filter(|step| !step.preconditions.is_empty()) {
            let unit = Block::forward(step.name.clone()).unit(None);
            let reads = evaluator().reads_to_preview(&unit)?;
            let observer = Observer::new(self.executor.clone(), self.clock.clone(), reads);
            let readings = observer.read().await;
            found.insert(step.name.clone(), evaluator().preview(&unit, &readings)?);
        }
        Ok(found)
    }
}

/// Keeps nothing: there is no store.
struct Nowhere;

impl Values for Nowhere {
    fn load(&self, blob: &Blob) -> Result<Arc<Value>, Failure> {
        match blob {
            Blob::Inline(value) => Ok(value.clone()),
            Blob::Side(_) => Ok(Arc::default()),
        }
    }

    fn keep(&self, value: Arc<Value>) -> Result<Blob, Failure> {
        Ok(Blob::Inline(value))
    }
}

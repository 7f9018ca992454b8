//! What of a workflow can fail, and how a failure is planted there.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;
use serde_json::json;
use windrow::definition::Workflow;
use windrow::definition::model::ActionKind;
use windrow::definition::model::GATE;
use windrow::definition::model::Step;
use windrow::definition::template::Template;
use windrow::engine::unit::Block;
use windrow::engine::unit::Undo;
use windrow::id::WorkflowName;
use windrow::plan::Plan;

/// The object whose presence makes a wait with a trap fail, as a fixture.
pub(super) const TRAP: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: trap, namespace: kube-system}\n";
/// Where it is.
pub(super) const TRAP_PATH: &str = "/api/v1/namespaces/kube-system/configmaps/trap";

/// A step of a workflow, or an entry of its rollback list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) workflow: WorkflowName,
    pub(crate) block: Block,
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.workflow, self.block)
    }
}

impl Spot {
    /// The items of a list are one spot.
    pub(super) fn new(workflow: &WorkflowName, block: &Block) -> Self {
        let mut block = block.clone();
        if let Some(undo) = &mut block.undo {
            undo.item = None;
        }
        Self { workflow: workflow.clone(), block }
    }

    pub(super) fn is_undo(&self) -> bool {
        self.block.undo.is_some()
    }

    /// Every step and every rollback entry of a workflow.
    pub(super) fn all(workflow: &Workflow) -> BTreeSet<Self> {
        let mut all = BTreeSet::new();
        for step in workflow.steps.iter().chain(&workflow.finally) {
            let forward = Block::forward(step.name.clone());
            for entry in 0..step.rollback.len() {
                let undo = Undo { item: None, entry: u16::try_from(entry).unwrap() };
                all.insert(Self::new(&workflow.name, &Block { undo: Some(undo), ..forward.clone() }));
            }
            all.insert(Self::new(&workflow.name, &forward));
        }
        all
    }

    /// The definition of it in a plan or in the plan of a child.
    pub(super) fn step<'p>(&self, plan: &'p Plan) -> Option<&'p Step> {
        let child = || plan.children.get(&self.workflow).map(|child| &child.workflow);
        let workflow = if plan.workflow.name == self.workflow { &plan.workflow } else { child()? };
        let step = workflow.step(&self.block.step)?;
        match &self.block.undo {
            None => Some(step),
            Some(undo) => step.rollback.get(usize::from(undo.entry)),
        }
    }

    /// True for a step or an undo that changes something outside.
    pub(super) fn writes(&self, plan: &Plan) -> bool {
        let Some(step) = self.step(plan) else { return false };
        match step.action.uses {
            ActionKind::K8sApply
            | ActionKind::K8sCreate
            | ActionKind::K8sPatch
            | ActionKind::K8sDelete
            | ActionKind::K8sRestore
            | ActionKind::K8sSubresource
            | ActionKind::K8sEvict
            | ActionKind::Http
            | ActionKind::Process
            | ActionKind::Extension => true,
            ActionKind::K8sRaw => step.action.args.contains_key("method"),
            ActionKind::K8sGet
            | ActionKind::K8sList
            | ActionKind::K8sDryRun
            | ActionKind::K8sLogs
            | ActionKind::K8sEvents
            | ActionKind::K8sWait
            | ActionKind::Tcp
            | ActionKind::Sleep
            | ActionKind::Approval
            | ActionKind::Assert
            | ActionKind::Debt
            | ActionKind::Workflow => false,
        }
    }

    /// The ways in which it can fail for good.
    pub(super) fn ways(&self, plan: &Plan) -> Vec<Way> {
        // The gate before a destructive workflow stands in no document; its own steps fail instead.
        let Some(step) = self.step(plan).filter(|step| step.name.as_str() != GATE) else { return vec![] };
        let acts = !matches!(step.action.uses, ActionKind::Workflow | ActionKind::K8sWait);
        let ways = [(Way::Action, acts), (Way::Wait, step.wait.is_some()), (Way::Outputs, !self.is_undo())];
        ways.into_iter().filter_map(|(way, can)| can.then_some(way)).collect()
    }

    /// Its table in the document of a plan.
    fn table<'d>(&self, document: &'d mut Value) -> &'d mut Value {
        let tree = &mut document["workflows"][self.workflow.as_str()]["tree"];
        let step = self.block.step.as_str();
        let list = if tree["steps"].get(step).is_some() { "steps" } else { "finally" };
        let table = &mut tree[list][step];
        match &self.block.undo {
            None => table,
            Some(undo) => &mut table["rollback"][usize::from(undo.entry)],
        }
    }
}

/// How a spot fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// The API refuses the request for good; what sends none fails before it acts.
    Action,
    /// It took effect, and what is waited for never comes true.
    Wait,
    /// It took effect, and then its outputs cannot be evaluated.
    Outputs,
}

/// A failure that is planted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sabotage {
    pub(crate) spot: Spot,
    pub(crate) way: Way,
}

impl fmt::Display for Sabotage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.way {
            Way::Action => "refused",
            Way::Wait => "waits in vain",
            Way::Outputs => "without outputs",
        };
        write!(f, "{} {how}", self.spot)
    }
}

/// The requests of a spot that are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Writes by this field manager.
    Manager(String),
    /// Requests to this path.
    Path(String),
    /// Every read.
    Reads,
}

impl Refusal {
    pub(super) fn concerns<B>(&self, request: &http::Request<B>) -> bool {
        let is_read = request.method() == http::Method::GET;
        let query = request.uri().query().unwrap_or_default();
        match self {
            Self::Manager(manager) => {
                !is_read && query.split('&').any(|pair| pair == format!("fieldManager={manager}"))
            }
            Self::Path(path) => request.uri().path_and_query().is_some_and(|found| found.as_str() == path),
            Self::Reads => is_read && !query.contains("watch="),
        }
    }
}

impl Sabotage {
    /// Changes the definition where that is what makes the spot fail.
    pub(super) fn plant(&self, plan: &Plan, document: &mut Value) {
        let step = self.spot.step(plan).unwrap();
        let table = self.spot.table(document);
        match self.way {
            Way::Action if step.action.uses == ActionKind::Assert => {
                table["that"] = "false".into();
                // One that only warns does not fail.
                table["severity"] = "bad".into();
            }
            Way::Action if step.action.uses.needs_cluster() => {}
            Way::Action => {
                let never = json!({ "that": "false", "message": "sabotaged" });
                match table.get_mut("preconditions").and_then(Value::as_array_mut) {
                    Some(list) => list.push(never),
                    None => table["preconditions"] = json!([never]),
                }
            }
            Way::Wait => {
                let wait = if step.action.uses == ActionKind::K8sWait { table } else { &mut table["wait"] };
                wait["read"]["trap"] =
                    json!({ "api": "v1", "kind": "ConfigMap", "namespace": "kube-system", "name": "trap" });
                let own = wait.get("fail_if").and_then(Value::as_str).map(str::to_owned);
                wait["fail_if"] =
                    own.map_or("trap != null".to_owned(), |own| format!("trap != null || ({own})")).into();
            }
            Way::Outputs => table["outputs"]["sabotaged"] = "{{ 1 / 0 }}".into(),
        }
    }

    /// What the API refuses while the spot acts.
    pub(super) fn refusal(&self, plan: &Plan) -> Option<Refusal> {
        let step = self.spot.step(plan)?;
        if self.way != Way::Action || !step.action.uses.needs_cluster() {
            return None;
        }
        Some(match (step.action.uses, step.action.args.get("path")) {
            (ActionKind::K8sRaw, Some(Template::Plain(Value::String(path)))) => Refusal::Path(path.clone()),
            (ActionKind::K8sGet | ActionKind::K8sList | ActionKind::K8sLogs | ActionKind::K8sEvents, _) => {
                Refusal::Reads
            }
            _ => Refusal::Manager(format!("windrow-{}-{}", self.spot.workflow, self.spot.block.step)),
        })
    }
}

//! What a run would do, as data: order, groups, writes, rollback, locks. `windrow plan` shows it.

use serde::Serialize;
use serde_json::Map;
use serde_json::Value;

use crate::definition::expr::Scope;
use crate::definition::model::ActionKind;
use crate::definition::model::Namespace;
use crate::definition::model::Precondition;
use crate::definition::model::Select;
use crate::definition::model::Step;
use crate::definition::model::Target;
use crate::definition::template::Template;
use crate::failure::Bilingual;
use crate::failure::Failure;
use crate::id::StepName;
use crate::plan::Plan;
use crate::plan::draw::commit_word;

/// A plan explained.
#[derive(Debug, Serialize)]
pub struct Explained {
    /// The workflow.
    pub workflow: String,
    /// Its title.
    pub title: Bilingual,
    /// What a run would be pinned to.
    pub digest: String,
    /// The inputs, defaults filled in.
    pub inputs: Value,
    /// uid of the cluster on which the preconditions were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Why the cluster could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<Failure>,
    /// Keys of the locks.
    pub locks: Vec<String>,
    /// How long to queue for them.
    pub lock_wait: Option<String>,
    /// Limit of the run.
    pub timeout: Option<String>,
    /// The steps that can run side by side, one group after the other.
    pub groups: Vec<Vec<StepName>>,
    /// The steps in order.
    pub steps: Vec<ExplainedStep>,
    /// What runs at the end, whatever happened.
    pub finally: Vec<ExplainedStep>,
    /// Conditions between steps.
    pub guards: Vec<ExplainedGuard>,
}

/// A step explained.
#[derive(Debug, Serialize)]
pub struct ExplainedStep {
    /// Its name.
    pub name: StepName,
    /// Its title.
    pub title: Bilingual,
    /// The action.
    pub uses: ActionKind,
    /// The steps before it.
    pub after: Vec<StepName>,
    /// It is skipped if this is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// It runs for each item of this list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_each: Option<String>,
    /// What must hold before the action.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preconditions: Vec<ExplainedCondition>,
    /// What it may write.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<Write>,
    /// Its limit of time for the wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// `on_success` or `on_start`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<&'static str>,
    /// What undoes it, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rollback: Vec<ExplainedUndo>,
    /// The first commit step from which on it is not undone any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undone_until: Option<StepName>,
    /// What a called workflow does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child: Option<Box<Explained>>,
}

/// A precondition.
#[derive(Debug, Serialize)]
pub struct ExplainedCondition {
    /// The expression.
    pub that: String,
    /// How long it is waited for; none fails at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// Whether it holds now; none if that is not known. Filled in by whoever looks at the world.
    pub holds: Option<bool>,
    /// Why it does not hold, or why that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Bilingual>,
}

/// An entry of a rollback list.
#[derive(Debug, Serialize)]
pub struct ExplainedUndo {
    /// Its title.
    pub title: Bilingual,
    /// The action.
    pub uses: ActionKind,
    /// It is left out if this is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// What it may write.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<Write>,
}

/// A guard.
#[derive(Debug, Serialize)]
pub struct ExplainedGuard {
    /// Begins when this step has succeeded.
    pub from: StepName,
    /// Ends when this step starts.
    pub to: StepName,
    /// What must hold.
    pub that: String,
}

/// A write to the world. Parts that are only known during the run stand as written, with their `{{ }}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Write {
    /// As in an audit log: `create`, `patch`, `delete`, `put`, …; `run` for a program.
    pub verb: String,
    /// The API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// The kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name, or how the objects are picked; of other actions the URL, path or program.
    pub name: String,
    /// The subresource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
}

impl Plan {
    /// What a run with these inputs, defaults filled in, would do.
    pub fn explain(&self, inputs: &Value) -> Explained {
        let mut scope = Scope::default();
        scope.bind("inputs", inputs.clone());
        scope.lets.clone_from(&self.workflow.lets);
        let workflow = &self.workflow;
        let text = |template: &Option<Template>| template.as_ref().map(|template| shown(template, &scope));
        let step = |step: &Step| self.explain_step(step, &scope);
        Explained {
            workflow: workflow.name.to_string(),
            title: workflow.title.clone(),
            digest: self.digest.to_string(),
            inputs: inputs.clone(),
            cluster: None,
            unreachable: None,
            locks: workflow.locks.iter().map(|lock| shown(lock, &scope)).collect(),
            lock_wait: text(&workflow.lock_wait),
            timeout: text(&workflow.timeout),
            groups: self.graph.groups().to_vec(),
            steps: self.graph.order().iter().filter_map(|name| workflow.step(name)).map(step).collect(),
            finally: workflow.finally.iter().map(step).collect(),
            guards: workflow
                .guards
                .iter()
                .map(|guard| ExplainedGuard {
                    from: guard.from.clone(),
                    to: guard.to.clone(),
                    that: guard.that.source().to_owned(),
                })
                .collect(),
        }
    }

    fn explain_step(&self, step: &Step, scope: &Scope) -> ExplainedStep {
        let source = |expr: &crate::definition::expr::Expr| expr.source().to_owned();
        ExplainedStep {
            name: step.name.clone(),
            title: step.title.clone(),
            uses: step.action.uses,
            after: step.after.iter().map(|after| after.step.clone()).collect(),
            when: step.when.as_ref().map(source),
            for_each: step.for_each.as_ref().map(|each| each.list.source().to_owned()),
            preconditions: step
                .preconditions
                .iter()
                .map(|condition| explain_condition(condition, scope))
                .collect(),
            writes: writes(step, scope),
            wait: step.wait.as_ref().map(|wait| shown(&wait.timeout, scope)),
            commit: step.commit.map(commit_word),
            rollback: step.rollback.iter().map(|entry| explain_undo(entry, scope)).collect(),
            undone_until: self.undone_until(step),
            child: self.explain_child(step, scope),
        }
    }

    /// The first commit step that is this step or behind it.
    fn undone_until(&self, step: &Step) -> Option<StepName> {
        let commits = |name: &&StepName| {
            let behind = **name == step.name || self.graph.is_before(&step.name, name);
            behind && self.workflow.step(name).is_some_and(|step| step.commit.is_some())
        };
        self.graph.order().iter().find(commits).cloned()
    }

    fn explain_child(&self, step: &Step, scope: &Scope) -> Option<Box<Explained>> {
        let child = self.children.get(&step.action.child()?)?;
        let given = match step.action.args.get("inputs") {
            Some(Template::Map(entries)) => entries
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), value.render(scope).ok()??)))
                .collect(),
            Some(Template::Plain(Value::Object(given))) => given.clone(),
            _ => Map::new(),
        };
        // What is only known during the run stays out; the child's texts then show its expressions.
        let defaults =
            child.workflow.inputs.iter().filter_map(|(name, input)| Some((name, input.default.as_ref()?)));
        let mut inputs: Map<String, Value> =
            defaults.map(|(name, value)| (name.clone(), value.clone())).collect();
        inputs.extend(given);
        Some(Box::new(child.explain(&Value::Object(inputs))))
    }
}

fn explain_condition(condition: &Precondition, scope: &Scope) -> ExplainedCondition {
    ExplainedCondition {
        that: condition.that.source().to_owned(),
        wait: condition.wait.as_ref().map(|wait| shown(wait, scope)),
        holds: None,
        why: None,
    }
}

fn explain_undo(entry: &Step, scope: &Scope) -> ExplainedUndo {
    ExplainedUndo {
        title: entry.title.clone(),
        uses: entry.action.uses,
        when: entry.when.as_ref().map(|when| when.source().to_owned()),
        writes: writes(entry, scope),
    }
}

/// The value if it is known before the run, else the text as written.
fn shown(template: &Template, scope: &Scope) -> String {
    template.render_text(scope).unwrap_or_else(|_| template.source())
}

fn writes(step: &Step, scope: &Scope) -> Vec<Write> {
    let arg = |key: &str| step.action.args.get(key).map(|template| shown(template, scope));
    let method = |default: &str| arg("method").unwrap_or_else(|| default.to_owned()).to_lowercase();
    let on_target = |verb: &str| step.target.as_ref().map(|target| on(verb, target, scope));
    let bare = |verb: String, name: Option<String>| Write {
        verb,
        api: None,
        kind: None,
        namespace: None,
        name: name.unwrap_or_default(),
        subresource: None,
    };
    let write = match step.action.uses {
        ActionKind::K8sPatch | ActionKind::K8sRestore => on_target("patch"),
        ActionKind::K8sDelete => on_target("delete"),
        ActionKind::K8sEvict => {
            on_target("create").map(|write| Write { subresource: Some("eviction".to_owned()), ..write })
        }
        ActionKind::K8sCreate => {
            step.action.args.get("manifest").map(|manifest| of_manifest("create", manifest, scope))
        }
        ActionKind::K8sApply => {
            step.action.args.get("manifest").map(|manifest| of_manifest("patch", manifest, scope))
        }
        ActionKind::K8sSubresource => {
            on_target(&method("put")).map(|write| Write { subresource: arg("path"), ..write })
        }
        ActionKind::K8sRaw => Some(bare(method("get"), arg("path"))),
        ActionKind::Http => Some(bare(method("get"), arg("url"))),
        ActionKind::Process => Some(bare("run".to_owned(), arg("command"))),
        ActionKind::Extension => Some(bare("run".to_owned(), arg("name"))),
        _ => None,
    };
    write.filter(|write| !matches!(write.verb.as_str(), "get" | "head")).into_iter().collect()
}

fn on(verb: &str, target: &Target, scope: &Scope) -> Write {
    let name = match &target.select {
        Select::Name(name) | Select::Names(name) => shown(name, scope),
        Select::Match { labels, fields } => {
            let parts: Vec<_> =
                [labels, fields].into_iter().flatten().map(|part| shown(part, scope)).collect();
            parts.join(",")
        }
        Select::All => "*".to_owned(),
    };
    let namespace = match &target.namespace {
        Namespace::Named(namespace) => Some(shown(namespace, scope)),
        Namespace::All => Some("*".to_owned()),
        Namespace::Unset => None,
    };
    Write {
        verb: verb.to_owned(),
        api: Some(shown(&target.api, scope)),
        kind: Some(shown(&target.kind, scope)),
        namespace,
        name,
        subresource: None,
    }
}

fn of_manifest(verb: &str, manifest: &Template, scope: &Scope) -> Write {
    let part = |path: &[&str]| manifest.at(path).map(|template| shown(&template, scope));
    Write {
        verb: verb.to_owned(),
        api: part(&["apiVersion"]),
        kind: part(&["kind"]),
        namespace: part(&["metadata", "namespace"]),
        name: part(&["metadata", "name"]).unwrap_or_default(),
        subresource: None,
    }
}

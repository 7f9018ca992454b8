//! A validated workflow. Only the loader builds these values; whoever holds one may rely on L1 (no unknown names, no
//! cycles, every expression compiles).

mod action;
mod rehearsal;
mod wait;

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::definition::expr::Expr;
use crate::definition::template::Template;
use crate::failure::Bilingual;
use crate::id::StepName;
use crate::id::WorkflowName;

pub use action::Action;
pub use action::ActionKind;
pub use rehearsal::Expectation;
pub use rehearsal::Rehearsal;
pub use wait::AtTimeout;
pub use wait::Guard;
pub use wait::Outcome;
pub use wait::Severity;
pub use wait::Verdict;
pub use wait::Wait;

/// A runbook as data: a graph of steps.
#[derive(Debug, Clone)]
pub struct Workflow {
    /// Its name, which is the name of its file.
    pub name: WorkflowName,
    /// One line for people.
    pub title: Bilingual,
    /// What it does, and where it differs from the manual.
    pub description: Option<Bilingual>,
    /// Where the procedure is written down.
    pub source: Option<String>,
    /// What a caller gives.
    pub inputs: BTreeMap<String, Input>,
    /// Named targets.
    pub objects: BTreeMap<String, Target>,
    /// Named expressions, evaluated where they are used.
    pub lets: BTreeMap<String, Expr>,
    /// Keys of the locks that a run holds from start to end, as text templates.
    pub locks: Vec<Template>,
    /// How long to queue for the locks; `None` is without limit, zero refuses.
    pub lock_wait: Option<Template>,
    /// From lock acquisition to the end, rollback excluded.
    pub timeout: Option<Template>,
    /// Runs the child workflow `platform-gate` first.
    pub destructive: bool,
    /// Shows its plan to whoever starts it and asks.
    pub confirm: bool,
    /// The steps, in the order of the file.
    pub steps: Vec<Step>,
    /// Steps that run after everything else, whatever happened.
    pub finally: Vec<Step>,
    /// Conditions that must hold between two steps.
    pub guards: Vec<Guard>,
    /// What a run gives back.
    pub outputs: BTreeMap<String, Template>,
    /// The steps whose worst verdict is that of the run; where two are as bad, the first listed counts.
    pub verdict_of: Vec<StepName>,
    /// The workflow's own tests.
    pub rehearsals: Vec<Rehearsal>,
}

impl Workflow {
    /// The step or finally step of that name.
    pub fn step(&self, name: &StepName) -> Option<&Step> {
        self.steps.iter().chain(&self.finally).find(|step| step.name == *name)
    }

    /// True if some step of it or of its guards reads or writes objects of a cluster.
    pub fn needs_cluster(&self) -> bool {
        let own =
            self.steps.iter().chain(&self.finally).flat_map(|step| [step].into_iter().chain(&step.rollback));
        let in_step = |step: &Step| {
            let waits =
                step.wait.as_ref().is_some_and(|wait| wait.target.is_some() || !wait.reads.is_empty());
            step.target.is_some() || !step.reads.is_empty() || waits || step.action.uses.needs_cluster()
        };
        own.into_iter().any(in_step) || self.guards.iter().any(|guard| !guard.reads.is_empty())
    }

    /// The workflows that its steps call, each once.
    pub fn children(&self) -> BTreeSet<WorkflowName> {
        let entries =
            self.steps.iter().chain(&self.finally).flat_map(|step| [step].into_iter().chain(&step.rollback));
        entries.filter_map(|step| step.action.child()).collect()
    }

    /// The same with the child workflow `platform-gate` before everything else, if it is destructive (L12).
    #[must_use]
    pub(super) fn with_gate(mut self) -> Self {
        if !self.destructive {
            return self;
        }
        let Ok(gate) = GATE.parse::<StepName>() else { return self };
        for step in self.steps.iter_mut().filter(|step| step.after.is_empty()) {
            step.after.push(After { step: gate.clone(), on_any: false });
        }
        self.steps.insert(0, Step::call(gate, GATE));
        self
    }
}

/// The workflow, and the step, that runs before a destructive one.
pub const GATE: &str = "platform-gate";

/// How deep workflows may call each other (E9): as deep as a person can still follow.
pub const CHILD_DEPTH_MAX: u8 = 8;

/// What a caller gives to a workflow.
#[derive(Debug, Clone)]
pub struct Input {
    /// The type, with its rules.
    pub kind: InputKind,
    /// For people.
    pub description: Bilingual,
    /// Used when the caller gives nothing; without it the input is required.
    pub default: Option<serde_json::Value>,
}

/// The type of an input.
#[derive(Debug, Clone)]
pub enum InputKind {
    /// A text, which must match the pattern from start to end.
    String {
        /// A regular expression.
        pattern: Option<regex::Regex>,
    },
    /// An integer within bounds.
    Int {
        /// The least value.
        min: Option<i64>,
        /// The greatest value.
        max: Option<i64>,
    },
    /// true or false.
    Bool,
    /// A duration such as `90s`, `2h30m`.
    Duration,
    /// One of some texts.
    Enum(Vec<String>),
    /// A list of texts, each of which must match the pattern.
    List {
        /// A regular expression.
        pattern: Option<regex::Regex>,
    },
    /// A reference to a secret: `env:NAME`, `file:PATH` or `k8s:NAMESPACE/NAME/KEY`.
    Secret,
}

impl InputKind {
    /// Its name, as in workflow files.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::String { .. } => "string",
            Self::Int { .. } => "int",
            Self::Bool => "bool",
            Self::Duration => "duration",
            Self::Enum(_) => "enum",
            Self::List { .. } => "list",
            Self::Secret => "secret",
        }
    }
}

/// Which objects of the cluster (L3).
#[derive(Debug, Clone)]
pub struct Target {
    /// `v1`, `kubevirt.io/v1`, …
    pub api: Template,
    /// The kind in CamelCase; never a short name.
    pub kind: Template,
    /// Where, for namespaced kinds.
    pub namespace: Namespace,
    /// Which ones.
    pub select: Select,
    /// An empty list is fine.
    pub allow_empty: bool,
    /// A kind that the server does not know counts as "no such object".
    pub optional: bool,
}

impl Target {
    /// The object that a manifest describes; none without apiVersion, kind or name.
    pub fn of_manifest(manifest: &Template) -> Option<Self> {
        let namespace = manifest.at(&["metadata", "namespace"]);
        Some(Self {
            api: manifest.at(&["apiVersion"])?,
            kind: manifest.at(&["kind"])?,
            namespace: namespace.map_or(Namespace::Unset, Namespace::Named),
            select: Select::Name(manifest.at(&["metadata", "name"])?),
            allow_empty: false,
            optional: false,
        })
    }

    /// Every template in it.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        let namespace = match &self.namespace {
            Namespace::Named(template) => Some(template),
            Namespace::Unset | Namespace::All => None,
        };
        let select = match &self.select {
            Select::Name(template) | Select::Names(template) => [Some(template), None],
            Select::Match { labels, fields } => [labels.as_ref(), fields.as_ref()],
            Select::All => [None, None],
        };
        [Some(&self.api), Some(&self.kind), namespace].into_iter().chain(select).flatten()
    }

    /// The variables that it names.
    pub fn references(&self) -> BTreeSet<&str> {
        self.templates().flat_map(Template::references).collect()
    }
}

/// The namespace of a target.
#[derive(Debug, Clone)]
pub enum Namespace {
    /// A cluster-scoped kind, or the cluster's default namespace.
    Unset,
    /// That one.
    Named(Template),
    /// All of them.
    All,
}

/// How a target picks objects.
#[derive(Debug, Clone)]
pub enum Select {
    /// One object by name; null makes the whole target null.
    Name(Template),
    /// Several by name.
    Names(Template),
    /// By labels and by fields.
    Match {
        /// A label selector.
        labels: Option<Template>,
        /// A field selector.
        fields: Option<Template>,
    },
    /// Every object.
    All,
}

impl Select {
    /// True if the target binds one object, false if it binds a list.
    pub const fn is_single(&self) -> bool {
        matches!(self, Self::Name(_))
    }
}

/// One node of the graph, or one entry of a step's rollback list, which has the same keys (L9).
#[derive(Debug, Clone)]
pub struct Step {
    /// Unique in the workflow; a rollback entry has the name of its step.
    pub name: StepName,
    /// One line for people.
    pub title: Bilingual,
    /// The steps before this one.
    pub after: Vec<After>,
    /// False: the step is skipped.
    pub when: Option<Expr>,
    /// Runs once for each item of a list.
    pub for_each: Option<ForEach>,
    /// A check over `items` of a verifying step.
    pub covers: Option<Expr>,
    /// The run goes on when this step failed.
    pub continue_on_error: bool,
    /// Where nothing before this step is undone any more.
    pub commit: Option<Commit>,
    /// The object that the step is about, bound as `object`.
    pub target: Option<Target>,
    /// Further objects, bound by name. The order is such that each uses only earlier ones.
    pub reads: Vec<(String, Target)>,
    /// Named expressions.
    pub lets: BTreeMap<String, Expr>,
    /// What is remembered of the world before the first attempt, bound as `captured`.
    pub captures: BTreeMap<String, Expr>,
    /// True: the step's effect is there already.
    pub check: Option<Expr>,
    /// An action that may be repeated without harm.
    pub idempotent: bool,
    /// What must hold before the action.
    pub preconditions: Vec<Precondition>,
    /// What the step does.
    pub action: Action,
    /// How failures are repeated.
    pub retry: Retry,
    /// Limit for one attempt's action.
    pub attempt_timeout: Option<Template>,
    /// Limit from the first read to the end, retries included.
    pub timeout: Option<Template>,
    /// What must become true after the action.
    pub wait: Option<Wait>,
    /// What later steps may read.
    pub outputs: BTreeMap<String, Template>,
    /// What undoes the step, in order.
    pub rollback: Vec<Step>,
    /// Only in a rollback entry: what is left when its `when` is false, as a text.
    pub else_debt: Option<Template>,
}

impl Step {
    /// A step that calls a workflow without inputs.
    fn call(name: StepName, workflow: &str) -> Self {
        let args = BTreeMap::from([("name".to_owned(), Template::Plain(workflow.into()))]);
        let title = Bilingual { en: "Check the platform".to_owned(), zh: Some("检查平台".to_owned()) };
        Self {
            name,
            title,
            after: vec![],
            when: None,
            for_each: None,
            covers: None,
            continue_on_error: false,
            commit: None,
            target: None,
            reads: vec![],
            lets: BTreeMap::new(),
            captures: BTreeMap::new(),
            check: None,
            idempotent: false,
            preconditions: vec![],
            action: Action { uses: ActionKind::Workflow, args, that: None },
            retry: Retry::default(),
            attempt_timeout: None,
            timeout: None,
            wait: None,
            outputs: BTreeMap::new(),
            rollback: vec![],
            else_debt: None,
        }
    }
}

/// An edge of the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct After {
    /// The earlier step.
    pub step: StepName,
    /// Also when it failed with `on_error = "continue"`, not only when it succeeded or was skipped.
    pub on_any: bool,
}

/// Repetition over a list (L2).
#[derive(Debug, Clone)]
pub struct ForEach {
    /// The list; evaluated once and journalled.
    pub list: Expr,
    /// The key of an item; the item itself where that is a scalar.
    pub item_key: Option<Expr>,
    /// How many items run at once.
    pub max_parallel: u32,
    /// How many items may fail.
    pub max_failures: MaxFailures,
    /// An empty list is fine.
    pub allow_empty: bool,
}

/// How many items of a `for_each` may fail before the step fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxFailures {
    /// At most so many.
    Count(u32),
    /// Any number: the step succeeds whatever its items do.
    All,
}

/// Where undo ends (E6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// When the step has succeeded.
    OnSuccess,
    /// As soon as its first attempt starts.
    OnStart,
}

/// A condition for the action.
#[derive(Debug, Clone)]
pub struct Precondition {
    /// Must be true.
    pub that: Expr,
    /// What is wrong when it is not; a text template.
    pub message: Template,
    /// The same in Chinese.
    pub message_zh: Option<Template>,
    /// How long to wait for it; without it, unmet is a failure at once.
    pub wait: Option<Template>,
}

/// How failures are repeated (E4).
#[derive(Debug, Clone)]
pub struct Retry {
    /// Attempts in all, at least 1.
    pub attempts: u32,
    /// Before the second attempt; a duration.
    pub delay: Template,
    /// Each further delay is so many times the one before.
    pub factor: f64,
    /// The longest delay.
    pub max_delay: Template,
    /// Part of the delay that varies, 0 to 1.
    pub jitter: f64,
    /// A failed wait repeats the action as well.
    pub wait: bool,
    /// Between two attempts the rollback entries run.
    pub undo: bool,
}

impl Default for Retry {
    fn default() -> Self {
        let duration = |text: &str| Template::Plain(text.into());
        Self {
            attempts: 3,
            delay: duration("2s"),
            factor: 2.0,
            max_delay: duration("30s"),
            jitter: 0.2,
            wait: false,
            undo: false,
        }
    }
}

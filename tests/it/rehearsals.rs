//! Every shipped workflow's own rehearsals, and whether they leave anything undecided.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;
use windrow::definition::Library;
use windrow::definition::Workflow;
use windrow::definition::model::Rehearsal;
use windrow::definition::template::Piece;
use windrow::definition::template::Template;
use windrow::rehearsal::Judgement;
use windrow::rehearsal::Stage;

use crate::harness::in_parallel;
use crate::harness::workers;
use crate::paths::Paths;
use crate::support::stage;

/// How long a run may take by its own clock; the longest shipped case takes less than an hour.
const LIMIT: Duration = Duration::from_hours(2);

/// The speed of `windrow rehearse` where none is given: what people see must come out as it says.
const SPEED: f64 = 20.0;

/// Runs one case on a cluster of its own.
pub(super) async fn rehearse(library: &Arc<Library>, workflow: &str, case: &Rehearsal) -> (Value, Judgement) {
    rehearse_on(&stage(library, case, SPEED).await, workflow, case).await
}

/// Runs one case to its end, or until it needs a person.
pub(super) async fn rehearse_on(stage: &Stage, workflow: &str, case: &Rehearsal) -> (Value, Judgement) {
    let run = stage.start(workflow, case).await.unwrap();
    let mut last = Value::Null;
    let end = tokio::time::timeout(LIMIT, stage.attend(run, case, |view| last = view.clone())).await;
    let view = end.unwrap_or_else(|_| panic!("{workflow} {} does not end: {last:#}", case.name)).unwrap();
    let judgement = stage.judge(&view, &case.expect).await;
    (view, judgement)
}

/// The code of a verdict that could not be evaluated: a mistake in the workflow.
const UNCLEAR: &str = "expression-failed";

/// What decided in a run: names of verdicts, messages of failures, numbers of undo entries that acted.
#[derive(Default)]
struct Decided {
    verdicts: BTreeSet<String>,
    messages: Vec<String>,
    undone: BTreeSet<String>,
}

impl Decided {
    fn note(&mut self, view: &Value) {
        self.messages.extend(view["failure"]["message"].as_str().map(str::to_owned));
        let asked = view["asks"].as_array().into_iter().flatten();
        self.messages.extend(asked.filter_map(|ask| ask["message"]["en"].as_str().map(str::to_owned)));
        for step in view["steps"].as_array().into_iter().flatten() {
            let name = step["name"].as_str().unwrap_or_default();
            if let Some(verdict) = step["verdict"]["name"].as_str() {
                self.verdicts.insert(format!("{name}: {verdict}"));
            }
            self.messages.extend(step["failure"]["message"].as_str().map(str::to_owned));
            for entry in step["rollback"]["entries"].as_array().into_iter().flatten() {
                let acted = entry["changed"] == true || entry["verdict"].is_object();
                if acted {
                    self.undone.insert(format!("{name}: {}", entry["entry"]));
                }
            }
        }
    }

    fn add(&mut self, mut other: Self) {
        self.verdicts.append(&mut other.verdicts);
        self.messages.append(&mut other.messages);
        self.undone.append(&mut other.undone);
    }

    /// What no rehearsal of `workflow` turned on.
    fn missing(&self, workflow: &Workflow) -> Vec<String> {
        let mut missing = vec![];
        for step in &workflow.steps {
            let name = &step.name;
            for verdict in step.wait.iter().flat_map(|wait| &wait.verdicts) {
                if !self.verdicts.contains(&format!("{name}: {}", verdict.name)) {
                    missing.push(format!("verdict {} of {name}", verdict.name));
                }
            }
            for precondition in &step.preconditions {
                if !self.said(&precondition.message) {
                    missing.push(format!("precondition `{}` of {name}", precondition.that.source()));
                }
            }
            for (number, entry) in step.rollback.iter().enumerate() {
                if !self.undone.contains(&format!("{name}: {number}")) {
                    missing.push(format!("undo entry {number} of {name} ({})", entry.title.en));
                }
            }
        }
        for guard in &workflow.guards {
            if !guard.message.iter().any(|message| self.said(message)) {
                missing.push(format!("guard {}", guard.index));
            }
        }
        missing
    }

    /// True if a message is `template` with its expressions filled in.
    fn said(&self, template: &Template) -> bool {
        let literals: Vec<&str> = match template {
            Template::Plain(Value::String(text)) => vec![text],
            Template::Text(pieces) => pieces
                .iter()
                .filter_map(|piece| match piece {
                    Piece::Literal(text) => Some(text.as_str()),
                    Piece::Expr(_) => None,
                })
                .collect(),
            _ => vec![],
        };
        !literals.is_empty() && self.messages.iter().any(|message| in_order(message, &literals))
    }
}

/// True if `message` holds all of `parts`, one behind the other.
fn in_order(message: &str, parts: &[&str]) -> bool {
    let mut rest = message;
    parts.iter().all(|part| {
        let found = rest.find(part);
        rest = found.map_or("", |at| &rest[at + part.len()..]);
        found.is_some()
    })
}

/// A case to be played.
struct Job<'a> {
    library: &'a Arc<Library>,
    workflow: &'a Workflow,
    case: &'a Rehearsal,
}

/// What the rehearsals of some workflows came to.
pub(crate) struct Played {
    pub(crate) library: Arc<Library>,
    /// What is wrong with them: those that come out differently, and what none of them turns on.
    pub(crate) faults: Vec<String>,
    /// What their clusters held and what was written to them.
    pub(crate) written: Paths,
    /// All workflows of the library were wanted.
    pub(crate) whole: bool,
}

/// The rehearsals of all shipped workflows. `WINDROW_REHEARSE=vm-stop` plays those of one workflow only.
pub(crate) static PLAYED: LazyLock<Played> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("workflows");
    let library = Arc::new(Library::load(&[folder]));
    let only = std::env::var("WINDROW_REHEARSE").ok();
    play(&library, |name| only.as_deref().is_none_or(|only| only == name))
});

/// What a case came to.
struct Take {
    decided: Decided,
    mismatch: Option<String>,
    written: Paths,
}

impl Job<'_> {
    /// Plays it on a paused clock of its own, and notes what decided.
    fn play(&self) -> Take {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let mut written = Paths::default();
        let (view, judgement) = runtime.unwrap().block_on(async {
            let stage = stage(self.library, self.case, SPEED).await;
            written.note(&stage.cluster);
            let played = rehearse_on(&stage, self.workflow.name.as_str(), self.case).await;
            written.note(&stage.cluster);
            played
        });
        let mut decided = Decided::default();
        decided.note(&view);
        let unclear = view["warnings"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|warning| warning["failure"]["code"] == UNCLEAR);
        let unclear = unclear.map(|warning| warning["failure"]["message"].to_string());
        let mismatches = judgement.mismatches.iter().cloned().chain(unclear).collect::<Vec<_>>().join("; ");
        let wrong = format!("{}: {mismatches} [{}]", self.case.name, view["failure"]["message"]);
        Take { decided, mismatch: Some(wrong).filter(|_| !mismatches.is_empty()), written }
    }
}

/// What is wrong with the rehearsals of the workflows of a folder.
pub(crate) fn faults_of(library: &Arc<Library>, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    play(library, wanted).faults
}

/// Plays the rehearsals of the workflows of a folder, as many at once as there are processors.
fn play(library: &Arc<Library>, wanted: impl Fn(&str) -> bool) -> Played {
    let workflows: Vec<_> =
        library.workflows().filter(|workflow| wanted(workflow.name.as_str())).cloned().collect();
    let cases = |workflow| {
        let workflow: &Workflow = workflow;
        workflow.rehearsals.iter().map(move |case| Job { library, workflow, case })
    };
    let jobs: Vec<Job<'_>> = workflows.iter().flat_map(|workflow| cases(&**workflow)).collect();
    let mut takes = in_parallel(workers(), &jobs, Job::play).into_iter();
    let (mut faults, mut written) = (vec![], Paths::default());
    for workflow in &workflows {
        let mut decided = Decided::default();
        for take in takes.by_ref().take(workflow.rehearsals.len()) {
            decided.add(take.decided);
            faults.extend(take.mismatch.map(|mismatch| format!("{}: {mismatch}", workflow.name)));
            written.add(take.written);
        }
        faults
            .extend(decided.missing(workflow).iter().map(|missing| format!("{}: {missing}", workflow.name)));
    }
    let whole = workflows.len() == library.workflows().count();
    Played { library: library.clone(), faults, written, whole }
}

#[test]
fn every_shipped_workflow_comes_out_as_it_says_and_leaves_nothing_undecided() {
    assert!(PLAYED.faults.is_empty(), "\n  {}", PLAYED.faults.join("\n  "));
}

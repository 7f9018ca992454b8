//! Every expression names only what exists where it is evaluated.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::definition::codes;
use crate::definition::codes::Code;
use crate::definition::diagnostic::Diagnostic;
use crate::definition::expr::Member;
use crate::definition::expr::Use;
use crate::definition::graph::Graph;
use crate::definition::model::ActionKind;
use crate::definition::model::Step;
use crate::definition::model::Workflow;
use crate::definition::node::Place;
use crate::definition::read::Draft;
use crate::definition::read::Owner;
use crate::definition::read::Phase;
use crate::definition::read::Site;
use crate::definition::report::Report;
use crate::definition::suggest::did_you_mean;
use crate::definition::suggest::nearest;
use crate::definition::template::Template;
use crate::definition::validate::Graphs;
use crate::definition::validate::variables::Available;
use crate::definition::validate::variables::Found;
use crate::definition::validate::variables::VARIABLES;
use crate::id::StepName;

/// What a step may be asked for.
const MEMBERS: [&str; 5] = ["state", "changed", "verdict", "outputs", "items"];
/// Members of `run`.
const RUN: [&str; 2] = ["id", "name"];

pub(super) fn check(report: &mut Report, draft: &Draft<'_>, graphs: &Graphs) {
    let checker = Checker::new(&draft.workflow, graphs);
    let mut found = vec![];
    for site in &draft.sites {
        checker.site(site, &mut found);
    }
    // A message may repeat an expression: once is enough.
    let mut seen = BTreeSet::new();
    for diagnostic in found {
        let place = diagnostic.place.as_ref().map(|place| (place.file, place.range.start, place.range.end));
        if seen.insert((place, diagnostic.code.code, diagnostic.message.clone())) {
            report.push(diagnostic);
        }
    }
}

struct Checker<'d> {
    workflow: &'d Workflow,
    graphs: &'d Graphs,
    by_name: BTreeMap<&'d str, &'d Step>,
    /// Every variable that exists anywhere in the workflow.
    anywhere: BTreeSet<&'d str>,
    /// Approvals that skip what is behind them when they are declined.
    declining: Vec<&'d StepName>,
}

impl<'d> Checker<'d> {
    fn new(workflow: &'d Workflow, graphs: &'d Graphs) -> Self {
        let steps = || workflow.steps.iter().chain(&workflow.finally);
        let entries = || steps().flat_map(|step| [step].into_iter().chain(&step.rollback));
        let mut anywhere: BTreeSet<&str> = VARIABLES.into_iter().collect();
        anywhere.extend(workflow.lets.keys().map(String::as_str));
        for step in entries() {
            anywhere.extend(step.reads.iter().map(|(name, _)| name.as_str()));
            anywhere.extend(step.lets.keys().map(String::as_str));
            if let Some(wait) = &step.wait {
                anywhere.extend(wait.reads.iter().map(|(name, _)| name.as_str()));
                anywhere.extend(wait.lets.keys().map(String::as_str));
            }
        }
        anywhere.extend(
            workflow.guards.iter().flat_map(|guard| guard.reads.iter().map(|(name, _)| name.as_str())),
        );
        Self {
            workflow,
            graphs,
            by_name: steps().map(|step| (step.name.as_str(), step)).collect(),
            anywhere,
            declining: workflow.steps.iter().filter(|step| declines(step)).map(|step| &step.name).collect(),
        }
    }

    fn site(&self, site: &Site, report: &mut Vec<Diagnostic>) {
        if matches!(site.phase, Phase::Let | Phase::Named) {
            report.extend(site.expr.uses().iter().filter_map(|used| self.anywhere_wrong(site, used)));
            return;
        }
        let available = Available::of(self.workflow, site.owner, site.phase);
        let expanded = available.expanded(&site.expr);
        for found in &expanded {
            // What is wrong wherever it is used is reported where it stands.
            let is_said = site.used_at.is_some() && found.via.is_none();
            let mistake = if available.names.contains(found.used.name.as_str()) {
                let lasting = self.member(found.used);
                if lasting.is_some() && is_said {
                    continue;
                }
                lasting.or_else(|| self.member_here(site, found, &expanded))
            } else if self.anywhere.contains(found.used.name.as_str()) {
                let message = format!("`{}` is not available here", found.used.name);
                Some((&codes::NOT_HERE, message, not_here(&found.used.name).map(str::to_owned)))
            } else {
                if found.via.is_none() && !is_said {
                    let names = available.names.iter().copied().chain(available.let_names());
                    let place = site.origin.part(found.outer.at.clone());
                    report.push(self.unknown(&found.used.name, &place, names));
                }
                None
            };
            report.extend(mistake.map(|mistake| diagnostic(site, found, mistake)));
        }
    }

    /// What is wrong with a variable of a `let` or an object, whoever uses that. Members of a `let` are looked at there.
    fn anywhere_wrong(&self, site: &Site, used: &Use) -> Option<Diagnostic> {
        let place = site.origin.part(used.at.clone());
        if !self.anywhere.contains(used.name.as_str()) {
            return Some(self.unknown(&used.name, &place, self.anywhere.iter().copied()));
        }
        let (code, message, hint) = self.member(used).filter(|_| site.phase == Phase::Named)?;
        Some(Diagnostic::error(code, &place, message).hint(hint))
    }

    fn unknown<'n>(&self, name: &str, place: &Place, names: impl Iterator<Item = &'n str>) -> Diagnostic {
        // `steps.a-b` is read as `steps.a - b`.
        let suffix = format!("-{name}");
        let dashed = self.by_name.keys().find(|step| step.ends_with(&suffix));
        let hint = match dashed {
            Some(step) => Some(format!("a name with `-` is written `steps[\"{step}\"]`")),
            None => did_you_mean(name, names),
        };
        Diagnostic::error(&codes::UNKNOWN_VARIABLE, place, format!("unknown variable `{name}`")).hint(hint)
    }

    /// What is wrong with the path behind a variable, wherever it stands.
    fn member(&self, used: &Use) -> Option<Mistake> {
        let first = used.path.first()?;
        match used.name.as_str() {
            "inputs" => unknown_member(first, self.workflow.inputs.keys(), &codes::UNKNOWN_INPUT, "input"),
            "run" => unknown_member(first, RUN, &codes::UNKNOWN_MEMBER, "member of a run called"),
            "steps" => self.step_member(&used.path),
            _ => None,
        }
    }

    /// What is wrong with it here.
    fn member_here(&self, site: &Site, found: &Found<'_>, all: &[Found<'_>]) -> Option<Mistake> {
        let first = found.used.path.first()?;
        match found.used.name.as_str() {
            "steps" => self.too_early(site, found, all),
            "captured" => {
                let (step, forward) = self.owner(site.owner)?;
                let names =
                    step.captures.keys().chain(forward.into_iter().flat_map(|step| step.captures.keys()));
                unknown_member(first, names, &codes::UNKNOWN_MEMBER, "capture")
            }
            "track" => {
                let names = self.owner(site.owner)?.0.wait.iter().flat_map(|wait| wait.tracks.keys());
                unknown_member(first, names, &codes::UNKNOWN_MEMBER, "track")
            }
            "gone" => {
                let wait = self.owner(site.owner)?.0.wait.as_ref()?;
                let names = wait.reads.iter().map(|(name, _)| name.as_str()).chain(["object"]);
                unknown_member(first, names, &codes::UNKNOWN_MEMBER, "read of this wait")
            }
            _ => None,
        }
    }

    /// The step or rollback entry, and the step that the entry belongs to.
    fn owner(&self, owner: Owner) -> Option<(&'d Step, Option<&'d Step>)> {
        match owner {
            Owner::Step(i) => Some((self.workflow.steps.get(i)?, None)),
            Owner::Finally(i) => Some((self.workflow.finally.get(i)?, None)),
            Owner::Undo(i, j) => {
                let forward = self.workflow.steps.get(i)?;
                Some((forward.rollback.get(j)?, Some(forward)))
            }
            Owner::Workflow | Owner::Guard(_) => None,
        }
    }

    fn step_member(&self, path: &[Member]) -> Option<Mistake> {
        let name = path.first()?.name.as_str();
        let Some(step) = self.by_name.get(name).copied() else {
            let names = self.by_name.keys().copied();
            let dashed = self.by_name.keys().find(|step| step.starts_with(&format!("{name}-")));
            let hint = match dashed {
                Some(step) => Some(format!("a name with `-` is written `steps[\"{step}\"]`")),
                None => did_you_mean(name, names),
            };
            return Some((&codes::UNKNOWN_STEP, format!("there is no step `{name}`"), hint));
        };
        let member = path.get(1).map(|member| member.name.as_str());
        if let Some(member) = member.filter(|member| !MEMBERS.contains(member)) {
            let hint = nearest(member, MEMBERS).map(|best| format!("did you mean `{best}`?"));
            let hint = hint.unwrap_or_else(|| format!("a step has {}", MEMBERS.join(", ")));
            return Some((&codes::UNKNOWN_MEMBER, format!("a step has no `{member}`"), Some(hint)));
        }
        let output = path.get(2).filter(|_| member == Some("outputs"))?;
        if step.for_each.is_some() {
            let hint = format!("write `steps[\"{name}\"].items[KEY].outputs`");
            let message = format!("`{name}` has a `for_each`: its outputs are those of its items");
            return Some((&codes::UNKNOWN_MEMBER, message, Some(hint)));
        }
        if !step.outputs.contains_key(&output.name) {
            let hint = did_you_mean(&output.name, step.outputs.keys().map(String::as_str));
            return Some((&codes::UNKNOWN_MEMBER, format!("`{name}` has no output `{}`", output.name), hint));
        }
        None
    }

    /// A step that may not have run here.
    fn too_early(&self, site: &Site, found: &Found<'_>, all: &[Found<'_>]) -> Option<Mistake> {
        let path = &found.used.path;
        let name = path.first()?.name.as_str();
        let step = self.by_name.get(name).copied()?;
        let member = path.get(1).map(|member| member.name.as_str());
        let ordered = self.is_before(step, site.owner);
        let state_in_undo = member == Some("state") && matches!(site.owner, Owner::Undo(..));
        if !ordered && !state_in_undo {
            let hint = format!("add `{name}` to `after`");
            let hint = matches!(site.owner, Owner::Step(_)).then_some(hint);
            return Some((
                &codes::NOT_BEFORE,
                format!("`{name}` is not before this, so it may not have run yet"),
                hint,
            ));
        }
        path.get(2).filter(|_| member == Some("outputs"))?;
        self.unguarded(site, found, all, step)
    }

    /// True if `step` has ended whenever an expression of `owner` is evaluated.
    fn is_before(&self, step: &Step, owner: Owner) -> bool {
        let own = self.owner(owner);
        let name = own.map(|(own, forward)| &forward.unwrap_or(own).name);
        let in_finally = self.workflow.finally.iter().any(|other| other.name == step.name);
        let before = |graph: &Graph| name.is_some_and(|name| graph.is_before(&step.name, name));
        match owner {
            Owner::Workflow => !in_finally,
            Owner::Finally(_) => !in_finally || before(&self.graphs.finally),
            Owner::Step(_) | Owner::Undo(..) => before(&self.graphs.steps),
            Owner::Guard(i) => self
                .workflow
                .guards
                .get(i)
                .is_some_and(|guard| self.graphs.steps.is_before(&step.name, &guard.to)),
        }
    }

    /// Outputs of a step that may be skipped need a guard: an optional access, or a look at its state.
    fn unguarded(&self, site: &Site, found: &Found<'_>, all: &[Found<'_>], step: &Step) -> Option<Mistake> {
        let own = self.owner(site.owner).map(|(own, _)| own);
        let behind_approval =
            self.declining.iter().any(|approval| self.graphs.steps.is_before(approval, &step.name));
        let skippable = step.when.is_some()
            || step.continue_on_error
            || matches!(site.owner, Owner::Finally(_))
            || behind_approval
                && !self
                    .declining
                    .iter()
                    .any(|a| own.is_some_and(|own| self.graphs.steps.is_before(a, &own.name)));
        let optional = found.used.path.iter().skip(1).any(|member| member.optional);
        let looks = |path: &[Member]| {
            let state = path.get(1).is_some_and(|member| member.name == "state");
            state && path.first().is_some_and(|member| member.name == step.name.as_str())
        };
        let own_when = own.and_then(|own| own.when.as_ref());
        let looked = all.iter().any(|other| other.used.name == "steps" && looks(&other.used.path))
            || own_when
                .is_some_and(|when| when.uses().iter().any(|used| used.name == "steps" && looks(&used.path)))
            || own_when.is_some() && own_when == step.when.as_ref();
        if !skippable || optional || looked {
            return None;
        }
        let output = found.used.path.get(2).map(|member| member.name.as_str()).unwrap_or_default();
        let message = format!("`{}` may be skipped or fail, and then has no output `{output}`", step.name);
        Some((&codes::MAYBE_SKIPPED, message, Some(format!("write `.outputs.?{output}.orValue(…)`"))))
    }
}

/// A mistake at its place; that of an object, where it is used.
fn diagnostic(site: &Site, found: &Found<'_>, (code, message, hint): Mistake) -> Diagnostic {
    let place = site.origin.part(found.outer.at.clone());
    let message = via(found, message);
    let diagnostic = match &site.used_at {
        None => Diagnostic::error(code, &place, message),
        Some(used_at) => Diagnostic::error(code, used_at, message).related(&place, "this is named here"),
    };
    diagnostic.hint(hint)
}

type Mistake = (&'static Code, String, Option<String>);

fn unknown_member<'n, N: AsRef<str> + ?Sized + 'n>(
    member: &Member,
    names: impl IntoIterator<Item = &'n N>,
    code: &'static Code,
    what: &str,
) -> Option<Mistake> {
    let names: Vec<&str> = names.into_iter().map(AsRef::as_ref).collect();
    if names.contains(&member.name.as_str()) {
        return None;
    }
    Some((code, format!("there is no {what} `{}`", member.name), did_you_mean(&member.name, names)))
}

fn via(found: &Found<'_>, message: String) -> String {
    match found.via {
        Some(name) => format!("{message}, but `let.{name}` names it"),
        None => message,
    }
}

/// True for an approval that skips what is behind it instead of failing.
fn declines(step: &Step) -> bool {
    let plain =
        |key: &str| step.action.args.get(key).and_then(Template::plain).and_then(serde_json::Value::as_str);
    step.action.uses == ActionKind::Approval
        && ["on_expire", "on_reject"].iter().any(|key| plain(key) == Some("decline"))
}

/// Where a variable is available.
fn not_here(name: &str) -> Option<&'static str> {
    Some(match name {
        "item" => "only for a single item of a `for_each`, not in its `when` and list",
        "items" => "only in `covers`",
        "object" => "only with a `target`, and only after it was read; `when` and `for_each` come before",
        "before" => "only after the target was read for the first time",
        "captured" => "only after the captures, that is from `check` on",
        "result" => "only after the action: in the wait and the outputs",
        "changed" => "only after the action: in the wait, the outputs and the rollback",
        "failure" => "only in a rollback list and in `finally`",
        "elapsed" | "gone" | "track" => "only in the conditions of a wait",
        "steps" => "not before the run has started",
        _ => return None,
    })
}

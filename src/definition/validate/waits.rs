//! Rules for waits: something to watch, an end, no old status taken for a new one.

use std::collections::BTreeSet;

use crate::definition::actions;
use crate::definition::codes;
use crate::definition::diagnostic::Diagnostic;
use crate::definition::model::AtTimeout;
use crate::definition::model::Outcome;
use crate::definition::model::Wait;
use crate::definition::model::Workflow;
use crate::definition::node::Kind;
use crate::definition::node::Node;
use crate::definition::read::Draft;
use crate::definition::read::Phase;
use crate::definition::report::Report;
use crate::definition::suggest::did_you_mean;
use crate::definition::validate::Part;
use crate::definition::validate::elements;
use crate::definition::validate::key_place;
use crate::definition::validate::parts;
use crate::definition::validate::place;
use crate::definition::validate::variables::Available;

/// Most verdicts of a wait: each is evaluated at each change.
const VERDICTS_MAX: usize = 100;

/// `known` are the names of the entries of the knowledge files, where they are at hand.
pub(super) fn check(report: &mut Report, draft: &Draft<'_>, known: Option<&BTreeSet<&str>>) {
    for part in parts(draft) {
        let Some(wait) = &part.step.wait else { continue };
        let node = part.node.get("wait").unwrap_or(part.node);
        watches(report, &part, wait, node);
        ends(report, wait, node);
        verdicts(report, node);
        if let Some(known) = known {
            explanations(report, node, known);
        }
        together(report, node);
        stale_status(report, &draft.workflow, &part, wait, node);
    }
}

fn watches(report: &mut Report, part: &Part<'_>, wait: &Wait, node: &Node) {
    let inside = part.node.get("wait").is_some();
    if inside
        && part.step.target.is_none()
        && wait.target.is_none()
        && wait.reads.is_empty()
        && node.get("read").is_none()
    {
        let message = "there is nothing to watch: neither the step nor the wait has a target";
        report.error(&codes::NO_TARGET, key_place(part.node, "wait"), message);
    }
}

fn ends(report: &mut Report, wait: &Wait, node: &Node) {
    let ends = |verdict: &crate::definition::model::Verdict| {
        verdict.outcome == Outcome::Succeed || verdict.at_timeout == Some(AtTimeout::Succeed)
    };
    let broken = ["until", "fail_if"].iter().filter(|key| node.get(key).is_some()).count()
        + elements(node, "verdicts").len();
    // A verdict that could not be read may be the one that succeeds.
    if !wait.verdicts.iter().any(ends) && wait.verdicts.len() == broken {
        let hint = "write `until`, or a verdict with `outcome = \"succeed\"`".to_owned();
        report.error_with(&codes::NO_END, &node.place, "nothing in this wait succeeds", hint);
    }
}

fn verdicts(report: &mut Report, node: &Node) {
    let list = elements(node, "verdicts");
    if let Some(first_too_many) = list.get(VERDICTS_MAX) {
        let message = format!("a wait has at most {VERDICTS_MAX} verdicts");
        report.error(&codes::TOO_MANY, &first_too_many.place, message);
    }
    let mut names: BTreeSet<String> =
        ["until", "fail_if", "timeout", "known_failure"].map(str::to_owned).into();
    for verdict in list {
        let Some(Kind::Text(name)) = verdict.get("name").map(|name| &name.kind) else {
            continue;
        };
        if !names.insert(name.value.clone()) {
            let message = format!("there is already a verdict `{}`", name.value);
            report.error(&codes::TWICE, place(verdict, "name"), message);
        }
        let outcome = verdict.get("outcome").map(Node::to_json);
        let waits = outcome.as_ref().is_some_and(|outcome| outcome == "wait");
        if verdict.get("at_timeout").is_some() && !waits {
            let message = "`at_timeout` has no effect: the wait is over as soon as this applies";
            report.error(&codes::NO_EFFECT, key_place(verdict, "at_timeout"), message);
        }
        if verdict.get("stable_for").is_some() && waits {
            let message = "`stable_for` has no effect: this verdict ends nothing";
            report.error(&codes::NO_EFFECT, key_place(verdict, "stable_for"), message);
        }
    }
}

fn explanations(report: &mut Report, node: &Node, known: &BTreeSet<&str>) {
    for verdict in elements(node, "verdicts") {
        let Some(Kind::Text(name)) = verdict.get("known").map(|name| &name.kind) else { continue };
        if !known.contains(name.value.as_str()) {
            let message = format!("no knowledge file has an entry `{}`", name.value);
            let hint = did_you_mean(&name.value, known.iter().copied());
            report.error_with(&codes::UNKNOWN_FAILURE, place(verdict, "known"), message, hint);
        }
    }
}

fn together(report: &mut Report, node: &Node) {
    for (key, other) in [("stable_for", "until"), ("stall_after", "progress"), ("on_stall", "stall_after")] {
        if node.get(key).is_some() && node.get(other).is_none() {
            report.error(
                &codes::NO_EFFECT,
                key_place(node, key),
                format!("`{key}` has no effect without `{other}`"),
            );
        }
    }
}

/// L1: right after a write the old status is still there.
fn stale_status(report: &mut Report, workflow: &Workflow, part: &Part<'_>, wait: &Wait, node: &Node) {
    if !actions::of(part.step.action.uses).writes || part.node.get("wait").is_none() {
        return;
    }
    let available = Available::of(workflow, part.owner, Phase::Wait);
    for (i, verdict) in
        wait.verdicts.iter().enumerate().filter(|(_, verdict)| verdict.outcome == Outcome::Succeed)
    {
        let uses = available.expanded(&verdict.when);
        let objects: Vec<_> = uses.iter().filter(|found| is_object(part, wait, &found.used.name)).collect();
        let status = |path: &[crate::definition::expr::Member]| {
            path.first().is_some_and(|member| member.name == "status")
        };
        let compares = uses.iter().any(|found| {
            ["captured", "before", "result", "changed", "gone", "track", "elapsed"]
                .contains(&found.used.name.as_str())
        });
        let generation =
            uses.iter().any(|found| found.used.path.iter().any(|member| member.name == "observedGeneration"));
        if !objects.is_empty()
            && objects.iter().all(|found| status(&found.used.path))
            && !compares
            && !generation
        {
            let first = wait.verdicts.len().saturating_sub(elements(node, "verdicts").len());
            let place = match elements(node, "verdicts").get(i.wrapping_sub(first)) {
                Some(verdict) => place(verdict, "when"),
                None => place(node, "until"),
            };
            let message = "this reads only status, which is still the old one right after the write";
            let hint = "capture something before the write and compare, or look at spec, too".to_owned();
            report.push(Diagnostic::warning(&codes::STALE_STATUS, place, message).hint(hint));
        }
    }
}

fn is_object(part: &Part<'_>, wait: &Wait, name: &str) -> bool {
    name == "object" || wait.reads.iter().chain(&part.step.reads).any(|(read, _)| read == name)
}

//! Pictures of a plan: DOT and Mermaid.

use std::fmt::Write as _;

use crate::definition::model::Commit;
use crate::definition::model::Step;
use crate::plan::Plan;

/// The graph in the language of Graphviz.
pub fn dot(plan: &Plan) -> String {
    let mut text = format!(
        "digraph \"{}\" {{\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n",
        plan.workflow.name
    );
    for step in all(plan) {
        let title = escaped(&step.title.en);
        let label = if title.is_empty() { step.name.to_string() } else { format!("{}\\n{title}", step.name) };
        let style = match (step.commit, step.when.is_some(), step.rollback.is_empty()) {
            (Some(_), ..) => ", peripheries=2",
            (None, true, _) => ", style=dashed",
            (None, false, false) => ", style=bold",
            (None, false, true) => "",
        };
        line(&mut text, &format!("  \"{}\" [label=\"{label}\"{style}];", step.name));
    }
    for (from, to, any) in edges(plan) {
        let style = if any { " [style=dashed]" } else { "" };
        line(&mut text, &format!("  \"{from}\" -> \"{to}\"{style};"));
    }
    for guard in &plan.workflow.guards {
        line(
            &mut text,
            &format!(
                "  \"{}\" -> \"{}\" [style=dotted, label=\"guard\", constraint=false];",
                guard.from, guard.to
            ),
        );
    }
    text.push_str("}\n");
    text
}

/// The graph in the language of Mermaid.
pub fn mermaid(plan: &Plan) -> String {
    let mut text = "flowchart LR\n".to_owned();
    for step in all(plan) {
        let title = step.title.en.replace('"', "#quot;").replace('\n', " ");
        let label =
            if title.is_empty() { step.name.to_string() } else { format!("{}<br/>{title}", step.name) };
        let (open, close) = match step.commit {
            Some(_) => ("[[", "]]"),
            None if step.when.is_some() => ("([", "])"),
            None => ("[", "]"),
        };
        line(&mut text, &format!("  {}{open}\"{label}\"{close}", id(step)));
    }
    for (from, to, any) in edges(plan) {
        let arrow = if any { "-.->" } else { "-->" };
        line(&mut text, &format!("  {} {arrow} {}", mermaid_id(from), mermaid_id(to)));
    }
    for guard in &plan.workflow.guards {
        line(
            &mut text,
            &format!("  {} -. guard .-> {}", mermaid_id(guard.from.as_str()), mermaid_id(guard.to.as_str())),
        );
    }
    text
}

/// Steps, then `finally` steps.
fn all(plan: &Plan) -> impl Iterator<Item = &Step> {
    plan.workflow.steps.iter().chain(&plan.workflow.finally)
}

/// Earlier step, later step, and whether the edge also holds after a failure.
fn edges(plan: &Plan) -> impl Iterator<Item = (&str, &str, bool)> {
    all(plan).flat_map(|step| {
        step.after.iter().map(|after| (after.step.as_str(), step.name.as_str(), after.on_any))
    })
}

fn id(step: &Step) -> String {
    mermaid_id(step.name.as_str())
}

/// `end` is a word of Mermaid, and `-` part of its arrows; no two names become one.
fn mermaid_id(name: &str) -> String {
    format!("s_{}", name.replace('_', "__").replace('-', "_0"))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', " ")
}

fn line(text: &mut String, line: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{line}");
}

/// The word for a commit point, as in the file.
pub(super) const fn commit_word(commit: Commit) -> &'static str {
    match commit {
        Commit::OnSuccess => "on_success",
        Commit::OnStart => "on_start",
    }
}

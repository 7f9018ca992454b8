//! `windrow diagnose`: what is known about the trouble of an object, without a run.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use serde_json::json;

use crate::action::codes;
use crate::action::k8s::catalogue;
use crate::action::k8s::catalogue::NamedKind;
use crate::action::request::ObjectRef;
use crate::action::request::Origin;
use crate::action::request::Selector;
use crate::action::secret::Secrets;
use crate::cli::args::Global;
use crate::cli::error::BAD_ROWS;
use crate::cli::error::CommandError;
use crate::cli::error::WITH_WARNINGS;
use crate::cli::printer::Printer;
use crate::cli::session::connect;
use crate::cli::session::library;
use crate::definition::knowledge::Class;
use crate::diagnosis;
use crate::diagnosis::Finding;
use crate::diagnosis::Limits;
use crate::diagnosis::Scene;
use crate::failure::Failure;
use crate::service::codes::NO_SUCH_OBJECT;
use crate::time::SharedClock;
use crate::time::SystemClock;

/// Somebody sits there and waits: long enough for a cluster in trouble.
const LIMITS: Limits = Limits { time: Duration::from_secs(30), answer: Duration::from_secs(10) };

pub(super) async fn diagnose(
    global: &Global,
    kind: &str,
    object: &str,
    printer: &Printer,
) -> Result<u8, CommandError> {
    let clock: SharedClock = Arc::new(SystemClock::at_speed(1.0));
    let executor = connect(global, Secrets::default(), clock).await;
    let cluster = executor.cluster().map_err(of_cluster)?;
    let kind = catalogue::find(cluster, kind).await.map_err(of_cluster)?;
    let target = target(&kind, object)?;
    let Value::Object(found) = executor.read(&target, false).await.map_err(of_cluster)? else {
        let text = format!("{} does not exist", target.describe());
        return Err(CommandError::usage(NO_SUCH_OBJECT, text));
    };
    let knowledge = library(global).knowledge();
    let roots = vec![Arc::new(Value::Object(found))];
    let scene = diagnosis::look(&executor, &knowledge, &nobody(), roots, LIMITS).await;
    let findings = diagnosis::findings(&scene, &knowledge);
    if printer.is_json() {
        let names: Vec<&str> = scene.objects.iter().map(|seen| seen.name.as_str()).collect();
        printer.json(&json!({
            "object": target.describe(), "findings": findings, "looked_at": names, "missing": scene.missing,
        }));
    } else {
        print(&target, &scene, &findings, printer);
    }
    Ok(match findings.as_slice() {
        [] => 0,
        some if some.iter().any(Finding::needs_somebody) => BAD_ROWS,
        // Only what passes by itself, or what nobody has written down.
        _ => WITH_WARNINGS,
    })
}

/// A wrong kind is a mistake of the caller, everything else trouble with the cluster.
fn of_cluster(failure: Failure) -> CommandError {
    match failure.code.as_str() {
        codes::UNKNOWN_KIND | codes::AMBIGUOUS_KIND | codes::BAD_REQUEST => {
            CommandError::usage(&failure.code, failure.text())
        }
        _ => CommandError { kind: crate::service::operation::ProblemKind::Unusable, failure },
    }
}

fn target(kind: &NamedKind, object: &str) -> Result<ObjectRef, CommandError> {
    let (namespace, name) = match object.split_once('/') {
        Some((namespace, name)) => (Some(namespace.to_owned()), name),
        None => (None, object),
    };
    if namespace.is_some() && !kind.namespaced {
        let text = format!("a {} is in no namespace: `{object}` must be a name only", kind.kind);
        return Err(CommandError::usage(codes::BAD_REQUEST, text));
    }
    Ok(ObjectRef {
        api: kind.api.clone(),
        kind: kind.kind.clone(),
        namespace,
        all_namespaces: false,
        select: Selector::Name(name.to_owned()),
        optional: false,
    })
}

/// Whoever only reads signs nothing.
fn nobody() -> Origin {
    Origin { run: String::new(), workflow: "diagnose".to_owned(), unit: "diagnose".to_owned(), attempt: 0 }
}

fn print(target: &ObjectRef, scene: &Scene, findings: &[Finding], printer: &Printer) {
    let looked_at = printer.pick("objects looked at", "个对象已检查");
    printer.note(format_args!("{}: {} {looked_at}", target.describe(), scene.objects.len()));
    for finding in findings {
        print_finding(finding, printer);
    }
    if findings.is_empty() {
        printer.data(printer.pick("nothing is wrong as far as it is known", "没有发现已知的问题"));
    }
    for missing in &scene.missing {
        printer.note(format_args!("{}: {missing}", printer.pick("could not be seen", "未能查看")));
    }
}

fn print_finding(finding: &Finding, printer: &Printer) {
    let class = match finding.known.as_ref().map(|known| known.class) {
        Some(Class::Permanent) => printer.pick("does not pass by itself", "不会自行恢复"),
        Some(Class::Retryable) => printer.pick("may pass if it is tried again", "重试可能恢复"),
        Some(Class::Wait) => printer.pick("passes by itself", "会自行恢复"),
        None => printer.pick("not known", "未知问题"),
    };
    let times = match (finding.count, &finding.last_seen) {
        (Some(count), Some(last)) => format!(" ({count}×, {} {last})", printer.pick("last", "最近")),
        (Some(count), None) => format!(" ({count}×)"),
        _ => String::new(),
    };
    printer.data(format_args!("{}: {class}\n  {}{times}", finding.object, finding.text));
    if !finding.also.is_empty() {
        printer.data(format_args!("  {}: {}", printer.pick("also", "同样"), finding.also.join(", ")));
    }
    if let Some(known) = &finding.known {
        let rows = [
            (printer.pick("cause", "原因"), printer.text(&known.cause)),
            (printer.pick("remedy", "处置"), printer.text(&known.remedy)),
            (printer.pick("source", "出处"), known.source.as_str()),
        ];
        rows.iter().for_each(|(word, text)| printer.data(format_args!("  {word}: {text}")));
    }
}

//! The knowledge files, held against what the manual and the platform really say (L5, L14).

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use tower::ServiceExt;
use windrow::definition::Library;
use windrow::definition::knowledge::Class;
use windrow::definition::knowledge::Knowledge;
use windrow::definition::model::Rehearsal;
use windrow::sim;
use windrow::time::SystemClock;

use crate::rehearsals::rehearse;
use crate::rehearsals::rehearse_on;
use crate::support::START;
use crate::support::stage;

/// A text that was seen somewhere.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Evidence {
    source: String,
    text: String,
    /// The entry that recognises it, if it tells enough.
    entry: Option<String>,
    near_miss: Option<String>,
    /// `workflow/case` in which the rehearsal cluster says it.
    rehearsal: Option<String>,
    /// Requests to whose last one the rehearsal cluster answers with it.
    #[serde(default)]
    requests: Vec<Request>,
    /// What goes wrong in the cluster meanwhile.
    #[serde(default)]
    faults: Vec<String>,
    /// The part of the text that the cluster says, if a client says the rest.
    said: Option<String>,
}

impl Evidence {
    fn said(&self) -> &str {
        self.said.as_deref().unwrap_or(&self.text)
    }
}

/// A request to the rehearsal cluster.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    method: String,
    path: String,
    /// `json` or `merge`, of a patch.
    patch: Option<String>,
    #[serde(default)]
    body: Value,
}

#[derive(Debug, Deserialize)]
struct File {
    evidence: Vec<Evidence>,
}

fn evidence() -> Vec<Evidence> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/evidence");
    let files =
        ["manual.toml", "domain.toml"].map(|file| std::fs::read_to_string(folder.join(file)).unwrap());
    files.iter().flat_map(|text| toml::from_str::<File>(text).unwrap().evidence).collect()
}

fn name<'k>(knowledge: &'k Knowledge, text: &str) -> Option<&'k str> {
    knowledge.matches(text).map(|entry| entry.name.as_str())
}

fn case(library: &Library, workflow: &str, name: &str) -> Rehearsal {
    let workflow = library.get(workflow).unwrap();
    workflow.rehearsals.iter().find(|case| case.name == name).unwrap_or_else(|| panic!("{name}")).clone()
}

#[test]
fn what_the_manual_and_the_cases_quote_is_recognised_and_what_differs_in_one_fact_is_not() {
    let knowledge = Library::built_in().knowledge();
    let names: BTreeSet<&str> = knowledge.entries().iter().map(|entry| entry.name.as_str()).collect();
    for seen in evidence() {
        let Some(entry) = &seen.entry else { continue };
        assert!(names.contains(entry.as_str()), "{}: there is no entry {entry}", seen.source);
        assert_eq!(name(&knowledge, &seen.text), Some(entry.as_str()), "{}: {}", seen.source, seen.text);
        let near = seen.near_miss.unwrap_or_else(|| panic!("{}: no near miss", seen.source));
        assert_ne!(name(&knowledge, &near), Some(entry.as_str()), "{}: {near}", seen.source);
    }
}

/// A row of one of the manual's tables.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    section: String,
    says: String,
    /// The entries that know of it.
    #[serde(default)]
    entries: Vec<String>,
    /// Why it needs none.
    why: Option<String>,
}

fn rows() -> Vec<Row> {
    #[derive(Deserialize)]
    struct Tables {
        row: Vec<Row>,
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/evidence/tables.toml");
    toml::from_str::<Tables>(&std::fs::read_to_string(file).unwrap()).unwrap().row
}

#[test]
fn every_failure_of_the_manuals_tables_has_an_entry_and_a_text_that_it_recognises() {
    let knowledge = Library::built_in().knowledge();
    let evidence = evidence();
    for row in rows() {
        let place = format!("§{} {}", row.section, row.says);
        assert_eq!(row.entries.is_empty(), row.why.is_some(), "{place}: an entry, or a reason for none");
        for name in &row.entries {
            let entry = knowledge.named(name).unwrap_or_else(|| panic!("{place}: there is no entry {name}"));
            assert!(entry.source.contains(&format!("§{}", row.section)), "{place}: {name} does not name it");
            let seen = evidence.iter().any(|seen| seen.entry.as_ref() == Some(name));
            assert!(seen, "{place}: no text for {name}");
        }
    }
}

/// The manual lies beside the checkout where Windrow is made, and nowhere else.
#[test]
fn the_list_of_rows_is_that_of_the_manual() {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let Some(manual) = folders.map(|dir| dir.join("shared/manual.zh.txt")).find(|file| file.exists()) else {
        eprintln!("NOT CHECKED: rows of the manual, which is not here");
        return;
    };
    let manual = std::fs::read_to_string(manual).unwrap();
    let rows = rows();
    for section in ["4.2", "5.4", "7.4", "8.1", "8.2", "8.3"] {
        let listed: Vec<_> = rows.iter().filter(|row| row.section == section).map(|row| &row.says).collect();
        let found = rows_of_manual(&manual, section);
        assert_eq!(found.len(), listed.len(), "§{section}: {found:#?}");
        for (row, says) in found.iter().zip(listed) {
            assert!(row.contains(says.as_str()), "§{section}: {row} is listed as {says}");
        }
    }
}

/// The rows of a table, which are lines with tabs below a heading; the pitfalls of §4.2, and the causes of §8.2.
fn rows_of_manual<'m>(manual: &'m str, section: &str) -> Vec<&'m str> {
    let is_heading = |line: &&str| {
        let number = line.split_once(' ').map_or("", |(number, _)| number);
        number.contains('.') && number.chars().all(|c| c.is_ascii_digit() || c == '.')
    };
    let lines = manual.lines().skip_while(|line| !line.starts_with(&format!("{section} ")));
    let lines = lines.skip(1).take_while(|line| !is_heading(line));
    match section {
        "4.2" => lines.filter(|line| line.starts_with("# ✗")).collect(),
        "8.2" => lines
            .filter_map(|line| line.split_once("优先查："))
            .flat_map(|(_, causes)| causes.split('、'))
            .collect(),
        _ => lines.filter(|line| line.contains('\t')).skip(1).collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_rehearsal_cluster_says_what_the_platform_says() {
    let library = Arc::new(Library::built_in());
    let evidence = evidence();
    let mut scenes: BTreeMap<(&str, &str), Vec<&Evidence>> = BTreeMap::new();
    for seen in &evidence {
        if let Some(place) = seen.rehearsal.as_deref().and_then(|place| place.split_once('/')) {
            scenes.entry(place).or_default().push(seen);
        }
    }
    for ((workflow, wanted), texts) in scenes {
        let case = case(&library, workflow, wanted);
        let stage = stage(&library, &case, 1.0).await;
        rehearse_on(&stage, workflow, &case).await;
        let objects = stage.cluster.objects();
        for seen in texts {
            let said = objects.iter().any(|(_, object)| says(object, seen.said()));
            assert!(said, "{}: nobody in {workflow}/{wanted} says {}", seen.source, seen.said());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_rehearsal_cluster_answers_as_the_platform_does() {
    for seen in evidence().iter().filter(|seen| !seen.requests.is_empty()) {
        let clock = Arc::new(SystemClock::starting_at(START, 1.0));
        let fault = |name: &String| *sim::list_faults().iter().find(|fault| fault.name == name).unwrap();
        let options = sim::Options { faults: seen.faults.iter().map(fault).collect(), ..Default::default() };
        let cluster = sim::Cluster::start(options, clock).unwrap();
        cluster.settled().await;
        let mut answer = String::new();
        for request in &seen.requests {
            answer = answer_of(&cluster, request).await;
        }
        assert!(holds(&answer, seen.said()), "{}: {answer} does not say {}", seen.source, seen.said());
    }
}

async fn answer_of(cluster: &sim::Cluster, request: &Request) -> String {
    let content = request
        .patch
        .as_deref()
        .map_or("application/json".to_owned(), |patch| format!("application/{patch}-patch+json"));
    let body = if request.body.is_null() { String::new() } else { request.body.to_string() };
    let call = http::Request::builder().method(request.method.as_str()).uri(&request.path);
    let call =
        call.header("content-type", content).body(kube::client::Body::from(body.into_bytes())).unwrap();
    let answer = cluster.service().oneshot(call).await.unwrap();
    let bytes = axum::body::to_bytes(axum::body::Body::new(answer.into_body()), usize::MAX).await.unwrap();
    let status: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    status["message"].as_str().unwrap_or_default().to_owned()
}

/// True if a text somewhere in `value` holds `text`.
fn says(value: &Value, text: &str) -> bool {
    match value {
        Value::String(found) => holds(found, text),
        Value::Array(items) => items.iter().any(|item| says(item, text)),
        Value::Object(fields) => fields.iter().any(|(key, field)| holds(key, text) || says(field, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// True if `said` holds the parts of `text` between its `…`, in their order.
fn holds(said: &str, text: &str) -> bool {
    let mut rest = Some(said);
    for part in text.split('…').map(str::trim) {
        rest = rest.and_then(|rest| rest.split_once(part)).map(|(_, after)| after);
    }
    rest.is_some()
}

/// How a fault ends: the case that has it, the run's state and verdict, and the entry that explains it.
const ENDS: [(&str, &str, &str, &str, &str); 14] = [
    ("image-import", "case-10-source-unstable", "RolledBack", "unstable", "import-connection-lost"),
    ("image-import", "source-missing", "RolledBack", "hopeless", "import-source-missing"),
    ("image-import", "block-device-denied", "RolledBack", "hopeless", "import-block-device-denied"),
    ("image-import", "no-share-manager", "RolledBack", "hopeless", "import-no-shared-file-system"),
    ("image-import", "no-volume", "RolledBack", "no-volume", "import-waits-for-volume"),
    ("image-import", "case-14-wrong-checksum", "RolledBack", "hopeless", "import-checksum"),
    ("image-import", "image-source-unstable", "RolledBack", "given-up", "import-connection-lost"),
    ("import-diagnose", "no-room", "Failed", "pod-stuck", "no-room-for-replicas"),
    ("import-diagnose", "volume-does-not-attach", "Failed", "pod-stuck", "attach-failed"),
    ("import-diagnose", "too-slow", "Failed", "under-way", "import-stands-still"),
    ("vm-delete", "stays-in-terminating", "Failed", "held", "vm-leaving"),
    (
        "vm-delete-stuck",
        "case-40-another-vm-has-the-claim",
        "Failed",
        "shared-claim",
        "claim-used-by-other-vm",
    ),
    ("vm-network-check", "nodes-are-split", "RolledBack", "unreachable", "no-answer-to-ping"),
    ("vm-create", "case-13-source-in-use-too-long", "RolledBack", "source-in-use", "clone-source-in-use"),
];

#[tokio::test(start_paused = true)]
async fn every_fault_ends_in_the_right_word_with_cause_and_remedy_in_both_languages() {
    let library = Arc::new(Library::built_in());
    let knowledge = library.knowledge();
    for (workflow, wanted, state, verdict, entry) in ENDS {
        let (view, _) = rehearse(&library, workflow, &case(&library, workflow, wanted)).await;
        assert_eq!((&view["state"], &view["verdict"]["name"]), (&state.into(), &verdict.into()), "{view:#}");
        let known = knowledge.entries().iter().find(|known| known.name == entry).unwrap();
        for (key, text) in [("cause", &known.explanation.cause), ("remedy", &known.explanation.remedy)] {
            let told = &view["failure"][key];
            assert_eq!(told["en"], text.en, "{workflow}/{wanted}: {key} in {:#}", view["failure"]);
            assert_eq!(told["zh"].as_str(), text.zh.as_deref(), "{workflow}/{wanted}: {key}");
        }
        let message = &view["verdict"]["message"];
        assert!(message["en"].is_string() && message["zh"].is_string(), "{workflow}/{wanted}: {message:#}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_import_that_stalls_asks_a_person_in_both_languages() {
    let library = Arc::new(Library::built_in());
    let (view, _) = rehearse(&library, "image-import", &case(&library, "image-import", "stalls")).await;
    assert_eq!(view["state"], "Held");
    let message = &view["asks"][0]["message"];
    let known = library.knowledge().named("import-stands-still").unwrap().explanation.clone();
    assert!(message["en"].as_str().is_some_and(|text| text.contains(&known.cause.en)), "{message:#}");
    assert!(message["en"].as_str().is_some_and(|text| text.contains("45.20%")), "{:#}", view["asks"]);
    assert!(message["zh"].as_str().is_some_and(|text| text.contains("没有进展")), "{message:#}");
}

#[test]
fn the_entries_of_every_file_are_told_apart() {
    let knowledge = Library::built_in().knowledge();
    let classes: BTreeSet<&str> = knowledge.entries().iter().map(|entry| entry.class.as_str()).collect();
    assert_eq!(classes, [Class::Permanent, Class::Retryable, Class::Wait].map(Class::as_str).into());
    let names: BTreeSet<&str> = knowledge.entries().iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names.len(), knowledge.entries().len());
    for entry in knowledge.entries() {
        let texts = [&entry.explanation.cause, &entry.explanation.remedy];
        assert!(texts.iter().all(|text| text.zh.is_some() && !text.en.is_empty()), "{}", entry.name);
    }
}

//! The knowledge files, held against what the manual and the platform really say (L5, L14).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use windrow::definition::Library;
use windrow::definition::knowledge::Class;
use windrow::definition::knowledge::Knowledge;
use windrow::definition::model::Rehearsal;

use crate::rehearsals::rehearse;
use crate::rehearsals::rehearse_on;
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

#[tokio::test(start_paused = true)]
async fn the_rehearsal_cluster_says_what_the_platform_says() {
    let library = Arc::new(Library::built_in());
    for seen in evidence() {
        let Some((workflow, wanted)) = seen.rehearsal.as_deref().and_then(|place| place.split_once('/'))
        else {
            continue;
        };
        let case = case(&library, workflow, wanted);
        let stage = stage(&library, &case, 1.0).await;
        rehearse_on(&stage, workflow, &case).await;
        let said = stage.cluster.objects().iter().any(|(_, object)| says(object, &seen.text));
        assert!(said, "{}: nobody in {workflow}/{wanted} says {}", seen.source, seen.text);
    }
}

/// True if a text somewhere in `value` holds `text`.
fn says(value: &Value, text: &str) -> bool {
    match value {
        Value::String(found) => found.contains(text),
        Value::Array(items) => items.iter().any(|item| says(item, text)),
        Value::Object(fields) => fields.values().any(|field| says(field, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
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

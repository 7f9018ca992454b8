//! `windrow show RUN --output json`, as programs read it.

use regex::Regex;
use serde_json::Value;

use super::site::Site;

/// The text without what differs from run to run.
fn still(text: &str, site: &Site) -> String {
    let home = std::fs::canonicalize(site.path("")).unwrap();
    let text = text.replace(home.to_str().unwrap(), "HOME");
    let masks = [
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        ("[0-9a-f]{64}", "SHA256"),
        ("[0-9a-hjkmnp-tv-z]{26}", "RUN"),
        (r#""by": "[^"]*""#, r#""by": "USER""#),
    ];
    masks
        .iter()
        .fold(text, |text, (mask, word)| Regex::new(mask).unwrap().replace_all(&text, *word).into_owned())
}

/// A run that makes a file, fails and removes it.
async fn undone(site: &Site) -> String {
    let home = std::fs::canonicalize(site.path("")).unwrap();
    site.write("made.allowed", "");
    site.expect(4, &["run", "undone", "-i", &format!("file={}", home.join("made").display())]).await;
    site.newest("undone").await
}

#[tokio::test]
async fn a_run_as_json_is_a_promise_to_programs() {
    let site = Site::new();
    let run = undone(&site).await;
    let said = site.expect(0, &["show", &run, "--output", "json"]).await;
    expect_test::expect_file!["../../fixtures/show.json"].assert_eq(&still(&said.out, &site));
}

#[tokio::test]
async fn the_journal_comes_with_events_in_order() {
    let site = Site::new();
    let run = undone(&site).await;
    let short = &run[run.len() - 6..];
    let view = site.expect(0, &["show", short, "--events", "--output", "json"]).await.json();
    let events = view["events"].as_array().unwrap();
    assert!(events.iter().zip(1..).all(|(event, seq)| event["seq"] == seq), "{events:#?}");
    assert!(events.iter().all(|event| event["at"].is_string()), "{events:#?}");
    let kinds = |event: &Value| match &event["event"] {
        Value::Object(fields) => fields.keys().next().cloned().unwrap_or_default(),
        word => word.as_str().unwrap_or_default().to_owned(),
    };
    let kinds: Vec<String> = events.iter().map(kinds).collect();
    expect_test::expect!["created attempt_started process_started attempt_finished succeeded attempt_started attempt_finished failed rollback_started attempt_started evidence_kept process_started attempt_finished succeeded compensated finished"].assert_eq(&kinds.join(" "));
    let lines = site.expect(0, &["show", short, "--events"]).await.out;
    assert!(
        lines.lines().filter(|line| line.contains('T') && line.contains('{')).count() >= events.len() - 1,
        "{lines}"
    );
    assert!(site.show(short).await.get("events").is_none(), "only when they are asked for");
}

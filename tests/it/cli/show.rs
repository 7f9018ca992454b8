//! `windrow show RUN --output json`, as programs read it.

use regex::Regex;
use serde_json::Value;

use super::clusters::cluster;
use super::site::Site;

/// The text without what differs from run to run.
fn still(text: &str, site: &Site) -> String {
    let home = std::fs::canonicalize(site.path("")).unwrap();
    let text = text.replace(home.to_str().unwrap(), "HOME");
    let masks = [
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
        ("[0-9a-f]{64}", "SHA256"),
        ("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
        ("[0-9a-hjkmnp-tv-z]{26}", "RUN"),
        (r#""by": "[^"]*""#, r#""by": "USER""#),
        (r"(?m)^  by        .*$", "  by        USER"),
        (r"cancelled by \S+", "cancelled by USER"),
        (r"until \d\d:\d\d:\d\d", "until TIME"),
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

/// What a person is shown of the newest run of a workflow.
async fn shown(site: &Site, workflow: &str) -> String {
    let run = site.newest(workflow).await;
    still(&site.expect(0, &["show", &run]).await.out, site)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_for_people_tells_how_it_ended_and_why() {
    let site = Site::new();
    undone(&site).await;
    expect_test::expect![[r#"
        run RUN (Makes a file, fails, removes the file)
          state     RolledBack
          created   TIME
          finished  TIME
          by        USER
          inputs    {"file":"HOME/made"}
        ↺ make               Compensated   undone: process
        ✗ look               Failed        this is not another workflow
        RolledBack: it failed, and what it had done is undone
          because: this is not another workflow
          assert-failed: What an `assert` step demands does not hold.
          evidence  windrow bundle RUN -o RUN.yaml
    "#]]
    .assert_eq(&shown(&site, "undone").await);

    let _cluster = cluster(&site, "config", 1).await;
    let waiting = site.stay(&["run", "demands", "-i", "name=demo", "--kubeconfig", "config"]).await;
    let run = site.newest("demands").await;
    site.in_state(&run, "Waiting").await;
    let paused = site.expect(0, &["pause", &run]).await;
    assert!(paused.err.contains("windrow unpause"), "{paused:?}");
    let listed = site.expect(0, &["runs", "--open"]).await;
    assert!(listed.out.contains("Waiting (paused)") && listed.err.is_empty(), "{listed:?}");
    waiting.signal(rustix::process::Signal::INT);
    let (code, log) = waiting.ended().await;
    assert!(code == 130 && log.contains("paused: no further step starts"), "{code} {log}");
    let listed = site.expect(0, &["runs", "--open"]).await;
    assert!(listed.err.contains("windrow resume"), "{listed:?}");
    expect_test::expect![[r#"
        run RUN (Demands something, then waits for it)
          state     Waiting (paused)
          executed  by nobody; go on with: windrow resume RUN
          created   TIME
          by        USER
          cluster   UID
          inputs    {"name":"demo"}
        ◷ look               Waiting       demo is not there yet (until TIME UTC)
    "#]]
    .assert_eq(&shown(&site, "demands").await);

    site.expect(9, &["cancel", &run, "--reason", "a drill", "--kubeconfig", "config"]).await;
    expect_test::expect![[r#"
        run RUN (Demands something, then waits for it)
          state     Cancelled
          created   TIME
          finished  TIME
          by        USER
          cluster   UID
          inputs    {"name":"demo"}
        ■ look               Cancelled     k8s.wait
        Cancelled: cancelled by USER (a drill); nothing that it did is left
    "#]]
    .assert_eq(&shown(&site, "demands").await);
    let view = site.show(&run).await;
    assert_eq!((&view["outcome"]["cancelled"], &view["rolled_back"]), (&"yes".into(), &"yes".into()));
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

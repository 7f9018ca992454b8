//! `windrow bundle`: the evidence of a run in one file.

use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::Value;

use super::site::Site;

/// A run that fails because a condition does not hold.
async fn failed(site: &Site) -> String {
    site.expect(1, &["run", "untrue"]).await;
    site.newest("untrue").await
}

#[tokio::test]
async fn a_bundle_is_yaml_that_tells_the_whole_story() {
    let site = Site::new();
    let run = failed(&site).await;
    let shown = site.expect(0, &["show", &run]).await.out;
    assert!(shown.contains(&format!("windrow bundle {run} -o {run}.yaml")), "{shown}");
    let said = site.expect(0, &["bundle", &run, "-o", "story.yaml"]).await;
    assert!(said.err.contains("story.yaml"), "{}", said.err);
    let mode = std::fs::metadata(site.path("story.yaml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = std::fs::read_to_string(site.path("story.yaml")).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let [whole, moment, journal] = documents.as_slice() else { panic!("the run and one moment: {text}") };
    assert_eq!(whole["run"]["state"], "Failed");
    assert!(journal["events"].as_array().is_some_and(|events| !events.is_empty()));
    assert_eq!(moment["trouble"], "failed");
    assert_eq!(moment["conditions"][0]["value"], false);
    // A file that is there may be all that is left of another run.
    let again = site.expect(6, &["bundle", &run, "-o", "story.yaml"]).await;
    assert!(again.err.contains("story.yaml"), "{}", again.err);
}

#[tokio::test]
async fn a_bundle_is_the_same_from_another_process() {
    let site = Site::new();
    let run = failed(&site).await;
    let alone = site.expect(0, &["bundle", &run]).await.out;
    let agent = site.stay(&["run", "linger", "-i", "file=never"]).await;
    let served = site.expect(0, &["bundle", &run]).await.out;
    assert_eq!(served, alone);
    let json = site.expect(0, &["bundle", &run, "--output", "json"]).await.json();
    assert_eq!(json.as_array().map(Vec::len), Some(3));
    agent.signal(Signal::KILL);
    agent.ended().await;
}

#[tokio::test]
async fn the_runs_that_were_called_are_in_the_bundle() {
    let site = Site::new();
    let said = site.windrow(&["run", "calls"]).await;
    let run = site.newest("calls").await;
    let json = site.expect(0, &["bundle", &run, "--output", "json"]).await.json();
    let workflows: Vec<_> =
        json.as_array().unwrap().iter().filter_map(|part| part["run"]["workflow"].as_str()).collect();
    assert!(workflows.len() > 1 && workflows[0] == "calls", "{workflows:?} {said:?}");
    let shown = site.expect(0, &["show", &run]).await.out;
    assert!(shown.contains("windrow bundle"), "what a called run has kept is its caller's, too: {shown}");
}

#[tokio::test]
async fn an_unknown_run_is_a_mistake() {
    let site = Site::new();
    failed(&site).await;
    let said = site.expect(2, &["bundle", "nosuchrun"]).await;
    assert!(said.err.contains("nosuchrun"), "{}", said.err);
}

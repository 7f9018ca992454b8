//! What people say to runs, over the socket of the process that executes them.

use super::site::Site;

#[tokio::test]
async fn an_approval_counts_only_for_what_was_approved() {
    let site = Site::new();
    site.expect(5, &["run", "stale"]).await;
    let stale = site.newest("stale").await;
    site.expect(1, &["approve", &stale]).await;
    let view = site.show(&stale).await;
    assert_eq!((&view["state"], &view["failure"]["code"]), (&"Failed".into(), &"approval-void".into()));
    let message = view["failure"]["message"].as_str().unwrap();
    assert_eq!(message.matches("what was there at").count(), 2, "both are told: {message}");
    site.expect(0, &["explain", "approval-void"]).await;
}

#[tokio::test]
async fn a_terminated_run_ends_without_undo_and_says_what_is_left() {
    let site = Site::new();
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    let keep = site.newest("keep").await;
    super::programs::is_running(&site).await;
    site.expect(2, &["terminate", &keep]).await;
    site.expect(0, &["terminate", &keep, "--reason", "the rack is on fire"]).await;
    let (code, log) = owner.ended().await;
    assert_eq!(code, 9, "{log}");
    let view = site.show(&keep).await;
    assert_eq!(view["state"], "Cancelled", "{view:#}");
    assert_eq!(view["left"], serde_json::json!(["work: it was in flight"]), "{view:#}");
    assert!(view["notes"][0]["text"].as_str().unwrap().contains("the rack is on fire"), "{view:#}");
    site.expect(3, &["terminate", &keep, "--reason", "again"]).await;
    assert_eq!(site.expect(0, &["locks", "--output", "json"]).await.json(), serde_json::json!([]));
    site.write("go", "");
}

#[tokio::test]
async fn nothing_new_starts_while_all_is_paused_and_what_runs_goes_on() {
    let site = Site::new();
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    site.expect(0, &["pause", "--all"]).await;
    let refused = site.expect(3, &["run", "good", "--output", "json"]).await.json();
    assert_eq!(refused["error"]["code"], "paused");
    site.write("go", "");
    let (code, log) = owner.ended().await;
    assert_eq!(code, 0, "{log}");
    site.expect(3, &["run", "good"]).await;
    site.expect(0, &["unpause", "--all"]).await;
    site.expect(0, &["run", "good"]).await;
}

#[tokio::test]
async fn debts_end_when_somebody_says_so_or_when_the_world_does() {
    let site = Site::new();
    site.expect(7, &["run", "left"]).await;
    site.expect(7, &["run", "swept", "-i", "gone=false"]).await;
    let stays = site.newest("swept").await;
    site.expect(7, &["run", "swept", "-i", "gone=true"]).await;
    let goes = site.newest("swept").await;
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    super::site::until("the debt is seen to be gone", async || {
        site.show(&goes).await["debts"].as_array()?.is_empty().then_some(())
    })
    .await;
    let rows = site.expect(0, &["debts", "--output", "json"]).await.json();
    let left = site.newest("left").await;
    let runs: Vec<_> = rows.as_array().unwrap().iter().filter_map(|row| row["run"].as_str()).collect();
    assert_eq!(runs, [stays.as_str(), left.as_str()], "{rows:#}");

    site.expect(3, &["debts", "close", &format!("{left}/2"), "--reason", "there is none"]).await;
    site.expect(0, &["debts", "close", &format!("{left}/1"), "--reason", "swept"]).await;
    let view = site.expect(0, &["show", &left, "--events", "--output", "json"]).await.json();
    assert_eq!(view["debts"], serde_json::json!([]));
    assert!(view["events"].to_string().contains("swept"), "{view:#}");
    site.write("go", "");
    assert_eq!(owner.ended().await.0, 0);
}

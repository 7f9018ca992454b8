//! Locks between runs (E8).

use super::site::Site;

#[tokio::test]
async fn runs_queue_for_a_lock_or_are_refused_and_a_lock_can_be_broken() {
    let site = Site::new();
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    let keep = site.newest("keep").await;
    let refused = site.expect(3, &["run", "hurry", "--output", "json"]).await.json();
    assert_eq!(refused["error"]["code"], "lock-held");
    assert!(refused["error"]["message"].as_str().unwrap().contains(&keep), "{refused:#}");

    let mut follower = site.command(&["run", "queue"]).spawn().unwrap();
    let queued = site.newest("queue").await;
    site.in_state(&queued, "Queued").await;
    let rows = site.expect(0, &["locks", "--output", "json"]).await.json();
    let row = serde_json::json!([{ "key": "slot", "holder": keep, "queue": [queued] }]);
    assert_eq!(rows, row);

    site.expect(2, &["locks", "break", "another", "--reason", "x"]).await;
    site.expect(0, &["locks", "break", "slot", "--reason", "the machine is gone"]).await;
    assert_eq!(follower.wait().await.unwrap().code(), Some(0));
    let view = site.in_state(&keep, "Held").await;
    assert!(view["held_reason"].as_str().unwrap().contains("slot"), "{view:#}");
    site.write("go", "");
    assert_eq!(owner.ended().await.0, 5);
}

#[tokio::test]
async fn a_run_that_queues_keeps_its_place_when_the_process_dies() {
    let site = Site::new();
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    let keep = site.newest("keep").await;
    super::programs::is_running(&site).await;
    let mut follower = site.command(&["run", "queue"]).spawn().unwrap();
    let queued = site.newest("queue").await;
    site.in_state(&queued, "Queued").await;
    follower.kill().await.unwrap();
    owner.signal(rustix::process::Signal::KILL);
    owner.ended().await;
    let rows = site.expect(0, &["locks", "--output", "json"]).await.json();
    assert_eq!(rows, serde_json::json!([{ "key": "slot", "holder": keep, "queue": [queued] }]));

    site.write("go", "");
    site.expect(0, &["resume"]).await;
    let (first, second) = (site.show(&keep).await, site.show(&queued).await);
    assert_eq!((&first["state"], &second["state"]), (&"Succeeded".into(), &"Succeeded".into()));
    assert!(second["steps"][0]["started_at"].as_str() >= first["finished_at"].as_str(), "{second:#}");
}

#[tokio::test]
async fn a_lock_is_free_when_its_run_is_over() {
    let site = Site::new();
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    let keep = site.newest("keep").await;
    let mut follower = site.command(&["run", "queue"]).spawn().unwrap();
    let queued = site.newest("queue").await;
    site.in_state(&queued, "Queued").await;
    site.write("go", "");
    let (code, log) = owner.ended().await;
    assert_eq!(code, 0, "{log}");
    // The process that executed both ended with its own; the other goes on in the process that follows it.
    assert_eq!(follower.wait().await.unwrap().code(), Some(0));
    let (first, second) = (site.show(&keep).await, site.show(&queued).await);
    assert_eq!(second["state"], "Succeeded", "{second:#}");
    assert!(second["steps"][0]["started_at"].as_str() >= first["finished_at"].as_str(), "{second:#}");
    assert_eq!(site.expect(0, &["locks", "--output", "json"]).await.json(), serde_json::json!([]));
}

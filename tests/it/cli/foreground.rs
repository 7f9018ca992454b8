//! One process executes, others look and speak (design.md section 6).

use rustix::process::Signal;

use super::site::Site;

#[tokio::test]
async fn a_second_process_watches_notes_approves_and_cancels() {
    let site = Site::new();
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    let keep = site.newest("keep").await;
    site.expect(0, &["note", &keep, "looked at by another process"]).await;
    let view = site.show(&keep).await;
    assert_eq!(view["notes"][0]["text"], "looked at by another process", "{view:#}");

    site.expect(0, &["pause", &keep]).await;
    assert_eq!(site.show(&keep).await["paused"], true);
    site.expect(0, &["unpause", &keep]).await;
    assert_eq!(site.show(&keep).await["paused"], false);

    // Started through the socket: executed by the first process, followed by the second.
    site.expect(5, &["run", "asks"]).await;
    let asks = site.newest("asks").await;
    site.expect(0, &["approve", &asks, "--reason", "seen"]).await;
    assert!(site.in_state(&asks, "Succeeded").await["finished_at"].is_string());
    site.expect(0, &["watch", &asks]).await;

    site.expect(5, &["run", "asks"]).await;
    let rejected = site.newest("asks").await;
    site.expect(0, &["reject", &rejected]).await;
    site.in_state(&rejected, "Failed").await;

    // An undo that fails asks; it is done again when what kept it from working is gone.
    site.expect(5, &["run", "undone", "-i", &format!("file={}", site.text("made"))]).await;
    let stuck = site.newest("undone").await;
    let view = site.show(&stuck).await;
    assert!(view["held_reason"].is_string() && view["asks"][0].is_object(), "{view:#}");
    site.write("made.allowed", "");
    site.expect(0, &["decide", &stuck, "retry"]).await;
    site.expect(4, &["watch", &stuck]).await;
    assert!(!site.path("made").exists());

    site.expect(0, &["cancel", &keep, "--reason", "enough"]).await;
    site.write("go", "");
    let (code, log) = owner.ended().await;
    assert_eq!(code, 9, "{log}");
    assert_eq!(site.show(&keep).await["state"], "Cancelled");
}

#[tokio::test]
async fn ctrl_c_parks_and_resume_goes_on() {
    let site = Site::new();
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    let run = site.newest("keep").await;
    super::programs::is_running(&site).await;
    owner.signal(Signal::INT);
    let (code, log) = owner.ended().await;
    assert_eq!(code, 130, "{log}");
    assert!(log.contains(&format!("windrow resume {run}")), "{log}");
    let view = site.show(&run).await;
    assert!(view["finished_at"].is_null(), "{view:#}");
    site.write("go", "");
    site.expect(0, &["resume", &run]).await;
    assert_eq!(std::fs::read_to_string(site.path("go.log")).unwrap(), "once\n");
    site.expect(3, &["resume", &run]).await;
    site.expect(0, &["resume"]).await;
}

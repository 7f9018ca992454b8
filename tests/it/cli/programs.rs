//! `process` steps survive the process that started them.

use rustix::process::Signal;

use super::site::Site;
use super::site::until;

/// Waits until the program of `keep` has begun.
pub(super) async fn is_running(site: &Site) {
    let log = site.path("go.log");
    until("the program runs", async || log.exists().then_some(())).await;
}

#[tokio::test]
async fn a_program_that_outlives_a_killed_process_is_waited_for_and_never_run_twice() {
    let site = Site::new();
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    let run = site.newest("keep").await;
    is_running(&site).await;
    owner.signal(Signal::KILL);
    assert_eq!(owner.ended().await.0, -1);

    let second = site.stay(&["resume", &run]).await;
    let view = site.show(&run).await;
    assert_eq!(view["steps"][0]["name"], "work", "{view:#}");
    assert!(view["finished_at"].is_null(), "it is waited for: {view:#}");
    site.write("go", "");
    let (code, log) = second.ended().await;
    assert_eq!(code, 0, "{log}");
    assert_eq!(std::fs::read_to_string(site.path("go.log")).unwrap(), "once\n");
    let view = site.show(&run).await;
    assert_eq!((&view["steps"][0]["attempts"], &view["steps"][0]["changed"]), (&1.into(), &true.into()));
    assert_eq!(view["steps"][0]["outputs"]["said"], "seen\n", "{view:#}");
    assert!(!site.path("state/proc").join(&run).exists(), "its files are removed");
}

#[tokio::test]
async fn a_program_that_ended_while_nobody_looked_has_its_result() {
    let site = Site::new();
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    let run = site.newest("keep").await;
    is_running(&site).await;
    owner.signal(Signal::KILL);
    owner.ended().await;
    site.write("go", "");
    site.expect(0, &["resume"]).await;
    assert_eq!(std::fs::read_to_string(site.path("go.log")).unwrap(), "once\n");
    assert_eq!(site.show(&run).await["steps"][0]["outputs"]["said"], "seen\n");
}

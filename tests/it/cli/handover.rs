//! What becomes of the runs that a process executes for others when it ends.

use std::process::Stdio;

use rustix::process::Signal;
use tokio::io::AsyncBufReadExt;
use tokio::io::BufReader;
use tokio::process::Child;

use super::site::Site;
use super::site::until;

/// Starts a run through the socket of a process that has the store, and waits until its program runs.
async fn guest(site: &Site) -> (Child, String) {
    let mut command = site.command(&["run", "linger", "-i", &format!("file={}", site.text("end"))]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let run = site.newest("linger").await;
    let log = site.path("end.log");
    until("the program of the guest runs", async || log.exists().then_some(())).await;
    (child, run)
}

/// Lets the guest end: it has gone on with its run itself, and did nothing twice.
async fn goes_on(site: &Site, guest: Child, run: &str) {
    site.write("end", "");
    let said = guest.wait_with_output().await.unwrap();
    let log = String::from_utf8(said.stderr).unwrap();
    assert_eq!(said.status.code(), Some(0), "{log}");
    assert!(log.contains("this one goes on with it"), "{log}");
    assert_eq!(site.show(run).await["state"], "Succeeded");
    assert_eq!(std::fs::read_to_string(site.path("end.log")).unwrap(), "once\n");
}

#[tokio::test]
async fn a_run_of_somebody_else_is_named_and_goes_on_where_it_is_followed() {
    let site = Site::new();
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    let (guest, run) = guest(&site).await;
    site.write("go", "");
    let (code, log) = owner.ended().await;
    assert_eq!(code, 0, "{log}");
    assert!(log.contains(&format!("windrow resume {run}")), "{log}");
    goes_on(&site, guest, &run).await;
}

#[tokio::test]
async fn a_run_whose_process_was_killed_goes_on_where_it_is_followed() {
    let site = Site::new();
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    let (guest, run) = guest(&site).await;
    owner.signal(Signal::KILL);
    owner.ended().await;
    goes_on(&site, guest, &run).await;
    site.write("go", "");
    site.expect(0, &["resume"]).await;
}

#[tokio::test]
async fn a_process_that_was_just_killed_is_not_taken_for_one_that_lives() {
    let site = Site::new();
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    let run = site.newest("keep").await;
    super::programs::is_running(&site).await;
    owner.signal(Signal::KILL);
    site.write("go", "");
    // Its socket may still take connections; nobody answers there.
    site.expect(0, &["resume", &run]).await;
    assert_eq!(owner.ended().await.0, -1);
    assert_eq!(site.show(&run).await["state"], "Succeeded");
}

#[tokio::test]
async fn who_only_watches_executes_nothing() {
    let site = Site::new();
    let owner = site.stay(&["run", "keep", "-i", &format!("file={}", site.text("go"))]).await;
    let run = site.newest("keep").await;
    super::programs::is_running(&site).await;
    let mut watcher = site.command(&["watch", &run]).stderr(Stdio::piped()).spawn().unwrap();
    let mut shown = BufReader::new(watcher.stderr.take().unwrap()).lines();
    assert!(shown.next_line().await.unwrap().unwrap().contains(&run), "it watches");
    owner.signal(Signal::KILL);
    owner.ended().await;
    assert_eq!(watcher.wait().await.unwrap().code(), Some(6));
    let mut rest = vec![];
    while let Some(line) = shown.next_line().await.unwrap() {
        rest.push(line);
    }
    let rest = rest.join("\n");
    assert!(rest.contains(&format!("windrow resume {run}")), "{rest}");
    site.write("go", "");
    site.expect(0, &["resume", &run]).await;
}

//! A secret's value is nowhere but where it is needed (L11).

use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::Digest;
use sha2::Sha256;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::site::Site;
use super::site::said;
use super::site::until;

const VALUE: &str = "hunter2-swordfish";

/// The value, and its SHA-256 as bytes and as text: whoever has that can guess the value at leisure.
fn tells() -> Vec<Vec<u8>> {
    let digest = Sha256::digest(VALUE).to_vec();
    let text = windrow::digest::hex(&digest);
    vec![VALUE.into(), text.into_bytes(), BASE64_STANDARD.encode(&digest).into_bytes(), digest]
}

/// True for bytes that tell the value.
fn tell(bytes: &[u8]) -> bool {
    // The store keeps 64 MiB of zeros in reserve.
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let bytes = &bytes[..end];
    tells().iter().any(|tell| bytes.windows(tell.len()).any(|window| window == tell))
}

/// A file under `folder` that tells the value.
fn told(folder: &Path) -> Option<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    paths.find_map(|path| match path.is_dir() {
        true => told(&path),
        false => tell(&std::fs::read(&path).unwrap_or_default()).then_some(path),
    })
}

/// Command lines of all processes.
fn command_lines() -> String {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).into_owned() + "\n")
        .collect()
}

/// Answers one request with what was asked.
async fn echo(listener: TcpListener) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut asked = vec![0; 8 << 10];
    let mut length = 0;
    while !asked[..length].windows(4).any(|window| window == b"\r\n\r\n") {
        length += stream.read(&mut asked[length..]).await.unwrap();
    }
    let asked = String::from_utf8_lossy(&asked[..length]).into_owned();
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n", asked.len());
    stream.write_all((head + &asked).as_bytes()).await.unwrap();
    asked
}

#[tokio::test]
async fn the_value_of_a_secret_is_neither_stored_nor_shown_nor_an_argument() {
    let site = Site::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("url=http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(echo(listener));
    let file = format!("file={}", site.text("go"));
    let args = ["run", "secret", "--verbose", "-i", "token=env:TOKEN", "-i", &url, "-i", &file];
    let owner = site.stay_as(site.command(&args).env("TOKEN", VALUE)).await;
    let run = site.newest("secret").await;
    assert!(server.await.unwrap().contains(&format!("Bearer {VALUE}")), "the server got it");
    until("the program runs", async || {
        let view = site.show(&run).await;
        (view["steps"][1]["state"] == "Running").then_some(())
    })
    .await;
    let lines = command_lines();
    assert!(lines.contains("windrow") && !tell(lines.as_bytes()), "an argument");
    site.write("go", "");
    let (code, log) = owner.ended().await;
    assert_eq!(code, 1, "{log}");
    assert!(!tell(log.as_bytes()), "{log}");

    let shown = site.expect(0, &["show", &run, "--events", "--output", "json"]).await;
    assert!(!tell(shown.out.as_bytes()) && shown.out.contains("env:TOKEN"), "{}", shown.out);
    let view = shown.json();
    let body = view["steps"][0]["outputs"]["body"].as_str().unwrap();
    assert!(body.contains("Bearer ⟦masked⟧"), "{body}");
    let failure = view["failure"]["message"].as_str().unwrap();
    assert!(failure.contains("⟦masked⟧"), "what the program wrote is told without it: {failure}");
    site.expect(0, &["store", "export", "all.windrow"]).await;
    assert_eq!(told(site.path("").as_path()), None);
}

/// The keyed hash of the token, as a run shows it; what a step gives on holds reference and hash.
async fn hash(site: &Site, token: &str, value: &str) -> String {
    let args = ["run", "keeps-secret", "-i", &format!("token={token}")];
    let said = said(site.command(&args).env("TOKEN", value)).await;
    assert_eq!(said.code, 0, "{said:?}");
    let warned = said.err.contains("every user of this machine can read");
    assert_eq!(warned, token.starts_with("literal:"), "{said:?}");
    let view = site.show(&site.newest("keeps-secret").await).await;
    let hash = view["secrets"]["token"].as_str().unwrap().to_owned();
    let handed_on = view["outputs"]["token"].as_str().unwrap();
    assert!(handed_on.contains(&hash) && handed_on.contains(view["inputs"]["token"].as_str().unwrap()));
    assert!(!tell(view.to_string().as_bytes()), "{view:#}");
    hash
}

#[tokio::test]
async fn two_runs_with_one_secret_can_be_told_from_one_with_another() {
    let site = Site::new();
    site.write("token", VALUE);
    let first = hash(&site, "env:TOKEN", VALUE).await;
    assert_eq!(hash(&site, "file:token", "").await, first, "the same secret from elsewhere");
    assert_eq!(hash(&site, &format!("literal:{VALUE}"), "").await, first, "the same secret given itself");
    assert_ne!(hash(&site, "env:TOKEN", "another-secret").await, first);
    std::fs::remove_file(site.path("token")).unwrap();
    site.expect(0, &["store", "export", "all.windrow"]).await;
    assert_eq!(told(site.path("").as_path()), None);

    // The key is the directory's own: elsewhere the same secret has another hash.
    let other = Site::new();
    assert_ne!(hash(&other, "env:TOKEN", VALUE).await, first);
}

#[tokio::test]
async fn a_run_whose_secret_is_not_there_is_not_started() {
    let site = Site::new();
    let said = site.expect(3, &["run", "keeps-secret", "-i", "token=env:TOKEN"]).await;
    assert!(said.err.contains("env:TOKEN") && said.err.contains("not set"), "{said:?}");
    let runs = site.expect(0, &["runs", "--output", "json"]).await.json();
    assert_eq!(runs, serde_json::json!([]));
}

#[tokio::test]
async fn a_secret_is_named_and_never_written_in_a_command() {
    let site = Site::new();
    let said = site
        .expect(2, &["run", "secret", "-i", &format!("token={VALUE}"), "-i", "url=http://x/", "-i", "file=x"])
        .await;
    assert!(said.err.contains("env:NAME") && !said.err.contains(VALUE), "{said:?}");
}

//! A secret's value is nowhere but where it is needed (L11).

use std::path::Path;

use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::site::Site;
use super::site::until;

const VALUE: &str = "hunter2-swordfish";

/// True if a file under `folder` holds the value.
fn holds(folder: &Path) -> Option<std::path::PathBuf> {
    std::fs::read_dir(folder).unwrap().filter_map(|entry| entry.ok().map(|entry| entry.path())).find_map(
        |path| {
            if path.is_dir() {
                return holds(&path);
            }
            let bytes = std::fs::read(&path).unwrap_or_default();
            bytes.windows(VALUE.len()).any(|window| window == VALUE.as_bytes()).then_some(path)
        },
    )
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
    assert!(lines.contains("windrow") && !lines.contains(VALUE), "an argument");
    site.write("go", "");
    let (code, log) = owner.ended().await;
    assert_eq!(code, 1, "{log}");
    assert!(!log.contains(VALUE), "{log}");

    let shown = site.expect(0, &["show", &run, "--events", "--output", "json"]).await;
    assert!(!shown.out.contains(VALUE) && shown.out.contains("env:TOKEN"), "{}", shown.out);
    let view = shown.json();
    let body = view["steps"][0]["outputs"]["body"].as_str().unwrap();
    assert!(body.contains("Bearer ⟦masked⟧"), "{body}");
    let failure = view["failure"]["message"].as_str().unwrap();
    assert!(failure.contains("⟦masked⟧"), "what the program wrote is told without it: {failure}");
    site.expect(0, &["store", "export", "all.windrow"]).await;
    assert_eq!(holds(site.path("").as_path()), None);
}

#[tokio::test]
async fn a_secret_is_named_and_never_written_in_a_command() {
    let site = Site::new();
    let said = site
        .expect(2, &["run", "secret", "-i", &format!("token={VALUE}"), "-i", "url=http://x/", "-i", "file=x"])
        .await;
    assert!(said.err.contains("env:NAME") && !said.err.contains(VALUE), "{said:?}");
}

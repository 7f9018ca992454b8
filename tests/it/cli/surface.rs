//! What there is to type: help, completions, version.

use std::collections::BTreeSet;
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::site::Site;

/// The commands of design.md section 6 that exist.
const COMMANDS: &str = "run resume runs show watch cancel terminate pause unpause retry rollback decide approve reject \
                        note debts plan validate graph workflows rehearse sim locks store explain schema completions \
                        version diagnose bundle";
/// Those that come later: nothing may name them before.
const LATER: &str = "serve schedule token audit drain";

/// The first words of the list of commands in a help text.
fn listed(help: &str) -> BTreeSet<String> {
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let entries = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    entries.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

#[tokio::test]
async fn the_help_lists_what_exists_and_nothing_else() {
    let site = Site::new();
    let help = site.expect(0, &["--help"]).await.out;
    let mut wanted: BTreeSet<String> = COMMANDS.split_whitespace().map(str::to_owned).collect();
    wanted.insert("help".to_owned());
    assert_eq!(listed(&help), wanted);
    for command in COMMANDS.split_whitespace() {
        let own = site.expect(0, &[command, "--help"]).await;
        for flag in ["--state", "--kubeconfig", "--context", "--workflows", "--output"] {
            assert!(own.out.contains(flag), "{flag} in the help of {command}");
        }
    }
    for command in LATER.split_whitespace() {
        site.expect(2, &[command]).await;
    }
}

#[tokio::test]
async fn the_version_is_told_in_three_ways() {
    let site = Site::new();
    let version = env!("CARGO_PKG_VERSION");
    for args in [&["version"] as &[&str], &["--version"], &["-V"]] {
        assert_eq!(site.expect(0, args).await.out.trim_end(), format!("windrow {version}"));
    }
    assert_eq!(site.expect(0, &["version", "--output", "json"]).await.json()["version"], version);
}

/// True if a shell that reads the script from its stdin accepts it; none if there is no such shell here.
async fn accepted(shell: &str, script: &str) -> Option<bool> {
    let mut child =
        Command::new(shell).arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().ok()?;
    child.stdin.take().unwrap().write_all(script.as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    Some(output.status.success() && output.stderr.is_empty())
}

#[tokio::test]
async fn completions_know_each_command_and_are_accepted_by_their_shell() {
    let site = Site::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = site.expect(0, &["completions", shell]).await.out;
        for command in COMMANDS.split_whitespace() {
            assert!(script.contains(command), "{command} for {shell}");
        }
        if let Some(good) = accepted(shell, &script).await {
            assert!(good, "{shell} does not take its script");
        } else {
            assert_ne!(shell, "bash", "bash is everywhere");
            eprintln!("completions for {shell} were not tried: there is no {shell} here");
        }
    }
    site.expect(2, &["completions", "cmd"]).await;
}

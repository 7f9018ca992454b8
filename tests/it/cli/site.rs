//! A state directory, workflows beside it, and the real `windrow`, as people and programs use it.

use std::path::Path;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Pid;
use rustix::process::Signal;
use serde_json::Value;
use tokio::process::Child;
use tokio::process::Command;
use windrow::time::Clock;
use windrow::time::SystemClock;

/// How often a condition is looked at, and how many times: a slow machine gets two minutes.
const BEAT: Duration = Duration::from_millis(100);
const LOOKS_MAX: usize = 1200;

/// Waits until `look` finds something.
pub(super) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let clock = SystemClock::at_speed(1.0);
    for _ in 0..LOOKS_MAX {
        if let Some(found) = look().await {
            return found;
        }
        clock.sleep(BEAT).await;
    }
    panic!("this never came: {what}")
}

/// What a command said.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) code: i32,
    pub(super) out: String,
    pub(super) err: String,
}

impl Said {
    /// Its data, which must be JSON.
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

/// A directory that a person works in. Removed at the end.
pub(super) struct Site {
    home: tempfile::TempDir,
}

impl Site {
    /// With the workflows of `tests/fixtures/cli`.
    pub(super) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let workflows = home.path().join("workflows");
        std::fs::create_dir(&workflows).unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cli");
        for entry in std::fs::read_dir(fixtures).unwrap() {
            let file = entry.unwrap().path();
            std::fs::copy(&file, workflows.join(file.file_name().unwrap())).unwrap();
        }
        Self { home }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The same as a text, for inputs.
    pub(super) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// `windrow` in this directory, with nothing of the tester's own environment.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windrow"));
        command.args(args).current_dir(self.home.path()).env_clear().kill_on_drop(true);
        command.env("HOME", self.home.path()).stdin(Stdio::null());
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command
    }

    /// Runs a command to its end.
    pub(super) async fn windrow(&self, args: &[&str]) -> Said {
        said(&mut self.command(args)).await
    }

    /// The same, which must end with that code.
    pub(super) async fn expect(&self, code: i32, args: &[&str]) -> Said {
        let said = self.windrow(args).await;
        assert_eq!(said.code, code, "windrow {args:?}: {said:#?}");
        said
    }

    /// Starts a command that stays, and waits until other processes reach it.
    pub(super) async fn stay(&self, args: &[&str]) -> Foreground {
        self.stay_as(&mut self.command(args)).await
    }

    /// As [`Site::stay`], with an environment of the test's own.
    pub(super) async fn stay_as(&self, command: &mut Command) -> Foreground {
        let log = std::fs::File::create(self.path("foreground.log")).unwrap();
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let socket = self.path("state/windrow.sock");
        until("the socket", async || tokio::net::UnixStream::connect(&socket).await.ok()).await;
        Foreground { child, log: self.path("foreground.log") }
    }

    /// The newest run of a workflow.
    pub(super) async fn newest(&self, workflow: &str) -> String {
        until(workflow, async || {
            let said =
                self.windrow(&["runs", "--workflow", workflow, "--limit", "1", "--output", "json"]).await;
            if said.code != 0 {
                return None;
            }
            said.json()[0]["run"].as_str().map(str::to_owned)
        })
        .await
    }

    pub(super) async fn show(&self, run: &str) -> Value {
        self.expect(0, &["show", run, "--output", "json"]).await.json()
    }

    /// Waits until a run is in a state.
    pub(super) async fn in_state(&self, run: &str, state: &str) -> Value {
        until(state, async || {
            let view = self.show(run).await;
            (view["state"] == state).then_some(view)
        })
        .await
    }
}

/// Runs a command to its end.
pub(super) async fn said(command: &mut Command) -> Said {
    let output = command.output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// A command that stays in the foreground of some terminal.
pub(super) struct Foreground {
    child: Child,
    log: PathBuf,
}

impl Foreground {
    pub(super) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()).unwrap()
    }

    pub(super) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for its end: the exit code, -1 if it was killed.
    pub(super) async fn ended(mut self) -> (i32, String) {
        let status = self.child.wait().await.unwrap();
        (status.code().unwrap_or(-1), std::fs::read_to_string(&self.log).unwrap())
    }
}

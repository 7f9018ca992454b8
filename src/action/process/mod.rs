//! `process`: a program in a group of its own, behind a gate.
//!
//! The gate is a shell that waits for a word before it runs the program. Between its start and that word the runner
//! makes the fact durable that it exists, so that no program ever runs that a later process does not know. The gate
//! writes output and exit code into files of the state directory: a program that outlives the agent is found again
//! with its result.

mod mark;

pub use mark::Mark;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Child;
use tokio::process::Command;

use crate::action::args;
use crate::action::codes;
use crate::action::k8s::client::Cluster;
use crate::action::request::Answer;
use crate::action::request::Origin;
use crate::action::secret;
use crate::action::secret::Secrets;
use crate::definition::expr::Naming;
use crate::definition::expr::object_name;
use crate::failure::Failure;
use crate::time::SharedClock;
use crate::time::Timestamp;

const GATE: &str = include_str!("gate.sh");
/// How much of each of the two outputs is kept (E13); it goes into the journal.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// What a program gets of the agent's environment.
const PASSED_ON: [&str; 4] = ["PATH", "HOME", "LANG", "TZ"];
/// How long a program that is told to end may take.
const MERCY: Duration = Duration::from_secs(10);
/// How long what a program has left behind may keep its output open.
const DRAIN: Duration = Duration::from_secs(2);
/// The beat at which a program that is not our child, or one that lingers, is looked at.
const BEAT: Duration = Duration::from_millis(100);
/// How much of the error output stands in a failure.
const EXCERPT_CHARS_MAX: usize = 500;

/// What a later process has to know about a program besides its mark.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// The exit codes that are a success.
    expect: Vec<i32>,
    /// The environment's texts that hold placeholders of secrets, never values: the output must be masked.
    secrets: Vec<Value>,
}

/// Starts programs and finds them again.
#[derive(Clone)]
pub struct Processes {
    folder: PathBuf,
    clock: SharedClock,
    secrets: Secrets,
    mercy: Duration,
}

/// A program behind its gate. Dropped, it never runs.
pub struct Gated {
    child: Child,
    mark: Mark,
    place: Place,
    processes: Processes,
}

/// The folder of one attempt.
struct Place(PathBuf);

impl Processes {
    /// Keeps its files under `folder`, one folder for each run and in it one for each attempt.
    pub fn new(folder: &Path, secrets: Secrets, clock: SharedClock) -> io::Result<Self> {
        // The program may run elsewhere, and its gate still has to find the files.
        Ok(Self { folder: std::path::absolute(folder)?, clock, secrets, mercy: MERCY })
    }

    fn place(&self, origin: &Origin) -> Place {
        let readable: String =
            origin.unit.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let (step, attempt) = (origin.unit.clone(), Some(origin.attempt));
        let naming = Naming { run: origin.run.clone(), step, item: None, attempt };
        Place(self.folder.join(&origin.run).join(object_name(&readable, &naming)))
    }

    /// Starts the gate. `args` still has its placeholders; secrets go into the environment and nowhere else.
    pub async fn start(
        &self,
        origin: &Origin,
        args: &Value,
        cluster: Option<&Cluster>,
    ) -> Result<Gated, Failure> {
        let args: args::Process = args::read(args)?;
        let [program, ..] = args.command.as_slice() else {
            return Err(Failure::permanent(codes::BAD_REQUEST, "`command` is empty"));
        };
        if args.command.iter().chain(&args.dir).any(|text| secret::holds_secret(&Value::from(text.as_str())))
        {
            return Err(Failure::permanent(
                codes::SECRET_IN_ARGV,
                format!("{program}: a secret among its arguments"),
            ));
        }
        let mut environment = vec![];
        for (name, text) in &args.env {
            let clear = self.secrets.resolve(&Value::from(text.as_str()), cluster).await?;
            environment.push((name, clear.as_str().unwrap_or_default().to_owned()));
        }
        let place = self.place(origin);
        let failed =
            |error: io::Error| Failure::permanent(codes::PROCESS_START, format!("{program}: {error}"));
        place.prepare(&args).map_err(failed)?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", GATE, "windrow-gate"]).arg(&place.0).arg(OUTPUT_BYTES_MAX.to_string());
        command.args(&args.command).env_clear();
        command.envs(PASSED_ON.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.envs(environment).current_dir(args.dir.as_ref().map_or(place.0.as_path(), Path::new));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let child = command.spawn().map_err(failed)?;
        let mark = child.id().and_then(Mark::of);
        let mark = mark.ok_or_else(|| failed(io::Error::other("its gate ended at once")))?;
        Ok(Gated { child, mark, place, processes: self.clone() })
    }

    /// Waits for a program that an earlier process of the agent has started, and ends it when its time is up.
    pub async fn adopt(
        &self,
        origin: &Origin,
        mark: &Mark,
        limit: Duration,
        cluster: Option<&Cluster>,
    ) -> Answer {
        let place = self.place(origin);
        let late = self.until_ended(mark, None, &place, limit).await;
        if !late && !place.was_released() && mark.is_of_this_boot() {
            let message = "the agent ended before the program was started";
            return Answer::Failed(Failure::retryable(codes::PROCESS_START, message));
        }
        self.result(&place, late, limit, cluster).await.into()
    }

    /// Ends a program and everything that it has started, at once.
    pub fn kill(mark: &Mark) {
        mark.signal(Signal::KILL);
    }

    /// Removes the files of a run that has ended.
    pub fn forget(&self, run: &str) -> io::Result<()> {
        match fs::remove_dir_all(self.folder.join(run)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Waits until the program has ended and nothing of its group is left. True if it was made to end.
    async fn until_ended(
        &self,
        mark: &Mark,
        mut child: Option<&mut Child>,
        place: &Place,
        limit: Duration,
    ) -> bool {
        let deadline = self.clock.now() + limit;
        let mut drained: Option<Timestamp> = None;
        let mut late = false;
        let mut mercy: Option<Timestamp> = None;
        loop {
            let beat = self.clock.sleep_until(self.clock.now() + BEAT);
            let ended = match child.as_mut() {
                Some(child) => tokio::select! { _ = child.wait() => true, () = beat => false },
                None if mark.is_alive() => {
                    beat.await;
                    false
                }
                None => true,
            };
            if ended {
                // Whatever the program has left behind would go on without anybody who knows of it.
                mark.signal(Signal::KILL);
                return late;
            }
            let now = self.clock.now();
            let over = place.status().is_some() && now >= *drained.get_or_insert(now + DRAIN);
            late |= drained.is_none() && now >= deadline;
            // Told to end, and not killed at once: the gate then still writes down what has been said until now.
            match mercy {
                None if over || late => {
                    mercy = Some(now + self.mercy);
                    mark.signal(Signal::TERM);
                }
                Some(mercy) if now >= mercy => mark.signal(Signal::KILL),
                _ => {}
            }
        }
    }

    async fn result(
        &self,
        place: &Place,
        late: bool,
        limit: Duration,
        cluster: Option<&Cluster>,
    ) -> Result<Answer, Failure> {
        let lost = || Failure::unknown(codes::PROCESS_LOST, "the program is gone and left no exit code");
        let note = place.note().ok_or_else(lost)?;
        let (out, err) = (
            self.output(place, "out", &note, cluster).await,
            self.output(place, "err", &note, cluster).await,
        );
        let start = err.trim_end().char_indices().rev().nth(EXCERPT_CHARS_MAX).map_or(0, |(index, _)| index);
        let said = err[start..].trim();
        if late {
            let message = format!(
                "not ended within {} s and therefore killed: {said}",
                limit.as_millis().div_ceil(1000)
            );
            return Err(Failure::unknown(codes::TIMEOUT, message));
        }
        let code = place.status().ok_or_else(lost)?;
        let expected = if note.expect.is_empty() { code == 0 } else { note.expect.contains(&code) };
        match code {
            _ if expected => Ok(Answer::done(true, json!({"exit_code": code, "stdout": out, "stderr": err}))),
            126 | 127 => Err(Failure::permanent(codes::PROCESS_START, said)),
            129..=159 => {
                let message = format!("ended by signal {}: {said}", code - 128);
                Err(Failure::unknown(codes::PROCESS_KILLED, message))
            }
            _ => Err(Failure::retryable(codes::PROCESS_EXIT, format!("exit code {code}: {said}"))),
        }
    }

    /// One of the two outputs, masked; the file then holds no more than that.
    async fn output(&self, place: &Place, name: &str, note: &Note, cluster: Option<&Cluster>) -> String {
        let path = place.0.join(name);
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned();
        for secret in &note.secrets {
            // In another process than the one that started the program, nothing is known of its secrets yet.
            if let Err(failure) = self.secrets.resolve(secret, cluster).await {
                return format!("[withheld: {}]", failure.message);
            }
        }
        let masked = self.secrets.masker().mask(&text).into_owned();
        if masked != text {
            // If that fails, the file stays as the program wrote it, readable by its owner only, until the run ends.
            fs::write(&path, &masked).unwrap_or_default();
        }
        match place.number::<u64>(&format!("{name}.cut")) {
            Some(more) => format!("{masked}\n[{more} more bytes cut]"),
            None => masked,
        }
    }
}

impl Gated {
    /// Which process it is; to be made durable before it is released.
    pub fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Lets the program run and waits for its end. When its time is up, it and all that it started are killed.
    /// Dropping the future leaves it running, to be found again by [`Processes::adopt`].
    pub async fn release(mut self, limit: Duration, cluster: Option<&Cluster>) -> Answer {
        if let Some(mut gate) = self.child.stdin.take()
            && let Err(error) = gate.write_all(b"go\n").await
        {
            let message = format!("its gate has been ended: {error}");
            return Answer::Failed(Failure::retryable(codes::PROCESS_START, message));
        }
        let late = self.processes.until_ended(&self.mark, Some(&mut self.child), &self.place, limit).await;
        self.processes.result(&self.place, late, limit, cluster).await.into()
    }
}

impl Place {
    /// Makes the folder, empty but for the note.
    fn prepare(&self, args: &args::Process) -> io::Result<()> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let texts = args.env.values().map(|text| Value::from(text.as_str()));
        let note =
            Note { expect: args.expect.clone(), secrets: texts.filter(secret::holds_secret).collect() };
        fs::write(self.0.join("note"), serde_json::to_vec(&note)?)
    }

    fn note(&self) -> Option<Note> {
        serde_json::from_slice(&fs::read(self.0.join("note")).ok()?).ok()
    }

    /// The gate has let the program run.
    fn was_released(&self) -> bool {
        self.0.join("released").exists()
    }

    /// The exit code, once the program has ended.
    fn status(&self) -> Option<i32> {
        self.number("status")
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        fs::read_to_string(self.0.join(name)).ok()?.trim().parse().ok()
    }
}

#[cfg(test)]
mod tests;

//! On a real (pseudo) terminal: moving lines, answers in place, Ctrl-C. And no escape codes where nobody can see them.

use std::sync::Arc;
use std::sync::Mutex;

use pty_process::OwnedWritePty;
use pty_process::Size;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::process::Child;

use super::site::Site;
use super::site::said;
use super::site::until;

const ESCAPE: char = '\u{1b}';

/// A command on a terminal of its own.
struct Terminal {
    child: Child,
    keys: OwnedWritePty,
    screen: Arc<Mutex<String>>,
}

impl Terminal {
    fn open(site: &Site, args: &[&str], env: &[(&str, &str)]) -> Self {
        let (pty, pts) = pty_process::open().unwrap();
        pty.resize(Size::new(40, 160)).unwrap();
        let command = pty_process::Command::new(env!("CARGO_BIN_EXE_windrow"))
            .args(args)
            .current_dir(site.path(""))
            .env_clear()
            .env("HOME", site.path(""))
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .envs(env.iter().copied())
            .kill_on_drop(true);
        let child = command.spawn(pts).unwrap();
        let (mut reader, keys) = pty.into_split();
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = screen.clone();
        tokio::spawn(async move {
            let mut bytes = vec![];
            // The last reader of a terminal that is closed gets an error.
            while let Ok(1..) = reader.read_buf(&mut bytes).await {
                *shown.lock().unwrap() = String::from_utf8_lossy(&bytes).into_owned();
            }
        });
        Self { child, keys, screen }
    }

    fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    async fn shows(&self, text: &str) {
        until(text, async || self.screen().contains(text).then_some(())).await;
    }

    async fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).await.unwrap();
    }

    /// Its exit code, and all that it has shown.
    async fn ended(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().await.unwrap();
        // The reader is done a moment after the process is.
        let clock = windrow::time::SystemClock::at_speed(1.0);
        windrow::time::Clock::sleep(&clock, std::time::Duration::from_millis(200)).await;
        (status.code(), self.screen())
    }
}

const XTERM: [(&str, &str); 1] = [("TERM", "xterm")];

#[tokio::test]
async fn a_terminal_shows_each_step_as_a_line_that_moves() {
    let site = Site::new();
    site.write("go", "");
    let file = format!("file={}", site.text("go"));
    let terminal = Terminal::open(&site, &["run", "keep", "-i", &file], &XTERM);
    let (code, screen) = terminal.ended().await;
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains(ESCAPE), "lines move: {screen:?}");
    for part in ["✓ work", "✓ look", "Succeeded"] {
        assert!(screen.contains(part), "{part} in {screen:?}");
    }
}

#[tokio::test]
async fn a_terminal_that_wants_no_colours_or_is_dumb_gets_plain_lines() {
    let site = Site::new();
    let plain: [&[(&str, &str)]; 3] = [&[("TERM", "xterm"), ("NO_COLOR", "1")], &[("TERM", "dumb")], &[]];
    for env in plain {
        let terminal = Terminal::open(&site, &["run", "good"], env);
        let (code, screen) = terminal.ended().await;
        assert_eq!(code, Some(0), "{screen}");
        assert!(!screen.contains(ESCAPE) && screen.contains("✓ look"), "{env:?}: {screen:?}");
        let mistake = Terminal::open(&site, &["validate", "nowhere.toml"], env).ended().await;
        assert!(mistake.0 == Some(2) && !mistake.1.contains(ESCAPE), "{env:?}: {mistake:?}");
    }
    // No terminal at all, whatever is said about it.
    let piped = said(site.command(&["run", "good", "--verbose"]).env("TERM", "xterm")).await;
    assert!(!piped.err.contains(ESCAPE) && piped.err.contains("✓ look"), "{piped:?}");
}

#[tokio::test]
async fn a_question_is_answered_at_the_terminal_by_number_or_in_words() {
    let site = Site::new();
    for (keys, code, end) in [("2\r", 0, "Succeeded"), ("reject\r", 1, "Failed")] {
        let mut terminal = Terminal::open(&site, &["run", "asks"], &XTERM);
        terminal.shows("may it go on?").await;
        terminal.shows("2) windrow approve").await;
        terminal.press("perhaps\r").await;
        terminal.shows("an answer is").await;
        terminal.press(keys).await;
        let (found, screen) = terminal.ended().await;
        assert_eq!(found, Some(code), "{screen}");
        assert_eq!(site.show(&site.newest("asks").await).await["state"], end);
    }
}

#[tokio::test]
async fn ctrl_c_at_the_terminal_parks_the_run_and_says_how_it_goes_on() {
    let site = Site::new();
    let file = format!("file={}", site.text("go"));
    let mut terminal = Terminal::open(&site, &["run", "keep", "-i", &file], &XTERM);
    super::programs::is_running(&site).await;
    let run = site.newest("keep").await;
    terminal.press("\u{3}").await;
    let (code, screen) = terminal.ended().await;
    assert_eq!(code, Some(130), "{screen}");
    assert!(screen.contains(&format!("windrow resume {run}")), "{screen}");
    site.write("go", "");
    site.expect(0, &["resume", &run]).await;
}

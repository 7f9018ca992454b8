//! What a person types while a run goes on.

use tokio::sync::mpsc;

/// Lines that wait to be looked at.
const LINES_MAX: usize = 8;

/// Lines from the terminal. A read cannot be taken back, so a thread waits in it until the process ends.
pub(super) struct Typed(mpsc::Receiver<String>);

impl Typed {
    pub(super) fn start() -> Self {
        let (lines, receiver) = mpsc::channel(LINES_MAX);
        std::thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                if lines.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        Self(receiver)
    }

    /// The next line; never, once the terminal is closed.
    pub(super) async fn line(&mut self) -> String {
        match self.0.recv().await {
            Some(line) => line,
            None => std::future::pending().await,
        }
    }
}

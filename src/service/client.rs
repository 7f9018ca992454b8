//! The service of another process, over its socket.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use tokio::io::AsyncBufReadExt;
use tokio::io::AsyncWriteExt;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;

use crate::engine::state::RunStatus;
use crate::failure::Failure;
use crate::id::RunId;
use crate::service::codes;
use crate::service::operation::Change;
use crate::service::operation::Operation;
use crate::service::operation::Problem;
use crate::service::operation::ProblemKind;
use crate::service::operation::Reply;
use crate::service::socket;
use crate::service::socket::Answer;
use crate::service::socket::Ask;
use crate::service::socket::Request;
use crate::service::socket::Response;

/// Changes that a watcher may be behind before the socket is no longer read.
const BEHIND_MAX: usize = 64;

/// A connection. Clones share it.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    writer: tokio::sync::Mutex<OwnedWriteHalf>,
    asked: Mutex<Asked>,
}

/// Whose answers are still to come; empty for ever once the connection is lost.
#[derive(Default)]
struct Asked {
    next: u64,
    waiting: BTreeMap<u64, mpsc::Sender<Answer>>,
    lost: bool,
}

impl Client {
    /// Connects to the process that owns the store in `state`; none if there is none.
    pub async fn connect(state: &Path) -> Option<Self> {
        let stream = UnixStream::connect(socket::path(state)).await.ok()?;
        let (reader, writer) = stream.into_split();
        let shared = Arc::new(Shared { writer: writer.into(), asked: Mutex::default() });
        tokio::spawn(read(reader, Arc::downgrade(&shared)));
        Some(Self { shared })
    }

    /// Asks the other process to do something.
    ///
    /// # Errors
    /// What it says, or that it has gone.
    pub async fn call(&self, operation: Operation) -> Result<Reply, Problem> {
        match self.ask(Ask::Call(operation)).await?.recv().await {
            Some(Answer::Ok(reply)) => Ok(reply),
            Some(Answer::Error(problem)) => Err(problem),
            Some(Answer::Change(_) | Answer::Over(_)) | None => Err(lost()),
        }
    }

    /// Waits until a run is over.
    ///
    /// # Errors
    /// An unknown run, or the other process has gone.
    pub async fn end_of(&self, run: RunId) -> Result<RunStatus, Problem> {
        match self.ask(Ask::End(run)).await?.recv().await {
            Some(Answer::Over(Some(status))) => Ok(status),
            Some(Answer::Error(problem)) => Err(problem),
            Some(Answer::Ok(_) | Answer::Change(_) | Answer::Over(None)) | None => Err(lost()),
        }
    }

    /// The run now, then each change until it is over or the other process goes away.
    ///
    /// # Errors
    /// An unknown run, or the other process has gone.
    pub async fn watch(&self, run: RunId) -> Result<mpsc::Receiver<Change>, Problem> {
        let mut answers = self.ask(Ask::Watch(run)).await?;
        let first = match answers.recv().await {
            Some(Answer::Change(change)) => change,
            Some(Answer::Error(problem)) => return Err(problem),
            Some(Answer::Ok(_) | Answer::Over(_)) | None => return Err(lost()),
        };
        let (changes, receiver) = mpsc::channel(BEHIND_MAX);
        tokio::spawn(async move {
            let mut next = Some(first);
            while let Some(change) = next {
                if changes.send(change).await.is_err() {
                    return;
                }
                next = match answers.recv().await {
                    Some(Answer::Change(change)) => Some(change),
                    Some(Answer::Ok(_) | Answer::Error(_) | Answer::Over(_)) | None => None,
                };
            }
        });
        Ok(receiver)
    }

    async fn ask(&self, ask: Ask) -> Result<mpsc::Receiver<Answer>, Problem> {
        let (sender, receiver) = mpsc::channel(BEHIND_MAX);
        let id = {
            let mut asked = self.shared.asked();
            if asked.lost {
                return Err(lost());
            }
            asked.next += 1;
            let id = asked.next;
            asked.waiting.insert(id, sender);
            id
        };
        let mut line = serde_json::to_vec(&Request { id, ask }).map_err(|_| lost())?;
        line.push(b'\n');
        self.shared.writer.lock().await.write_all(&line).await.map_err(|_| lost())?;
        Ok(receiver)
    }
}

impl Shared {
    fn asked(&self) -> std::sync::MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands each answer to whoever waits for it, until the connection or its last user is gone.
async fn read(reader: OwnedReadHalf, shared: std::sync::Weak<Shared>) {
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(Response { id, answer }) = serde_json::from_str(&line) else { break };
        let Some(shared) = shared.upgrade() else { return };
        let more = matches!(answer, Answer::Change(_));
        let sender = match more {
            true => shared.asked().waiting.get(&id).cloned(),
            false => shared.asked().waiting.remove(&id),
        };
        if let Some(sender) = sender {
            if sender.send(answer).await.is_err() {
                drop(shared.asked().waiting.remove(&id));
            }
        }
    }
    if let Some(shared) = shared.upgrade() {
        let mut asked = shared.asked();
        asked.lost = true;
        asked.waiting.clear();
    }
}

fn lost() -> Problem {
    let text = "the process that owns the store has gone; nothing that it acknowledged is lost";
    Problem { kind: ProblemKind::Unusable, failure: Failure::retryable(codes::AGENT_GONE, text) }
}

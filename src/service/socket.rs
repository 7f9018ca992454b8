//! The Unix socket in the state directory: one JSON object a line, requests may be sent before answers have come.

use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncBufReadExt;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;
use tokio::io::BufReader;
use tokio::net::UnixListener;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::Semaphore;
use tokio::sync::mpsc;

use crate::engine::event::Actor;
use crate::engine::state::RunStatus;
use crate::failure::Failure;
use crate::id::RunId;
use crate::service::Handle;
use crate::service::codes;
use crate::service::operation::Change;
use crate::service::operation::Operation;
use crate::service::operation::Problem;
use crate::service::operation::Reply;

/// The longest request: inputs of a run, with room to spare.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Connections at once; more wait. Each costs a buffer or two.
const CONNECTIONS_MAX: usize = 256;
/// Answers that wait for a slow reader.
const ANSWERS_MAX: usize = 256;

/// The socket of a state directory.
pub fn path(state: &Path) -> PathBuf {
    state.join("windrow.sock")
}

/// What a client sends.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    /// Chosen by the client; its answers carry it.
    pub(super) id: u64,
    #[serde(flatten)]
    pub(super) ask: Ask,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ask {
    Call(Operation),
    Watch(RunId),
    /// Answered once, when the run is over.
    End(RunId),
}

/// What a client gets.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Response {
    pub(super) id: u64,
    #[serde(flatten)]
    pub(super) answer: Answer,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Ok(Reply),
    Error(Problem),
    Change(Change),
    /// The run that was watched is over; with its state.
    Over(Option<RunStatus>),
}

/// Opens the socket of `state`, readable by its owner only. The caller owns the store: a socket that is there already
/// belongs to a process that is gone.
///
/// # Errors
/// If the directory cannot be written.
pub fn listen(state: &Path) -> std::io::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt;
    let path = path(state);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves until the task is ended.
pub async fn serve(handle: Handle, listener: UnixListener) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // Never closed.
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let handle = handle.clone();
                tokio::spawn(async move {
                    connection(handle, stream).await;
                    drop(permit);
                });
            }
            Err(error) => tracing::warn!(%error, "a connection could not be accepted"),
        }
    }
}

async fn connection(handle: Handle, stream: UnixStream) {
    let by = match stream.peer_cred() {
        Ok(peer) => Actor { name: user_name(peer.uid()).into() },
        Err(error) => {
            tracing::warn!(%error, "a connection without credentials is refused");
            return;
        }
    };
    let (reader, writer) = stream.into_split();
    let (answers, queue) = mpsc::channel(ANSWERS_MAX);
    let writing = tokio::spawn(write(writer, queue));
    let mut reader = BufReader::new(reader);
    let mut line = vec![];
    loop {
        line.clear();
        let read = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(bytes) if bytes > 0) || !line.ends_with(b"\n") {
            break;
        }
        match serde_json::from_slice::<Request>(&line) {
            Ok(request) => drop(tokio::spawn(answer(handle.clone(), request, by.clone(), answers.clone()))),
            Err(error) => {
                let failure = Failure::permanent(codes::BAD_LINE, format!("not a request: {error}"));
                let answer = Answer::Error(Problem::usage(failure));
                if answers.send(line_of(0, answer)).await.is_err() {
                    break;
                }
            }
        }
    }
    drop(answers);
    drop(writing.await);
}

async fn answer(handle: Handle, request: Request, by: Actor, answers: mpsc::Sender<Vec<u8>>) {
    let id = request.id;
    let answer = match request.ask {
        Ask::Call(operation) => handle.call(operation, by).await.map_or_else(Answer::Error, Answer::Ok),
        Ask::End(run) => {
            handle.end_of(run).await.map_or_else(Answer::Error, |status| Answer::Over(Some(status)))
        }
        Ask::Watch(run) => match handle.watch(run) {
            Err(problem) => Answer::Error(problem),
            Ok(mut changes) => {
                while let Some(change) = changes.recv().await {
                    if answers.send(line_of(id, Answer::Change(change))).await.is_err() {
                        return;
                    }
                }
                Answer::Over(None)
            }
        },
    };
    // A client that has gone away wants no answer.
    drop(answers.send(line_of(id, answer)).await);
}

/// An answer as it is sent. Lines wait for the client, not answers: those are many times larger in memory.
fn line_of(id: u64, answer: Answer) -> Vec<u8> {
    let mut line = serde_json::to_vec(&Response { id, answer }).unwrap_or_default();
    line.push(b'\n');
    line
}

async fn write(mut writer: OwnedWriteHalf, mut answers: mpsc::Receiver<Vec<u8>>) {
    while let Some(mut buffer) = answers.recv().await {
        while let Ok(line) = answers.try_recv() {
            buffer.extend(line);
        }
        if writer.write_all(&buffer).await.is_err() {
            return;
        }
    }
}

/// The user's name, or the number if it has none.
pub fn user_name(uid: u32) -> String {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("uid {uid}"))
}

//! The one interface that all surfaces use: command line, socket, later API, page and chat.

pub mod operation;

use tokio::sync::mpsc;

use crate::engine::event::Actor;
use crate::id::RunId;
use crate::runner::Host;
use crate::service::operation::Change;
use crate::service::operation::Operation;
use crate::service::operation::Problem;
use crate::service::operation::Reply;

/// The service of a process that owns the store. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    host: Host,
}

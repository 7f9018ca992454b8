//! The record of every write that the cluster accepted.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::io::Write as _;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

/// How many writes are kept in memory. A rehearsal makes some hundreds; the file keeps them all.
const ENTRIES_MAX: usize = 65_536;

/// A write that was accepted.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// When, in RFC 3339 with milliseconds.
    pub at: String,
    /// `create`, `update`, `patch`, `apply`, `delete`, or `put` for a subresource of the platform.
    pub verb: &'static str,
    /// The plural with its group.
    pub resource: String,
    /// Empty for a cluster-scoped object.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// `status`, `start`, …, or empty.
    pub subresource: String,
    /// The field manager.
    pub manager: String,
    /// What the client calls itself; empty for a controller.
    pub user_agent: String,
    /// Whether a controller of the cluster wrote, and not a client.
    pub controller: bool,
    /// The uid of the object.
    pub uid: String,
    /// Its version after the write; the old one if nothing changed.
    pub resource_version: String,
    /// The patch, the object or the options sent.
    pub body: Value,
}

/// The log, in memory and perhaps in a file.
#[derive(Debug, Default)]
pub(super) struct Audit {
    entries: VecDeque<AuditEntry>,
    file: Option<File>,
}

impl Audit {
    /// A log that also appends to a file, one JSON text a line.
    pub(super) fn open(path: Option<&Path>) -> io::Result<Self> {
        let file = path.map(|path| File::options().create(true).append(true).open(path)).transpose()?;
        Ok(Self { entries: VecDeque::new(), file })
    }

    /// Records a write.
    pub(super) fn record(&mut self, entry: AuditEntry) {
        if let Some(file) = &mut self.file
            && let Err(error) = write_line(file, &entry)
        {
            tracing::error!(%error, "the audit file cannot be written");
        }
        if self.entries.len() == ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// The writes so far, oldest first.
    pub(super) fn entries(&self) -> impl Iterator<Item = &AuditEntry> {
        self.entries.iter()
    }
}

fn write_line(file: &mut File, entry: &AuditEntry) -> io::Result<()> {
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    file.write_all(&line)
}

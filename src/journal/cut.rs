//! The end of a damaged journal: where it can be cut off, and how it is kept.

use std::io;
use std::io::Write;

use crate::id::RunId;
use crate::id::Seq;
use crate::journal::disk;
use crate::journal::keys;
use crate::journal::keys::Table;
use crate::journal::store::Error;
use crate::journal::view::View;
use crate::journal::walk::Tail;
use crate::journal::walk::Walk;

/// A key and its row.
type Row = (Vec<u8>, Vec<u8>);

/// A journal that was divided.
pub(super) struct Divided {
    /// The end of the good part.
    pub(super) tail: Tail,
    /// The rows behind it.
    pub(super) rest: Vec<Row>,
}

/// Divides a run's journal behind the last whole record that ends with event `after` or before.
pub(super) fn divide(view: View<'_>, run: RunId, after: Seq) -> Result<Divided, Error> {
    let (mut walk, mut tail) = (Walk::default(), Tail::default());
    let mut rest: Vec<Row> = vec![];
    let mut good = true;
    for entry in view.tree.scan_prefix(keys::of_run(Table::Journal, run)) {
        let (key, row) = entry.map_err(|e| view.failed(e))?;
        let complete = good.then(|| walk.row(&key, &row));
        rest.push((key.to_vec(), row.to_vec()));
        match (complete, walk.finish()) {
            (Some(Ok(Some(_))), Ok(end)) if end.seq <= after => {
                tail = end;
                rest.clear();
            }
            (Some(Ok(None)), _) => {}
            _ => good = false,
        }
    }
    Ok(Divided { tail, rest })
}

/// Keeps rows in a file, one a line, key and row in hexadecimal, durably.
pub(super) fn keep(view: View<'_>, run: RunId, rows: &[Row]) -> Result<(), Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let write = || -> io::Result<()> {
        let dir = view.disk.lost();
        std::fs::create_dir_all(&dir)?;
        let mut file = disk::private().append(true).open(dir.join(run.to_string()))?;
        for (key, row) in rows {
            writeln!(file, "{} {}", disk::hex(key), disk::hex(row))?;
        }
        file.sync_all()?;
        disk::sync_dir(&dir)?;
        disk::sync_dir(&view.disk.dir)
    };
    write().map_err(|e| view.disk.failed("keeping what is damaged", &e))
}

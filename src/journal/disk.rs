//! The directory of a store: its files, its lock, its format, and the guarded opening of the tree.
//!
//! ```text
//! format   version and id of the store; read before anything is touched
//! lock     held while a process has the store open; its content is that process's id
//! head     how far the store is (head.rs)
//! reserve  room that is given up when the disk is full (reserve.rs)
//! sled/    the tree
//! blobs/   side files (side.rs)
//! ```

use std::fs;
use std::fs::File;
use std::io;
use std::io::ErrorKind;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;

use rustix::fs::FlockOperation;

pub(super) use crate::digest::hex;
use crate::journal::index::StoreId;
use crate::journal::store::Error;

/// The format of the directory that this program makes, and the newest that it opens.
pub(super) const STORE_FORMAT: u32 = 1;
/// Interval of sled's flusher thread in milliseconds. Without it sled never reclaims space (dependencies.md §1.6).
const FLUSH_EVERY_MS: u64 = 500;

/// Where the files of a store are.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    pub(super) dir: PathBuf,
    /// Name of the tree's directory in it.
    pub(super) tree: &'static str,
}

/// The store is open in this process as long as this lives.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a child of another thread has the file, too, until it calls exec. If unlocking fails
        // the lock is free a moment later.
        rustix::fs::flock(&self.file, FlockOperation::Unlock).ok();
    }
}

impl Disk {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), tree: "sled" }
    }

    pub(super) fn head(&self) -> PathBuf {
        self.dir.join("head")
    }

    pub(super) fn reserve(&self) -> PathBuf {
        self.dir.join("reserve")
    }

    pub(super) fn tree(&self) -> PathBuf {
        self.dir.join(self.tree)
    }

    pub(super) fn blobs(&self) -> PathBuf {
        self.dir.join("blobs")
    }

    /// What was taken away from damaged journals.
    pub(super) fn lost(&self) -> PathBuf {
        self.dir.join("lost")
    }

    /// An [`Error::Unusable`] that names the directory.
    pub(super) fn unusable(&self, what: impl std::fmt::Display) -> Error {
        Error::Unusable(format!("the store in {} cannot be used: {what}", self.dir.display()))
    }

    /// An IO error while `doing` something to the store.
    pub(super) fn failed(&self, doing: &str, error: &io::Error) -> Error {
        if is_full(error) { Error::Full } else { self.unusable(format_args!("{doing} failed: {error}")) }
    }

    /// Makes the directory, for nobody else to read; sled gives no thought to the modes of its files. One that is there
    /// is closed to others as well, unless it belongs to somebody else, as a mounted volume may.
    pub(super) fn create(&self) -> Result<(), Error> {
        if let Ok(found) = fs::metadata(&self.dir)
            && found.is_dir()
        {
            let for_others = found.permissions().mode() & 0o077;
            if for_others == 0 {
                return Ok(());
            }
            return match fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o700)) {
                Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                    tracing::warn!(dir = %self.dir.display(), "others may read the state directory, and it is not ours to close");
                    Ok(())
                }
                closed => closed.map_err(|e| self.failed("closing it to others", &e)),
            };
        }
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
        let parent = self.dir.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        made.and_then(|()| sync_dir(parent)).map_err(|e| self.failed("creating it", &e))
    }

    /// Takes the lock, or says who has it.
    pub(super) fn lock(&self) -> Result<Lock, Error> {
        let path = self.dir.join("lock");
        let failed = |e: io::Error| self.failed("locking it", &e);
        let mut file = private().read(true).open(path).map_err(failed)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut pid = String::new();
                // Its holder writes right after locking; whoever comes in between sees no pid, and says so.
                let read = file.take(20).read_to_string(&mut pid);
                return Err(Error::InUse {
                    pid: read.ok().and_then(|_| pid.trim().parse().ok()).unwrap_or(0),
                });
            }
            Err(e) => return Err(failed(e.into())),
        }
        let pid = format!("{}\n", std::process::id());
        match file.set_len(0).and_then(|()| file.write_all(pid.as_bytes())) {
            // A full disk must not keep the store closed; then the lock has no pid.
            Err(e) if !is_full(&e) => Err(failed(e)),
            _ => Ok(Lock { file }),
        }
    }

    /// The id of the store; none if there is no store yet.
    ///
    /// # Errors
    /// A format that this program does not read. Nothing was touched then.
    pub(super) fn format(&self) -> Result<Option<StoreId>, Error> {
        let text = match fs::read_to_string(self.dir.join("format")) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(self.failed("reading its format", &e)),
        };
        let mut words = text.split_whitespace();
        let (name, version, id) = (words.next(), words.next(), words.next());
        let version = version.and_then(|v| v.parse::<u32>().ok());
        match (name, version, id.and_then(parse_hex)) {
            (Some("windrow-store"), Some(STORE_FORMAT), Some(id)) => Ok(Some(id)),
            (Some("windrow-store"), Some(version), _) if version > STORE_FORMAT => {
                Err(self.unusable(format_args!(
                    "it has format {version}, this program reads up to {STORE_FORMAT}: use a newer windrow"
                )))
            }
            _ => Err(self.unusable("its file `format` is damaged")),
        }
    }

    /// Writes the file that makes the directory a store. The last step of making one.
    pub(super) fn write_format(&self, id: StoreId) -> io::Result<()> {
        let temporary = self.dir.join("format.new");
        let mut file = private().truncate(true).open(&temporary)?;
        writeln!(file, "windrow-store {STORE_FORMAT} {}", hex(&id))?;
        file.sync_all()?;
        fs::rename(temporary, self.dir.join("format"))?;
        sync_dir(&self.dir)
    }

    /// Runs `open` with the tree, both on a thread of their own: sled can panic on a damaged file (sled issue 1387).
    pub(super) fn guarded<T: Send + 'static>(
        &self,
        cache_bytes: u64,
        open: impl FnOnce(::sled::Db) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let disk = self.clone();
        let work = move || open(disk.open_tree(cache_bytes)?);
        let thread = std::thread::Builder::new().name("store-open".to_owned()).spawn(work);
        let thread = thread.map_err(|e| self.failed("starting a thread", &e))?;
        thread.join().unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
            Err(self.damaged(format_args!("reading it panicked: {text}")))
        })
    }

    /// An error for a tree that is damaged as a whole.
    pub(super) fn damaged(&self, what: impl std::fmt::Display) -> Error {
        self.unusable(format_args!(
            "{what}. Nothing was changed. Put a copy in its place with `windrow store import FILE`, which moves this \
             one aside; `windrow store export FILE` saves what can still be read"
        ))
    }

    fn open_tree(&self, cache_bytes: u64) -> Result<::sled::Db, Error> {
        let path = self.tree();
        let prepared = await_release(&path.join("db")).and_then(|()| remove_unfinished_snapshots(&path));
        prepared.map_err(|e| self.failed("preparing to open it", &e))?;
        let config = ::sled::Config::new().path(&path).cache_capacity(cache_bytes);
        let tree = config
            .flush_every_ms(Some(FLUSH_EVERY_MS))
            .open()
            .map_err(|e| self.tree_failed("opening it", e))?;
        // sled itself does not sync what it creates (dependencies.md §1.1).
        let synced = ["db", "conf"].iter().try_for_each(|file| File::open(path.join(file))?.sync_all());
        let synced = synced.and_then(|()| sync_dir(&path)).and_then(|()| sync_dir(&self.dir));
        synced.map_err(|e| self.failed("syncing it", &e))?;
        Ok(tree)
    }

    /// An error of sled while `doing` something.
    pub(super) fn tree_failed(&self, doing: &str, error: ::sled::Error) -> Error {
        match error {
            ::sled::Error::Io(e) => self.failed(doing, &e),
            other => self.damaged(format_args!("{doing} failed: {other}")),
        }
    }
}

/// Waits until sled has let go of its file. Its threads may hold it a little longer than the last handle lives; no
/// other process has it, as [`Disk::lock`] sees to.
fn await_release(file: &Path) -> io::Result<()> {
    match File::open(file) {
        Ok(file) => Ok(rustix::fs::flock(&file, FlockOperation::LockExclusive)?),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// An open that was interrupted, by a kill or a full disk, leaves a snapshot that is not complete, and the next open of
/// sled takes it for the newest and fails. The complete one before it and the log are still there.
fn remove_unfinished_snapshots(tree: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(tree) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "generating") {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// True if there is no room, or none left for this user.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Makes the entries of a directory durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// How files are made that nobody else may read.
pub(super) fn private() -> fs::OpenOptions {
    let mut options = File::options();
    options.write(true).create(true).mode(0o600);
    options
}

/// The inverse of [`hex`], for exactly `N` bytes.
pub(super) fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_text_is_lower_case_and_of_full_length() {
        assert_eq!(parse_hex("009aff"), Some([0, 0x9a, 0xff]));
        for bad in ["", "009af", "009aff0", "009aFF", "00 aff", "é9aff"] {
            assert_eq!(parse_hex::<3>(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_format_that_is_not_ours_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().expect("a directory");
        let disk = Disk::new(dir.path());
        assert_eq!(disk.format().expect("nothing there"), None);
        disk.write_format([7; 16]).expect("written");
        assert_eq!(disk.format().expect("as written"), Some([7; 16]));
        let text = fs::read_to_string(dir.path().join("format")).expect("written");
        for (from, to, reason) in [
            ("store 1", "store 2", "use a newer windrow"),
            ("store 1", "store x", "damaged"),
            ("windrow", "wyndrow", "damaged"),
            ("0707", "07", "damaged"),
        ] {
            fs::write(dir.path().join("format"), text.replacen(from, to, 1)).expect("written");
            let error = disk.format().expect_err(to).to_string();
            assert!(error.contains(reason) && error.contains(&*dir.path().to_string_lossy()), "{error}");
        }
    }

    #[test]
    fn the_lock_names_its_holder() {
        let dir = tempfile::tempdir().expect("a directory");
        let disk = Disk::new(dir.path());
        let held = disk.lock().expect("free");
        let error = disk.lock().expect_err("held");
        assert!(matches!(error, Error::InUse { pid } if pid == std::process::id()), "{error}");
        drop(held);
        disk.lock().expect("free again");
    }
}

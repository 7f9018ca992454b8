//! Side files: values too large for an event, found by their SHA-256 (S5). One file for equal values, never rewritten.

use std::collections::BTreeSet;
use std::fs;
use std::fs::File;
use std::io;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sha2::Digest as _;
use sha2::Sha256;

use crate::journal::disk;
use crate::journal::disk::Disk;
use crate::journal::store::Error;
use crate::time::Timestamp;

/// Largest side file: more than etcd takes of an object (1.5 MiB), and the output cap of a process step.
pub(super) const BLOB_BYTES_MAX: usize = 8 << 20;
/// How long a file that no run names is kept: its name may be in an append that is still to come.
const GRACE: Duration = Duration::from_hours(24);

/// A SHA-256.
pub(super) type Digest = [u8; 32];

/// The directory of side files.
#[derive(Debug)]
pub(super) struct SideFiles {
    disk: Disk,
    /// Numbers the temporary files.
    next: AtomicU64,
}

/// The digest that names those bytes.
pub(super) fn digest_of(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

/// An error about the file with that name.
fn blob_error(digest: &str, what: impl Into<String>) -> Error {
    Error::Blob { digest: digest.into(), what: what.into() }
}

/// Checks a value's size.
pub(super) fn admit(bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() > BLOB_BYTES_MAX {
        return Err(Error::TooLarge { what: "a side file", bytes: bytes.len(), max: BLOB_BYTES_MAX });
    }
    Ok(())
}

impl SideFiles {
    pub(super) fn new(disk: Disk) -> Self {
        Self { disk, next: AtomicU64::new(0) }
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        let name = disk::hex(digest);
        self.disk.blobs().join(&name[..2]).join(name)
    }

    /// Keeps a value durably and returns its digest.
    pub(super) fn put(&self, bytes: &[u8]) -> Result<Arc<str>, Error> {
        admit(bytes)?;
        let digest = digest_of(bytes);
        self.write(&digest, bytes).map_err(|e| self.disk.failed("writing a side file", &e))?;
        Ok(disk::hex(&digest).into())
    }

    fn write(&self, digest: &Digest, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(digest);
        let dir = path.parent().expect("a path below blobs");
        if fs::read(&path).is_ok_and(|found| found == bytes) {
            // Young again, so that the sweep leaves it; and its entry durable, in case it was made a moment ago.
            File::options().append(true).open(&path)?.set_modified(std::time::UNIX_EPOCH + wall_time())?;
            return disk::sync_dir(dir);
        }
        fs::create_dir_all(dir)?;
        let temporary = self.disk.blobs().join(format!("new-{}", self.next.fetch_add(1, Ordering::Relaxed)));
        let mut file = disk::private().truncate(true).open(&temporary)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if let Err(e) = written.and_then(|()| fs::rename(&temporary, &path)) {
            // The first error says more than one of removing the remains.
            drop(fs::remove_file(&temporary));
            return Err(e);
        }
        disk::sync_dir(dir)?;
        disk::sync_dir(&self.disk.blobs())?;
        disk::sync_dir(&self.disk.dir)
    }

    /// The value of that digest.
    pub(super) fn get(&self, digest: &str) -> Result<Vec<u8>, Error> {
        let wanted = disk::parse_hex(digest).ok_or_else(|| blob_error(digest, "is no SHA-256"))?;
        let bytes =
            fs::read(self.path(&wanted)).map_err(|e| blob_error(digest, format!("cannot be read: {e}")))?;
        if digest_of(&bytes) != wanted {
            return Err(blob_error(digest, "is damaged: its content has another digest"));
        }
        Ok(bytes)
    }

    /// The digests of all files.
    pub(super) fn list(&self) -> io::Result<BTreeSet<Digest>> {
        let mut found = BTreeSet::new();
        for dir in entries(&self.disk.blobs())?.into_iter().filter(|path| path.is_dir()) {
            let names = entries(&dir)?;
            found.extend(names.iter().filter_map(|path| disk::parse_hex(path.file_name()?.to_str()?)));
        }
        Ok(found)
    }

    /// Removes a file, unless it is young. Says whether it did.
    pub(super) fn remove_old(&self, digest: &Digest) -> io::Result<bool> {
        let path = self.path(digest);
        let modified =
            fs::metadata(&path)?.modified()?.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        if modified + GRACE > wall_time() {
            return Ok(false);
        }
        fs::remove_file(path)?;
        Ok(true)
    }

    /// Removes what an interrupted [`SideFiles::put`] left.
    pub(super) fn tidy(&self) -> io::Result<()> {
        for path in entries(&self.disk.blobs())?.into_iter().filter(|path| path.is_file()) {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// The wall clock, by which file systems stamp files.
fn wall_time() -> Duration {
    crate::time::wall_now().since(Timestamp::default())
}

/// The entries of a directory; none if it does not exist.
fn entries(dir: &std::path::Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Ok(found) => found.map(|entry| entry.map(|e| e.path())).collect(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(vec![]),
        Err(e) => Err(e),
    }
}

/// Calls `found` for each SHA-256 in hexadecimal that stands anywhere in `bytes`, whatever it means there: a file is
/// kept rather once too often.
pub(super) fn digests_in(bytes: &[u8], mut found: impl FnMut(Digest)) {
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    for text in bytes.split(|byte| !is_hex(byte)).filter(|text| text.len() >= 64) {
        // A length byte of MessagePack may look like a digit.
        let windows = text.windows(64).filter_map(|window| std::str::from_utf8(window).ok());
        windows.filter_map(disk::parse_hex).for_each(&mut found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side_files() -> (tempfile::TempDir, SideFiles) {
        let dir = tempfile::tempdir().expect("a directory");
        let files = SideFiles::new(Disk::new(dir.path()));
        (dir, files)
    }

    #[test]
    fn equal_values_share_a_file_and_are_read_back() {
        let (_dir, files) = side_files();
        let digest = files.put(b"before").expect("room");
        assert_eq!(files.put(b"before").expect("room"), digest);
        assert_eq!(&*digest, "6db7d803e74f1ffa7d8f5adc0bf95b3e15bf4c8373fffadf546227cc6c6742cb");
        assert_eq!(files.get(&digest).expect("there"), b"before");
        assert_eq!(files.list().expect("readable"), BTreeSet::from([digest_of(b"before")]));
    }

    #[test]
    fn a_damaged_file_is_never_handed_out_and_is_repaired_by_the_next_put() {
        let (_dir, files) = side_files();
        let digest = files.put(b"before").expect("room");
        fs::write(files.path(&digest_of(b"before")), b"befone").expect("written");
        let error = files.get(&digest).expect_err("damaged").to_string();
        assert!(error.contains("damaged") && error.contains(&*digest), "{error}");
        files.put(b"before").expect("room");
        assert_eq!(files.get(&digest).expect("whole again"), b"before");
    }

    #[test]
    fn names_that_are_no_digest_are_refused() {
        let (_dir, files) = side_files();
        for name in ["", "../../etc/passwd", &"A".repeat(64), &"a".repeat(64)] {
            assert!(matches!(files.get(name), Err(Error::Blob { .. })), "{name}");
        }
        assert!(matches!(files.put(&vec![0; BLOB_BYTES_MAX + 1]), Err(Error::TooLarge { .. })));
    }

    #[test]
    fn young_files_survive_and_remains_do_not() {
        let (_dir, files) = side_files();
        files.put(b"young").expect("room");
        files.put(b"old").expect("room");
        let old = digest_of(b"old");
        let file = File::options().append(true).open(files.path(&old)).expect("there");
        file.set_modified(std::time::UNIX_EPOCH + wall_time() - 2 * GRACE).expect("set");
        fs::write(files.disk.blobs().join("new-9"), b"half").expect("written");
        assert!(!files.remove_old(&digest_of(b"young")).expect("there"));
        assert!(files.remove_old(&old).expect("there"));
        files.tidy().expect("writable");
        assert_eq!(files.list().expect("readable"), BTreeSet::from([digest_of(b"young")]));
        assert!(!files.disk.blobs().join("new-9").exists());
    }

    #[test]
    fn digests_are_found_wherever_they_stand() {
        let digest = digest_of(b"x");
        let text = disk::hex(&digest);
        for bytes in [text.clone(), format!("side\"{text}\""), format!("a{text}"), format!("{text}7 {text}")]
        {
            let mut found = BTreeSet::new();
            digests_in(bytes.as_bytes(), |digest| {
                found.insert(digest);
            });
            assert!(found.contains(&digest), "{bytes}");
        }
        digests_in(&text.as_bytes()[1..], |_| panic!("too short"));
    }
}

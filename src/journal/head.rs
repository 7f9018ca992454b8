//! The head file: how far the store was, kept outside it. If the store is ever behind it, commits were lost.
//!
//! sled drops everything behind a damaged byte of its log without a word (dependencies.md §1.4); only a second place
//! can tell. Sixteen slots of 64 bytes are written in turn, so that a torn write leaves the ones before:
//!
//! ```text
//! "WHD1" | state of the store (48 bytes) | crc32c of both, big endian | zeros
//! ```

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::journal::index::META_BYTES;
use crate::journal::index::Meta;

/// Slots in the file.
const SLOTS: usize = 16;
/// Bytes of a slot.
const SLOT_BYTES: usize = 64;
const MAGIC: &[u8; 4] = b"WHD1";
/// Bytes of a slot that mean something.
const USED: usize = MAGIC.len() + META_BYTES + 4;

/// The open head file.
#[derive(Debug)]
pub(super) struct Head {
    file: File,
    next: usize,
    newest: Meta,
}

impl Head {
    /// Makes the file, durable but for its directory.
    pub(super) fn create(path: &Path, meta: Meta) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        file.write_all_at(&[0; SLOTS * SLOT_BYTES], 0)?;
        let mut head = Self { file, next: 0, newest: meta };
        head.write(meta)?;
        head.file.sync_all()?;
        Ok(head)
    }

    /// Opens the file; none if there is none or no slot of it is good.
    pub(super) fn open(path: &Path) -> io::Result<Option<Self>> {
        let file = match File::options().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut newest: Option<(usize, Meta)> = None;
        for i in 0..SLOTS {
            let mut slot = [0; SLOT_BYTES];
            if file.read_exact_at(&mut slot, offset(i)).is_err() {
                break;
            }
            let found = decode(&slot).filter(|meta| newest.is_none_or(|(_, best)| best.g <= meta.g));
            newest = found.map(|meta| (i, meta)).or(newest);
        }
        Ok(newest.map(|(i, newest)| Self { file, next: i + 1, newest }))
    }

    /// The newest state that it holds.
    pub(super) fn newest(&self) -> Meta {
        self.newest
    }

    /// Notes how far the store is, durably.
    pub(super) fn write(&mut self, meta: Meta) -> io::Result<()> {
        self.file.write_all_at(&encode(&meta), offset(self.next))?;
        self.file.sync_data()?;
        self.next += 1;
        self.newest = meta;
        Ok(())
    }
}

/// Where the slot of that number begins; numbers go round.
fn offset(slot: usize) -> u64 {
    (slot % SLOTS * SLOT_BYTES) as u64
}

fn encode(meta: &Meta) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    slot[..MAGIC.len()].copy_from_slice(MAGIC);
    slot[MAGIC.len()..USED - 4].copy_from_slice(&meta.encode());
    let crc = crc32c::crc32c(&slot[..USED - 4]);
    slot[USED - 4..USED].copy_from_slice(&crc.to_be_bytes());
    slot
}

fn decode(slot: &[u8; SLOT_BYTES]) -> Option<Meta> {
    let (covered, crc) = slot[..USED].split_last_chunk::<4>()?;
    let meta = covered.strip_prefix(MAGIC)?.try_into().ok()?;
    (crc32c::crc32c(covered).to_be_bytes() == *crc).then(|| Meta::decode(meta))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(g: u64) -> Meta {
        Meta { g, ..Meta::new([3; 16]) }
    }

    #[test]
    fn the_newest_good_slot_counts() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("head");
        let mut head = Head::create(&path, meta(0)).expect("created");
        for g in 1..40 {
            head.write(meta(g)).expect("written");
            let read = Head::open(&path).expect("readable").expect("a good slot");
            assert_eq!((read.newest(), read.next % SLOTS), (meta(g), head.next % SLOTS));
        }
        let newest = (head.next - 1) % SLOTS;
        head.file.write_all_at(&[0xff], offset(newest) + 30).expect("damaged");
        assert_eq!(Head::open(&path).expect("readable").expect("a good slot").newest(), meta(38));
    }

    #[test]
    fn a_file_that_is_missing_or_holds_nothing_good_says_so() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("head");
        assert!(Head::open(&path).expect("readable").is_none());
        for content in [&b""[..], b"WHD1", &[0; 1024]] {
            std::fs::write(&path, content).expect("written");
            assert!(Head::open(&path).expect("readable").is_none());
        }
    }
}

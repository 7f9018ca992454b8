//! Room on the disk that is kept for the moment when there is none: giving it up lets the store open again, open runs
//! end, and people read and cancel.

use std::fs::File;
use std::io;
use std::io::Write;
use std::path::PathBuf;

use rustix::fs::FallocateFlags;

use crate::journal::disk;

/// The reserve, held or given up.
#[derive(Debug)]
pub(super) struct Reserve {
    path: PathBuf,
    bytes: u64,
}

impl Reserve {
    pub(super) fn new(path: PathBuf, bytes: u64) -> Self {
        Self { path, bytes }
    }

    /// True if the room is kept.
    pub(super) fn is_held(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|file| file.len() >= self.bytes)
    }

    /// Gives the room up.
    pub(super) fn release(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Takes the room, if there is as much again besides: else the next commit would need it at once.
    pub(super) fn take(&self) -> io::Result<()> {
        if self.is_held() {
            return Ok(());
        }
        let file = disk::private().truncate(true).open(&self.path)?;
        let taken = self.fill(&file);
        if taken.is_err() {
            // What is left of the attempt would use the room that is missing.
            self.release()?;
        }
        taken
    }

    fn fill(&self, file: &File) -> io::Result<()> {
        let space = rustix::fs::fstatvfs(file)?;
        if space.f_bavail.saturating_mul(space.f_frsize) < self.bytes.saturating_mul(2) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, self.bytes) {
            Err(rustix::io::Errno::OPNOTSUPP) => write_zeros(file, self.bytes)?,
            done => done?,
        }
        file.sync_all()
    }
}

/// For file systems that cannot allocate without writing.
fn write_zeros(mut file: &File, bytes: u64) -> io::Result<()> {
    io::copy(&mut io::Read::take(io::repeat(0), bytes), &mut file)?;
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_taken_once_and_given_up_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let reserve = Reserve::new(dir.path().join("reserve"), 10_000);
        assert!(!reserve.is_held());
        for _ in 0..2 {
            reserve.take().expect("room");
            assert!(reserve.is_held());
        }
        for _ in 0..2 {
            reserve.release().expect("removed");
            assert!(!reserve.is_held());
        }
        let file = disk::private().open(dir.path().join("zeros")).expect("a file");
        write_zeros(&file, 10_000).expect("room");
        assert_eq!(file.metadata().expect("there").len(), 10_000);
    }

    #[test]
    fn what_the_disk_does_not_have_is_not_taken() {
        let dir = tempfile::tempdir().expect("a directory");
        let reserve = Reserve::new(dir.path().join("reserve"), u64::MAX / 2);
        assert!(disk::is_full(&reserve.take().expect_err("no such disk")));
        assert!(!dir.path().join("reserve").exists());
    }
}

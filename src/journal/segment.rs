//! The file of an export: everything that a store holds, readable without sled.
//!
//! ```text
//! "WINDROWX" | version u32 | store 16 bytes | g u64
//! each row:   length u32 | crc32c u32 | g u64 | key length u16 | key | value
//! the end:    ffffffff | rows so far u64 | state of the store (48 bytes) | SHA-256 of all before
//! ```
//!
//! Integers are big endian. `length` and the checksum cover what follows them. A side file is a row whose key is
//! [`BLOB`] and the digest.

use std::io;
use std::io::ErrorKind;
use std::io::Read;
use std::io::Write;

use sha2::Digest as _;
use sha2::Sha256;

use crate::journal::index::META_BYTES;
use crate::journal::index::Meta;
use crate::journal::side::BLOB_BYTES_MAX;

const MAGIC: &[u8; 8] = b"WINDROWX";
/// The version that this program writes, and the newest that it reads.
const VERSION: u32 = 1;
/// In the place of a length: the end.
const END: u32 = u32::MAX;
/// The first byte of a side file's key; no table has it.
pub(super) const BLOB: u8 = b'b';
/// Bytes of a row before its key.
const ROW_HEAD: usize = 8 + 2;
/// Largest row: a side file and its key.
const ROW_BYTES_MAX: usize = BLOB_BYTES_MAX + 1024;

/// Writes a segment.
pub(super) struct Writer<W> {
    to: W,
    sum: Sha256,
    meta: Meta,
    rows: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a segment of that store.
    pub(super) fn new(to: W, meta: Meta) -> io::Result<Self> {
        let mut writer = Self { to, sum: Sha256::new(), meta, rows: 0 };
        writer.put(&[MAGIC, &VERSION.to_be_bytes(), &meta.store, &meta.g.to_be_bytes()])?;
        Ok(writer)
    }

    fn put(&mut self, pieces: &[&[u8]]) -> io::Result<()> {
        for piece in pieces {
            self.sum.update(piece);
            self.to.write_all(piece)?;
        }
        Ok(())
    }

    /// Writes a row.
    pub(super) fn row(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let too_large =
            || io::Error::new(ErrorKind::InvalidInput, "a key or value is too large for an export");
        let length = ROW_HEAD + key.len() + value.len();
        let length =
            u32::try_from(length).ok().filter(|n| *n as usize <= ROW_BYTES_MAX).ok_or_else(too_large)?;
        let key_length = u16::try_from(key.len()).map_err(|_| too_large())?.to_be_bytes();
        let g = self.meta.g.to_be_bytes();
        let crc =
            [&g[..], &key_length, key, value].iter().fold(0, |crc, piece| crc32c::crc32c_append(crc, piece));
        self.rows += 1;
        self.put(&[&length.to_be_bytes(), &crc.to_be_bytes(), &g, &key_length, key, value])
    }

    /// Writes the end. `meta` counts what was written.
    pub(super) fn finish(mut self, meta: Meta) -> io::Result<W> {
        let rows = self.rows.to_be_bytes();
        self.put(&[&END.to_be_bytes(), &rows, &meta.encode()])?;
        let sum = self.sum.finalize();
        self.to.write_all(&sum)?;
        Ok(self.to)
    }
}

/// Reads a segment and checks it on the way.
pub(super) struct Reader<R> {
    from: R,
    sum: Sha256,
    store: [u8; 16],
    g: u64,
    rows: u64,
    row: Vec<u8>,
    end: Option<Meta>,
}

/// An error about what the file says.
fn bad(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.into())
}

impl<R: Read> Reader<R> {
    /// Reads the beginning.
    pub(super) fn new(from: R) -> io::Result<Self> {
        let (mut sum, store, g) = (Sha256::new(), [0; 16], 0);
        sum.update([]);
        let mut reader = Self { from, sum, store, g, rows: 0, row: vec![], end: None };
        let mut magic = [0; 8];
        reader.take(&mut magic).map_err(|_| bad("it is too short to be an export"))?;
        if magic != *MAGIC {
            return Err(bad("it is no export of a windrow store"));
        }
        let version = reader.number()?;
        if version > VERSION {
            return Err(bad(format!("it has version {version}, this program reads up to {VERSION}")));
        }
        let mut store = [0; 16];
        reader.take(&mut store)?;
        reader.store = store;
        let mut g = [0; 8];
        reader.take(&mut g)?;
        reader.g = u64::from_be_bytes(g);
        Ok(reader)
    }

    fn take(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.from.read_exact(bytes).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => bad("it ends too early"),
            _ => e,
        })?;
        self.sum.update(&bytes);
        Ok(())
    }

    fn number(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.take(&mut bytes)?;
        Ok(u32::from_be_bytes(bytes))
    }

    /// The next row; none at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<(&[u8], &[u8])>> {
        let length = self.number()?;
        if length == END {
            self.finish()?;
            return Ok(None);
        }
        let crc = self.number()?;
        let length = length as usize;
        if !(ROW_HEAD..=ROW_BYTES_MAX).contains(&length) {
            return Err(bad(format!("row {} has an impossible length", self.rows)));
        }
        let mut row = std::mem::take(&mut self.row);
        row.resize(length, 0);
        self.take(&mut row)?;
        self.row = row;
        let (head, rest) = self.row.split_at(ROW_HEAD);
        let key_length = usize::from(u16::from_be_bytes([head[8], head[9]]));
        if crc32c::crc32c(&self.row) != crc || head[..8] != self.g.to_be_bytes() || key_length > rest.len() {
            return Err(bad(format!("row {} is damaged", self.rows)));
        }
        self.rows += 1;
        Ok(Some(rest.split_at(key_length)))
    }

    fn finish(&mut self) -> io::Result<()> {
        let (mut rows, mut meta) = ([0; 8], [0; META_BYTES]);
        self.take(&mut rows)?;
        self.take(&mut meta)?;
        let computed = std::mem::take(&mut self.sum).finalize();
        let mut sum = [0; 32];
        self.take(&mut sum)?;
        let meta = Meta::decode(&meta);
        if computed[..] != sum
            || rows != self.rows.to_be_bytes()
            || meta.store != self.store
            || meta.g != self.g
        {
            return Err(bad("its end does not agree with the rest"));
        }
        if self.from.read(&mut [0])? != 0 {
            return Err(bad("something follows its end"));
        }
        self.end = Some(meta);
        Ok(())
    }

    /// The state of the store, once the end was read.
    pub(super) fn meta(&self) -> Option<Meta> {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const META: Meta = Meta { g: 5, rows: 2, runs: 1, ..Meta::new([4; 16]) };

    type Rows = Vec<(Vec<u8>, Vec<u8>)>;

    fn segment() -> Vec<u8> {
        let mut writer = Writer::new(vec![], META).expect("memory");
        writer.row(b"j1", b"first").expect("memory");
        writer.row(b"j2", b"").expect("memory");
        writer.finish(META).expect("memory")
    }

    fn read(bytes: &[u8]) -> io::Result<(Rows, Option<Meta>)> {
        let mut reader = Reader::new(bytes)?;
        let mut rows = vec![];
        while let Some((key, value)) = reader.next()? {
            rows.push((key.to_vec(), value.to_vec()));
        }
        Ok((rows, reader.meta()))
    }

    #[test]
    fn a_segment_reads_as_it_was_written() {
        let rows = vec![(b"j1".to_vec(), b"first".to_vec()), (b"j2".to_vec(), vec![])];
        assert_eq!(read(&segment()).expect("whole"), (rows, Some(META)));
    }

    #[test]
    fn no_changed_or_missing_byte_passes() {
        let whole = segment();
        for i in 0..whole.len() {
            let mut changed = whole.clone();
            changed[i] ^= 1;
            assert!(read(&changed).is_err(), "byte {i}");
            assert!(read(&whole[..i]).is_err(), "cut at {i}");
        }
        assert!(read(&[&whole[..], b"x"].concat()).is_err());
    }

    #[test]
    fn a_newer_version_is_refused_by_its_number() {
        let mut newer = segment();
        newer[11] = 9;
        let error = read(&newer).expect_err("newer").to_string();
        assert_eq!(error, "it has version 9, this program reads up to 1");
    }
}

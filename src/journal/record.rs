//! The bytes of a row: versioned, checksummed together with its key, and chained to the row before it.
//!
//! A record is what one append made durable. It is one row, or several parts if it is larger than a row may be:
//!
//! ```text
//! format u8 | crc u32 | previous crc u32 | parts u16 | events u32 | body
//! ```
//!
//! Integers are big endian. The checksum (CRC32C) covers the key and everything behind the checksum; `previous crc` is
//! that of the run's row before, 0 for its first. The body, joined over the parts, is MessagePack with named fields.

use serde::{Deserialize, Serialize};

use crate::engine::event::Event;
use crate::id::RunId;
use crate::id::Seq;
use crate::journal::keys;
use crate::journal::store::Error;
use crate::time::Timestamp;

/// The format of rows that this program writes, and the newest that it reads.
pub(super) const FORMAT: u8 = 1;
/// Largest row. A leaf of sled holds 17 rows, and beyond 128 KiB it becomes a file that sled never syncs.
pub(super) const ROW_BYTES_MAX: usize = 6 * 1024;
/// Largest record: far above what a step may remember inline, and 2,741 parts, which a u16 can count.
pub(super) const RECORD_BYTES_MAX: usize = 16 << 20;

/// Bytes before the body of a journal row.
const HEADER: usize = 1 + 4 + 4 + 2 + 4;
/// Bytes before the payload of any other row.
const SEAL: usize = 1 + 4;
/// Where the bytes begin that the checksum covers.
const COVERED: usize = 1 + 4;
/// Body bytes of a part.
const PART_BYTES: usize = ROW_BYTES_MAX - HEADER;

/// Why a row cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Flaw {
    /// It is too short to be a row, or longer than one.
    #[error("the row has {0} bytes")]
    Length(usize),
    /// A program wrote it that is newer than this one, or nobody did.
    #[error("the row has format {0}, this program reads up to {FORMAT}")]
    Format(u8),
    /// The bytes are not those that were written.
    #[error("the checksum is wrong")]
    Checksum,
    /// The bytes are as written but mean nothing.
    #[error("the content cannot be read: {0}")]
    Content(String),
    /// A row between two others is missing, or does not belong there.
    #[error("the row is out of line: {0}")]
    Chain(&'static str),
}

/// Events on their way into the journal, already encoded but without a place.
#[derive(Debug)]
pub(super) struct Draft {
    /// Room for a header, then the body.
    bytes: Vec<u8>,
    /// How many events.
    count: u32,
}

#[derive(Serialize)]
struct BodyRef<'a> {
    at: Timestamp,
    events: &'a [Event],
}

/// What a record says.
#[derive(Debug, PartialEq, Deserialize)]
pub(super) struct Body {
    /// When the events happened.
    pub(super) at: Timestamp,
    /// The events.
    pub(super) events: Vec<Event>,
}

impl Draft {
    /// Encodes events that happened at `at`.
    pub(super) fn new(at: Timestamp, events: &[Event]) -> Result<Self, Error> {
        let mut bytes = Vec::with_capacity(512);
        bytes.resize(HEADER, 0);
        let mut to = rmp_serde::Serializer::new(&mut bytes).with_struct_map();
        BodyRef { at, events }
            .serialize(&mut to)
            .map_err(|_| Error::Misused("an event holds what MessagePack cannot express"))?;
        let body = bytes.len() - HEADER;
        if body > RECORD_BYTES_MAX {
            return Err(Error::TooLarge { what: "an append", bytes: body, max: RECORD_BYTES_MAX });
        }
        let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
        Ok(Self { bytes, count })
    }

    /// How many events it holds.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// What a reader of the record will get.
    pub(super) fn reread(&self) -> Result<Body, Error> {
        let unreadable = |_| Error::Misused("an event cannot be read back from MessagePack");
        Body::decode(&self.bytes[HEADER..], self.count).map_err(unreadable)
    }

    /// Gives the draft its place; `row` gets each row. Returns the checksum that the run's next row links to, and
    /// how many rows there were.
    pub(super) fn place(
        self,
        run: RunId,
        first: Seq,
        prev: u32,
        mut row: impl FnMut(&[u8], Vec<u8>),
    ) -> (u32, u16) {
        let Self { mut bytes, count } = self;
        let parts = (bytes.len() - HEADER).div_ceil(PART_BYTES);
        let parts = u16::try_from(parts).expect("a draft is at most RECORD_BYTES_MAX");
        if parts == 1 {
            let key = keys::journal(run, first, 0);
            let crc = write_header(&mut bytes, &key, prev, parts, count);
            row(&key, bytes);
            return (crc, parts);
        }
        let mut prev = prev;
        for (part, body) in (0..).zip(bytes[HEADER..].chunks(PART_BYTES)) {
            let key = keys::journal(run, first, part);
            let mut value = vec![0; HEADER];
            value.extend_from_slice(body);
            prev = write_header(&mut value, &key, prev, parts, count);
            row(&key, value);
        }
        (prev, parts)
    }
}

fn write_header(row: &mut [u8], key: &[u8], prev: u32, parts: u16, count: u32) -> u32 {
    row[0] = FORMAT;
    row[5..9].copy_from_slice(&prev.to_be_bytes());
    row[9..11].copy_from_slice(&parts.to_be_bytes());
    row[11..15].copy_from_slice(&count.to_be_bytes());
    checksum(row, key)
}

/// Computes the checksum of a row and writes it where it belongs.
fn checksum(row: &mut [u8], key: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(key), &row[COVERED..]);
    row[1..COVERED].copy_from_slice(&crc.to_be_bytes());
    crc
}

/// Checks format and checksum of any row.
fn verify(key: &[u8], row: &[u8], least: usize) -> Result<u32, Flaw> {
    if row.len() < least || row.len() > ROW_BYTES_MAX {
        return Err(Flaw::Length(row.len()));
    }
    if row[0] != FORMAT {
        return Err(Flaw::Format(row[0]));
    }
    let crc = be_u32(&row[1..5]);
    let computed = crc32c::crc32c_append(crc32c::crc32c(key), &row[COVERED..]);
    if computed == crc { Ok(crc) } else { Err(Flaw::Checksum) }
}

fn be_u32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

/// A journal row whose checksum is good.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    /// Its checksum.
    pub(super) crc: u32,
    /// The checksum of the run's row before.
    pub(super) prev: u32,
    /// Of how many parts its record consists.
    pub(super) parts: u16,
    /// How many events the record holds.
    pub(super) count: u32,
    /// Its share of the body.
    pub(super) body: &'a [u8],
}

impl<'a> Part<'a> {
    /// Reads a row of [`keys::Table::Journal`].
    pub(super) fn open(key: &[u8], row: &'a [u8]) -> Result<Self, Flaw> {
        let crc = verify(key, row, HEADER)?;
        let (prev, count) = (be_u32(&row[5..9]), be_u32(&row[11..15]));
        let parts = u16::from_be_bytes([row[9], row[10]]);
        Ok(Self { crc, prev, parts, count, body: &row[HEADER..] })
    }
}

impl Body {
    /// Decodes a record's joined body.
    pub(super) fn decode(bytes: &[u8], count: u32) -> Result<Self, Flaw> {
        let body: Self = rmp_serde::from_slice(bytes).map_err(|e| Flaw::Content(e.to_string()))?;
        if body.events.len() != count as usize {
            return Err(Flaw::Content(format!("{} events instead of {count}", body.events.len())));
        }
        Ok(body)
    }
}

/// Makes a row of any table but the journal.
pub(super) fn seal(key: &[u8], payload: &[&[u8]]) -> Vec<u8> {
    let mut row = Vec::with_capacity(SEAL + payload.iter().map(|piece| piece.len()).sum::<usize>());
    row.resize(SEAL, 0);
    for piece in payload {
        row.extend_from_slice(piece);
    }
    row[0] = FORMAT;
    checksum(&mut row, key);
    row
}

/// The payload of a row made by [`seal`].
pub(super) fn unseal<'a>(key: &[u8], row: &'a [u8]) -> Result<&'a [u8], Flaw> {
    verify(key, row, SEAL)?;
    Ok(&row[SEAL..])
}

/// Largest payload of [`seal`].
pub(super) const PAYLOAD_BYTES_MAX: usize = ROW_BYTES_MAX - SEAL;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::event::Actor;

    const RUN: RunId = RunId::new(7, 7);

    fn noted(chars: usize) -> Event {
        Event::Noted { by: Actor { name: Arc::from("ana") }, text: "x".repeat(chars) }
    }

    fn rows(events: &[Event], prev: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut rows = vec![];
        let draft = Draft::new(Timestamp::from_millis(5), events).expect("small");
        draft.place(RUN, Seq(3), prev, |key, row| rows.push((key.to_vec(), row)));
        rows
    }

    #[test]
    fn a_record_reads_as_it_was_written_whatever_its_size() {
        for chars in [0, 100, PART_BYTES - 60, PART_BYTES, 3 * PART_BYTES + 1] {
            let events = [noted(chars), noted(1)];
            let (mut body, mut prev) = (vec![], 77);
            let rows = rows(&events, prev);
            for (key, row) in &rows {
                let part = Part::open(key, row).expect("as written");
                assert_eq!((part.prev, usize::from(part.parts), part.count), (prev, rows.len(), 2));
                prev = part.crc;
                body.extend_from_slice(part.body);
            }
            let body = Body::decode(&body, 2).expect("as written");
            assert_eq!(body, Body { at: Timestamp::from_millis(5), events: events.to_vec() });
        }
    }

    #[test]
    fn no_changed_byte_passes() {
        let (key, row) = rows(&[noted(20)], 1).remove(0);
        for i in 0..row.len() {
            for bit in 0..8 {
                let mut bad = row.clone();
                bad[i] ^= 1 << bit;
                assert!(Part::open(&key, &bad).is_err(), "byte {i} bit {bit}");
            }
        }
        let elsewhere = keys::journal(RUN, Seq(4), 0);
        assert_eq!(Part::open(&elsewhere, &row).err(), Some(Flaw::Checksum));
        assert_eq!(Part::open(&key, &row[..HEADER - 1]).err(), Some(Flaw::Length(HEADER - 1)));
    }

    #[test]
    fn the_bytes_of_a_row_are_as_they_always_were() {
        let key = b"cpaused";
        let row = seal(key, &[b"ab", b"c"]);
        assert_eq!(row[..], [&[1][..], &crc32c::crc32c(b"cpausedabc").to_be_bytes(), b"abc"].concat());
        assert_eq!(unseal(key, &row), Ok(&b"abc"[..]));
        assert_eq!(unseal(b"cpause", &row), Err(Flaw::Checksum));
        let (key, row) =
            rows(&[Event::Unpaused { by: Actor { name: "a".into() }, shift_ms: 1 }], 0x0102_0304).remove(0);
        assert_eq!(row[0], FORMAT);
        assert_eq!(row[5..HEADER], [1, 2, 3, 4, 0, 1, 0, 0, 0, 1]);
        assert_eq!(row[1..5], crc32c::crc32c(&[&key[..], &row[5..]].concat()).to_be_bytes());
        let body = b"\x82\xa2at\x05\xa6events\x91\x81\xa8unpaused\x82\xa2by\x81\xa4name\xa1a\xa8shift_ms\x01";
        assert_eq!(row[HEADER..], body[..]);
    }

    #[test]
    fn an_append_beyond_the_limit_is_refused_with_its_size() {
        let error = Draft::new(Timestamp::default(), &[noted(RECORD_BYTES_MAX)]).expect_err("too large");
        assert!(matches!(error, Error::TooLarge { bytes, .. } if bytes > RECORD_BYTES_MAX), "{error}");
    }
}

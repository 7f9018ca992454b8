//! What a row of the index holds besides the summary, and the row that says how far the store is.

use serde::Serialize;

use crate::id::Seq;
use crate::journal::keys;
use crate::journal::record;
use crate::journal::record::Flaw;
use crate::journal::store::Error;
use crate::journal::store::Summary;
use crate::time::Timestamp;

/// Bytes before the summary.
const HEAD: usize = 1 + 8;

/// A line of the index as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    /// The run's last event when the line was written: its journal is at least so long.
    pub(super) seq: Seq,
    /// What callers see.
    pub(super) summary: Summary,
}

impl Line {
    /// The bytes of a line.
    pub(super) fn encode(seq: Seq, summary: &Summary) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::with_capacity(256);
        bytes.push(u8::from(!summary.status.is_terminal()));
        bytes.extend_from_slice(&seq.0.to_be_bytes());
        let mut to = rmp_serde::Serializer::new(&mut bytes).with_struct_map();
        summary
            .serialize(&mut to)
            .map_err(|_| Error::Misused("a summary cannot be expressed in MessagePack"))?;
        Ok(bytes)
    }

    /// Whether the run is open and how long its journal is at least, without decoding the rest.
    pub(super) fn peek(bytes: &[u8]) -> Result<(bool, Seq), Flaw> {
        let (head, _) = bytes.split_first_chunk::<HEAD>().ok_or(Flaw::Length(bytes.len()))?;
        let seq = head[1..].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        Ok((head[0] != 0, Seq(seq)))
    }

    /// The line of those bytes.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let (_, seq) = Self::peek(bytes)?;
        let summary = rmp_serde::from_slice(&bytes[HEAD..]).map_err(|e| Flaw::Content(e.to_string()))?;
        Ok(Self { seq, summary })
    }
}

/// Identifies a store, so that files of two stores are never mixed.
pub(super) type StoreId = [u8; 16];

/// How far a store is. Written with every commit, in the same batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta {
    /// Which store.
    pub(super) store: StoreId,
    /// Commits so far.
    pub(super) g: u64,
    /// Rows in the journal.
    pub(super) rows: u64,
    /// Runs in the index.
    pub(super) runs: u64,
    /// Time of the newest record.
    pub(super) newest: Option<Timestamp>,
}

/// Bytes of an encoded [`Meta`].
pub(super) const META_BYTES: usize = 16 + 4 * 8;

impl Meta {
    /// A store to which nothing was committed.
    pub(super) const fn new(store: StoreId) -> Self {
        Self { store, g: 0, rows: 0, runs: 0, newest: None }
    }

    /// Its bytes, as they also stand in the head file.
    pub(super) fn encode(&self) -> [u8; META_BYTES] {
        let mut bytes = [0; META_BYTES];
        bytes[..16].copy_from_slice(&self.store);
        let newest = self.newest.map_or(i64::MIN, Timestamp::as_millis);
        let numbers =
            [self.g.to_be_bytes(), self.rows.to_be_bytes(), self.runs.to_be_bytes(), newest.to_be_bytes()];
        bytes[16..].copy_from_slice(numbers.as_flattened());
        bytes
    }

    /// The inverse of [`Meta::encode`].
    pub(super) fn decode(bytes: &[u8; META_BYTES]) -> Self {
        let (store, numbers) = bytes.split_first_chunk::<16>().expect("longer than that");
        let (numbers, _) = numbers.as_chunks::<8>();
        let newest = i64::from_be_bytes(numbers[3]);
        Self {
            store: *store,
            g: u64::from_be_bytes(numbers[0]),
            rows: u64::from_be_bytes(numbers[1]),
            runs: u64::from_be_bytes(numbers[2]),
            newest: (newest != i64::MIN).then_some(Timestamp::from_millis(newest)),
        }
    }

    /// The row of [`keys::META`].
    pub(super) fn seal(&self) -> Vec<u8> {
        record::seal(&keys::META, &[&self.encode()])
    }

    /// Reads that row.
    pub(super) fn unseal(row: &[u8]) -> Result<Self, Flaw> {
        let payload = record::unseal(&keys::META, row)?;
        Ok(Self::decode(payload.try_into().map_err(|_| Flaw::Length(row.len()))?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_store_reads_as_it_was_written() {
        let fresh = Meta::new([9; 16]);
        let used = Meta { g: 1, rows: 2, runs: 3, newest: Some(Timestamp::from_millis(-4)), ..fresh };
        for meta in [fresh, used] {
            assert_eq!(Meta::unseal(&meta.seal()), Ok(meta));
        }
        let mut expected = [9; 16].to_vec();
        for number in [1, 2, 3, u64::MAX - 3] {
            expected.extend_from_slice(&number.to_be_bytes());
        }
        assert_eq!(used.encode()[..], expected);
    }
}

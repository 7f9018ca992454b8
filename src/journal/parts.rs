//! Values larger than a row, in numbered parts. The first part says how many there are and the checksum of the whole;
//! parts that a longer value left behind are ignored.

use crate::journal::keys;
use crate::journal::record;
use crate::journal::record::Flaw;
use crate::journal::record::PAYLOAD_BYTES_MAX;
use crate::journal::store::Error;

/// Largest value: a definition of 10,000 steps is about 4 MB.
pub(super) const VALUE_BYTES_MAX: usize = 16 << 20;
/// Bytes of a part's payload.
const CHUNK: usize = PAYLOAD_BYTES_MAX - HEAD;
/// Number of parts and checksum, in the first part.
const HEAD: usize = 2 + 4;

/// Rows to be written: a key with a value, or with none if it is to be removed.
pub(super) type Rows = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// Adds the rows of the value of `key` to `rows`.
pub(super) fn split(what: &'static str, key: &[u8], value: &[u8], rows: &mut Rows) -> Result<(), Error> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::TooLarge { what, bytes: value.len(), max: VALUE_BYTES_MAX });
    }
    let parts = value.len().div_ceil(CHUNK).max(1);
    let parts = u16::try_from(parts).expect("a value is at most VALUE_BYTES_MAX");
    let head = [&parts.to_be_bytes()[..], &crc32c::crc32c(value).to_be_bytes()].concat();
    let chunks = value.chunks(CHUNK).chain(value.is_empty().then_some(&[][..]));
    for (part, chunk) in (0..).zip(chunks) {
        let key = keys::part(key, part);
        let row = record::seal(&key, &[if part == 0 { &head } else { &[] }, chunk]);
        rows.push((key, Some(row)));
    }
    Ok(())
}

/// Puts the parts of one value together.
#[derive(Debug, Default)]
pub(super) struct Join {
    parts: u16,
    crc: u32,
    seen: u16,
    value: Vec<u8>,
}

impl Join {
    /// Takes the next row. Gives the value when it is complete.
    pub(super) fn push(&mut self, key: &[u8], row: &[u8]) -> Result<Option<Vec<u8>>, Flaw> {
        let payload = record::unseal(key, row)?;
        if keys::part_of(key) != Some(self.seen) {
            return Err(Flaw::Chain("a part is missing"));
        }
        let chunk = match (self.seen, payload.split_first_chunk::<HEAD>()) {
            (0, Some((head, chunk))) => {
                self.parts = u16::from_be_bytes([head[0], head[1]]);
                self.crc = u32::from_be_bytes([head[2], head[3], head[4], head[5]]);
                chunk
            }
            (0, None) => return Err(Flaw::Length(row.len())),
            _ => payload,
        };
        self.value.extend_from_slice(chunk);
        self.seen += 1;
        if self.seen < self.parts {
            return Ok(None);
        }
        if crc32c::crc32c(&self.value) != self.crc {
            return Err(Flaw::Checksum);
        }
        Ok(Some(std::mem::take(&mut self.value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(value: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut rows = vec![];
        split("a value", b"dab", value, &mut rows).expect("small");
        rows.into_iter().map(|(key, row)| (key, row.expect("a value"))).collect()
    }

    fn join(rows: &[(Vec<u8>, Vec<u8>)]) -> Result<Option<Vec<u8>>, Flaw> {
        let mut join = Join::default();
        let mut found = None;
        for (key, row) in rows {
            if let Some(value) = join.push(key, row)? {
                found = Some(value);
                break;
            }
        }
        Ok(found)
    }

    #[test]
    fn a_value_of_any_size_comes_back_whole() {
        for bytes in [0, 1, CHUNK, CHUNK + 1, 5 * CHUNK] {
            let value = vec![7; bytes];
            assert!(rows(&value).iter().all(|(_, row)| row.len() <= record::ROW_BYTES_MAX));
            assert_eq!(join(&rows(&value)), Ok(Some(value)), "{bytes}");
        }
    }

    #[test]
    fn what_a_longer_value_left_behind_is_ignored() {
        let mut mixed = rows(&[1; 10]);
        mixed.extend_from_slice(&rows(&vec![2; 3 * CHUNK])[1..]);
        assert_eq!(join(&mixed), Ok(Some(vec![1; 10])));
    }

    #[test]
    fn a_missing_or_foreign_part_is_noticed() {
        let mut holed = rows(&vec![1; 3 * CHUNK]);
        holed.remove(1);
        assert_eq!(join(&holed), Err(Flaw::Chain("a part is missing")));
        let mut mixed = rows(&[1; 2 * CHUNK]);
        mixed[1] = rows(&[2; 2 * CHUNK]).remove(1);
        assert_eq!(join(&mixed), Err(Flaw::Checksum));
        assert_eq!(join(&rows(&[1; 2 * CHUNK])[..1]), Ok(None));
    }
}

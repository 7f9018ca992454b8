//! The layout of keys: one tree, one prefix byte for each table, big endian, so that rows sort as runs and events do.

use crate::id::RunId;
use crate::id::Seq;

/// A table. The byte of a retired one is never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Table {
    /// Settings, by name.
    Setting = b'c',
    /// Definitions in parts, by digest.
    Definition = b'd',
    /// The events of a run.
    Journal = b'j',
    /// The run of an idempotency key.
    Key = b'k',
    /// The one row that says how far the store is.
    Meta = b'm',
    /// Runs that are not terminal.
    Open = b'o',
    /// Lines of the index, in parts.
    Summary = b's',
    /// Runs that retention is about to remove.
    Leaving = b'x',
}

/// All tables.
const TABLES: [Table; 8] = [
    Table::Setting,
    Table::Definition,
    Table::Journal,
    Table::Key,
    Table::Meta,
    Table::Open,
    Table::Summary,
    Table::Leaving,
];

impl Table {
    /// The table whose keys begin with that byte.
    pub(super) fn of(byte: u8) -> Option<Self> {
        TABLES.into_iter().find(|table| *table as u8 == byte)
    }
}

/// The key of [`Table::Meta`]'s row.
pub(super) const META: [u8; 1] = [Table::Meta as u8];

/// Bytes of a key that is a table and a run.
const RUN_KEY: usize = 1 + 16;
/// Bytes of a journal key: table, run, first event, part.
const JOURNAL_KEY: usize = RUN_KEY + 8 + 2;

/// The key of a run in a table with one row per run; in the journal, the prefix of all its rows.
pub(super) fn of_run(table: Table, run: RunId) -> [u8; RUN_KEY] {
    let mut key = [table as u8; RUN_KEY];
    key[1..].copy_from_slice(&run.to_be_bytes());
    key
}

/// The run of a key made by [`of_run`] or [`journal`].
pub(super) fn run_of(key: &[u8]) -> Option<RunId> {
    Some(RunId::from_be_bytes(key.get(1..RUN_KEY)?.try_into().ok()?))
}

/// The key of one part of the record that begins with event `first`.
pub(super) fn journal(run: RunId, first: Seq, part: u16) -> [u8; JOURNAL_KEY] {
    let mut key = [0; JOURNAL_KEY];
    key[..RUN_KEY].copy_from_slice(&of_run(Table::Journal, run));
    key[RUN_KEY..RUN_KEY + 8].copy_from_slice(&first.0.to_be_bytes());
    key[RUN_KEY + 8..].copy_from_slice(&part.to_be_bytes());
    key
}

/// What [`journal`] put into a key.
pub(super) fn parse_journal(key: &[u8]) -> Option<(RunId, Seq, u16)> {
    let key: &[u8; JOURNAL_KEY] = key.try_into().ok()?;
    let first = u64::from_be_bytes(key[RUN_KEY..RUN_KEY + 8].try_into().ok()?);
    let part = u16::from_be_bytes(key[RUN_KEY + 8..].try_into().ok()?);
    (key[0] == Table::Journal as u8).then_some((run_of(key)?, Seq(first), part))
}

/// The key of what is found by a text. It ends with a zero, so that no such key is a prefix of another.
pub(super) fn named(table: Table, name: &str) -> Vec<u8> {
    [&[table as u8], name.as_bytes(), &[0]].concat()
}

/// The key of one part of a value whose first part has the key `whole` and part 0. No `whole` may be a prefix of another.
pub(super) fn part(whole: &[u8], part: u16) -> Vec<u8> {
    [whole, &part.to_be_bytes()].concat()
}

/// The number that [`part`] put at the end of a key.
pub(super) fn part_of(key: &[u8]) -> Option<u16> {
    key.last_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId::new(0x0102_0304_0506, 0x0708_090a_0b0c_0d0e_0f10);

    #[test]
    fn the_bytes_of_each_key_are_as_they_always_were() {
        let run = b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10";
        let key = journal(RUN, Seq(0x1112), 3);
        assert_eq!(key[..], [b"j", &run[..], b"\0\0\0\0\0\0\x11\x12", b"\0\x03"].concat());
        assert_eq!(of_run(Table::Summary, RUN)[..], [b"s", &run[..]].concat());
        assert_eq!(of_run(Table::Open, RUN)[..], [b"o", &run[..]].concat());
        assert_eq!(of_run(Table::Leaving, RUN)[..], [b"x", &run[..]].concat());
        assert_eq!(named(Table::Key, "nightly"), b"knightly\0");
        assert_eq!(named(Table::Setting, "paused"), b"cpaused\0");
        assert_eq!(part(&named(Table::Definition, "ab"), 1), b"dab\0\0\x01");
        assert_eq!(META, *b"m");
    }

    #[test]
    fn keys_give_back_what_they_were_made_of() {
        assert_eq!(parse_journal(&journal(RUN, Seq(7), 9)), Some((RUN, Seq(7), 9)));
        assert_eq!(run_of(&of_run(Table::Summary, RUN)), Some(RUN));
        assert_eq!(part_of(&part(b"dab", 513)), Some(513));
        for bad in [&b""[..], b"j", &journal(RUN, Seq(1), 0)[1..], &of_run(Table::Journal, RUN)[..]] {
            assert_eq!(parse_journal(bad), None);
        }
    }

    #[test]
    fn rows_of_a_run_sort_by_event_and_part() {
        let later = RunId::new(0x0102_0304_0507, 0);
        let keys = [
            journal(RUN, Seq(2), 0),
            journal(RUN, Seq(2), 1),
            journal(RUN, Seq(256), 0),
            journal(later, Seq(1), 0),
        ];
        assert!(keys.is_sorted());
    }

    #[test]
    fn no_two_tables_share_a_byte() {
        for (i, table) in TABLES.iter().enumerate() {
            assert!(TABLES[..i].iter().all(|other| *other as u8 != *table as u8));
            assert_eq!(Table::of(*table as u8), Some(*table));
        }
    }
}

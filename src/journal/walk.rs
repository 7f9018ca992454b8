//! Goes through the rows of a run's journal in order and stops at the first that is not as it was written.

use crate::id::Seq;
use crate::journal::keys;
use crate::journal::record::Flaw;
use crate::journal::record::Part;

/// Where in a run's journal we are.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The last event of the last complete record.
    last: Seq,
    /// The checksum of the last row.
    crc: u32,
    /// Parts seen of a record that is not complete.
    seen: u16,
    /// Its body so far, if bodies are wanted.
    body: Vec<u8>,
}

/// A complete record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Its first event.
    pub(super) first: Seq,
    /// How many events.
    pub(super) count: u32,
}

/// The end of a run's journal: what the next record continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tail {
    /// The last event.
    pub(super) seq: Seq,
    /// The checksum of the last row.
    pub(super) crc: u32,
}

impl Walk {
    /// Takes the next row. Gives the record that it completes; its body is then [`Walk::body`].
    pub(super) fn row(&mut self, key: &[u8], row: &[u8]) -> Result<Option<Record>, Flaw> {
        let (_, first, number) =
            keys::parse_journal(key).ok_or(Flaw::Chain("its key is none of the journal's"))?;
        let part = Part::open(key, row)?;
        if first != self.last.next() {
            return Err(Flaw::Chain("events before it are missing"));
        }
        if number != self.seen || number >= part.parts {
            return Err(Flaw::Chain("a part of its record is missing"));
        }
        if part.prev != self.crc {
            return Err(Flaw::Chain("it does not follow the row before it"));
        }
        if number == 0 {
            self.body.clear();
        }
        self.body.extend_from_slice(part.body);
        self.crc = part.crc;
        self.seen += 1;
        if self.seen < part.parts {
            return Ok(None);
        }
        self.seen = 0;
        self.last = Seq(self.last.0 + u64::from(part.count));
        Ok(Some(Record { first, count: part.count }))
    }

    /// The body of the record that the last row completed.
    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// The last event of the last complete record.
    pub(super) fn last(&self) -> Seq {
        self.last
    }

    /// Checks that the journal does not end within a record.
    pub(super) fn finish(&self) -> Result<Tail, Flaw> {
        match self.seen {
            0 => Ok(Tail { seq: self.last, crc: self.crc }),
            _ => Err(Flaw::Chain("the last record is not complete")),
        }
    }
}

impl Tail {
    /// The end of a journal whose last row this is.
    pub(super) fn of(key: &[u8], row: &[u8]) -> Result<Self, Flaw> {
        let (_, first, number) =
            keys::parse_journal(key).ok_or(Flaw::Chain("its key is none of the journal's"))?;
        let part = Part::open(key, row)?;
        if u32::from(number) + 1 != u32::from(part.parts) {
            return Err(Flaw::Chain("the last record is not complete"));
        }
        let seq = Seq((first.0 + u64::from(part.count)).saturating_sub(1));
        Ok(Self { seq, crc: part.crc })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::event::Actor;
    use crate::engine::event::Event;
    use crate::id::RunId;
    use crate::journal::record::Draft;
    use crate::time::Timestamp;

    const RUN: RunId = RunId::new(1, 2);

    type Rows = Vec<(Vec<u8>, Vec<u8>)>;

    /// The rows of records with notes of those lengths.
    fn journal(lengths: &[&[usize]]) -> (Rows, Tail) {
        let (mut rows, mut tail) = (vec![], Tail::default());
        for record in lengths {
            let note =
                |chars: &usize| Event::Noted { by: Actor { name: "a".into() }, text: "x".repeat(*chars) };
            let events: Vec<_> = record.iter().map(note).collect();
            let draft = Draft::new(Timestamp::default(), &events).expect("small");
            let (crc, _) =
                draft.place(RUN, tail.seq.next(), tail.crc, |key, row| rows.push((key.to_vec(), row)));
            tail = Tail { seq: Seq(tail.seq.0 + record.len() as u64), crc };
        }
        (rows, tail)
    }

    fn walk(rows: &[(Vec<u8>, Vec<u8>)]) -> Result<Tail, Flaw> {
        let mut walk = Walk::default();
        for (key, row) in rows {
            walk.row(key, row)?;
        }
        walk.finish()
    }

    #[test]
    fn a_whole_journal_ends_where_its_last_row_says() {
        for lengths in [&[][..], &[&[1][..]], &[&[1, 2], &[9_000], &[3], &[20_000, 1]]] {
            let (rows, tail) = journal(lengths);
            assert_eq!(walk(&rows), Ok(tail));
            if let Some((key, row)) = rows.last() {
                assert_eq!(Tail::of(key, row), Ok(tail));
            }
        }
    }

    #[test]
    fn a_row_that_is_missing_or_in_the_place_of_another_is_noticed() {
        let (rows, _) = journal(&[&[1], &[9_000], &[3], &[4]]);
        for missing in 0..rows.len() - 1 {
            let mut holed = rows.clone();
            holed.remove(missing);
            assert!(walk(&holed).is_err(), "row {missing}");
        }
        let (foreign, _) = journal(&[&[2], &[9_000], &[3], &[4]]);
        for swapped in 0..rows.len() - 1 {
            let mut mixed = rows.clone();
            mixed[swapped].clone_from(&foreign[swapped]);
            assert!(walk(&mixed).is_err(), "row {swapped}");
        }
        let (cut, _) = journal(&[&[1], &[9_000]]);
        assert_eq!(walk(&cut[..2]), Err(Flaw::Chain("the last record is not complete")));
        assert!(Tail::of(&cut[1].0, &cut[1].1).is_err());
    }
}

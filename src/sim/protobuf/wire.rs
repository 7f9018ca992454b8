//! The wire format of protocol buffers: numbered parts, one after the other.

/// How many bytes a number has at most.
const VARINT_MAX: usize = 10;

/// Why bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// They end in the middle of something.
    #[error("unexpected end")]
    Short,
    /// A number has too many bytes.
    #[error("integer overflow")]
    Long,
    /// A part is of another type than its field.
    #[error("wrong wireType")]
    WireType,
    /// A text is not UTF-8.
    #[error("invalid UTF-8")]
    Text,
    /// A moment is outside of what can be written as a date.
    #[error("invalid time")]
    Time,
    /// JSON in a message is none.
    #[error("invalid JSON")]
    Json,
}

/// What follows the number of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// A number.
    Number(u64),
    /// A text, a message or bytes.
    Bytes(&'a [u8]),
    /// A number of fixed width: no field here has one.
    Fixed,
}

/// The parts of a message with the numbers of their fields. Ends after the first mistake.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for i in 0..VARINT_MAX {
            let [byte, rest @ ..] = self.0 else { return Err(Malformed::Short) };
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed::Long)
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed::Short)?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn part(&mut self) -> Result<(u64, Part<'a>), Malformed> {
        let tag = self.varint()?;
        let part = match tag & 7 {
            0 => Part::Number(self.varint()?),
            1 => self.take(8).map(|_| Part::Fixed)?,
            2 => {
                let length = self.varint()?;
                Part::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Part::Fixed)?,
            _ => return Err(Malformed::WireType),
        };
        Ok((tag >> 3, part))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u64, Part<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let part = self.part();
        if part.is_err() {
            self.0 = &[];
        }
        Some(part)
    }
}

/// The text in bytes.
pub(super) fn text(bytes: &[u8]) -> Result<String, Malformed> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Malformed::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_one_after_the_other() {
        let bytes = [8, 0x96, 1, 0x12, 2, b'a', b'b', 0x1d, 0, 0, 0, 0];
        let parts: Result<Vec<_>, _> = Reader::new(&bytes).collect();
        assert_eq!(parts, Ok(vec![(1, Part::Number(150)), (2, Part::Bytes(b"ab")), (3, Part::Fixed)]));
    }

    #[test]
    fn mistakes_end_the_message() {
        for (bytes, why) in [
            (&[8][..], Malformed::Short),
            (&[0x12, 5, 1], Malformed::Short),
            (&[8, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], Malformed::Long),
            (&[0x0b], Malformed::WireType),
        ] {
            let parts: Vec<_> = Reader::new(bytes).collect();
            assert_eq!(parts, [Err(why)], "{bytes:?}");
        }
    }
}

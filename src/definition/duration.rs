//! Durations as text: `90s`, `2h30m`, `1.5h`, `1d`, `250ms`.

use std::fmt::Write as _;
use std::time::Duration;

/// Units with their length in nanoseconds, longest text first where one begins with the other.
const UNITS: [(&str, u64); 7] = [
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
    ("d", 24 * 3_600 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("s", 1_000_000_000),
];

/// The longest duration: whoever writes more has made a mistake.
pub const DURATION_MAX: Duration = Duration::from_hours(10 * 366 * 24);

/// A text that is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a duration: write numbers with units such as `90s`, `2h30m` or `1d`, at most ten years"
)]
pub struct DurationError(pub String);

/// Reads a duration: one or more numbers, each with one of the units d, h, m, s, ms, us, ns. `0` needs no unit.
///
/// # Errors
/// Anything else, a negative duration, and one longer than [`DURATION_MAX`].
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let error = || DurationError(text.to_owned());
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanos: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
        let (number, after) = rest.split_at(digits);
        let (unit, scale) = UNITS.iter().find(|(unit, _)| after.starts_with(unit)).ok_or_else(error)?;
        let part = scaled(number, *scale).ok_or_else(error)?;
        nanos = nanos.checked_add(part).ok_or_else(error)?;
        rest = &after[unit.len()..];
    }
    let duration = Duration::from_nanos(nanos);
    if text.is_empty() || duration > DURATION_MAX { Err(error()) } else { Ok(duration) }
}

/// `number` (digits with at most one point) times `scale`, exactly, cut to whole nanoseconds.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    // More than 15 decimals are less than a nanosecond of any unit.
    let fraction = &fraction[..fraction.len().min(15)];
    let parts = match fraction {
        "" => 0,
        digits => {
            u128::from(digits.parse::<u64>().ok()?) * u128::from(scale)
                / 10u128.pow(u32::try_from(digits.len()).ok()?)
        }
    };
    whole.checked_add(u64::try_from(parts).ok()?)
}

/// Writes a duration so that [`parse`] reads the same one: `1d2h`, `1m30s`, `1.5s`, `0s`.
pub fn format(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let mut text = String::new();
    for (unit, length) in [("d", 86_400), ("h", 3_600), ("m", 60)] {
        let count = match unit {
            "d" => seconds / length,
            "h" => seconds % 86_400 / length,
            _ => seconds % 3_600 / length,
        };
        if count > 0 {
            // Writing to a String cannot fail.
            let _ = write!(text, "{count}{unit}");
        }
    }
    let nanos = u64::from(duration.subsec_nanos());
    match (seconds % 60, nanos) {
        (0, 0) if text.is_empty() => text.push_str("0s"),
        (0, 0) => {}
        (whole, 0) => {
            let _ = write!(text, "{whole}s");
        }
        (0, nanos) if nanos.is_multiple_of(1_000_000) => {
            let _ = write!(text, "{}ms", nanos / 1_000_000);
        }
        (whole, nanos) => {
            let fraction = format!("{nanos:09}");
            let _ = write!(text, "{whole}.{}s", fraction.trim_end_matches('0'));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_durations_are_read_and_written_back() {
        for (text, millis, back) in [
            ("90s", 90_000, "1m30s"),
            ("2h30m", 9_000_000, "2h30m"),
            ("1d", 86_400_000, "1d"),
            ("1.5h", 5_400_000, "1h30m"),
            ("250ms", 250, "250ms"),
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("1.25s", 1_250, "1.25s"),
        ] {
            let duration = parse(text).expect(text);
            assert_eq!(duration, Duration::from_millis(millis), "{text}");
            assert_eq!(format(duration), back);
            assert_eq!(parse(&format(duration)), Ok(duration));
        }
    }

    #[test]
    fn bad_durations_are_refused() {
        for text in [
            "",
            "s",
            "5",
            "-5s",
            "5 s",
            "5x",
            "1..5s",
            ".5s",
            "5.s",
            "99999d",
            "18446744073709551615s",
            "五s",
        ] {
            assert_eq!(parse(text), Err(DurationError(text.to_owned())), "{text}");
        }
    }
}

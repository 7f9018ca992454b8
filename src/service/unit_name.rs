//! Units in the form in which people read and write them: `halt`, `halt[vm-1]`, `halt/undo.0`.

use crate::engine::unit::Block;
use crate::engine::unit::Undo;
use crate::engine::unit::UnitId;
use crate::failure::Failure;
use crate::service::codes;

/// The inverse of a unit's `Display`.
pub(super) fn parse(text: &str) -> Result<UnitId, Failure> {
    let bad = || {
        Failure::permanent(
            codes::BAD_STEP,
            format!("`{text}` is not a step like `halt`, `halt[vm-1]`, `halt/undo.0`"),
        )
    };
    let (forward, undo) = match text.split_once("/undo.") {
        Some((forward, undo)) => (forward, Some(undo)),
        None => (text, None),
    };
    let (step, item) = with_item(forward).ok_or_else(bad)?;
    let step = step.parse().map_err(|_| bad())?;
    let Some(undo) = undo else { return Ok(Block::forward(step).unit(item.map(Into::into))) };
    let (entry, inner) = with_item(undo).ok_or_else(bad)?;
    let entry = entry.parse().map_err(|_| bad())?;
    let block = Block { step, undo: Some(Undo { item: item.map(Into::into), entry }) };
    Ok(block.unit(inner.map(Into::into)))
}

/// `name` or `name[item]`.
fn with_item(text: &str) -> Option<(&str, Option<&str>)> {
    match text.split_once('[') {
        None => Some((text, None)),
        Some((name, rest)) => Some((name, Some(rest.strip_suffix(']')?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_read_as_it_is_written() {
        for text in ["halt", "halt[vm-1]", "halt/undo.0", "halt[vm-1]/undo.12", "halt/undo.1[a b]"] {
            assert_eq!(parse(text).expect(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_unit_is_refused() {
        for text in ["", "Halt", "halt[x", "halt/undo.x", "halt/undo.-1", "[x]"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}

//! Objects as rows for people.

use serde_json::{Value, json};

use crate::sim::http::columns;
use crate::sim::http::columns::Cell;
use crate::sim::kinds::Kind;
use crate::time::Timestamp;

/// The head of a table.
pub(super) fn columns(kind: &Kind) -> Value {
    let columns = columns::of(kind.resource).iter();
    columns
        .map(|column| {
            json!({
                "name": column.name,
                "type": column.cell.type_name(),
                "format": if column.name == "Name" { "name" } else { "" },
                "description": "",
                "priority": i32::from(column.wide),
            })
        })
        .collect()
}

/// The row of an object.
pub(super) fn cells(kind: &Kind, object: &Value, now: Timestamp) -> Vec<Value> {
    columns::of(kind.resource).iter().map(|column| cell(&column.cell, object, now)).collect()
}

fn cell(cell: &Cell, object: &Value, now: Timestamp) -> Value {
    match cell {
        Cell::Path(pointer) => match object.pointer(pointer) {
            None | Some(Value::Null) => "".into(),
            Some(Value::Bool(flag)) => flag.to_string().into(),
            Some(value) => value.clone(),
        },
        Cell::Name(pointer) => object.pointer(pointer).cloned().unwrap_or_else(|| "<none>".into()),
        Cell::Condition(name) => condition(object, name, "status").into(),
        Cell::Age(pointer) => age(object, pointer, now).into(),
        Cell::Size(pointer) => object.pointer(pointer).map_or(0, size).into(),
        Cell::Computed(compute) => compute(object, now).into(),
    }
}

fn size(value: &Value) -> usize {
    value.as_object().map(serde_json::Map::len).or_else(|| value.as_array().map(Vec::len)).unwrap_or(0)
}

/// A field of a condition; empty if the condition is not there.
pub(super) fn condition<'a>(object: &'a Value, name: &str, field: &str) -> &'a str {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == name);
    found.and_then(|condition| condition[field].as_str()).unwrap_or_default()
}

/// How long ago the moment at `pointer` was, in kubectl's short form.
pub(super) fn age(object: &Value, pointer: &str, now: Timestamp) -> String {
    let at = object.pointer(pointer).and_then(Value::as_str).and_then(|at| at.parse::<Timestamp>().ok());
    at.map_or_else(|| "<unknown>".to_owned(), |at| short_duration(now.since(at).as_secs()))
}

/// A duration as kubectl shortens it.
fn short_duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |first: u64, unit: char, second: u64, small: char| match second {
        0 => format!("{first}{unit}"),
        second => format!("{first}{unit}{second}{small}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        _ => two(days / 365, 'y', days % 365, 'd'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_shortened_as_kubectl_does() {
        for (seconds, expected) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (130, "2m10s"),
            (3600, "60m"),
            (10_860, "3h1m"),
            (90_000, "25h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
        ] {
            assert_eq!(short_duration(seconds), expected);
        }
    }
}

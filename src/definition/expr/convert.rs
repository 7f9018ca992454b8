//! JSON to CEL and back. Integers become `int`, never `uint`, so that they add.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cel::common::types::CelBool;
use cel::common::types::CelDouble;
use cel::common::types::CelInt;
use cel::common::types::CelList;
use cel::common::types::CelMap;
use cel::common::types::CelMapKey;
use cel::common::types::CelNull;
use cel::common::types::CelString;
use cel::common::types::CelUInt;
use cel::common::value::Val;
use cel::objects::Key;
use cel::objects::OptionalValue;
use serde_json::Map;
use serde_json::Number;
use serde_json::Value;

use crate::definition::duration;

/// The type of a JSON value, for people.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(n) if n.is_f64() => "a double",
        Value::Number(_) => "an int",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// A CEL value that borrows the texts of `value`.
pub(super) fn to_cel<'v>(value: &'v Value) -> Box<dyn Val + 'v> {
    match value {
        Value::Null => Box::new(CelNull),
        Value::Bool(b) => Box::new(CelBool::from(*b)),
        Value::Number(n) => number_to_cel(n),
        Value::String(s) => Box::new(CelString::from(s.as_str())),
        Value::Array(items) => Box::new(CelList::from(items.iter().map(to_cel).collect::<Vec<_>>())),
        Value::Object(entries) => Box::new(map_to_cel(entries)),
    }
}

fn number_to_cel(number: &Number) -> Box<dyn Val + 'static> {
    if let Some(int) = number.as_i64() {
        Box::new(CelInt::from(int))
    } else if let Some(uint) = number.as_u64() {
        Box::new(CelUInt::from(uint))
    } else {
        Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN)))
    }
}

fn map_to_cel(entries: &Map<String, Value>) -> CelMap<'_> {
    let pairs = entries.iter().map(|(key, value)| (CelMapKey::from(key.as_str()), to_cel(value)));
    CelMap::from(pairs.collect::<CelEntries<'_>>())
}

#[expect(
    clippy::disallowed_types,
    reason = "the type of the library; results are sorted when they come back"
)]
type CelEntries<'v> = std::collections::HashMap<CelMapKey<'v>, Box<dyn Val + 'v>>;

/// JSON of a CEL value; none for an empty optional.
///
/// # Errors
/// What JSON cannot say: an infinite number, a type, a function.
pub(super) fn to_json(value: &cel::Value) -> Result<Option<Value>, String> {
    Ok(Some(match value {
        cel::Value::Null => Value::Null,
        cel::Value::Bool(b) => Value::Bool(*b),
        cel::Value::Int(i) => Value::from(*i),
        cel::Value::UInt(u) => Value::from(*u),
        cel::Value::Float(f) => {
            Number::from_f64(*f).map(Value::Number).ok_or_else(|| format!("{f} cannot be written"))?
        }
        cel::Value::String(s) => Value::String(s.as_ref().clone()),
        cel::Value::Bytes(bytes) => Value::String(BASE64.encode(bytes.as_slice())),
        cel::Value::Timestamp(at) => Value::String(timestamp_text(at)),
        cel::Value::Duration(d) => Value::String(duration_text(d)),
        cel::Value::List(items) => {
            let mut list = Vec::with_capacity(items.len());
            for item in items.iter() {
                list.extend(to_json(item)?);
            }
            Value::Array(list)
        }
        cel::Value::Map(map) => {
            let mut sorted = BTreeMap::new();
            for (key, value) in map.map.iter() {
                sorted.insert(key_text(key), value);
            }
            let mut object = Map::new();
            for (key, value) in sorted {
                if let Some(value) = to_json(value)? {
                    object.insert(key, value);
                }
            }
            Value::Object(object)
        }
        cel::Value::Opaque(opaque) => match <&OptionalValue>::try_from(value) {
            Ok(optional) => return optional.value().map_or(Ok(None), to_json),
            Err(_) => return Err(format!("a {} cannot be written", opaque.runtime_type_name())),
        },
        other => return Err(format!("a {} cannot be written", other.type_of())),
    }))
}

fn key_text(key: &Key) -> String {
    match key {
        Key::String(text) => text.as_ref().clone(),
        Key::Int(int) => int.to_string(),
        Key::Uint(uint) => uint.to_string(),
        Key::Bool(bool) => bool.to_string(),
    }
}

fn timestamp_text(at: &chrono::DateTime<chrono::FixedOffset>) -> String {
    at.to_utc().to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)
}

fn duration_text(duration: &chrono::Duration) -> String {
    let sign = if *duration < chrono::Duration::zero() { "-" } else { "" };
    let text = duration.abs().to_std().map(duration::format).unwrap_or_default();
    format!("{sign}{text}")
}

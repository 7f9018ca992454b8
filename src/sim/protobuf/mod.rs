//! Kubernetes' binary form of objects, as far as clients send it. Answers always go out as JSON, which every client of
//! the binary form takes too.
//!
//! The decoder follows the tables of `messages`: what is in none of them is skipped, as the real server does. Nesting
//! is as deep as the tables are, and lengths are those of the body, so that both are bounded.

mod messages;
mod wire;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use self::messages::Field;
use self::messages::Holds;
use self::messages::KINDS;
use self::wire::Malformed;
use self::wire::Part;
use self::wire::Reader;

/// The media type.
pub(super) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// The beginning of every body.
const MAGIC: &[u8] = b"k8s\0";
/// The numbers of the envelope (`runtime.Unknown`) and of the `TypeMeta` in it.
const TYPE_META: u64 = 1;
const RAW: u64 = 2;
const API_VERSION: u64 = 1;
const KIND: u64 = 2;

/// Why a body cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// It does not begin as every such body does.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Prefix,
    /// The bytes are no message.
    #[error("proto: {0}")]
    Malformed(#[from] Malformed),
    /// The kind is in no table.
    #[error("the binary form of {0} is not understood")]
    Kind(String),
}

/// The object in a body, as JSON with its `apiVersion` and `kind`.
pub(super) fn decode(body: &[u8]) -> Result<Value, Error> {
    let envelope = body.strip_prefix(MAGIC).ok_or(Error::Prefix)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in Reader::new(envelope) {
        match field? {
            (TYPE_META, Part::Bytes(bytes)) => {
                for field in Reader::new(bytes) {
                    match field? {
                        (API_VERSION, Part::Bytes(bytes)) => api_version = wire::text(bytes)?,
                        (KIND, Part::Bytes(bytes)) => kind = wire::text(bytes)?,
                        _ => {}
                    }
                }
            }
            (RAW, Part::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let table = KINDS.iter().find(|(name, _)| *name == kind);
    let (_, fields) = table.ok_or_else(|| Error::Kind(kind.clone()))?;
    let mut object = Map::from_iter([
        ("apiVersion".to_owned(), Value::String(api_version)),
        ("kind".to_owned(), Value::String(kind)),
    ]);
    object.extend(message(raw, fields)?);
    Ok(Value::Object(object))
}

fn message(bytes: &[u8], fields: &[Field]) -> Result<Map<String, Value>, Malformed> {
    let mut object = Map::new();
    for part in Reader::new(bytes) {
        let (number, part) = part?;
        let Some(field) = fields.iter().find(|field| field.number == number) else { continue };
        let Some(value) = value(field.holds, part)? else { continue };
        let place = object.entry(field.name);
        match (field.holds, field.many) {
            (_, true) => {
                if let Value::Array(items) = place.or_insert_with(|| json!([])) {
                    items.push(value);
                }
            }
            (Holds::Texts | Holds::Blobs, false) => {
                if let (Value::Object(map), Value::Object(entry)) =
                    (place.or_insert_with(|| json!({})), value)
                {
                    map.extend(entry);
                }
            }
            (_, false) => drop(object.insert(field.name.to_owned(), value)),
        }
    }
    Ok(object)
}

/// What a part stands for; none if it is as good as absent.
fn value(holds: Holds, part: Part<'_>) -> Result<Option<Value>, Malformed> {
    Ok(match (holds, part) {
        (Holds::Text, Part::Bytes(bytes)) => {
            Some(wire::text(bytes)?).filter(|text| !text.is_empty()).map(Value::String)
        }
        (Holds::Count, Part::Number(0)) => None,
        (Holds::Count | Holds::Number, Part::Number(number)) => Some(number.cast_signed().into()),
        (Holds::Flag, Part::Number(number)) => Some((number != 0).into()),
        (Holds::Time, Part::Bytes(bytes)) => moment(bytes, "%Y-%m-%dT%H:%M:%SZ")?,
        (Holds::MicroTime, Part::Bytes(bytes)) => moment(bytes, "%Y-%m-%dT%H:%M:%S%.6fZ")?,
        (Holds::Texts, Part::Bytes(bytes)) => {
            Some(entry(bytes, |bytes| wire::text(bytes).map(Value::String))?)
        }
        (Holds::Blobs, Part::Bytes(bytes)) => Some(entry(bytes, |bytes| Ok(STANDARD.encode(bytes).into()))?),
        (Holds::Json, Part::Bytes(bytes)) => {
            let raw = Reader::new(bytes).find_map(|field| match field {
                Ok((1, Part::Bytes(bytes))) => Some(bytes),
                _ => None,
            });
            raw.map(serde_json::from_slice).transpose().map_err(|_| Malformed::Json)?
        }
        (Holds::Message(fields), Part::Bytes(bytes)) => Some(Value::Object(message(bytes, fields)?)),
        _ => return Err(Malformed::WireType),
    })
}

/// One entry of a map: a message with the name and the value.
fn entry(bytes: &[u8], read: impl Fn(&[u8]) -> Result<Value, Malformed>) -> Result<Value, Malformed> {
    let (mut name, mut value) = (String::new(), read(&[])?);
    for field in Reader::new(bytes) {
        match field? {
            (1, Part::Bytes(bytes)) => name = wire::text(bytes)?,
            (2, Part::Bytes(bytes)) => value = read(bytes)?,
            _ => {}
        }
    }
    Ok(Value::Object(Map::from_iter([(name, value)])))
}

/// A moment: seconds and nanoseconds since 1970. Both zero is Go's way to say that there is none.
fn moment(bytes: &[u8], format: &str) -> Result<Option<Value>, Malformed> {
    let (mut seconds, mut nanoseconds) = (0, 0);
    for field in Reader::new(bytes) {
        match field? {
            (1, Part::Number(number)) => seconds = number.cast_signed(),
            (2, Part::Number(number)) => {
                nanoseconds = i32::try_from(number.cast_signed()).map_err(|_| Malformed::Time)?;
            }
            _ => {}
        }
    }
    if (seconds, nanoseconds) == (0, 0) {
        return Ok(None);
    }
    let at = jiff::Timestamp::new(seconds, nanoseconds).map_err(|_| Malformed::Time)?;
    Ok(Some(at.strftime(format).to_string().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field with a length.
    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).expect("short");
        [&[number << 3 | 2, length][..], content].concat()
    }

    /// A field with a small number.
    fn number(field: u8, value: u8) -> Vec<u8> {
        vec![field << 3, value]
    }

    fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
        let types = [bytes(1, b"v1"), bytes(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), bytes(1, &types), bytes(2, raw), bytes(3, b""), bytes(4, b"")].concat()
    }

    fn secret() -> Vec<u8> {
        let owner = [bytes(1, b"VirtualMachine"), bytes(3, b"demo"), number(6, 1)].concat();
        let created = [number(1, 90), number(2, 0)].concat();
        let metadata = [
            bytes(1, b"s"),
            bytes(2, b""),
            number(7, 0),
            bytes(8, &created),
            bytes(9, b""),
            number(10, 0),
            bytes(11, &[bytes(1, b"a"), bytes(2, b"1")].concat()),
            bytes(11, &[bytes(1, b"b"), bytes(2, b"")].concat()),
            bytes(13, &owner),
            bytes(14, b"e.x/one"),
            bytes(14, b"e.x/two"),
        ]
        .concat();
        let data = [bytes(1, b"key"), bytes(2, &[0, 255])].concat();
        let raw = [bytes(1, &metadata), bytes(2, &data), bytes(3, b"Opaque"), number(5, 0)].concat();
        body("Secret", &[raw, number(14, 7)].concat())
    }

    #[test]
    fn a_body_becomes_the_object_that_json_would_have_been() {
        let expected = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "s",
                "creationTimestamp": "1970-01-01T00:01:30Z",
                "deletionGracePeriodSeconds": 0,
                "labels": { "a": "1", "b": "" },
                "ownerReferences": [{ "kind": "VirtualMachine", "name": "demo", "controller": true }],
                "finalizers": ["e.x/one", "e.x/two"],
            },
            "data": { "key": "AP8=" },
            "type": "Opaque",
            "immutable": false,
        });
        assert_eq!(decode(&secret()), Ok(expected));
    }

    #[test]
    fn moments_have_the_precision_of_their_field() {
        let at = [number(1, 1), vec![2 << 3, 0xc0, 0x84, 0x3d]].concat();
        let raw = [bytes(6, &at), bytes(10, &at)].concat();
        let event = decode(&body("Event", &raw)).expect("is well formed");
        assert_eq!(event["firstTimestamp"], "1970-01-01T00:00:01Z");
        assert_eq!(event["eventTime"], "1970-01-01T00:00:01.001000Z");
    }

    #[test]
    fn what_is_no_message_is_refused_with_its_reason() {
        for (bad, expected) in [
            (b"{}".to_vec(), Error::Prefix),
            (body("Pod", b""), Error::Kind("Pod".to_owned())),
            (MAGIC.to_vec(), Error::Kind(String::new())),
            (body("Secret", &[2 << 3 | 2, 9, 1]), Error::Malformed(Malformed::Short)),
            (body("Secret", &number(3, 1)), Error::Malformed(Malformed::WireType)),
            (body("Secret", &bytes(3, &[255])), Error::Malformed(Malformed::Text)),
        ] {
            assert_eq!(decode(&bad), Err(expected), "{bad:?}");
        }
    }

    /// Every change of one byte, every cut: an object or a reason, and no panic.
    #[test]
    fn no_body_brings_the_decoder_down() {
        let good = secret();
        let mut refused = 0;
        for end in 0..good.len() {
            refused += usize::from(decode(&good[..end]).is_err());
            for byte in 0..=u8::MAX {
                let mut bad = good.clone();
                bad[end] = byte;
                refused += usize::from(decode(&bad).is_err());
            }
        }
        assert!(refused > good.len(), "{refused}");
    }
}

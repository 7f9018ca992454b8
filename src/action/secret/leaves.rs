//! Where objects hold secrets.

use serde_json::Value;

/// Keys whose text is secret in any object: cloud-init, plain and encoded.
const SECRET_KEYS: [&str; 4] = ["userData", "userDataBase64", "networkData", "networkDataBase64"];
/// Keys of a `Secret` that hold its values.
const SECRET_MAPS: [&str; 2] = ["data", "stringData"];
/// kubectl keeps a copy of the whole object there.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// What a placeholder begins with: it is not hidden twice.
const HIDDEN: &str = super::OPEN;

/// Replaces each secret leaf by what `hide` makes of it.
pub(super) fn replace(value: &mut Value, hide: &dyn Fn(&str) -> String) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, hide)),
        Value::Object(fields) => {
            let is_secret = fields.get("kind").and_then(Value::as_str) == Some("Secret");
            for (key, field) in fields.iter_mut() {
                if SECRET_KEYS.contains(&key.as_str()) || is_secret && SECRET_MAPS.contains(&key.as_str()) {
                    every_text(field, hide);
                } else {
                    replace(field, hide);
                }
            }
            if let Some(copy) =
                value.pointer_mut("/metadata/annotations").and_then(|all| all.get_mut(LAST_APPLIED))
            {
                let tells =
                    copy.as_str().is_some_and(|text| SECRET_KEYS.iter().any(|key| text.contains(key)));
                if is_secret || tells {
                    every_text(copy, hide);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Replaces the texts of a value that stands at `path` of an object of that kind, if that is a secret place.
pub(super) fn replace_at(kind: &str, path: &str, value: &mut Value, hide: &dyn Fn(&str) -> String) {
    let mut parts = path.split('/').skip(1);
    let first = parts.next().unwrap_or_default();
    let last = path.rsplit('/').next().unwrap_or_default();
    if kind == "Secret" && SECRET_MAPS.contains(&first) || SECRET_KEYS.contains(&last) {
        every_text(value, hide);
    }
}

fn every_text(value: &mut Value, hide: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) if !text.starts_with(HIDDEN) => *text = hide(text),
        Value::Array(items) => items.iter_mut().for_each(|item| every_text(item, hide)),
        Value::Object(fields) => fields.values_mut().for_each(|field| every_text(field, hide)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

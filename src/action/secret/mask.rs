//! Masking by value: whatever a secret looks like on its way out.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::MASK;

/// The shortest piece of an encoded secret that is taken for one.
const PIECE_CHARS_MIN: usize = 6;

/// The values that this process has resolved, in all their forms. Clones share them.
#[derive(Clone, Default)]
pub struct Masker(Arc<Mutex<BTreeSet<String>>>);

impl fmt::Debug for Masker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Masker({} forms)", self.forms().len())
    }
}

impl Masker {
    fn forms(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True while no value is known: there is nothing to mask.
    pub fn is_empty(&self) -> bool {
        self.forms().is_empty()
    }

    /// From now on the value is masked: plain, in base64 at any offset, in a URL, inside a JSON text.
    pub fn add(&self, value: &str) {
        let mut forms = self.forms();
        if value.is_empty() || forms.contains(value) {
            return;
        }
        forms.insert(value.to_owned());
        forms.extend(encoded(value.as_bytes()));
        forms.insert(percent(value, "%20"));
        forms.insert(percent(value, "+"));
        let json = Value::from(value).to_string();
        forms.insert(json[1..json.len() - 1].to_owned());
    }

    /// The text without the values.
    pub fn mask<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut out = Cow::Borrowed(text);
        // Longest first: a form may be part of another, and half a mask would show the rest.
        let forms = self.forms();
        let mut found: Vec<&str> =
            forms.iter().map(String::as_str).filter(|form| text.contains(*form)).collect();
        found.sort_by_key(|form| std::cmp::Reverse(form.len()));
        for form in found {
            out = Cow::Owned(out.replace(form, MASK));
        }
        out
    }

    /// Masks every text of a value, keys included.
    pub fn mask_value(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::String(text) => {
                if let Cow::Owned(masked) = self.mask(text) {
                    *text = masked;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_value(item)),
            Value::Object(fields) => {
                let masked = std::mem::take(fields).into_iter().map(|(key, mut field)| {
                    self.mask_value(&mut field);
                    (self.mask(&key).into_owned(), field)
                });
                *fields = masked.collect();
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// What base64 makes of the value when it stands alone or after other bytes: at each of the three offsets, the
/// characters that depend on nothing but the value.
fn encoded(value: &[u8]) -> Vec<String> {
    let mut forms = vec![];
    for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        for offset in 0..3_usize {
            let bytes = [&[0; 2][..offset], value].concat();
            let text = engine.encode(&bytes);
            let start = (offset * 8).div_ceil(6);
            let end = bytes.len() * 8 / 6;
            if end.saturating_sub(start) >= PIECE_CHARS_MIN {
                forms.push(text[start..end].to_owned());
            }
        }
    }
    forms
}

/// The value as it stands in a URL.
fn percent(value: &str, space: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b' ' => out.push_str(space),
            b if b.is_ascii_alphanumeric() || b"-._~".contains(&b) => out.push(char::from(b)),
            b => out.extend(['%', hex(b >> 4), hex(b & 15)]),
        }
    }
    out
}

fn hex(digit: u8) -> char {
    char::from(b"0123456789ABCDEF"[usize::from(digit & 15)])
}

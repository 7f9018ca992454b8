//! Secrets (L11). A value is only ever in the clear between the moment a request is sent and the moment its answer is
//! in: before, there are placeholders, afterwards masks.
//!
//! Two placeholders stand in texts: `⟦secret:REFERENCE⟧` for an input of type secret, and `⟦sealed:…⟧` for a leaf of
//! an object that was read (`Secret.data`, `userData`, `networkData`), encrypted with a key of the state directory, so
//! that an undo can write it back. `⟦masked⟧` stands where a value was and cannot be had any more.

mod leaves;
mod mask;
mod seal;

pub use mask::Masker;
pub use seal::Sealer;

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::action::codes;
use crate::action::k8s::client::Cluster;
use crate::action::k8s::read;
use crate::action::k8s::read::Found;
use crate::action::request::ObjectRef;
use crate::action::request::Selector;
use crate::failure::Failure;

/// Stands where a secret value was.
pub const MASK: &str = "⟦masked⟧";
const OPEN: &str = "⟦";
const CLOSE: &str = "⟧";
const MASKED: &str = "masked";
const SECRET: &str = "secret:";
const SEALED: &str = "sealed:";

/// The longest secret: keys and certificates fit, a wrong file does not.
const SECRET_BYTES_MAX: u64 = 64 << 10;
/// The shortest secret. A shorter one cannot be masked without masking half of every text.
const SECRET_CHARS_MIN: usize = 4;
const TOO_SHORT: &str = "is shorter than four characters and cannot be masked";
/// The shortest sealed leaf that is masked by value as well: `Secret.data` also holds words such as `true`.
const LEAF_CHARS_MIN: usize = 8;

/// What an input of type secret is in expressions and templates: resolved when the request is sent, not before.
pub fn placeholder(reference: &str) -> String {
    format!("{OPEN}{SECRET}{reference}{CLOSE}")
}

/// The same with the keyed hash of the value in front: `⟦secret:HASH@REFERENCE⟧`. Whoever reads it can tell whether two
/// secrets are the same one.
pub fn placeholder_with_hash(reference: &str, hash: &str) -> String {
    placeholder(&format!("{hash}@{reference}"))
}

/// The reference behind a text that is a [`placeholder`] and nothing else.
pub fn reference_of(text: &str) -> Option<&str> {
    let reference = text.strip_prefix(OPEN)?.strip_prefix(SECRET)?.strip_suffix(CLOSE)?;
    (!reference.contains(CLOSE)).then(|| without_hash(reference))
}

/// A reference has a colon in its first word, a hash has none.
fn without_hash(reference: &str) -> &str {
    match reference.split_once('@') {
        Some((hash, rest)) if hash.bytes().all(|b| b.is_ascii_hexdigit()) => rest,
        _ => reference,
    }
}

/// True if a rendered value needs [`Secrets::resolve`]: some text of it stands for a secret.
pub fn holds_secret(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(OPEN),
        Value::Array(items) => items.iter().any(holds_secret),
        Value::Object(fields) => fields.values().any(holds_secret),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Resolves, masks and seals. Clones share what is to be masked.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    sealer: Option<Arc<Sealer>>,
    masker: Masker,
}

impl Secrets {
    /// With a key, leaves of objects are sealed; without, they are masked and cannot be written back.
    pub fn new(sealer: Option<Sealer>) -> Self {
        Self { sealer: sealer.map(Arc::new), masker: Masker::default() }
    }

    /// What masks texts.
    pub fn masker(&self) -> &Masker {
        &self.masker
    }

    /// A literal secret as a reference that may be journalled.
    ///
    /// # Errors
    /// Without a key, and for a secret that is too short to be masked.
    pub fn seal_literal(&self, literal: &str) -> Result<String, Failure> {
        let no_key = "a secret can only be given itself where a state directory has a key to seal it with: give env:NAME, file:PATH or k8s:NAMESPACE/NAME/KEY";
        let sealer = self.sealer.as_ref().ok_or_else(|| Failure::permanent(codes::NO_SEALING_KEY, no_key))?;
        if literal.chars().count() < SECRET_CHARS_MIN {
            return Err(Failure::permanent(codes::SECRET, format!("a literal secret {TOO_SHORT}")));
        }
        self.masker.add(literal);
        Ok(format!("{SEALED}{}", sealer.seal(literal)))
    }

    /// Hides the secret leaves of objects, anywhere in a value: sealed with a key, masked without.
    pub fn hide(&self, value: &mut Value) {
        leaves::replace(value, &|leaf| self.hidden(leaf));
    }

    /// Hides the values of `changes` (`[{path, before, after}]`) whose path leads to a secret leaf.
    pub fn hide_changes(&self, kind: &str, changes: &mut Value) {
        for change in changes.as_array_mut().into_iter().flatten() {
            let path = change.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
            for side in ["before", "after"] {
                if let Some(value) = change.get_mut(side) {
                    leaves::replace_at(kind, &path, value, &|leaf| self.hidden(leaf));
                    self.hide(value);
                }
            }
        }
    }

    /// What may be stored or shown of a value: leaves of objects hidden, resolved secrets masked. The one place
    /// through which everything goes before it is kept.
    pub fn protect(&self, value: &Arc<Value>) -> Arc<Value> {
        let has_no_leaves = match **value {
            Value::Null | Value::Bool(_) | Value::Number(_) => true,
            Value::String(_) => self.masker.is_empty(),
            Value::Array(_) | Value::Object(_) => false,
        };
        if has_no_leaves {
            return Arc::clone(value);
        }
        let mut safe = value.as_ref().clone();
        self.hide(&mut safe);
        self.masker.mask_value(&mut safe);
        if safe == **value { Arc::clone(value) } else { Arc::new(safe) }
    }

    /// What may leave this machine: leaves of objects and resolved secrets are masked, and what was sealed for an undo
    /// is masked too.
    pub fn mask_all(&self, value: &mut Value) {
        leaves::replace(value, &|_| MASK.to_owned());
        forget_sealed(value);
        self.masker.mask_value(value);
    }

    fn hidden(&self, leaf: &str) -> String {
        self.sealer
            .as_ref()
            .map_or_else(|| MASK.to_owned(), |s| format!("{OPEN}{SEALED}{}{CLOSE}", s.seal(leaf)))
    }

    /// A keyed hash of the secret behind a reference: two runs with the same secret have the same one.
    pub async fn fingerprint(
        &self,
        reference: &str,
        cluster: Option<&Cluster>,
    ) -> Result<Option<String>, Failure> {
        let Some(sealer) = &self.sealer else { return Ok(None) };
        Ok(Some(sealer.fingerprint(&self.fetch(reference, cluster).await?)))
    }

    /// Puts the values in the place of the placeholders. A mask is refused: sending it would destroy what it hides.
    pub async fn resolve(&self, value: &Value, cluster: Option<&Cluster>) -> Result<Value, Failure> {
        Ok(match value {
            Value::String(text) => Value::String(self.resolve_text(text, cluster).await?),
            Value::Array(items) => {
                let mut out = Vec::with_capacity(items.len());
                for item in items {
                    out.push(Box::pin(self.resolve(item, cluster)).await?);
                }
                Value::Array(out)
            }
            Value::Object(fields) => {
                let mut out = serde_json::Map::with_capacity(fields.len());
                for (key, field) in fields {
                    out.insert(key.clone(), Box::pin(self.resolve(field, cluster)).await?);
                }
                Value::Object(out)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        })
    }

    async fn resolve_text(&self, text: &str, cluster: Option<&Cluster>) -> Result<String, Failure> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((plain, tail)) = rest.split_once(OPEN) {
            out.push_str(plain);
            let Some((inside, tail)) = tail.split_once(CLOSE) else {
                out.push_str(OPEN);
                rest = tail;
                continue;
            };
            rest = tail;
            if let Some(reference) = inside.strip_prefix(SECRET) {
                out.push_str(&self.fetch(without_hash(reference), cluster).await?);
            } else if let Some(leaf) = inside.strip_prefix(SEALED) {
                let value = self.open(leaf)?;
                if value.chars().count() >= LEAF_CHARS_MIN {
                    self.masker.add(&value);
                }
                out.push_str(&value);
            } else if inside == MASKED {
                return Err(Failure::permanent(codes::MASKED, "the request contains a masked value"));
            } else {
                out.extend([OPEN, inside, CLOSE]);
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    /// What was sealed with the key of this directory.
    fn open(&self, sealed: &str) -> Result<Zeroizing<String>, Failure> {
        let value = self.sealer.as_ref().and_then(|sealer| sealer.open(sealed));
        value.ok_or_else(|| Failure::permanent(codes::SEALED, "a sealed value cannot be opened"))
    }

    /// The value behind a reference; from now on it is masked.
    async fn fetch(&self, reference: &str, cluster: Option<&Cluster>) -> Result<Zeroizing<String>, Failure> {
        let failed = |why: &str| Failure::permanent(codes::SECRET, format!("the secret `{reference}` {why}"));
        let value = match reference.split_once(':') {
            Some(("env", name)) => std::env::var(name).map_err(|_| {
                failed("is not there: the variable is not set in the environment of this process")
            })?,
            Some(("file", path)) => {
                file(path).await.map_err(|error| failed(&format!("cannot be read: {error}")))?
            }
            Some(("k8s", place)) => {
                let cluster = cluster.ok_or_else(|| failed("cannot be read: no cluster is configured"))?;
                key_of_secret(cluster, place)
                    .await?
                    .ok_or_else(|| failed("is not there: the cluster has no such Secret or key"))?
            }
            Some(("sealed", text)) => self.open(text)?.to_string(),
            _ => return Err(failed("is not of the form env:NAME, file:PATH or k8s:NAMESPACE/NAME/KEY")),
        };
        let value = Zeroizing::new(value);
        if value.chars().count() < SECRET_CHARS_MIN {
            return Err(failed(TOO_SHORT));
        }
        self.masker.add(&value);
        Ok(value)
    }
}

/// Masks what was sealed with the key of this directory, anywhere in a value.
fn forget_sealed(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with(SEALED) => MASK.clone_into(text),
        Value::String(text) if text.contains(SEALED) => {
            let mut out = String::new();
            let mut rest = text.as_str();
            while let Some((plain, tail)) = rest.split_once(OPEN) {
                let (inside, tail) = tail.split_once(CLOSE).unwrap_or((tail, ""));
                let shown = if inside.contains(SEALED) { MASKED } else { inside };
                out.extend([plain, OPEN, shown, CLOSE]);
                rest = tail;
            }
            out.push_str(rest);
            *text = out;
        }
        Value::Array(items) => items.iter_mut().for_each(forget_sealed),
        Value::Object(fields) => fields.values_mut().for_each(forget_sealed),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

async fn file(path: &str) -> std::io::Result<String> {
    if tokio::fs::metadata(path).await?.len() > SECRET_BYTES_MAX {
        return Err(std::io::Error::new(
            std::io::ErrorKind::FileTooLarge,
            "the file is too large for a secret",
        ));
    }
    let text = Zeroizing::new(tokio::fs::read_to_string(path).await?);
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// The decoded value at `namespace/name/key`.
async fn key_of_secret(cluster: &Cluster, place: &str) -> Result<Option<String>, Failure> {
    let mut parts = place.split('/');
    let (Some(namespace), Some(name), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
        return Ok(None);
    };
    let target = ObjectRef {
        api: "v1".into(),
        kind: "Secret".into(),
        namespace: Some(namespace.into()),
        all_namespaces: false,
        select: Selector::Name(name.into()),
        optional: false,
    };
    let Found::One(Some(secret)) = read::read(cluster, &target).await? else { return Ok(None) };
    let encoded = secret.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
    Ok(encoded.and_then(|text| String::from_utf8(BASE64_STANDARD.decode(text).ok()?).ok()))
}

#[cfg(test)]
mod tests;

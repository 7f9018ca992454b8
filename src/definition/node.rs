//! A document as a tree that knows where each part stands in its file: from TOML, or from the JSON that a run pins.

use std::ops::Range;
use std::sync::Arc;

use serde_json::Map;
use serde_json::Value;
use toml::Spanned;
use toml::de::DeTable;
use toml::de::DeValue;

/// The deepest nesting of a document: bounds the stack of whoever walks it.
pub const DEPTH_MAX: usize = 64;

/// Part of a file: its number in [`Sources`] and bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: usize,
    /// Bytes of it.
    pub range: Range<usize>,
}

/// The files that were read, by number.
#[derive(Debug, Default, Clone)]
pub struct Sources {
    files: Vec<Arc<Source>>,
}

/// A file that was read.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// Its path as shown to people.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl Sources {
    /// Adds a file and gives its number.
    pub fn add(&mut self, path: impl Into<String>, text: impl Into<String>) -> usize {
        self.files.push(Arc::new(Source { path: path.into(), text: text.into() }));
        self.files.len() - 1
    }

    /// How many files there are.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// True if nothing was read.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The file with that number.
    pub fn get(&self, file: usize) -> Option<&Arc<Source>> {
        self.files.get(file)
    }
}

/// A value and its place.
#[derive(Debug, Clone)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// Where it stands.
    pub place: Place,
}

/// What a [`Node`] is.
#[derive(Debug, Clone)]
pub enum Kind {
    /// Only in YAML and JSON.
    Null,
    /// true or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A text.
    Text(Text),
    /// A list.
    List(Vec<Node>),
    /// Named values in the order of the file.
    Table(Vec<Entry>),
}

/// A text, and where its first character stands if the file holds it without escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The text.
    pub value: String,
    /// Byte of the file where it begins.
    pub start: Option<usize>,
}

/// A named value.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The name.
    pub key: String,
    /// Where the name stands.
    pub key_place: Place,
    /// The value.
    pub node: Node,
}

/// Why a text is no document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// What is wrong.
    pub message: String,
    /// Where.
    pub place: Place,
}

impl Node {
    /// Reads TOML. The second value lists every error; the tree holds what could be read in spite of them.
    pub fn from_toml(sources: &Sources, file: usize) -> (Self, Vec<SyntaxError>) {
        let text = sources.get(file).map_or("", |source| source.text.as_str());
        let (table, errors) = DeTable::parse_recoverable(text);
        let reader = TomlReader { text, file };
        let range = table.span();
        let kind = reader.table(table.get_ref(), 0);
        let place = |range: Range<usize>| Place { file, range };
        let errors = errors.into_iter().map(|error| SyntaxError {
            message: error.message().to_owned(),
            place: place(error.span().unwrap_or(0..0)),
        });
        (Self { kind, place: place(range) }, errors.collect())
    }

    /// A tree without real places: each node stands at `place`.
    pub fn from_json(value: &Value, place: &Place) -> Self {
        let kind = match value {
            Value::Null => Kind::Null,
            Value::Bool(b) => Kind::Bool(*b),
            Value::Number(n) => {
                n.as_i64().map_or_else(|| Kind::Float(n.as_f64().unwrap_or(f64::NAN)), Kind::Int)
            }
            Value::String(s) => Kind::Text(Text { value: s.clone(), start: None }),
            Value::Array(items) => {
                Kind::List(items.iter().map(|item| Self::from_json(item, place)).collect())
            }
            Value::Object(entries) => Kind::Table(
                entries
                    .iter()
                    .map(|(key, value)| Entry {
                        key: key.clone(),
                        key_place: place.clone(),
                        node: Self::from_json(value, place),
                    })
                    .collect(),
            ),
        };
        Self { kind, place: place.clone() }
    }

    /// The value without places.
    pub fn to_json(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(b) => Value::Bool(*b),
            Kind::Int(i) => Value::from(*i),
            Kind::Float(f) => Value::from(*f),
            Kind::Text(text) => Value::String(text.value.clone()),
            Kind::List(items) => items.iter().map(Self::to_json).collect(),
            Kind::Table(entries) => Value::Object(
                entries.iter().map(|e| (e.key.clone(), e.node.to_json())).collect::<Map<_, _>>(),
            ),
        }
    }

    /// What it is, for people.
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Null => "null",
            Kind::Bool(_) => "a bool",
            Kind::Int(_) => "an integer",
            Kind::Float(_) => "a float",
            Kind::Text(_) => "a string",
            Kind::List(_) => "a list",
            Kind::Table(_) => "a table",
        }
    }

    /// The value called `key` of a table.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.kind {
            Kind::Table(entries) => entries.iter().find(|e| e.key == key).map(|e| &e.node),
            _ => None,
        }
    }

    /// The entries of a table; none for anything else.
    pub fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Table(entries) => entries,
            _ => &[],
        }
    }
}

impl Text {
    /// The place of some bytes of this text, which stands at `whole`.
    pub fn part(&self, whole: &Place, part: Range<usize>) -> Place {
        match self.start {
            Some(start) => Place { file: whole.file, range: start + part.start..start + part.end },
            None => whole.clone(),
        }
    }
}

struct TomlReader<'t> {
    text: &'t str,
    file: usize,
}

impl TomlReader<'_> {
    fn table(&self, table: &DeTable<'_>, depth: usize) -> Kind {
        let mut entries: Vec<_> = table
            .iter()
            .map(|(key, value)| Entry {
                key: key.get_ref().to_string(),
                key_place: self.place(key.span()),
                node: self.node(value, depth + 1),
            })
            .collect();
        entries.sort_by_key(|entry| entry.key_place.range.start);
        Kind::Table(entries)
    }

    fn node(&self, value: &Spanned<DeValue<'_>>, depth: usize) -> Node {
        let place = self.place(value.span());
        let kind = match value.get_ref() {
            _ if depth > DEPTH_MAX => Kind::Null,
            DeValue::Boolean(b) => Kind::Bool(*b),
            DeValue::Integer(i) => {
                i64::from_str_radix(i.as_str(), i.radix()).map_or(Kind::Float(f64::NAN), Kind::Int)
            }
            DeValue::Float(f) => Kind::Float(f.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::String(s) => Kind::Text(self.string(s, &place)),
            DeValue::Datetime(at) => Kind::Text(Text { value: at.to_string(), start: None }),
            DeValue::Array(items) => {
                Kind::List(items.iter().map(|item| self.node(item, depth + 1)).collect())
            }
            DeValue::Table(table) => self.table(table, depth),
        };
        Node { kind, place }
    }

    fn string(&self, value: &str, place: &Place) -> Text {
        let raw = self.text.get(place.range.clone()).unwrap_or_default();
        let start = raw.find(value).map(|at| place.range.start + at);
        Text { value: value.to_owned(), start }
    }

    fn place(&self, range: Range<usize>) -> Place {
        Place { file: self.file, range }
    }
}

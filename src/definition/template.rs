//! Text and values with `{{ }}` in them. A text that is exactly one `{{ expr }}` keeps the type of its value.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::Map;
use serde_json::Value;

use crate::definition::expr::EvalError;
use crate::definition::expr::EvalErrorKind;
use crate::definition::expr::Expr;
use crate::definition::expr::ExprError;
use crate::definition::expr::ExprErrorKind;
use crate::definition::expr::Scope;

/// The longest text that a template renders to: that of a Kubernetes object.
const TEXT_MAX: usize = 3 << 19;

/// A value in which texts may contain `{{ expr }}`.
#[derive(Debug, Clone, PartialEq)]
pub enum Template {
    /// No expression inside.
    Plain(Value),
    /// Exactly one `{{ expr }}`: any type.
    Expr(Expr),
    /// Text with expressions in between.
    Text(Vec<Piece>),
    /// A list with expressions inside.
    List(Vec<Template>),
    /// A table with expressions inside its values.
    Map(Vec<(String, Template)>),
}

/// Part of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    /// As written.
    Literal(String),
    /// The text of a value.
    Expr(Expr),
}

/// A mistake in a text with `{{ }}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateError {
    /// What is wrong; its place is one in the text of the template.
    pub error: ExprError,
    /// True if it is about an expression, false if about the braces.
    pub in_expression: bool,
}

impl Template {
    /// Reads the texts in `value`.
    ///
    /// # Errors
    /// The first mistake in one of them. The loader, which knows places, uses [`Template::parse_text`] instead.
    pub fn parse(value: &Value) -> Result<Self, ExprError> {
        Ok(match value {
            Value::String(text) => {
                let (template, errors) = Self::parse_text(text);
                match errors.into_iter().next() {
                    None => template,
                    Some(first) => return Err(first.error),
                }
            }
            Value::Array(items) => Self::list(items.iter().map(Self::parse).collect::<Result<_, _>>()?),
            Value::Object(entries) => {
                let parsed = entries.iter().map(|(key, value)| Ok((key.clone(), Self::parse(value)?)));
                Self::map(parsed.collect::<Result<_, _>>()?)
            }
            plain => Self::Plain(plain.clone()),
        })
    }

    /// Reads one text; with mistakes the template stands for the rest.
    pub fn parse_text(text: &str) -> (Self, Vec<TemplateError>) {
        Self::parse_text_with(text, &mut |_, _| {})
    }

    /// As [`Template::parse_text`]; `each` gets every expression with the byte at which it begins.
    pub fn parse_text_with(text: &str, each: &mut impl FnMut(&Expr, usize)) -> (Self, Vec<TemplateError>) {
        let mut errors = vec![];
        let mut pieces = vec![];
        for part in parts(text) {
            match part {
                Part::Literal(range) => pieces.push(Piece::Literal(text[range].to_owned())),
                Part::Expr(range) => match Expr::compile_all(text[range.clone()].trim()) {
                    Ok(expr) => {
                        let inside = &text[range.clone()];
                        each(&expr, range.start + inside.len() - inside.trim_start().len());
                        pieces.push(Piece::Expr(expr));
                    }
                    Err(found) => {
                        errors.extend(found.into_iter().map(|error| moved(text, range.clone(), error)));
                    }
                },
                Part::Open(start) => errors.push(TemplateError {
                    error: ExprError {
                        kind: ExprErrorKind::Syntax,
                        message: "`{{` without `}}`".to_owned(),
                        at: start..start + 2,
                        hint: Some("a literal `{{` is written `{{ \"{{\" }}`".to_owned()),
                    },
                    in_expression: false,
                }),
            }
        }
        let template = match pieces.as_slice() {
            [] => Self::Plain(Value::String(String::new())),
            [Piece::Literal(text)] => Self::Plain(Value::String(text.clone())),
            [Piece::Expr(expr)] => Self::Expr(expr.clone()),
            _ => Self::Text(pieces),
        };
        (template, errors)
    }

    /// A list; plain if all its elements are.
    pub fn list(items: Vec<Self>) -> Self {
        if items.iter().all(|item| matches!(item, Self::Plain(_))) {
            return Self::Plain(items.into_iter().filter_map(Self::into_plain).collect());
        }
        Self::List(items)
    }

    /// A table; plain if all its values are.
    pub fn map(entries: Vec<(String, Self)>) -> Self {
        if entries.iter().all(|(_, value)| matches!(value, Self::Plain(_))) {
            let plain = entries.into_iter().filter_map(|(key, value)| Some((key, value.into_plain()?)));
            return Self::Plain(Value::Object(plain.collect::<Map<_, _>>()));
        }
        Self::Map(entries)
    }

    fn into_plain(self) -> Option<Value> {
        match self {
            Self::Plain(value) => Some(value),
            _ => None,
        }
    }

    /// The value if there is no expression inside.
    pub const fn plain(&self) -> Option<&Value> {
        match self {
            Self::Plain(value) => Some(value),
            _ => None,
        }
    }

    /// The value in `scope`; none if the whole is one absent optional. An absent optional inside drops its key or its
    /// element; null stays null.
    ///
    /// # Errors
    /// Those of the expressions.
    pub fn render(&self, scope: &Scope) -> Result<Option<Value>, EvalError> {
        Ok(Some(match self {
            Self::Plain(value) => value.clone(),
            Self::Expr(expr) => return expr.eval_optional(scope),
            Self::Text(pieces) => Value::String(concatenate(pieces, scope)?),
            Self::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for item in items {
                    list.extend(item.render(scope)?);
                }
                Value::Array(list)
            }
            Self::Map(entries) => {
                let mut map = Map::new();
                for (key, template) in entries {
                    if let Some(value) = template.render(scope)? {
                        map.insert(key.clone(), value);
                    }
                }
                Value::Object(map)
            }
        }))
    }

    /// The value as text: null and an absent optional are empty, numbers and bools as written, others JSON.
    ///
    /// # Errors
    /// Those of the expressions.
    pub fn render_text(&self, scope: &Scope) -> Result<String, EvalError> {
        Ok(self.render(scope)?.as_ref().map(text_of).unwrap_or_default())
    }

    /// The text as written, for people; JSON where it is not a text.
    pub fn source(&self) -> String {
        match self.as_written() {
            Value::String(text) => text,
            other => other.to_string(),
        }
    }

    fn as_written(&self) -> Value {
        let braces = |expr: &Expr| format!("{{{{ {} }}}}", expr.source());
        match self {
            Self::Plain(value) => value.clone(),
            Self::Expr(expr) => Value::from(braces(expr)),
            Self::Text(pieces) => {
                let piece = |piece: &Piece| match piece {
                    Piece::Literal(text) => text.clone(),
                    Piece::Expr(expr) => braces(expr),
                };
                Value::from(pieces.iter().map(piece).collect::<String>())
            }
            Self::List(items) => items.iter().map(Self::as_written).collect(),
            Self::Map(entries) => {
                Value::Object(entries.iter().map(|(key, value)| (key.clone(), value.as_written())).collect())
            }
        }
    }

    /// The template under these keys.
    pub fn at(&self, path: &[&str]) -> Option<Self> {
        let Some((first, rest)) = path.split_first() else { return Some(self.clone()) };
        match self {
            Self::Map(entries) => entries.iter().find(|(key, _)| key == first)?.1.at(rest),
            Self::Plain(value) => Self::Plain(value.get(first)?.clone()).at(rest),
            _ => None,
        }
    }

    /// The variables that the expressions name.
    pub fn references(&self) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        self.each_expr(&mut |expr| names.extend(expr.references().iter().map(String::as_str)));
        names
    }

    /// Calls `visit` with each expression, in order.
    pub fn each_expr<'t>(&'t self, visit: &mut impl FnMut(&'t Expr)) {
        match self {
            Self::Plain(_) => {}
            Self::Expr(expr) => visit(expr),
            Self::Text(pieces) => {
                for piece in pieces {
                    if let Piece::Expr(expr) = piece {
                        visit(expr);
                    }
                }
            }
            Self::List(items) => items.iter().for_each(|item| item.each_expr(visit)),
            Self::Map(entries) => entries.iter().for_each(|(_, value)| value.each_expr(visit)),
        }
    }
}

/// A value inside a text.
pub fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            // 3.0 is written 3: durations and quantities read whole numbers.
            Some(float) if number.is_f64() => float.to_string(),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

fn concatenate(pieces: &[Piece], scope: &Scope) -> Result<String, EvalError> {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Literal(literal) => text.push_str(literal),
            Piece::Expr(expr) => {
                text.push_str(&expr.eval_optional(scope)?.as_ref().map(text_of).unwrap_or_default());
            }
        }
        if text.len() > TEXT_MAX {
            return Err(EvalError {
                kind: EvalErrorKind::Limit,
                message: format!("the text grows beyond {TEXT_MAX} bytes"),
                source_text: "{{ }}".to_owned(),
                at: None,
            });
        }
    }
    Ok(text)
}

/// The error with its place moved from the trimmed expression to the text around.
fn moved(text: &str, range: Range<usize>, mut error: ExprError) -> TemplateError {
    let inside = &text[range.clone()];
    let start = range.start + inside.len() - inside.trim_start().len();
    error.at = start + error.at.start..start + error.at.end;
    if inside.trim().is_empty() {
        error.at = range;
    }
    TemplateError { error, in_expression: true }
}

/// Part of a template's text, as bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Outside of braces.
    Literal(Range<usize>),
    /// Between `{{` and `}}`.
    Expr(Range<usize>),
    /// A `{{` that is not closed.
    Open(usize),
}

/// Splits a text at `{{` and `}}`. Inside, CEL's own braces and texts are skipped: `{{ {"a": {"b": "}}"}} }}` is one.
pub(super) fn parts(text: &str) -> Vec<Part> {
    let mut parts = vec![];
    let mut at = 0;
    while let Some(open) = text[at..].find("{{").map(|found| at + found) {
        if open > at {
            parts.push(Part::Literal(at..open));
        }
        let Some(close) = closing(text, open + 2) else {
            parts.push(Part::Open(open));
            return parts;
        };
        parts.push(Part::Expr(open + 2..close));
        at = close + 2;
    }
    if at < text.len() {
        parts.push(Part::Literal(at..text.len()));
    }
    parts
}

/// Where the `}}` for an expression that begins at `start` stands.
fn closing(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut depth = 0_usize;
    let mut at = start;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' | b'\'' => at = after_string(bytes, start, at),
            b'{' => {
                depth += 1;
                at += 1;
            }
            b'}' if depth == 0 => return bytes[at..].starts_with(b"}}").then_some(at),
            b'}' => {
                depth -= 1;
                at += 1;
            }
            _ => at += 1,
        }
    }
    None
}

/// The byte behind the CEL string that begins at `open`; its end if it is not closed.
fn after_string(bytes: &[u8], start: usize, open: usize) -> usize {
    let quote = bytes[open];
    let triple = [quote; 3];
    let (mut at, end): (usize, &[u8]) =
        if bytes[open..].starts_with(&triple) { (open + 3, &triple) } else { (open + 1, &triple[..1]) };
    // `r'…'` knows no escapes; but `bar'` is not a raw string.
    let letter = |at: usize| at >= start && bytes.get(at).is_some_and(u8::is_ascii_alphanumeric);
    let raw = open > start && matches!(bytes[open - 1], b'r' | b'R') && !(open >= 2 && letter(open - 2));
    while at < bytes.len() {
        if bytes[at..].starts_with(end) {
            return at + end.len();
        }
        at += if bytes[at] == b'\\' && !raw { 2 } else { 1 };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn scope() -> Scope {
        let mut scope = Scope::default();
        scope.bind("x", json!({"n": 3, "f": 2.0, "s": "a\"}}b", "list": [1], "none": null}));
        scope
    }

    fn render(value: &Value) -> Option<Value> {
        Template::parse(value).expect("parses").render(&scope()).expect("renders")
    }

    #[test]
    fn a_single_expression_keeps_its_type_and_others_become_text() {
        for (template, value) in [
            (json!("{{ x.n }}"), json!(3)),
            (json!("{{x.list}}"), json!([1])),
            (json!("n={{ x.n }}, f={{ x.f }}, none={{ x.none }}."), json!("n=3, f=2, none=.")),
            (json!("{{ null }}"), json!(null)),
            (json!("{{ {'a': {'b': '}}'}} }}"), json!({"a": {"b": "}}"}})),
            (json!("{{ '{{' }} {{ r'\\' }}"), json!("{{ \\")),
            (json!("plain }} text"), json!("plain }} text")),
            (json!({"a": "{{ x.?gone }}", "b": "{{ x.none }}", "c": 1}), json!({"b": null, "c": 1})),
            (json!(["{{ x.?gone }}", "{{ x.n }}", true]), json!([3, true])),
        ] {
            assert_eq!(render(&template), Some(value), "{template}");
        }
        assert_eq!(render(&json!("{{ x.?gone }}")), None);
    }

    #[test]
    fn mistakes_have_their_place_in_the_text() {
        for (text, at, in_expression) in [
            ("a {{ x", 2..4, false),
            ("a {{ x. }}", 7..7, true),
            ("{{ }}", 2..3, true),
            ("é {{ sizes(x) }}", 6..11, true),
        ] {
            let (_, errors) = Template::parse_text(text);
            assert_eq!(errors.len(), 1, "{text}");
            assert_eq!((errors[0].error.at.clone(), errors[0].in_expression), (at, in_expression), "{text}");
        }
    }

    #[test]
    fn a_template_gives_back_its_text_and_its_parts() {
        let template =
            Template::parse(&json!({"metadata": {"name": "vm-{{ x.n }}", "labels": {}}})).expect("parses");
        assert_eq!(template.at(&["metadata", "name"]).map(|t| t.source()), Some("vm-{{ x.n }}".to_owned()));
        assert_eq!(template.references().into_iter().collect::<Vec<_>>(), ["x"]);
        assert_eq!(template.at(&["spec"]), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_reading_or_rendering_panic(text in ".{0,60}") {
            let (template, errors) = Template::parse_text(&text);
            for found in &errors {
                prop_assert!(text.get(found.error.at.clone()).is_some(), "{:?}", found.error.at);
            }
            drop(template.render(&scope()));
        }

        #[test]
        fn no_source_makes_compiling_or_evaluating_panic(source in "[a-zx.?\\[\\](){}'\"+*/<>=!&|:, 0-9\\\\é-]{0,40}") {
            match Expr::compile(&source) {
                Ok(expr) => drop(expr.eval(&scope())),
                Err(error) => prop_assert!(source.get(error.at.clone()).is_some(), "{source} {error:?}"),
            }
        }

        #[test]
        fn whatever_lies_between_braces_ends_where_it_should(inside in "[a-z ]{1,20}", before in "[^{]{0,10}") {
            let text = format!("{before}{{{{{inside}}}}}");
            let at = before.len() + 2;
            let parts = parts(&text);
            prop_assert_eq!(parts.last(), Some(&Part::Expr(at..at + inside.len())));
        }
    }
}

//! The conditions that a condition is made of: what `&&` and `||` join, as far as that can be seen in the text.

use crate::definition::expr::Expr;

impl Expr {
    /// What `&&` and `||` join at the outside, each as an expression of its own; only itself where nothing is joined.
    pub fn parts(&self) -> Vec<Self> {
        let parts = split(self.source()).into_iter().map(|part| Self::compile(part.trim()));
        // What does not stand alone was not split at the right place.
        parts.collect::<Result<_, _>>().unwrap_or_else(|_| vec![self.clone()])
    }
}

/// The pieces between the outer `&&` and `||`. A conditional binds less than both: it is left whole.
fn split(source: &str) -> Vec<&str> {
    let bytes = source.as_bytes();
    let mut parts = vec![];
    let (mut depth, mut start, mut at) = (0_usize, 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'"' | b'\'') => at = after_text(bytes, at, quote),
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            // `.?field` and `[?key]` ask for something optional.
            b'?' if depth == 0 && at > 0 && bytes[at - 1] != b'.' => return vec![source],
            first @ (b'&' | b'|') if depth == 0 && bytes.get(at + 1) == Some(&first) => {
                parts.push(&source[start..at]);
                at += 1;
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    parts.push(&source[start..]);
    parts
}

/// The last byte of the text that begins at `at`.
fn after_text(bytes: &[u8], at: usize, quote: u8) -> usize {
    let mut end = at + 1;
    while end < bytes.len() && bytes[end] != quote {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_falls_apart_at_its_outer_joints_only() {
        for (source, parts) in [
            ("a == null", vec!["a == null"]),
            ("a == null && b.c || d", vec!["a == null", "b.c", "d"]),
            ("(a || b) && !(c && d)", vec!["(a || b)", "!(c && d)"]),
            ("a.exists(x, x.p && x.q) && b", vec!["a.exists(x, x.p && x.q)", "b"]),
            ("a == 'x && y' && b == \"\\\" || \"", vec!["a == 'x && y'", "b == \"\\\" || \""]),
            ("a.?b.orValue(true) && c[?'k'].hasValue()", vec!["a.?b.orValue(true)", "c[?'k'].hasValue()"]),
            ("a && b ? c : d", vec!["a && b ? c : d"]),
            ("(a ? b : c) && d", vec!["(a ? b : c)", "d"]),
        ] {
            let expr = Expr::compile(source).expect("an expression");
            let found: Vec<String> = expr.parts().iter().map(|part| part.source().to_owned()).collect();
            assert_eq!(found, parts, "{source}");
        }
    }
}

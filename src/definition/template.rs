//! Text and values with `{{ }}` in them.

/// A TOML value in which texts may contain `{{ expr }}`.
#[derive(Debug, Clone)]
pub enum Template {
    /// No expression inside.
    Plain(serde_json::Value),
}

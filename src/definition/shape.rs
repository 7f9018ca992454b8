//! What a key may hold. Reading, checking, the JSON Schema and the reference are all made from tables of [`Key`]s.

/// What a value looks like.
#[derive(Debug, Clone, Copy)]
pub enum Shape {
    /// A text as it stands.
    Text,
    /// A text with `{{ }}`.
    Template,
    /// Any value with `{{ }}` in its texts.
    Value,
    /// CEL.
    Expr,
    /// CEL, or a list of it.
    Exprs,
    /// A duration, or a text with `{{ }}` that gives one.
    Duration,
    /// A regular expression; it must match the whole text.
    Regex,
    /// true or false.
    Bool,
    /// An integer from the first to the second.
    Int(i64, i64),
    /// A number from the first to the second.
    Number(f64, f64),
    /// An integer from the first to the second, or a text with `{{ }}` that gives one.
    IntValue(i64, i64),
    /// A count, or `all`.
    CountOrAll,
    /// One of these texts.
    Choice(&'static [&'static str]),
    /// The name of a step.
    StepName,
    /// The name of a step, or a list of them.
    StepNames,
    /// Any JSON-like value without `{{ }}`.
    Json,
    /// A list of such values.
    List(&'static Shape),
    /// A table with free names.
    Map(&'static Shape),
    /// A table with these keys.
    Table(&'static [Key]),
    /// Objects of the cluster: a name from `[objects]`, or a table.
    Target,
    /// A step, or an entry of a rollback list.
    Step {
        /// Keys that rollback entries do not take, or do.
        undo: bool,
    },
    /// Steps before this one: names, or tables with `step` and `on`.
    After,
    /// A Kubernetes object: a table, or the name of a YAML file beside the workflow.
    Manifest,
    /// The name of a YAML file beside the workflow.
    File,
}

/// A key of a table.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// As written.
    pub name: &'static str,
    /// What it holds.
    pub shape: Shape,
    /// A table without it is incomplete.
    pub required: bool,
    /// What it does.
    pub en: &'static str,
    /// The same in Chinese.
    pub zh: &'static str,
}

/// A key that may be left out.
pub(super) const fn key(name: &'static str, shape: Shape, en: &'static str, zh: &'static str) -> Key {
    Key { name, shape, required: false, en, zh }
}

/// A key that must be there.
pub(super) const fn must(name: &'static str, shape: Shape, en: &'static str, zh: &'static str) -> Key {
    Key { name, shape, required: true, en, zh }
}

//! CEL: compile, check, evaluate. Whatever the source and the data, evaluation ends soon and never takes the process
//! down: the source is short, the stack big, the iterations counted.

mod convert;
mod environment;
mod functions;
mod parts;
mod resolve;
mod scope;
mod syntax;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use serde_json::Value;

pub use environment::FUNCTIONS;
pub use environment::FunctionDoc;
pub use scope::Naming;
pub use scope::Scope;
pub use scope::object_name;
pub use syntax::Member;
pub use syntax::Use;

use environment::ENVIRONMENT;

/// The longest source in bytes: a condition that needs more belongs into a `let`. It also bounds the depth of the tree.
pub const SOURCE_MAX: usize = 1024;
/// Stack for parsing and for evaluating deep trees; the parser's generated code takes hundreds of KiB in a debug build.
const STACK: usize = 32 << 20;
/// A compile wants this much stack left.
const COMPILE_STACK: usize = 16 << 20;
/// Evaluation of one level of the tree takes at most this much stack, measured generously in a debug build.
const STACK_PER_LEVEL: usize = 16 << 10;

/// Parsing is by far the slowest part of reading a workflow, and workflows repeat themselves and each other.
static COMPILED: Mutex<BTreeMap<Box<str>, Expr>> = Mutex::new(BTreeMap::new());
/// Most expressions kept; when it is full, all are forgotten.
const COMPILED_MAX: usize = 4096;

/// A compiled expression. Cheap to clone.
#[derive(Clone)]
pub struct Expr {
    compiled: Arc<Compiled>,
}

struct Compiled {
    source: Box<str>,
    tree: cel::IdedExpr,
    references: BTreeSet<String>,
    facts: syntax::Facts,
    stack: usize,
}

/// A source that is no expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExprError {
    /// What sort of error.
    pub kind: ExprErrorKind,
    /// What is wrong.
    pub message: String,
    /// Where, as bytes of the source.
    pub at: Range<usize>,
    /// What may help.
    pub hint: Option<String>,
}

/// Sorts of [`ExprError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExprErrorKind {
    /// It cannot be parsed.
    Syntax,
    /// A function that does not exist, or not with such arguments.
    Function,
    /// It is too long or too deep.
    Limit,
}

/// An expression that has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} in `{source_text}`")]
pub struct EvalError {
    /// What sort of error.
    pub kind: EvalErrorKind,
    /// What is wrong, for instance "no such key: status".
    pub message: String,
    /// The expression, or the `let` in it, that failed.
    pub source_text: String,
    /// Where in that text, as far as it can be told.
    pub at: Option<Range<usize>>,
}

/// Sorts of [`EvalError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvalErrorKind {
    /// A field, key or list element that is not there.
    NoSuchKey,
    /// A variable that the scope does not hold.
    UnknownVariable,
    /// A value of a type that does not fit.
    Type,
    /// A limit of time or size was exceeded.
    Limit,
    /// Anything else: a division by zero, a text that cannot be read, …
    Other,
}

impl Expr {
    /// Compiles `source`.
    ///
    /// # Errors
    /// The first mistake: of syntax, an unknown function, or a source longer than [`SOURCE_MAX`].
    pub fn compile(source: &str) -> Result<Self, ExprError> {
        Self::compile_all(source).map_err(|mut errors| errors.swap_remove(0))
    }

    /// As [`Expr::compile`].
    ///
    /// # Errors
    /// Every mistake; there is at least one.
    pub fn compile_all(source: &str) -> Result<Self, Vec<ExprError>> {
        let error = |kind, message, hint: Option<&str>| {
            vec![ExprError { kind, message, at: 0..source.len(), hint: hint.map(str::to_owned) }]
        };
        if source.trim().is_empty() {
            return Err(error(ExprErrorKind::Syntax, "the expression is empty".to_owned(), None));
        }
        if source.len() > SOURCE_MAX {
            let message =
                format!("the expression has {} bytes, at most {SOURCE_MAX} are allowed", source.len());
            return Err(error(ExprErrorKind::Limit, message, Some("name parts of it with `let`")));
        }
        if let Some(known) = lock(&COMPILED).get(source) {
            return Ok(known.clone());
        }
        let expr = stacker::maybe_grow(COMPILE_STACK, STACK, || Self::compile_here(source))?;
        let mut compiled = lock(&COMPILED);
        if compiled.len() >= COMPILED_MAX {
            compiled.clear();
        }
        compiled.insert(source.into(), expr.clone());
        Ok(expr)
    }

    fn compile_here(source: &str) -> Result<Self, Vec<ExprError>> {
        let (mut tree, info) = ENVIRONMENT
            .parser()
            .parse_with_source_info(source)
            .map_err(|errors| vec![syntax::parse_error(source, &errors)])?;
        let facts = syntax::Facts::of(&tree, &info);
        let errors = facts.wrong_calls();
        if !errors.is_empty() {
            return Err(errors);
        }
        syntax::limit(&mut tree);
        let references = facts.uses.iter().map(|used| used.name.clone()).collect();
        let stack = STACK_PER_LEVEL * (facts.depth + 8);
        Ok(Self { compiled: Arc::new(Compiled { source: source.into(), tree, references, facts, stack }) })
    }

    /// The text as written.
    pub fn source(&self) -> &str {
        &self.compiled.source
    }

    /// The variables that it names; those that a comprehension binds are not among them.
    pub fn references(&self) -> &BTreeSet<String> {
        &self.compiled.references
    }

    /// Each place where a variable is named, with the constant path behind it, in the order of the source.
    pub fn uses(&self) -> &[Use] {
        &self.compiled.facts.uses
    }

    /// The value if it is a constant: it names no variable and no function whose answer varies.
    pub fn constant(&self) -> Option<Value> {
        let facts = &self.compiled.facts;
        if facts.uses.is_empty() && !facts.varies { self.eval(&Scope::default()).ok() } else { None }
    }

    /// True if it calls the function of ours with that name.
    pub fn calls(&self, function: &str) -> bool {
        self.compiled.facts.hidden.iter().any(|hidden| hidden == function)
    }

    /// The value in `scope`. Timestamps and durations become text, an empty optional is an error.
    ///
    /// # Errors
    /// See [`EvalErrorKind`].
    pub fn eval(&self, scope: &Scope) -> Result<Value, EvalError> {
        self.eval_optional(scope)?.ok_or_else(|| {
            self.error(EvalErrorKind::NoSuchKey, "no value: the optional is empty, add `.orValue(…)`")
        })
    }

    /// The value in `scope`; none for an empty optional.
    ///
    /// # Errors
    /// See [`EvalErrorKind`].
    pub fn eval_optional(&self, scope: &Scope) -> Result<Option<Value>, EvalError> {
        if let Some(value) = self.found(scope) {
            return Ok(Some(value));
        }
        stacker::maybe_grow(self.compiled.stack, STACK, || resolve::evaluate(self, scope))
    }

    /// The value of a plain path such as `inputs.vm`, the most frequent expression by far, if it is simple enough to be
    /// the same in CEL as it is here. Everything else, mistakes too, is left to CEL.
    fn found(&self, scope: &Scope) -> Option<Value> {
        let [used] = self.uses() else { return None };
        let mut value = scope.values.get(&used.name).filter(|_| self.compiled.facts.is_path)?.as_ref();
        for member in &used.path {
            value = value.as_object()?.get(&member.name)?;
        }
        let simple = value.is_string() || value.is_boolean() || value.is_null() || value.is_i64();
        simple.then(|| value.clone())
    }

    /// The value of a condition.
    ///
    /// # Errors
    /// As [`Expr::eval`], and a value that is not true or false.
    pub fn eval_bool(&self, scope: &Scope) -> Result<bool, EvalError> {
        match self.eval(scope)? {
            Value::Bool(value) => Ok(value),
            other => {
                let message =
                    format!("the condition is {} instead of true or false", convert::kind_of(&other));
                Err(self.error(EvalErrorKind::Type, message))
            }
        }
    }

    fn error(&self, kind: EvalErrorKind, message: impl Into<String>) -> EvalError {
        EvalError { kind, message: message.into(), source_text: self.source().to_owned(), at: None }
    }

    /// Where `field` is selected, if at exactly one place.
    fn only_place_of(&self, field: &str) -> Option<Range<usize>> {
        let mut places = self.compiled.facts.fields.iter().filter(|(name, _)| name == field);
        match (places.next(), places.next()) {
            (Some((_, place)), None) => Some(place.clone()),
            _ => None,
        }
    }
}

/// A lock whose data is whole even if somebody panicked while holding it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.source())
    }
}

impl PartialEq for Expr {
    fn eq(&self, other: &Self) -> bool {
        self.source() == other.source()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scope() -> Scope {
        let mut scope = Scope { now: "2026-09-06T12:00:00Z".parse().expect("RFC 3339"), ..Scope::default() };
        scope.bind("x", json!({"n": 3, "list": [1, 2, 3], "text": "abc", "none": null, "f": 1.5}));
        scope.bind("null_one", json!(null));
        let vm = json!({"metadata": {"creationTimestamp": "2026-09-06T11:00:00Z", "generation": 4},
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Up"}]}});
        scope.bind("vm", vm);
        scope
    }

    fn eval(source: &str) -> Result<Value, String> {
        let expr = Expr::compile(source).map_err(|e| e.to_string())?;
        expr.eval(&scope()).map_err(|e| e.message)
    }

    #[test]
    fn expressions_have_the_values_that_cel_says() {
        for (source, value) in [
            ("x.n + 1", json!(4)),
            ("vm.metadata.generation + 1", json!(5)),
            ("x.?none.orValue(7)", json!(null)),
            ("x.?missing.orValue(7)", json!(7)),
            ("x.?missing.?deeper.hasValue()", json!(false)),
            ("x.list.map(i, i * 2)", json!([2, 4, 6])),
            ("x.list.filter(i, i > 1).size()", json!(2)),
            ("x.list.all(i, x.list.exists(j, j >= i))", json!(true)),
            ("{'b': 1, 'a': [x.n, {'c': x.f}]}", json!({"a": [3, {"c": 1.5}], "b": 1})),
            ("x.text.upperAscii() + '-' + string(x.n)", json!("ABC-3")),
            ("null_one == null && x.none == null", json!(true)),
            ("type(x.n) == int", json!(true)),
            ("[?x.?missing, ?optional.of(1)]", json!([1])),
            ("b'ab'", json!("YWI=")),
            ("lists.range(3)", json!([0, 1, 2])),
            ("math.greatest(x.list)", json!(3)),
            ("quantity('1Gi') > 1000000000", json!(true)),
        ] {
            assert_eq!(eval(source), Ok(value), "{source}");
        }
    }

    #[test]
    fn each_function_of_ours_does_what_its_line_says() {
        for (source, value) in [
            ("quantity('10Gi')", json!(10_737_418_240.0)),
            ("quantity('250m') + quantity('1')", json!(1.25)),
            ("quantity(5)", json!(5.0)),
            ("quantity('1e3')", json!(1000.0)),
            ("duration('1d') > duration('23h')", json!(true)),
            ("duration('-90s')", json!("-1m30s")),
            ("timestamp('2026-09-06T13:00:00+01:00') == now()", json!(true)),
            ("now()", json!("2026-09-06T12:00:00Z")),
            ("now() - duration('1h')", json!("2026-09-06T11:00:00Z")),
            ("age(vm)", json!("1h")),
            ("age('2026-09-06T11:59:00Z') < duration('2m')", json!(true)),
            ("sum(x.list)", json!(6)),
            ("sum([])", json!(0)),
            ("sum([1, 2.5])", json!(3.5)),
            ("sum([duration('1m'), duration('1s')])", json!("1m1s")),
            ("[{'k': 2}, {'k': 1}].sort_by(e, e.k)", json!([{"k": 1}, {"k": 2}])),
            ("['bb', 'a'].index_by(e, e.size())", json!({"1": "a", "2": "bb"})),
            ("['bb', 'a'].index_by(e, e)['a']", json!("a")),
            ("cond(vm, 'Ready').reason", json!("Up")),
            ("cond(vm, 'Paused').status", json!("Unknown")),
            ("cond(null_one, 'Ready').status", json!("Unknown")),
            ("from_json('{\"a\": [1]}').a[0] + 1", json!(2)),
            ("to_json({'b': x.list, 'a': null})", json!("{\"a\":null,\"b\":[1,2,3]}")),
            (
                "merge({'a': 1, 'm': {'x': 1, 'y': 2}}, {'m': {'x': null, 'z': 3}, 'n': [1]})",
                json!({ "a": 1, "m": { "y": 2, "z": 3 }, "n": [1] }),
            ),
            ("merge('old', {'a': null, 'b': {'c': null}})", json!({"b": {}})),
            ("merge({'a': 1}, null)", json!(null)),
            ("known('nothing')", json!(null)),
        ] {
            assert_eq!(eval(source), Ok(value), "{source}");
        }
    }

    #[test]
    fn errors_say_what_is_wrong_in_plain_words() {
        for (source, part) in [
            ("x.status.phase", "no such key: status"),
            ("x.list[5]", "beyond the end"),
            ("x.n + 'a'", "`+` does not take int and string"),
            ("x.n / 0", "division by zero"),
            ("nope == 1", "unknown variable `nope`"),
            ("quantity('ten')", "quantity(): \"ten\" is not a quantity"),
            ("duration('5')", "is not a duration"),
            ("timestamp('soon')", "RFC 3339"),
            ("sum(['a'])", "cannot add"),
            ("['a', 'a'].index_by(e, e)", "twice"),
            ("[1, 'a'].sort_by(e, e)", "cannot be ordered"),
            ("from_json('{')", "not JSON"),
            ("name('a')", "where a step acts"),
            ("x.?missing", "the optional is empty"),
            ("1.0 / 0.0", "cannot be written"),
            ("9223372036854775807 + 1", "range"),
        ] {
            let error = eval(source).expect_err(source);
            assert!(error.contains(part), "{source}: {error}");
        }
        let error = Expr::compile("x.status.phase").expect("compiles").eval(&scope()).expect_err("no status");
        assert_eq!(error.at, Some(2..8));
        assert_eq!(error.to_string(), "no such key: status in `x.status.phase`");
    }

    #[test]
    fn mistakes_are_found_with_their_place_before_anything_runs() {
        for (source, message, at) in [
            ("x.n +", "ends too early", 5..5),
            ("", "empty", 0..0),
            ("sizes(x)", "unknown function `sizes`", 0..5),
            ("x.n > 1 && quantiti(x.n) > 2", "unknown function `quantiti`", 11..19),
            ("x.list.exists(i)", "wrong arguments", 7..13),
            ("now(1)", "wrong arguments", 0..3),
            ("x.text.startWith('a')", "unknown function `startWith`", 7..16),
            ("x.n = 1", "", 4..5),
        ] {
            let error = Expr::compile(source).expect_err(source);
            assert!(error.message.contains(message), "{source}: {error}");
            assert_eq!(error.at, at, "{source}: {error}");
        }
        let hint = Expr::compile("x.text.startWith('a')").expect_err("unknown").hint;
        assert_eq!(hint.as_deref(), Some("did you mean `startsWith`?"));
    }

    #[test]
    fn references_are_the_free_variables_with_their_paths() {
        let expr = Expr::compile(
            "steps['a-b'].outputs.?x.orValue(vm.n) + items.map(i, i + k)[0] + optional.of(1).value()",
        );
        let expr = expr.expect("compiles");
        let names: Vec<_> = expr.references().iter().map(String::as_str).collect();
        assert_eq!(names, ["items", "k", "steps", "vm"]);
        let path: Vec<_> = expr.uses()[0].path.iter().map(|m| (m.name.as_str(), m.optional)).collect();
        assert_eq!(path, [("a-b", false), ("outputs", false), ("x", true)]);
        assert_eq!((expr.uses()[1].at.clone(), expr.uses()[1].path[0].name.as_str()), (32..34, "n"));
        assert!(Expr::compile("has(x.n)").expect("compiles").uses()[0].path[0].optional);
    }

    #[test]
    fn a_let_is_evaluated_where_it_is_used_and_only_there() {
        let mut scope = scope();
        for (name, source) in [
            ("twofold", "x.n * 2"),
            ("twice", "twofold * 2"),
            ("bad", "x.gone"),
            ("loops", "loops2"),
            ("loops2", "loops"),
        ] {
            scope.lets.insert(name.to_owned(), Expr::compile(source).expect(source));
        }
        let eval = |source: &str| Expr::compile(source).expect(source).eval(&scope);
        assert_eq!(eval("twice + twofold"), Ok(json!(18)));
        assert_eq!(eval("true || bad"), Ok(json!(true)));
        assert_eq!(eval("bad == 1").expect_err("no key").to_string(), "no such key: gone in `x.gone`");
        assert!(eval("loops").expect_err("circle").message.contains("uses itself"));
    }

    #[test]
    fn no_source_and_no_data_can_run_for_long_or_break_the_process() {
        let sum = vec!["1"; 3_000].join("+");
        assert!(Expr::compile(&sum).expect_err("too long").message.contains("1024"));
        let just_fits = vec!["1"; 512].join("+");
        assert_eq!(eval(&just_fits), Ok(json!(512)));
        assert!(eval(&format!("x{}", ".a".repeat(511))).is_err());
        assert!(Expr::compile(&"(".repeat(1_000)).is_err());
        assert!(Expr::compile(&"[".repeat(1_000)).is_err());
        drop(Expr::compile(&"!".repeat(1_000)));
        drop(Expr::compile(&"-".repeat(1_000)));
        let mut scope = Scope::default();
        scope.bind("l", json!(vec![1; 1_000]));
        for source in [
            "l.all(a, l.all(b, l.all(c, true)))",
            "true || l.all(a, l.all(b, l.all(c, true)))",
            "l.map(a, l.map(b, l.map(c, c)))",
            "lists.range(1000000).distinct()",
            "l.exists(a, l.exists(b, l.exists(c, false)) || true) && l.all(a, l.all(b, l.all(c, l.all(d, true))))",
        ] {
            let result = Expr::compile(source).expect(source).eval(&scope);
            if source.starts_with("true") {
                assert_eq!(result, Ok(json!(true)), "not evaluated at all");
            } else {
                assert_eq!(result.expect_err(source).kind, EvalErrorKind::Limit, "{source}");
            }
        }
        scope.bind("long", json!(vec![1; 10_001]));
        assert_eq!(
            Expr::compile("long.size()").expect("compiles").eval(&scope).expect_err("long").kind,
            EvalErrorKind::Limit
        );
    }

    #[test]
    fn ages_grow_with_the_speed_of_a_rehearsal() {
        let fast = Scope { speed: 10.0, ..scope() };
        assert_eq!(Expr::compile("age(vm)").expect("compiles").eval(&fast), Ok(json!("10h")));
    }

    #[test]
    fn object_names_are_stable_short_and_differ_by_item_and_attempt() {
        let naming = Naming { run: "r".into(), step: "s".into(), item: None, attempt: None };
        let name = object_name("backup", &naming);
        assert_eq!(name, object_name("backup", &naming));
        assert_eq!((name.len(), name.split_at(7).0), (15, "backup-"));
        let other = Naming { item: Some(String::new()), ..naming.clone() };
        let retried = Naming { attempt: Some(2), ..naming.clone() };
        assert!(name != object_name("backup", &other) && name != object_name("backup", &retried));
        assert_eq!(object_name(&"x".repeat(100), &naming).len(), 63);
        let scope = Scope { naming: Some(naming), ..Scope::default() };
        assert_eq!(Expr::compile("name('backup')").expect("compiles").eval(&scope), Ok(json!(name)));
    }
}

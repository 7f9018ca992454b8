//! Evaluation: variables are converted, and `let`s evaluated, where they are used.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use cel::Context;
use cel::ExecutionError;
use cel::common::types::CelDouble;
use cel::common::types::CelTimestamp;
use cel::common::value::CowVal;
use cel::common::value::Val;
use cel::context::VariableResolver;
use serde_json::Value;

use crate::definition::expr::EvalError;
use crate::definition::expr::EvalErrorKind;
use crate::definition::expr::Expr;
use crate::definition::expr::Scope;
use crate::definition::expr::convert;
use crate::definition::expr::environment::ENVIRONMENT;
use crate::definition::expr::functions::Host;
use crate::definition::expr::functions::ITERATIONS_MAX;
use crate::definition::expr::lock;

/// The longest list or map in a variable: no cluster that this manages has more objects of a kind.
const ELEMENTS_MAX: usize = 10_000;

/// The value of `expr`; none for an empty optional.
pub(super) fn evaluate(expr: &Expr, scope: &Scope) -> Result<Option<Value>, EvalError> {
    let resolver = Resolver::new(expr, scope);
    let value = resolver.evaluate(expr)?;
    if resolver.exhausted() {
        // An `||` may have swallowed the error.
        return Err(expr.error(EvalErrorKind::Limit, TOO_MUCH));
    }
    convert::to_json(&value).map_err(|message| expr.error(EvalErrorKind::Type, message))
}

const TOO_MUCH: &str = "the lists are too long: more than 1,000,000 iterations";

type Slot<'s> = OnceLock<Option<Box<dyn Val + 's>>>;

/// The variables of one evaluation.
struct Resolver<'s> {
    scope: &'s Scope,
    /// A slot for each value or `let` that may be used.
    slots: BTreeMap<&'s str, Slot<'s>>,
    hidden: [OnceLock<Box<dyn Val>>; 3],
    budget: Arc<AtomicU64>,
    /// Why variables have no value, by name; only the innermost cause is of interest.
    failed: Mutex<BTreeMap<String, EvalError>>,
    /// `let`s being evaluated.
    open: Mutex<Vec<&'s str>>,
}

impl<'s> Resolver<'s> {
    fn new(expr: &Expr, scope: &'s Scope) -> Self {
        let mut slots = BTreeMap::new();
        add_slots(expr, scope, &mut slots);
        Self {
            scope,
            slots,
            hidden: [OnceLock::new(), OnceLock::new(), OnceLock::new()],
            budget: Arc::new(AtomicU64::new(ITERATIONS_MAX)),
            failed: Mutex::default(),
            open: Mutex::default(),
        }
    }

    fn exhausted(&self) -> bool {
        self.budget.load(Ordering::Relaxed) == 0
    }

    fn evaluate(&self, expr: &Expr) -> Result<cel::Value, EvalError> {
        let mut context = Context::with_env(ENVIRONMENT.clone());
        context.set_variable_resolver(self);
        cel::Value::resolve(&expr.compiled.tree, &context).map_err(|error| self.explain(expr, &error))
    }

    fn value(&self, name: &'s str) -> Option<Box<dyn Val + 's>> {
        match self.scope.values.get(name) {
            Some(value) => match too_long(value) {
                None => Some(convert::to_cel(value)),
                Some(length) => {
                    let message = format!(
                        "`{name}` holds a list of {length} elements, at most {ELEMENTS_MAX} are allowed"
                    );
                    self.fail(
                        name,
                        EvalError {
                            kind: EvalErrorKind::Limit,
                            message,
                            source_text: name.to_owned(),
                            at: None,
                        },
                    );
                    None
                }
            },
            None => self.named(name, self.scope.lets.get(name)?),
        }
    }

    /// The value of the `let` called `name`.
    fn named(&self, name: &'s str, expr: &'s Expr) -> Option<Box<dyn Val + 's>> {
        lock(&self.open).push(name);
        let value = stacker::maybe_grow(expr.compiled.stack, super::STACK, || self.evaluate(expr));
        lock(&self.open).pop();
        let error = match value.map(Box::<dyn Val>::try_from) {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(error)) => self.explain(expr, &error),
            Err(error) => error,
        };
        self.fail(name, error);
        None
    }

    fn fail(&self, name: &str, error: EvalError) {
        lock(&self.failed).insert(name.to_owned(), error);
    }

    fn hidden<'b>(&'b self, name: &str) -> Option<&'b (dyn Val + 'b)> {
        let index = ["@now", "@speed", "@host"].iter().position(|hidden| *hidden == name)?;
        let value = self.hidden[index].get_or_init(|| match index {
            0 => {
                let now = chrono::DateTime::from_timestamp_millis(self.scope.now.as_millis());
                Box::new(CelTimestamp::from(now.unwrap_or_default().fixed_offset()))
            }
            1 => Box::new(CelDouble::from(self.scope.speed)),
            _ => Box::new(Host {
                naming: self.scope.naming.clone(),
                knowledge: self.scope.knowledge.clone(),
                budget: self.budget.clone(),
            }),
        });
        Some(value.as_ref())
    }

    fn explain(&self, expr: &Expr, error: &ExecutionError) -> EvalError {
        if self.exhausted() {
            return expr.error(EvalErrorKind::Limit, TOO_MUCH);
        }
        if let ExecutionError::UndeclaredReference(name) = error {
            let failed = lock(&self.failed);
            if let Some(cause) = failed.get(name.as_str()) {
                return cause.clone();
            }
        }
        let (kind, message) = plain_words(error);
        let at = match error {
            ExecutionError::NoSuchKey(key) => expr.only_place_of(key),
            ExecutionError::UndeclaredReference(name) => {
                expr.uses().iter().find(|used| used.name == **name).map(|used| used.at.clone())
            }
            _ => None,
        };
        EvalError { at, ..expr.error(kind, message) }
    }
}

impl VariableResolver for Resolver<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        if variable.starts_with('@') {
            return self.hidden(variable).map(CowVal::Borrowed);
        }
        let (name, slot) = self.slots.get_key_value(variable)?;
        if slot.get().is_none() && lock(&self.open).contains(name) {
            let message = format!("`let.{name}` uses itself");
            let source_text = (*name).to_owned();
            self.fail(name, EvalError { kind: EvalErrorKind::Other, message, source_text, at: None });
            return None;
        }
        slot.get_or_init(|| self.value(name)).as_ref().map(|value| CowVal::Borrowed(value.as_ref()))
    }
}

fn add_slots<'s>(expr: &Expr, scope: &'s Scope, slots: &mut BTreeMap<&'s str, Slot<'s>>) {
    for name in expr.references() {
        if let Some((name, _)) = scope.values.get_key_value(name) {
            slots.entry(name).or_default();
        } else if let Some((name, named)) = scope.lets.get_key_value(name)
            && !slots.contains_key(name.as_str())
        {
            slots.insert(name, OnceLock::new());
            add_slots(named, scope, slots);
        }
    }
}

/// The length of the longest list or map in `value`, if that is too long.
fn too_long(value: &Value) -> Option<usize> {
    match value {
        Value::Array(items) if items.len() > ELEMENTS_MAX => Some(items.len()),
        Value::Object(entries) if entries.len() > ELEMENTS_MAX => Some(entries.len()),
        Value::Array(items) => items.iter().find_map(too_long),
        Value::Object(entries) => entries.values().find_map(too_long),
        _ => None,
    }
}

/// The library's error without values in it: they may be long, and secret.
fn plain_words(error: &ExecutionError) -> (EvalErrorKind, String) {
    use EvalErrorKind::{NoSuchKey, Other, Type, UnknownVariable};
    match error {
        ExecutionError::NoSuchKey(key) => (NoSuchKey, format!("no such key: {key}")),
        ExecutionError::IndexOutOfBounds(_) => {
            (NoSuchKey, "the index is beyond the end of the list".to_owned())
        }
        ExecutionError::UndeclaredReference(name) => (UnknownVariable, format!("unknown variable `{name}`")),
        ExecutionError::NoSuchOverload(overload) => {
            let types = overload.argument_types().join(" and ");
            (Type, format!("`{}` does not take {types}", written(overload.function())))
        }
        ExecutionError::UnexpectedType { want, .. } => (Type, format!("a value is not a {want}")),
        ExecutionError::ValuesNotComparable(a, b) => {
            (Type, format!("a {} cannot be compared with a {}", a.type_of(), b.type_of()))
        }
        ExecutionError::UnsupportedBinaryOperator(operator, a, b) => {
            (Type, format!("`{}` does not take {} and {}", written(operator), a.type_of(), b.type_of()))
        }
        ExecutionError::UnsupportedIndex(index, of) => {
            (Type, format!("a {} has no elements by {}", of.type_of(), index.type_of()))
        }
        ExecutionError::UnsupportedKeyType(key) => (Type, format!("a {} cannot be a key", key.type_of())),
        ExecutionError::UnsupportedTargetType { target } => {
            (Type, format!("not possible with a {}", target.type_of()))
        }
        ExecutionError::NotSupportedAsMethod { method, target } => {
            (Type, format!("a {} has no `{method}`", target.type_of()))
        }
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
            (Other, "division by zero".to_owned())
        }
        ExecutionError::Overflow(operator, ..) => {
            (Other, format!("`{}` exceeds the range of its type", written(operator)))
        }
        ExecutionError::DuplicateKey(_) => (Other, "a map has the same key twice".to_owned()),
        ExecutionError::FunctionError { function, message } => {
            (Other, format!("{}(): {message}", function.trim_start_matches('@')))
        }
        other => (Other, other.to_string().to_lowercase()),
    }
}

/// An operator as people write it.
fn written(function: &str) -> &str {
    let bare = function.trim_start_matches(['_', '@']).trim_end_matches('_');
    match bare {
        "[" | "[_]" | "[?_]" => "[]",
        "?_:" => "?:",
        "add" => "+",
        "sub" => "-",
        "mul" => "*",
        "div" => "/",
        "rem" => "%",
        "" => function,
        _ => bare,
    }
}

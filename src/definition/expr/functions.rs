//! The hidden functions behind those of L8.
#![expect(clippy::needless_pass_by_value, reason = "the library gives the arguments away")]

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use cel::ExecutionError;
use cel::Value;
use cel::common::functions::Function;
use cel::common::types::Type;
use cel::common::value::CowVal;
use cel::common::value::StaticVal;
use cel::common::value::Val;
use cel::objects::Key;

use crate::definition::duration;
use crate::definition::expr::convert;
use crate::definition::expr::scope::Naming;
use crate::definition::expr::scope::object_name;
use crate::definition::knowledge::Knowledge;

type Outcome<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// Hidden functions: name, number of arguments, what they do.
pub(super) const OVERLOADS: [(&str, usize, Function); 15] = [
    ("@quantity", 1, quantity),
    ("@duration", 1, duration),
    ("@timestamp", 1, timestamp),
    ("@age", 3, age),
    ("@sum", 1, sum),
    ("@sort_by", 1, sort_by),
    ("@index_by", 1, index_by),
    ("@cond", 2, cond),
    ("@from_json", 1, from_json),
    ("@to_json", 1, to_json),
    ("@merge", 2, merge),
    ("@name", 2, name),
    ("@known", 2, known),
    ("@spend", 2, spend),
    ("@spend_square", 2, spend_square),
];

/// Iterations of all comprehensions of one evaluation: about a second of work.
pub(super) const ITERATIONS_MAX: u64 = 1_000_000;

static HOST_TYPE: Type = Type::new_unspecified_type("host");

/// What the hidden functions need of the scope; the expression only passes it on.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) naming: Option<Naming>,
    pub(super) knowledge: Option<Arc<Knowledge>>,
    /// Iterations left.
    pub(super) budget: Arc<AtomicU64>,
}

impl Val for Host {
    fn get_type(&self) -> &Type {
        <Self as Val>::cel_type()
    }

    fn cel_type() -> &'static Type {
        &HOST_TYPE
    }

    fn equals(&self, _: &dyn Val) -> bool {
        false
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Host {}

fn error(function: &str, message: impl ToString) -> ExecutionError {
    ExecutionError::function_error(function, message)
}

fn give<'b, 'v>(value: Value) -> Outcome<'b, 'v> {
    Ok(CowVal::Owned(value.try_into()?))
}

/// The arguments as values of the library's owned type.
fn values<const N: usize>(function: &str, args: &[CowVal<'_, '_>]) -> Result<[Value; N], ExecutionError> {
    let values: Vec<Value> =
        args.iter().map(|arg| Value::try_from(arg.as_ref())).collect::<Result<_, _>>()?;
    values.try_into().map_err(|_| error(function, "wrong number of arguments"))
}

fn text(function: &str, value: &Value) -> Result<Arc<String>, ExecutionError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        other => Err(error(function, format!("takes a string, not a {}", other.type_of()))),
    }
}

fn quantity<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    let [value] = values("quantity", &args)?;
    let number = match &value {
        Value::String(text) => parse_quantity(text),
        Value::Int(int) => parse_quantity(&int.to_string()),
        Value::Float(float) => Some(*float),
        _ => None,
    };
    match number {
        Some(number) => give(Value::Float(number)),
        None => Err(error("quantity", format!("{} is not a quantity", shown(&value)))),
    }
}

/// A Kubernetes quantity: digits with an optional point, then a binary or decimal suffix or an exponent.
fn parse_quantity(text: &str) -> Option<f64> {
    const SUFFIXES: [(&str, f64); 16] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
        ("", 1.0),
    ];
    let (suffix, scale) = SUFFIXES.iter().find(|(suffix, _)| text.ends_with(suffix))?;
    let number = &text[..text.len() - suffix.len()];
    let plain = !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit() || b"+-.eE".contains(&c));
    let value = number.parse::<f64>().ok().filter(|_| plain)? * scale;
    value.is_finite().then_some(value)
}

fn duration<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    let [value] = values("duration", &args)?;
    if let Value::Duration(_) = value {
        return give(value);
    }
    let text = text("duration", &value)?;
    let (sign, rest) = text.strip_prefix('-').map_or((1, text.as_str()), |rest| (-1, rest));
    let length = duration::parse(rest).map_err(|e| error("duration", e))?;
    let length = chrono::Duration::from_std(length).map_err(|e| error("duration", e))?;
    give(Value::Duration(length * sign))
}

fn timestamp<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    let [value] = values("timestamp", &args)?;
    give(Value::Timestamp(moment("timestamp", &value)?))
}

fn moment(function: &str, value: &Value) -> Result<chrono::DateTime<chrono::FixedOffset>, ExecutionError> {
    let wrong = || error(function, format!("{} is not an RFC 3339 time", shown(value)));
    match value {
        Value::Timestamp(at) => Ok(*at),
        Value::String(text) => chrono::DateTime::parse_from_rfc3339(text).map_err(|_| wrong()),
        Value::Int(seconds) => {
            chrono::DateTime::from_timestamp(*seconds, 0).map(|at| at.fixed_offset()).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

fn age<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    let [now, speed, of] = values("age", &args)?;
    let created = match &of {
        Value::Map(_) => member(&of, "metadata")
            .and_then(|metadata| member(&metadata, "creationTimestamp"))
            .ok_or_else(|| error("age", "the object has no metadata.creationTimestamp"))?,
        _ => of,
    };
    let passed = moment("age", &now)? - moment("age", &created)?;
    let Value::Float(speed) = speed else { return Err(error("age", "no speed")) };
    // Milliseconds as a double are exact for more years than a timestamp can tell.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "see above; the cast saturates"
    )]
    let millis = (passed.num_milliseconds() as f64 * speed) as i64;
    let scaled = chrono::Duration::try_milliseconds(millis).ok_or_else(|| error("age", "too long"))?;
    give(Value::Duration(scaled))
}

fn member(value: &Value, key: &str) -> Option<Value> {
    match value {
        Value::Map(map) => map.map.get(&Key::from(key)).cloned(),
        _ => None,
    }
}

fn list(function: &str, value: &Value) -> Result<Arc<Vec<Value>>, ExecutionError> {
    match value {
        Value::List(items) => Ok(items.clone()),
        other => Err(error(function, format!("takes a list, not a {}", other.type_of()))),
    }
}

fn sum<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    let [value] = values("sum", &args)?;
    let mut total = Value::Int(0);
    for (i, item) in list("sum", &value)?.iter().enumerate() {
        let next = if i == 0 { Some(item.clone()) } else { add(&total, item) };
        let number = matches!(item, Value::Int(_) | Value::UInt(_) | Value::Float(_) | Value::Duration(_));
        total = next
            .filter(|_| number)
            .ok_or_else(|| error("sum", format!("cannot add {} to {}", shown(item), shown(&total))))?;
    }
    give(total)
}

#[expect(clippy::cast_precision_loss, reason = "a sum of ints and doubles is a double")]
fn add(a: &Value, b: &Value) -> Option<Value> {
    Some(match (a, b) {
        (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_add(*b)?),
        (Value::UInt(a), Value::UInt(b)) => Value::UInt(a.checked_add(*b)?),
        (Value::Float(a), Value::Float(b)) => Value::Float(a + b),
        (Value::Int(a), Value::Float(b)) | (Value::Float(b), Value::Int(a)) => Value::Float(*a as f64 + b),
        (Value::Duration(a), Value::Duration(b)) => Value::Duration(a.checked_add(b)?),
        _ => return None,
    })
}

/// The pairs of key and element that the macro makes.
fn pairs(function: &str, args: &[CowVal<'_, '_>]) -> Result<Vec<(Value, Value)>, ExecutionError> {
    let [value] = values(function, args)?;
    let pair = |item: &Value| match item {
        Value::List(pair) if pair.len() == 2 => Ok((pair[0].clone(), pair[1].clone())),
        _ => Err(error(function, "takes a list")),
    };
    list(function, &value)?.iter().map(pair).collect()
}

fn sort_by<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    let mut pairs = pairs("sort_by", &args)?;
    let Some((first, _)) = pairs.first().cloned() else { return give(Value::List(Arc::new(vec![]))) };
    if let Some((odd, _)) = pairs.iter().find(|(key, _)| key.partial_cmp(&first).is_none()) {
        return Err(error(
            "sort_by",
            format!("the keys {} and {} cannot be ordered", shown(&first), shown(odd)),
        ));
    }
    pairs.sort_by(|(a, _), (b, _)| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    give(Value::List(Arc::new(pairs.into_iter().map(|(_, element)| element).collect())))
}

fn index_by<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    let mut map: BTreeMap<Key, Value> = BTreeMap::new();
    for (key, element) in pairs("index_by", &args)? {
        let name = shown(&key);
        let key = match key {
            Value::String(text) => Key::String(text),
            Value::Int(int) => Key::Int(int),
            Value::Bool(bool) => Key::Bool(bool),
            _ => return Err(error("index_by", format!("{name} cannot be a key"))),
        };
        if map.insert(key, element).is_some() {
            return Err(error("index_by", format!("the key {name} occurs twice")));
        }
    }
    give(Value::from(map.into_iter().collect::<Entries>()))
}

#[expect(
    clippy::disallowed_types,
    reason = "the type of the library; results are sorted when they come back"
)]
type Entries = std::collections::HashMap<Key, Value>;

/// An absent condition means Unknown, as the Kubernetes API conventions say.
fn cond<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    let [object, wanted] = values("cond", &args)?;
    let wanted = text("cond", &wanted)?;
    let conditions = member(&object, "status").and_then(|status| member(&status, "conditions"));
    let found = match &conditions {
        Some(Value::List(items)) => {
            items.iter().find(|c| matches!(member(c, "type"), Some(Value::String(t)) if t == wanted)).cloned()
        }
        _ => None,
    };
    let mut entries: Entries =
        [("type", wanted.as_str()), ("status", "Unknown"), ("reason", ""), ("message", "")]
            .into_iter()
            .map(|(key, value)| (Key::from(key), Value::from(value)))
            .collect();
    if let Some(Value::Map(map)) = found {
        entries.extend(map.map.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    give(Value::from(entries))
}

fn from_json<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    let [value] = values("from_json", &args)?;
    let text = text("from_json", &value)?;
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| error("from_json", format!("not JSON: {e}")))?;
    let owned = Value::try_from(convert::to_cel(&json).as_ref())?;
    give(owned)
}

fn to_json<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    let [value] = values("to_json", &args)?;
    let json = convert::to_json(&value).map_err(|e| error("to_json", e))?.unwrap_or_default();
    give(Value::from(json.to_string()))
}

fn merge<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    let [value, patch] = values("merge", &args)?;
    give(merge_values(value, patch))
}

/// RFC 7386, on values: its depth is that of the patch, which the parser bounds.
fn merge_values(value: Value, patch: Value) -> Value {
    let Value::Map(patch) = patch else { return patch };
    let mut merged: Entries = match value {
        Value::Map(map) => map.map.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
        _ => Entries::new(),
    };
    for (key, change) in patch.map.iter() {
        let old = merged.remove(key).unwrap_or(Value::Null);
        if !matches!(change, Value::Null) {
            merged.insert(key.clone(), merge_values(old, change.clone()));
        }
    }
    Value::from(merged)
}

fn host<'c>(function: &str, args: &'c [CowVal<'_, '_>]) -> Result<&'c Host, ExecutionError> {
    let first = args.first().and_then(|arg| arg.as_ref().downcast_ref::<Host>());
    first.ok_or_else(|| error(function, "is not available here"))
}

fn name<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    let [prefix] = values("name", &args[1..])?;
    let prefix = text("name", &prefix)?;
    let naming = host("name", &args)?.naming.as_ref();
    let naming = naming.ok_or_else(|| error("name", "can only be called where a step acts"))?;
    give(Value::from(object_name(&prefix, naming)))
}

fn known<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    let [evidence] = values("known", &args[1..])?;
    let evidence = text("known", &evidence)?;
    let knowledge = host("known", &args)?.knowledge.as_ref();
    let Some(entry) = knowledge.and_then(|knowledge| knowledge.matches(&evidence)) else {
        return give(Value::Null);
    };
    let json = entry.to_json();
    give(Value::try_from(convert::to_cel(&json).as_ref())?)
}

fn size(value: &CowVal<'_, '_>) -> u64 {
    value.as_sizer().map_or(0, |sizer| u64::try_from(*sizer.size().inner()).unwrap_or(0))
}

fn spend<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    charge(args, |size| size + 1)
}

fn spend_square<'b, 'v>(args: Vec<CowVal<'b, 'v>>) -> Outcome<'b, 'v> {
    charge(args, |size| size.saturating_mul(size))
}

fn charge<'b, 'v>(mut args: Vec<CowVal<'b, 'v>>, cost: impl Fn(u64) -> u64) -> Outcome<'b, 'v> {
    let value = args.pop().ok_or_else(|| error("spend", "no list"))?;
    let budget = &host("spend", &args)?.budget;
    let cost = cost(size(&value));
    let taken = budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(cost));
    if taken.is_err() {
        budget.store(0, Ordering::Relaxed);
        return Err(error("limit", "too many iterations"));
    }
    Ok(value)
}

/// A value for an error text: scalars as they are, others by type, so that no message grows with the data.
fn shown(value: &Value) -> String {
    const TEXT_MAX: usize = 60;
    match value {
        Value::String(text) if text.chars().count() <= TEXT_MAX => format!("\"{text}\""),
        Value::Int(int) => int.to_string(),
        Value::UInt(uint) => uint.to_string(),
        Value::Float(float) => float.to_string(),
        Value::Bool(bool) => bool.to_string(),
        other => format!("a {}", other.type_of()),
    }
}

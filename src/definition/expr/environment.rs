//! The functions that expressions may call (L8). Each of ours is a macro: its calls become calls of a hidden function
//! that also gets what it needs from the scope, so evaluation needs no global state.

use std::ops::Range;
use std::sync::Arc;
use std::sync::LazyLock;

use cel::Env;
use cel::IdedExpr;
use cel::common::ast::CallExpr;
use cel::common::ast::ComprehensionExpr;
use cel::common::ast::Expr as Tree;
use cel::common::ast::ListExpr;
use cel::common::ast::LiteralValue;
use cel::common::ast::operators;
use cel::common::types::CelBool;
use cel::common::types::DYN_TYPE;
use cel::extensions;
use cel::parser::Macro;
use cel::parser::MacroExprHelper;

use crate::definition::expr::ExprError;
use crate::definition::expr::ExprErrorKind;
use crate::definition::expr::functions;
use crate::definition::suggest::did_you_mean;

/// A function for the reference.
#[derive(Debug, Clone, Copy)]
pub struct FunctionDoc {
    /// What is called.
    pub name: &'static str,
    /// How it is written.
    pub form: &'static str,
    /// What it gives.
    pub en: &'static str,
    /// The same in Chinese.
    pub zh: &'static str,
    call: Call,
}

/// How a call becomes one of the hidden function `@name`.
#[derive(Debug, Clone, Copy)]
enum Call {
    /// `f(a, …)` with so many arguments; these variables go before them.
    Global(usize, &'static [&'static str]),
    /// `list.f(x, key)`: the hidden function gets a list of pairs of key and element.
    Keyed,
    /// `now()` is a hidden variable.
    Variable(&'static str),
}

const fn doc(
    name: &'static str,
    form: &'static str,
    call: Call,
    en: &'static str,
    zh: &'static str,
) -> FunctionDoc {
    FunctionDoc { name, form, en, zh, call }
}

/// Windrow's own functions, beside CEL's and those of its strings, lists, math and encoders extensions.
pub const FUNCTIONS: [FunctionDoc; 14] = [
    doc(
        "quantity",
        "quantity(text)",
        Call::Global(1, &[]),
        "A Kubernetes quantity such as \"10Gi\" or \"250m\" as a double.",
        "把 Kubernetes 数量（如 \"10Gi\"、\"250m\"）转换为浮点数。",
    ),
    doc(
        "duration",
        "duration(text)",
        Call::Global(1, &[]),
        "The duration that a text such as \"90s\" or \"1d\" means.",
        "把 \"90s\"、\"1d\" 这样的文本转换为时长。",
    ),
    doc(
        "timestamp",
        "timestamp(text)",
        Call::Global(1, &[]),
        "The moment that an RFC 3339 text means.",
        "把 RFC 3339 文本转换为时间点。",
    ),
    doc("now", "now()", Call::Variable("@now"), "The time of this evaluation.", "本次求值的时间。"),
    doc(
        "age",
        "age(x)",
        Call::Global(1, &["@now", "@speed"]),
        "How long ago a moment was; of an object, its creation. In a rehearsal it passes as fast as all durations.",
        "距某一时间点已过去多久；参数为对象时按其创建时间计算。演练中与其他时长一样加速。",
    ),
    doc(
        "sum",
        "sum(list)",
        Call::Global(1, &[]),
        "The sum of numbers or durations; 0 for an empty list.",
        "数字或时长之和；空列表为 0。",
    ),
    doc(
        "sort_by",
        "list.sort_by(x, key)",
        Call::Keyed,
        "The list in the order of the keys; equal keys keep their order.",
        "按键排序后的列表；键相同者保持原有顺序。",
    ),
    doc(
        "index_by",
        "list.index_by(x, key)",
        Call::Keyed,
        "A map from each key to its element; a key that occurs twice is an error.",
        "由键到元素的映射；键重复则报错。",
    ),
    doc(
        "cond",
        "cond(object, type)",
        Call::Global(2, &[]),
        "The condition of that type in status.conditions; status \"Unknown\" with empty reason and message if absent.",
        "status.conditions 中该类型的条件；不存在时 status 为 \"Unknown\"，reason 与 message 为空。",
    ),
    doc(
        "from_json",
        "from_json(text)",
        Call::Global(1, &[]),
        "The value of a JSON text.",
        "解析 JSON 文本。",
    ),
    doc(
        "to_json",
        "to_json(x)",
        Call::Global(1, &[]),
        "The value as JSON text, keys sorted.",
        "转换为 JSON 文本，键已排序。",
    ),
    doc(
        "merge",
        "merge(x, patch)",
        Call::Global(2, &[]),
        "x changed by a merge patch (RFC 7386): maps are joined, null removes a key.",
        "以 merge patch（RFC 7386）修改后的 x：map 合并，null 删除键。",
    ),
    doc(
        "name",
        "name(prefix)",
        Call::Global(1, &["@host"]),
        "A name for a new object, the same whenever this step of this run asks for it.",
        "新对象的名称；同一次运行的同一步骤每次得到的名称相同。",
    ),
    doc(
        "known",
        "known(text)",
        Call::Global(1, &["@host"]),
        "What the knowledge files say about a message, as a map with cause, remedy and class; null if nothing.",
        "知识文件中与该消息匹配的条目（含 cause、remedy、class）；没有则为 null。",
    ),
];

/// What CEL and its extensions bring, as written in a call.
const BUILTINS: &[&str] = &[
    "has",
    "all",
    "exists",
    "exists_one",
    "existsOne",
    "map",
    "filter",
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "int",
    "uint",
    "double",
    "string",
    "bool",
    "bytes",
    "dyn",
    "type",
    "getFullYear",
    "getMonth",
    "getDayOfYear",
    "getDayOfMonth",
    "getDate",
    "getDayOfWeek",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
    "hasValue",
    "value",
    "or",
    "orValue",
    "optMap",
    "optFlatMap",
    "optional.none",
    "optional.of",
    "optional.ofNonZeroValue",
    "charAt",
    "indexOf",
    "lastIndexOf",
    "join",
    "lowerAscii",
    "upperAscii",
    "trim",
    "replace",
    "split",
    "substring",
    "reverse",
    "format",
    "strings.quote",
    "distinct",
    "flatten",
    "slice",
    "sort",
    "sortBy",
    "lists.range",
    "math.greatest",
    "math.least",
    "math.ceil",
    "math.floor",
    "math.round",
    "math.trunc",
    "math.isInf",
    "math.isNaN",
    "math.isFinite",
    "math.abs",
    "math.sign",
    "math.bitAnd",
    "math.bitOr",
    "math.bitXor",
    "math.bitNot",
    "math.bitShiftLeft",
    "math.bitShiftRight",
    "math.sqrt",
    "base64.encode",
    "base64.decode",
    "first",
    "last",
];

/// Calls that are macros: one left in the tree has wrong arguments.
const MACROS: &[(&str, &str)] = &[
    ("has", "has(a.b)"),
    ("all", "list.all(x, condition)"),
    ("exists", "list.exists(x, condition)"),
    ("exists_one", "list.exists_one(x, condition)"),
    ("existsOne", "list.existsOne(x, condition)"),
    ("map", "list.map(x, value)"),
    ("filter", "list.filter(x, condition)"),
    ("optMap", "optional.optMap(x, value)"),
    ("optFlatMap", "optional.optFlatMap(x, value)"),
    ("sortBy", "list.sortBy(x, key)"),
];

/// Names of types, which are no variables.
const TYPES: &[&str] = &[
    "int",
    "uint",
    "double",
    "string",
    "bool",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
    "optional_type",
    "google",
];

pub(super) static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(environment()));

fn environment() -> Env {
    let mut env = Env::stdlib().with_optional_support(true);
    for extension in [extensions::strings, extensions::lists, extensions::math, extensions::encoders] {
        extension(&mut env).expect("the extensions of the library fit its environment");
    }
    for function in &FUNCTIONS {
        let expand = match function.call {
            Call::Global(arity, variables) => Macro::global(function.name, arity, move |helper, _, args| {
                let mut all: Vec<_> = variables.iter().map(|v| ident(helper, v)).collect();
                all.append(args);
                Ok(Some(hidden(helper, function.name, all)))
            }),
            Call::Variable(variable) => {
                Macro::global(function.name, 0, move |helper, _, _| Ok(Some(ident(helper, variable))))
            }
            Call::Keyed => Macro::receiver(function.name, 2, move |helper, target, args| {
                let [Tree::Ident(variable), _] = [&args[0].expr, &args[1].expr] else {
                    return Err(helper.new_error(args[0].id, "the first argument must be a plain name"));
                };
                let variable = variable.clone();
                let (Some(list), Some(key)) = (target.take(), args.pop()) else { return Ok(None) };
                let pairs = keyed(helper, list, variable, key);
                Ok(Some(hidden(helper, function.name, vec![pairs])))
            }),
        };
        env.add_macro(expand).expect("no macro of ours has the name of another");
    }
    for (name, arity, op) in functions::OVERLOADS {
        env.add_overload(name, name, (0..arity).map(|_| DYN_TYPE).collect(), op)
            .expect("hidden names are unique");
    }
    env
}

fn ident(helper: &mut MacroExprHelper<'_>, name: &str) -> IdedExpr {
    helper.next_expr(Tree::Ident(name.to_owned()))
}

fn hidden(helper: &mut MacroExprHelper<'_>, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    helper.next_expr(Tree::Call(CallExpr { func_name: format!("@{name}"), target: None, args }))
}

/// `list.map(variable, [key, variable])`.
fn keyed(helper: &mut MacroExprHelper<'_>, list: IdedExpr, variable: String, key: IdedExpr) -> IdedExpr {
    const RESULT: &str = "@result";
    let element = ident(helper, &variable);
    let pair = helper.next_expr(Tree::List(ListExpr::new(vec![key, element])));
    let items = helper.next_expr(Tree::List(ListExpr::new(vec![pair])));
    let so_far = ident(helper, RESULT);
    let step = CallExpr { func_name: operators::ADD.to_owned(), target: None, args: vec![so_far, items] };
    let comprehension = ComprehensionExpr {
        iter_range: list,
        iter_var: variable,
        iter_var2: None,
        accu_var: RESULT.to_owned(),
        accu_init: helper.next_expr(Tree::List(ListExpr::new(vec![]))),
        loop_cond: helper.next_expr(Tree::Literal(LiteralValue::Boolean(CelBool::from(true)))),
        loop_step: helper.next_expr(Tree::Call(step)),
        result: ident(helper, RESULT),
    };
    helper.next_expr(Tree::Comprehension(Box::new(comprehension)))
}

/// True for a function of CEL or of an extension, written as in a call.
pub(super) fn is_function(name: &str) -> bool {
    BUILTINS.contains(&name)
}

/// True for the name of a type.
pub(super) fn is_type(name: &str) -> bool {
    TYPES.contains(&name)
}

/// True for hidden functions and variables whose answer depends on the scope.
pub(super) fn varies(hidden: &str) -> bool {
    ["@now", "@speed", "@host", "@age", "@name", "@known"].contains(&hidden)
}

/// What is wrong with a call that is still in the tree under this name, if anything.
pub(super) fn wrong_call(name: &str, at: Range<usize>) -> Option<ExprError> {
    let own = FUNCTIONS.iter().find(|f| f.name == name).map(|f| f.form);
    let form = own.or_else(|| MACROS.iter().find(|(n, _)| *n == name).map(|(_, form)| *form));
    if let Some(form) = form {
        let message = format!("`{name}` is called with the wrong arguments");
        let kind = ExprErrorKind::Function;
        return Some(ExprError { kind, message, at, hint: Some(format!("write `{form}`")) });
    }
    if is_function(name) || BUILTINS.iter().any(|b| b.rsplit('.').next() == Some(name)) {
        return None;
    }
    let names = BUILTINS.iter().copied().chain(FUNCTIONS.iter().map(|f| f.name));
    let hint = did_you_mean(name, names);
    let message = format!("unknown function `{name}`");
    Some(ExprError { kind: ExprErrorKind::Function, message, at, hint })
}

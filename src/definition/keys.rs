//! The keys of workflows, steps, waits, inputs and the rest. Those of the actions are in [`crate::definition::actions`].

use crate::definition::shape::Key;
use crate::definition::shape::Shape;
use crate::definition::shape::Shape::Bool;
use crate::definition::shape::Shape::Choice;
use crate::definition::shape::Shape::Duration;
use crate::definition::shape::Shape::Expr;
use crate::definition::shape::Shape::Int;
use crate::definition::shape::Shape::List;
use crate::definition::shape::Shape::Map;
use crate::definition::shape::Shape::Table;
use crate::definition::shape::Shape::Target;
use crate::definition::shape::Shape::Template;
use crate::definition::shape::Shape::Text;
use crate::definition::shape::Shape::Value;
use crate::definition::shape::key;
use crate::definition::shape::must;

/// The version of the language.
pub const SCHEMA: i64 = 1;
/// Most attempts of one step: more means that the step waits for something, which a `wait` says better.
pub const ATTEMPTS_MAX: i64 = 100;
/// Most items of a `for_each` that run at once: each holds requests and watches of its own.
pub const PARALLEL_MAX: i64 = 64;

/// Keys of a workflow.
pub const WORKFLOW: &[Key] = &[
    must("schema", Int(SCHEMA, SCHEMA), "The version of the language: 1.", "语言版本：1。"),
    must("name", Text, "The name; that of the file without `.toml`.", "名称，与文件名（不含 `.toml`）相同。"),
    must("title", Text, "One line for people.", "一行标题。"),
    key("title_zh", Text, "The title in Chinese.", "中文标题。"),
    key(
        "description",
        Text,
        "What it does, and where it differs from the manual.",
        "作用，以及与手册的不同之处。",
    ),
    key("description_zh", Text, "The description in Chinese.", "中文说明。"),
    key("source", Text, "Where the procedure is written down.", "操作流程的出处。"),
    key("inputs", Map(&Table(INPUT)), "What a caller gives.", "调用者给出的参数。"),
    key("objects", Map(&Table(TARGET)), "Targets by name.", "按名称定义的目标对象。"),
    key(
        "let",
        Map(&Expr),
        "Expressions by name, evaluated where they are used.",
        "命名表达式，在使用处求值。",
    ),
    key(
        "lock",
        List(&Template),
        "Keys of locks that a run holds from start to end.",
        "运行期间始终持有的锁。",
    ),
    key(
        "lock_wait",
        Duration,
        "How long to queue for the locks; `0s` refuses at once.",
        "等待锁的最长时间；`0s` 表示立即拒绝。",
    ),
    key(
        "timeout",
        Duration,
        "Limit from lock acquisition to the end, rollback excluded.",
        "从取得锁到结束的时限，不含回滚。",
    ),
    key("destructive", Bool, "Runs the workflow `platform-gate` first.", "先运行 `platform-gate` 工作流。"),
    key("confirm", Bool, "Shows the plan to whoever starts it and asks.", "启动前展示计划并要求确认。"),
    must("steps", Map(&Shape::Step { undo: false }), "The steps.", "步骤。"),
    key(
        "finally",
        Map(&Shape::Step { undo: false }),
        "Steps that run at the end, whatever happened.",
        "无论结果如何最后都运行的步骤。",
    ),
    key(
        "guards",
        List(&Table(GUARD)),
        "Conditions that must hold between two steps.",
        "两个步骤之间必须保持的条件。",
    ),
    key("outputs", Map(&Value), "What a run gives back.", "运行的输出。"),
    key(
        "verdict_of",
        Shape::StepNames,
        "The step whose verdict is that of the run; of several, the worst counts.",
        "以哪个步骤的判定作为运行的判定；多个步骤时取最差者。",
    ),
    key("rehearsals", List(&Table(REHEARSAL)), "The workflow's own tests.", "工作流自带的演练。"),
];

/// Keys of an input.
pub const INPUT: &[Key] = &[
    must("type", Choice(INPUT_TYPES), "The type.", "类型。"),
    key("description", Text, "For people.", "说明。"),
    key("description_zh", Text, "The description in Chinese.", "中文说明。"),
    key(
        "default",
        Shape::Json,
        "Used when the caller gives nothing; an empty text for a secret that need not be given.",
        "未给出时使用的值；可不提供的 secret 写空文本。",
    ),
    key(
        "pattern",
        Shape::Regex,
        "Type string and list: each text must match it from start to end.",
        "string 与 list：文本必须整体匹配。",
    ),
    key("values", List(&Text), "Type enum: the texts.", "enum：可取的值。"),
    key("min", Int(i64::MIN, i64::MAX), "Type int: the least value.", "int：最小值。"),
    key("max", Int(i64::MIN, i64::MAX), "Type int: the greatest value.", "int：最大值。"),
];

/// Types of inputs.
pub const INPUT_TYPES: &[&str] = &["string", "int", "bool", "duration", "enum", "list", "secret"];

/// Keys of a target.
pub const TARGET: &[Key] = &[
    must("api", Template, "`v1`, `kubevirt.io/v1`, …", "`v1`、`kubevirt.io/v1` 等。"),
    must("kind", Template, "The kind in CamelCase, never a short name.", "资源类型（CamelCase），不用缩写。"),
    key("namespace", Template, "The namespace, for namespaced kinds.", "命名空间。"),
    key("all_namespaces", Bool, "Looks in every namespace.", "在所有命名空间中查找。"),
    key(
        "name",
        Value,
        "One object; null makes the whole target null.",
        "单个对象；为 null 时整个目标为 null。",
    ),
    key("names", Value, "Several objects by name.", "按名称指定多个对象。"),
    key("selector", Template, "A label selector.", "标签选择器。"),
    key("field", Template, "A field selector.", "字段选择器。"),
    key("all", Bool, "Every object.", "所有对象。"),
    key("allow_empty", Bool, "An empty list is no failure.", "允许列表为空。"),
    key(
        "optional",
        Bool,
        "A kind that the server does not know means that there is no such object.",
        "服务器没有该类型时视为对象不存在。",
    ),
];

/// Keys that every step and every rollback entry takes, besides those of its action.
pub const STEP: &[Key] = &[
    key("title", Text, "One line for people.", "一行标题。"),
    key("title_zh", Text, "The title in Chinese.", "中文标题。"),
    must("uses", Text, "The action.", "动作。"),
    key(
        "when",
        Expr,
        "False: the step is skipped and the steps behind it go on.",
        "为 false 时跳过该步骤，后续步骤继续。",
    ),
    key("for_each", Expr, "Runs once for each item of this list.", "对列表中每一项各运行一次。"),
    key(
        "item_key",
        Expr,
        "The key of an item; the item itself where that is a scalar.",
        "列表项的键；标量项默认为其自身。",
    ),
    key(
        "max_parallel",
        Int(1, PARALLEL_MAX),
        "How many items run at once; 1 if not set.",
        "同时运行的项数，默认 1。",
    ),
    key(
        "max_failures",
        Shape::CountOrAll,
        "How many items may fail, or `all`; 0 if not set.",
        "允许失败的项数或 `all`，默认 0。",
    ),
    key("allow_empty", Bool, "An empty `for_each` is no failure.", "允许 `for_each` 列表为空。"),
    key(
        "covers",
        Expr,
        "What must hold over `items`, those that succeeded, when all are done.",
        "全部完成后，对成功的各项（`items`）必须成立的条件。",
    ),
    key(
        "on_error",
        Choice(&["fail", "continue"]),
        "What the run does when the step failed; `fail` if not set.",
        "步骤失败时的处理，默认 `fail`。",
    ),
    key(
        "target",
        Target,
        "The object that the step is about, bound as `object`.",
        "步骤针对的对象，绑定为 `object`。",
    ),
    key("read", Map(&Target), "Further objects by name.", "另外读取的对象。"),
    key(
        "let",
        Map(&Expr),
        "Expressions by name, evaluated where they are used.",
        "命名表达式，在使用处求值。",
    ),
    key(
        "capture",
        Map(&Expr),
        "What is remembered of the world before the first attempt, bound as `captured`.",
        "首次执行前记录的值，绑定为 `captured`。",
    ),
    key("check", Expr, "True when the effect is there already.", "效果已存在时为 true。"),
    key("idempotent", Bool, "The action may be repeated without harm.", "动作可以安全地重复。"),
    key(
        "preconditions",
        List(&Table(PRECONDITION)),
        "What must hold before the action.",
        "动作之前必须成立的条件。",
    ),
    key("retry", Table(RETRY), "How failures are repeated.", "失败后的重试方式。"),
    key("attempt_timeout", Duration, "Limit for one attempt's action.", "单次动作的时限。"),
    key(
        "timeout",
        Duration,
        "Limit from the first read to the end, retries included; of `k8s.wait`, the limit of the wait.",
        "从首次读取到结束的时限（含重试）；`k8s.wait` 则为等待的时限。",
    ),
    key("wait", Table(WAIT), "What must become true after the action.", "动作之后必须达到的状态。"),
    key("outputs", Map(&Value), "What later steps may read.", "供后续步骤读取的值。"),
];

/// Keys that only steps take.
pub const STEP_ONLY: &[Key] = &[
    key("after", Shape::After, "The steps before this one.", "在此之前的步骤。"),
    key(
        "commit",
        Choice(&["on_success", "on_start"]),
        "From then on nothing before is undone.",
        "从此时起，之前的步骤不再回滚。",
    ),
    key(
        "rollback",
        List(&Shape::Step { undo: true }),
        "What undoes the step, in order.",
        "撤销该步骤的动作，按顺序。",
    ),
];

/// Keys that only rollback entries take.
pub const UNDO_ONLY: &[Key] =
    &[key("else_debt", Template, "What is left when `when` is false.", "`when` 为 false 时遗留的事项。")];

/// Keys of one of the steps before.
pub const AFTER: &[Key] = &[
    must("step", Shape::StepName, "The step.", "步骤。"),
    key(
        "on",
        Choice(&["success", "any"]),
        "`any`: also when it failed with `on_error = \"continue\"`.",
        "`any`：即使它以 `on_error = \"continue\"` 失败也继续。",
    ),
];

/// Keys of a precondition.
pub const PRECONDITION: &[Key] = &[
    must("that", Expr, "Must be true.", "必须为 true。"),
    must("message", Template, "What is wrong when it is not.", "不成立时的说明。"),
    key("message_zh", Template, "The message in Chinese.", "中文说明。"),
    key(
        "wait",
        Duration,
        "How long to wait for it; without it, unmet is a failure at once.",
        "最长等待时间；不写则立即失败。",
    ),
];

/// Keys of `retry`.
pub const RETRY: &[Key] = &[
    key("attempts", Int(1, ATTEMPTS_MAX), "Attempts in all; 3 if not set.", "总次数，默认 3。"),
    key("delay", Duration, "Before the second attempt; 2s if not set.", "第二次之前的间隔，默认 2s。"),
    key(
        "factor",
        Shape::Number(1.0, 10.0),
        "Each further delay is so many times the one before; 2 if not set.",
        "间隔的增长倍数，默认 2。",
    ),
    key("max_delay", Duration, "The longest delay; 30s if not set.", "最长间隔，默认 30s。"),
    key(
        "jitter",
        Shape::Number(0.0, 1.0),
        "Part of the delay that varies; 0.2 if not set.",
        "间隔中随机变化的比例，默认 0.2。",
    ),
    key("wait", Bool, "A failed wait repeats the action as well.", "等待失败时也重复动作。"),
    key("undo", Bool, "Between two attempts the rollback entries run.", "两次尝试之间先执行回滚。"),
];

/// Keys of `wait`, which `k8s.wait` takes itself.
pub const WAIT: &[Key] = &[
    key(
        "target",
        Target,
        "The object bound as `object`; the step's target if not set.",
        "绑定为 `object` 的对象，默认为步骤的目标。",
    ),
    key("read", Map(&Target), "Further objects by name.", "另外读取的对象。"),
    key("let", Map(&Expr), "Expressions by name.", "命名表达式。"),
    key("until", Expr, "The wait is over and all is well.", "成立时等待成功结束。"),
    key("fail_if", Expr, "The wait is over and the step has failed.", "成立时步骤失败。"),
    key(
        "stable_for",
        Duration,
        "How long `until` must be true without a break.",
        "`until` 需持续成立的时间。",
    ),
    key(
        "verdicts",
        List(&Table(VERDICT)),
        "Possible ends; the first that applies wins.",
        "可能的判定，先匹配者生效。",
    ),
    key("track", Map(&Expr), "Values whose changes are remembered.", "记录其变化的值。"),
    key("progress", Shape::Exprs, "Numbers that rise while there is progress.", "有进展时会增大的数。"),
    key("stall_after", Duration, "How long without progress is a stall.", "多久没有进展算停滞。"),
    key(
        "on_stall",
        Choice(&["ask", "fail"]),
        "What a stall is; `ask` if not set.",
        "停滞时的处理，默认 `ask`。",
    ),
    must("timeout", Duration, "The limit.", "时限。"),
];

/// Keys of a verdict.
pub const VERDICT: &[Key] = &[
    must("name", Text, "Its name.", "名称。"),
    must("when", Expr, "When it applies.", "成立条件。"),
    must("outcome", Choice(&["succeed", "fail", "wait", "ask", "retry"]), "What follows.", "结果。"),
    key(
        "severity",
        Choice(&["ok", "warn", "bad"]),
        "How bad it is; succeed is ok, fail is bad, others warn if not set.",
        "严重程度；默认 succeed 为 ok，fail 为 bad，其余为 warn。",
    ),
    key("stable_for", Duration, "How long it must apply without a break.", "需持续成立的时间。"),
    key(
        "at_timeout",
        Choice(&["succeed", "fail", "ask"]),
        "What follows if it still applies when time is up.",
        "超时时仍成立则如何。",
    ),
    key(
        "known",
        Text,
        "The known failure that explains it, by name, unless something seen tells more.",
        "解释此结论的已知故障条目名称；若所见证据更能说明问题，以证据为准。",
    ),
    key("message", Template, "For people.", "说明。"),
    key("message_zh", Template, "The message in Chinese.", "中文说明。"),
];

/// Keys of a guard.
pub const GUARD: &[Key] = &[
    must("read", Map(&Target), "What is watched.", "监视的对象。"),
    must("that", Expr, "Must be true.", "必须为 true。"),
    must("from", Shape::StepName, "Begins when this step has succeeded.", "该步骤成功后开始。"),
    must("to", Shape::StepName, "Ends when this step starts.", "该步骤开始时结束。"),
    key(
        "on_break",
        Choice(&["ask", "fail"]),
        "What a broken guard is; `ask` if not set.",
        "条件被破坏时的处理，默认 `ask`。",
    ),
    key("message", Template, "What is wrong when it is broken.", "被破坏时的说明。"),
    key("message_zh", Template, "The message in Chinese.", "中文说明。"),
];

/// Keys of a rehearsal.
pub const REHEARSAL: &[Key] = &[
    must("name", Text, "Its name.", "名称。"),
    key("inputs", Map(&Shape::Json), "The inputs of the run.", "运行的参数。"),
    key(
        "fixture",
        Shape::File,
        "YAML of objects that exist besides the usual ones.",
        "额外存在的对象（YAML）。",
    ),
    key("faults", List(&Text), "Faults that are switched on.", "注入的故障。"),
    key(
        "already",
        List(&Text),
        "Faults that were there when the objects of the fixture were made.",
        "创建 fixture 对象时就已存在的故障。",
    ),
    key(
        "approve",
        Bool,
        "Somebody gives every approval; otherwise the run ends Held.",
        "由他人批准每个审批；否则运行停在 Held。",
    ),
    must("expect", Table(EXPECT), "What must come out.", "预期结果。"),
];

/// Keys of what a rehearsal expects.
pub const EXPECT: &[Key] = &[
    must("state", Choice(RUN_STATES), "The run's state.", "运行的状态。"),
    key("verdict", Text, "The run's verdict.", "运行的判定。"),
    key("code", Text, "The failure's code.", "失败代码。"),
    key("severity", Choice(&["ok", "warn", "bad"]), "The verdict's severity.", "判定的严重程度。"),
    key(
        "left",
        List(&Text),
        "Objects that differ from the fixture afterwards, as `Kind namespace/name`.",
        "结束后与初始不同的对象，写作 `Kind namespace/name`。",
    ),
];

/// States in which a rehearsal may end.
pub const RUN_STATES: &[&str] = &["Succeeded", "Failed", "RolledBack", "Cancelled", "Held"];

/// Keys of an entry of a knowledge file.
pub const KNOWLEDGE: &[Key] = &[
    must("name", Text, "Unique over all knowledge files.", "在所有知识文件中唯一。"),
    key("regex", Text, "Matches somewhere in the evidence.", "在证据文本中匹配的正则表达式。"),
    key("when", Expr, "True for `evidence`, a text.", "对文本 `evidence` 成立的条件。"),
    must("cause", Text, "Why it happens.", "原因。"),
    must("cause_zh", Text, "The cause in Chinese.", "中文原因。"),
    must("remedy", Text, "What to do.", "处置方法。"),
    must("remedy_zh", Text, "The remedy in Chinese.", "中文处置方法。"),
    must(
        "class",
        Choice(&["permanent", "retryable", "wait"]),
        "What it means for whoever waits.",
        "对等待者的含义。",
    ),
    key(
        "priority",
        Int(-1000, 1000),
        "Where several match, the highest wins; 0 if not set.",
        "多条匹配时取最大者，默认 0。",
    ),
    must("source", Text, "Where it is written down.", "出处。"),
    must("triggers", List(&Text), "Evidence that it must recognise.", "必须匹配的文本。"),
    must(
        "near_misses",
        List(&Text),
        "Evidence like it that it must not recognise.",
        "相似但不得匹配的文本。",
    ),
];

/// Keys of a relation: which objects tell about an object.
pub const RELATION: &[Key] = &[
    key(
        "of",
        List(&Text),
        "The kinds of `object`, as `Kind` or `Kind.group`; every kind if not set.",
        "`object` 的类型，写作 `Kind` 或 `Kind.group`；默认所有类型。",
    ),
    must("target", Table(TARGET), "The objects that tell about `object`.", "能说明 `object` 状况的对象。"),
    key(
        "where",
        Expr,
        "Only those for which this is true of `object` and `other`, the one that was found.",
        "仅当对 `object` 与找到的 `other` 成立时。",
    ),
    key("logs", Bool, "They are pods, and their logs tell as well.", "它们是 Pod，日志也有参考价值。"),
    must("source", Text, "Where it is written down.", "出处。"),
];

/// Keys of a knowledge file.
pub const KNOWLEDGE_FILE: &[Key] = &[
    must("schema", Int(SCHEMA, SCHEMA), "The version of the language: 1.", "语言版本：1。"),
    key("entries", List(&Table(KNOWLEDGE)), "The known failures.", "已知故障。"),
    key(
        "relations",
        List(&Table(RELATION)),
        "Which objects are looked at for the trouble of another.",
        "排查某个对象时还要查看哪些对象。",
    ),
];

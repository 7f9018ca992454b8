//! The codes of mistakes in definitions, each with what it means. `windrow explain CODE` prints them.

pub use crate::failure::Code;

macro_rules! codes {
    ($($name:ident = $code:literal, $en:literal, $zh:literal;)*) => {
        $(#[doc = $en] pub const $name: Code = Code { code: $code, en: $en, zh: $zh };)*

        /// Every code.
        pub const ALL: &[Code] = &[$($name),*];
    };
}

codes! {
    SYNTAX = "WF0001", "The file is not valid TOML (or YAML). Nothing else is checked until it is.",
        "文件不是合法的 TOML（或 YAML），修正之前不做其他检查。";
    UNKNOWN_KEY = "WF0002", "The table does not take this key. `windrow schema` lists those that it takes.",
        "该表不接受此键；可用的键见 `windrow schema`。";
    MISSING_KEY = "WF0003", "A key that must be there is missing.", "缺少必填的键。";
    WRONG_TYPE = "WF0004", "The value is of another type than the key takes.", "值的类型不符。";
    WRONG_VALUE = "WF0005", "The value is not one of those that the key takes.", "值不在允许的范围内。";
    EXPRESSION = "WF0006", "The text is not a CEL expression, or too long or too deep for one.",
        "文本不是合法的 CEL 表达式，或过长、嵌套过深。";
    UNKNOWN_FUNCTION = "WF0007", "The expression calls a function that does not exist, or not with such arguments.",
        "表达式调用了不存在的函数，或参数不符。";
    TEMPLATE = "WF0008", "A `{{` has no `}}`, or stands where no expression is evaluated.",
        "`{{` 没有对应的 `}}`，或出现在不求值的位置。";
    UNKNOWN_ACTION = "WF0010", "There is no such action.", "没有这个动作。";
    UNKNOWN_STEP = "WF0011", "There is no such step in this workflow.", "本工作流没有这个步骤。";
    UNKNOWN_INPUT = "WF0012", "The workflow has no such input.", "工作流没有这个参数。";
    UNKNOWN_VARIABLE = "WF0013", "The expression names a variable that exists nowhere.", "表达式使用了不存在的变量。";
    NOT_HERE = "WF0014", "The variable exists, but not where this expression is evaluated: `item` only with `for_each`, `captured` only after the captures, `result` only after the action, and so on.",
        "变量存在，但在此处求值时不可用：`item` 仅用于 `for_each`，`captured` 在记录之后，`result` 在动作之后，等等。";
    UNKNOWN_OBJECT = "WF0015", "`[objects]` has no target of that name.", "`[objects]` 中没有这个目标。";
    UNKNOWN_WORKFLOW = "WF0016", "There is no workflow of that name in the searched folders.", "搜索的目录中没有这个工作流。";
    UNKNOWN_MEMBER = "WF0017", "The step has no such output, capture or member.", "该步骤没有这个输出、记录或成员。";
    UNKNOWN_FAILURE = "WF0018", "No knowledge file has an entry of that name.", "知识文件中没有这个名称的条目。";
    CYCLE = "WF0020", "Steps wait for each other in a circle; the message shows it.", "步骤互相等待形成循环，消息中列出了路径。";
    SELF_EDGE = "WF0021", "A step waits for itself.", "步骤等待自身。";
    NOT_BEFORE = "WF0022", "Outputs are read from a step that is not before this one, so there may be none yet. Add it to `after`.",
        "读取了不在本步骤之前的步骤的输出，可能尚不存在。请把它加入 `after`。";
    MAYBE_SKIPPED = "WF0023", "Outputs are read from a step that may be skipped. Guard them with `.?name.orValue(…)` or by looking at its `state`.",
        "读取了可能被跳过的步骤的输出。请用 `.?name.orValue(…)` 或先判断其 `state`。";
    CIRCULAR_NAMES = "WF0024", "Names are defined by each other in a circle.", "命名表达式或目标互相引用形成循环。";
    DURATION = "WF0030", "Not a duration: write numbers with units, such as `90s`, `2h30m`, `1d`.",
        "不是时长：请写数字加单位，如 `90s`、`2h30m`、`1d`。";
    REGEX = "WF0031", "Not a regular expression.", "不是合法的正则表达式。";
    NAME = "WF0032", "Not a good name: a lower case letter, then a-z, 0-9, - and _; no name that the language uses itself.",
        "名称不合法：小写字母开头，之后为 a-z、0-9、- 与 _；不得与语言保留的名称相同。";
    FILE_NAME = "WF0033", "The workflow's name is not that of its file.", "工作流名称与文件名不符。";
    TWICE = "WF0034", "The same name is given twice.", "名称重复。";
    TOO_MANY = "WF0035", "There are more of them than the limit allows.", "数量超过上限。";
    CONSTANT_CHECK = "WF0040", "`check` is the same whatever the world looks like, so it cannot tell whether the effect is there.",
        "`check` 与实际状态无关，无法判断效果是否已存在。";
    NO_CHECK = "WF0041", "After a crash nobody could tell whether this write took effect. Write a `check`, or say with `idempotent` whether it may be repeated.",
        "崩溃后无法判断该写入是否生效。请写 `check`，或用 `idempotent` 说明能否重复。";
    NO_TARGET = "WF0042", "There is nothing to act on or to watch: the step has no `target`, and no `read` that is used.",
        "没有可操作或可监视的对象：步骤没有 `target`，也没有用到的 `read`。";
    STALE_STATUS = "WF0043", "After a write the old status is still there for a while. A wait that reads only status may end before anything happened: capture something before the write and compare.",
        "写入之后旧状态仍会保留一段时间，只看 status 的等待可能过早结束：请在写入前记录并比较。";
    NO_END = "WF0044", "The wait can never end well: nothing in it succeeds.", "等待无法成功结束：没有任何成功条件。";
    TOGETHER = "WF0045", "These keys do not go together, or exactly one of them is needed.", "这些键不能同时使用，或必须恰好有一个。";
    NO_EFFECT = "WF0046", "The key has no effect here.", "该键在此处不起作用。";
    PARALLEL_COMMIT = "WF0050", "Every step must be before or after a commit step, so that it is clear what can still be undone.",
        "每个步骤都必须在提交步骤之前或之后，才能确定哪些还能回滚。";
    COMMIT_APPROVAL = "WF0051", "The point of no return must be behind the approval.", "不可逆步骤必须在审批之后。";
    GUARD_ORDER = "WF0052", "A guard begins with a step that is before the one it ends with.", "守护条件的起始步骤必须在结束步骤之前。";
    ROLLBACK = "WF0053", "This does not work in, or outside of, a rollback list.", "该写法不能用于（或只能用于）回滚列表。";
    RETRY_WAIT = "WF0054", "`retry.wait` repeats the action although it succeeded: it needs `retry.undo = true`, or a name made by `name()`.",
        "`retry.wait` 会重复已成功的动作：需要 `retry.undo = true` 或由 `name()` 产生的名称。";
    CHILD_INPUTS = "WF0060", "The inputs do not fit those of the workflow that is called.", "参数与被调用的工作流不符。";
    CHILD_DEPTH = "WF0061", "Workflows call each other in a circle, or more than eight deep.", "工作流互相调用形成循环，或嵌套超过八层。";
    NO_CHINESE = "WF0070", "There is no Chinese text.", "缺少中文文本。";
    BAD_INPUT = "WF0071", "The definition of the input contradicts itself.", "参数定义自相矛盾。";
    BAD_REHEARSAL = "WF0072", "The rehearsal cannot be run like this.", "演练定义无法执行。";
    BAD_FILE = "WF0080", "A file cannot be read.", "无法读取文件。";
    BAD_KNOWLEDGE = "WF0090", "The entry of the knowledge file does not do what it says.", "知识条目与其声明不符。";
}

//! Every action with its keys, in one table (L10).

use crate::definition::model::ActionKind;
use crate::definition::shape::Key;
use crate::definition::shape::Shape::Bool;
use crate::definition::shape::Shape::Choice;
use crate::definition::shape::Shape::Duration;
use crate::definition::shape::Shape::Expr;
use crate::definition::shape::Shape::Int;
use crate::definition::shape::Shape::IntValue;
use crate::definition::shape::Shape::List;
use crate::definition::shape::Shape::Manifest;
use crate::definition::shape::Shape::Map;
use crate::definition::shape::Shape::Template;
use crate::definition::shape::Shape::Text;
use crate::definition::shape::Shape::Value;
use crate::definition::shape::key;
use crate::definition::shape::must;

/// What an action is and takes.
#[derive(Debug, Clone, Copy)]
pub struct ActionDoc {
    /// As written in `uses`.
    pub name: &'static str,
    /// Which one.
    pub kind: ActionKind,
    /// Its own keys.
    pub keys: &'static [Key],
    /// It may change the world.
    pub writes: bool,
    /// It cannot do without a `target`.
    pub target: Targets,
    /// Whether an attempt without an answer took effect can be seen without a `check` (E3).
    pub proves_itself: bool,
    /// What it does.
    pub en: &'static str,
    /// The same in Chinese.
    pub zh: &'static str,
}

/// What an action does with a `target`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Targets {
    /// It takes one object.
    One,
    /// It takes one object or a list.
    Any,
    /// It may have one.
    Optional,
    /// It needs none; one may be read for the step's conditions.
    None,
}

const PATCHES: [&str; 3] = ["merge", "json", "strategic"];

const MANIFEST: Key = must("manifest", Manifest, "The object.", "对象。");
const MESSAGE: Key = must("message", Template, "For people.", "说明。");
const MESSAGE_ZH: Key = key("message_zh", Template, "The message in Chinese.", "中文说明。");
const MERGE: Key = key("merge", Value, "A merge patch (RFC 7386).", "merge patch（RFC 7386）。");
const JSON: Key = key("json", Value, "A JSON patch (RFC 6902).", "JSON patch（RFC 6902）。");
const STRATEGIC: Key = key(
    "strategic",
    Value,
    "A strategic merge patch; core kinds only.",
    "strategic merge patch，仅限核心类型。",
);
const GRACE: Key = key("grace", IntValue(0, 86_400), "Seconds that the object gets to end.", "宽限秒数。");
const BODY: Key = key(
    "body",
    Value,
    "The body; a text is sent as it is, anything else as JSON.",
    "请求体；文本原样发送，其余以 JSON 发送。",
);

const fn read(
    kind: ActionKind,
    name: &'static str,
    target: Targets,
    keys: &'static [Key],
    en: &'static str,
    zh: &'static str,
) -> ActionDoc {
    ActionDoc { name, kind, keys, writes: false, target, proves_itself: true, en, zh }
}

/// Every action. `ext` stands for `ext.NAME`.
pub const ACTIONS: &[ActionDoc] = &[
    read(
        ActionKind::K8sGet,
        "k8s.get",
        Targets::One,
        &[],
        "Reads an object; its `result` is the object.",
        "读取对象，`result` 为该对象。",
    ),
    read(ActionKind::K8sList, "k8s.list", Targets::Any, &[], "Reads a list of objects.", "读取对象列表。"),
    ActionDoc {
        name: "k8s.apply",
        kind: ActionKind::K8sApply,
        keys: &[
            MANIFEST,
            key("force", Bool, "Takes fields over from other managers.", "接管其他管理者的字段。"),
        ],
        writes: true,
        target: Targets::Optional,
        proves_itself: true,
        en: "Server-side apply of a whole object that this workflow owns.",
        zh: "对本工作流拥有的完整对象执行 server-side apply。",
    },
    ActionDoc {
        name: "k8s.create",
        kind: ActionKind::K8sCreate,
        keys: &[MANIFEST],
        writes: true,
        target: Targets::Optional,
        proves_itself: true,
        en: "Creates an object.",
        zh: "创建对象。",
    },
    ActionDoc {
        name: "k8s.patch",
        kind: ActionKind::K8sPatch,
        keys: &[
            MERGE,
            JSON,
            STRATEGIC,
            key("optimistic", Bool, "Refused if the object is no longer as read.", "对象已变化时拒绝写入。"),
        ],
        writes: true,
        target: Targets::One,
        proves_itself: true,
        en: "Changes an object with exactly one of `merge`, `json`, `strategic`.",
        zh: "用 `merge`、`json`、`strategic` 之一修改对象。",
    },
    ActionDoc {
        name: "k8s.delete",
        kind: ActionKind::K8sDelete,
        keys: &[
            key(
                "propagation",
                Choice(&["foreground", "background", "orphan"]),
                "What becomes of dependent objects.",
                "从属对象的处理方式。",
            ),
            GRACE,
            key(
                "uid",
                Template,
                "Only the object with this uid; the one that was read if not set.",
                "仅当 uid 相符；默认为读取到的 uid。",
            ),
        ],
        writes: true,
        target: Targets::Any,
        proves_itself: true,
        en: "Deletes objects.",
        zh: "删除对象。",
    },
    ActionDoc {
        name: "k8s.restore",
        kind: ActionKind::K8sRestore,
        keys: &[],
        writes: true,
        target: Targets::Optional,
        proves_itself: true,
        en: "In a rollback: puts back exactly the paths that the step wrote, where they still hold what it wrote.",
        zh: "仅用于回滚：把本步骤写过且未被他人改动的路径恢复原值。",
    },
    ActionDoc {
        name: "k8s.subresource",
        kind: ActionKind::K8sSubresource,
        keys: &[
            must(
                "path",
                Template,
                "What follows the object's name in the URL, such as `start`.",
                "URL 中对象名之后的部分，如 `start`。",
            ),
            key(
                "method",
                Choice(&["GET", "PUT", "POST", "PATCH"]),
                "The HTTP method; PUT if not set.",
                "HTTP 方法，默认 PUT。",
            ),
            BODY,
            key(
                "api",
                Template,
                "The API that serves it, where that is not found by itself.",
                "提供该子资源的 API；通常自动确定。",
            ),
        ],
        writes: true,
        target: Targets::One,
        proves_itself: false,
        en: "Calls a subresource of an object.",
        zh: "调用对象的子资源。",
    },
    ActionDoc {
        name: "k8s.evict",
        kind: ActionKind::K8sEvict,
        keys: &[GRACE],
        writes: true,
        target: Targets::One,
        proves_itself: true,
        en: "Evicts a pod: it is deleted if its disruption budgets, and KubeVirt, allow it.",
        zh: "驱逐 Pod：仅在中断预算和 KubeVirt 允许时删除。",
    },
    read(
        ActionKind::K8sDryRun,
        "k8s.dry_run",
        Targets::Optional,
        &[
            MERGE,
            JSON,
            STRATEGIC,
            key(
                "manifest",
                Manifest,
                "An object that would be created or applied.",
                "将要创建或应用的对象。",
            ),
            key("delete", Bool, "The target would be deleted.", "将要删除目标。"),
        ],
        "Lets the server judge a write and forget it.",
        "让服务器校验一次写入而不生效。",
    ),
    read(
        ActionKind::K8sLogs,
        "k8s.logs",
        Targets::One,
        &[
            key(
                "container",
                Template,
                "The container; needed if the pod has several.",
                "容器；Pod 有多个容器时必填。",
            ),
            key("tail", Int(1, 10_000), "The last lines; 200 if not set.", "末尾行数，默认 200。"),
            key("previous", Bool, "Those of the container's former run.", "读取容器上一次运行的日志。"),
        ],
        "Reads the log of a pod.",
        "读取 Pod 日志。",
    ),
    read(
        ActionKind::K8sEvents,
        "k8s.events",
        Targets::One,
        &[key(
            "type",
            Choice(&["Normal", "Warning"]),
            "Only those of that type; all if not set.",
            "只读取该类型的事件，默认全部。",
        )],
        "Reads the events about an object, the latest last; of one that is gone, those about its name.",
        "读取对象的事件，最新的在最后；对象已不存在时按名称查找。",
    ),
    ActionDoc {
        name: "k8s.raw",
        kind: ActionKind::K8sRaw,
        keys: &[
            must(
                "path",
                Template,
                "The path with its query, beginning with `/`.",
                "以 `/` 开头的路径（含查询参数）。",
            ),
            key(
                "method",
                Choice(&["GET", "PUT", "POST", "PATCH", "DELETE"]),
                "The HTTP method; GET if not set.",
                "HTTP 方法，默认 GET。",
            ),
            BODY,
            key("content_type", Text, "`application/json` if not set.", "默认 `application/json`。"),
        ],
        writes: true,
        target: Targets::None,
        proves_itself: false,
        en: "Any request to the API server.",
        zh: "向 API 服务器发送任意请求。",
    },
    read(
        ActionKind::K8sWait,
        "k8s.wait",
        Targets::Any,
        &[],
        "Only waits; takes the keys of `wait` itself.",
        "只等待；直接使用 `wait` 的各键。",
    ),
    ActionDoc {
        name: "http",
        kind: ActionKind::Http,
        keys: &[
            must("url", Template, "Absolute, http or https.", "完整的 http 或 https 地址。"),
            key(
                "method",
                Choice(&["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"]),
                "GET if not set.",
                "默认 GET。",
            ),
            key("headers", Map(&Template), "Headers.", "请求头。"),
            BODY,
            key(
                "expect",
                List(&Int(100, 599)),
                "The statuses that are a success; every 2xx if not set.",
                "视为成功的状态码，默认所有 2xx。",
            ),
        ],
        writes: true,
        target: Targets::None,
        proves_itself: false,
        en: "Sends an HTTP request.",
        zh: "发送 HTTP 请求。",
    },
    read(
        ActionKind::Tcp,
        "tcp",
        Targets::None,
        &[
            must("host", Template, "Name or address.", "主机名或地址。"),
            must("port", IntValue(1, 65_535), "The port.", "端口。"),
            key("expect", Template, "Text that the other side must send first.", "对端必须首先发送的文本。"),
        ],
        "Opens a connection and closes it.",
        "建立连接后关闭。",
    ),
    ActionDoc {
        name: "process",
        kind: ActionKind::Process,
        keys: &[
            must(
                "command",
                List(&Template),
                "The program and its arguments; never a shell line.",
                "程序及参数；不经过 shell。",
            ),
            key("env", Map(&Template), "Its environment; the place for secrets.", "环境变量，密钥放在这里。"),
            key("dir", Template, "Where it runs.", "工作目录。"),
            key(
                "expect",
                List(&Int(0, 255)),
                "The exit codes that are a success; 0 if not set.",
                "视为成功的退出码，默认 0。",
            ),
        ],
        writes: true,
        target: Targets::None,
        proves_itself: false,
        en: "Runs a program.",
        zh: "运行程序。",
    },
    read(
        ActionKind::Sleep,
        "sleep",
        Targets::None,
        &[must("duration", Duration, "How long.", "时长。")],
        "Waits for a fixed time.",
        "固定等待一段时间。",
    ),
    read(
        ActionKind::Approval,
        "approval",
        Targets::None,
        &[
            must(
                "subject",
                List(&Template),
                "What is approved; a list in it is spread; a change voids the approval.",
                "审批的内容；其中的列表会展开；变化后审批失效。",
            ),
            MESSAGE,
            MESSAGE_ZH,
            must("expires", Duration, "How long it stays open.", "有效期。"),
            key(
                "on_expire",
                Choice(&["fail", "decline"]),
                "`fail` if not set.",
                "过期时的处理，默认 `fail`。",
            ),
            key(
                "on_reject",
                Choice(&["fail", "decline"]),
                "`fail` if not set.",
                "拒绝时的处理，默认 `fail`。",
            ),
            key("self_approve", Bool, "The requester may approve.", "允许申请人自己审批。"),
        ],
        "Asks a person.",
        "请人审批。",
    ),
    read(
        ActionKind::Assert,
        "assert",
        Targets::Optional,
        &[
            must("that", Expr, "Must be true.", "必须为 true。"),
            MESSAGE,
            MESSAGE_ZH,
            key(
                "severity",
                Choice(&["ok", "warn", "bad"]),
                "How bad it is when it is not; bad if not set.",
                "不成立时的严重程度，默认 bad。",
            ),
        ],
        "Checks a condition.",
        "检查条件。",
    ),
    read(
        ActionKind::Debt,
        "debt",
        Targets::Optional,
        &[
            must("what", Template, "What is left to be done.", "遗留的事项。"),
            key("what_zh", Template, "The same in Chinese.", "中文说明。"),
            key(
                "objects",
                List(&Template),
                "Which objects, as `Kind namespace/name`; a list in it is spread.",
                "涉及的对象，写作 `Kind namespace/name`；其中的列表会展开。",
            ),
            key("gone_when", Expr, "True when nothing is left any more.", "不再遗留时为 true。"),
        ],
        "Notes something that is left to be done after the run.",
        "记录运行之后仍需处理的事项。",
    ),
    ActionDoc {
        name: "workflow",
        kind: ActionKind::Workflow,
        keys: &[
            must("name", Text, "The workflow.", "工作流名称。"),
            key("inputs", Map(&Value), "Its inputs.", "参数。"),
        ],
        writes: true,
        target: Targets::None,
        proves_itself: true,
        en: "Runs another workflow as a child.",
        zh: "作为子运行执行另一个工作流。",
    },
    ActionDoc {
        name: "ext",
        kind: ActionKind::Extension,
        keys: &[key("args", Value, "What it gets.", "参数。")],
        writes: true,
        target: Targets::None,
        proves_itself: false,
        en: "An action that a program using the library registered as `ext.NAME`.",
        zh: "由使用本库的程序以 `ext.NAME` 注册的动作。",
    },
];

/// What begins the name of a registered action.
pub const EXTENSION_PREFIX: &str = "ext.";

/// The action called `name`.
pub fn find(name: &str) -> Option<&'static ActionDoc> {
    let wanted =
        if name.strip_prefix(EXTENSION_PREFIX).is_some_and(|rest| !rest.is_empty()) { "ext" } else { name };
    let plain_ext = name == "ext";
    ACTIONS.iter().find(|action| action.name == wanted && !plain_ext)
}

/// The table row of an action.
pub fn of(kind: ActionKind) -> &'static ActionDoc {
    let found = ACTIONS.iter().find(|action| action.kind == kind);
    found.expect("a test sees to it that every action has a row")
}

/// Of these keys exactly one must be there.
pub fn one_of(kind: ActionKind) -> &'static [&'static str] {
    match kind {
        ActionKind::K8sPatch => &PATCHES,
        ActionKind::K8sDryRun => &["merge", "json", "strategic", "manifest", "delete"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::definition::keys;

    #[test]
    fn every_action_is_found_by_its_name_and_its_kind() {
        for action in ACTIONS.iter().filter(|action| action.kind != ActionKind::Extension) {
            assert_eq!(find(action.name).map(|found| found.kind), Some(action.kind));
            assert_eq!(action.name.parse(), Ok(action.kind), "{}", action.name);
            assert_eq!(action.kind.to_string(), action.name);
        }
        assert_eq!(find("ext.append").map(|found| found.kind), Some(ActionKind::Extension));
        assert!(find("ext").is_none() && find("ext.").is_none() && find("k8s").is_none());
        let kinds: BTreeSet<_> = ACTIONS.iter().map(|action| action.kind).collect();
        assert_eq!(kinds.len(), ACTIONS.len());
        assert_eq!(of(ActionKind::Sleep).name, "sleep");
    }

    #[test]
    fn no_key_of_an_action_hides_one_of_the_step() {
        for action in ACTIONS {
            for key in action.keys {
                let taken = [keys::STEP, keys::STEP_ONLY, keys::UNDO_ONLY]
                    .into_iter()
                    .flatten()
                    .any(|k| k.name == key.name);
                assert!(!taken, "{} of {}", key.name, action.name);
            }
        }
    }
}

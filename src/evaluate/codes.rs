//! The failure codes of this module, each with what it means. `windrow explain CODE` prints them.

crate::failure::codes! {
    UNKNOWN_STEP = "unknown-step": "The pinned definition has no such step, guard or child: the journal and the definition do not belong together.",
        "运行所固定的定义里没有这个步骤、守护条件或子工作流：日志与定义不匹配。";
    EXPRESSION = "expression-failed": "An expression or template has no value. The message shows it and why.",
        "表达式或模板没有值，消息中给出表达式与原因。";
    DURATION = "bad-duration": "A duration cannot be read. Write it like `90s`, `2h30m`, `1d`.",
        "无法读取时长。请写成 `90s`、`2h30m`、`1d`。";
    EMPTY_TARGET = "empty-target": "The name or selector of a target is empty. An empty selector would mean every object, so nothing is read.",
        "目标的名称或选择器为空。空选择器意味着所有对象，因此不读取任何对象。";
    NO_OBJECT = "no-object": "A target that must match something matches no object. Write `allow_empty = true` if that is fine.",
        "必须有匹配的目标没有匹配到任何对象。若允许为空，请写 `allow_empty = true`。";
    TARGET_MISSING = "target-missing": "The object that the step is to change does not exist.",
        "步骤要修改的对象不存在。";
    WRITES_UNKNOWN = "writes-unknown": "A `k8s.restore` is to put back what a step wrote, but the answer to that write was lost and the object does not tell.",
        "`k8s.restore` 要恢复某步骤写入的内容，但该写入的应答已丢失，从对象上也无法判断。";
    ASSERT = "assert-failed": "What an `assert` step demands does not hold.",
        "`assert` 步骤要求的条件不成立。";
    APPROVAL_VOID = "approval-void": "What was approved is not what is there now: the approval counts no more. Look at the difference and start again.",
        "现状与审批时的内容不同，审批作废。请查看差异后重新发起。";
    LIST = "bad-list": "The list of a `for_each` is not usable: empty, too long, no list, or with items that cannot be told apart.",
        "`for_each` 的列表不可用：为空、过长、不是列表，或各项无法区分。";
    NOT_COVERED = "not-covered": "The items of a verifying step do not cover what they must.",
        "验证步骤的各项没有覆盖必须覆盖的内容。";
    KNOWN = "known-failure": "The evidence matches a known failure that waiting does not cure; cause and remedy are printed with it.",
        "证据与某个已知故障相符，等待无法解决；原因与处置方法一并给出。";
}

//! The codes of the failures that the engine itself makes, each with what it means. `windrow explain CODE` prints them.

crate::failure::codes! {
    APPROVAL_EXPIRED = "approval-expired": "An approval expired.",
        "审批已过期。";
    APPROVAL_REJECTED = "approval-rejected": "An approval was rejected.",
        "审批被拒绝。";
    CHANGED_BY_OTHERS = "changed-by-others": "`k8s.restore` found another value than the one that this run wrote, and changed nothing.",
        "`k8s.restore` 发现该值不是本次运行写入的，未作改动。";
    CANNOT_TELL = "cannot-tell": "It cannot be told whether an attempt took effect. Look at the object, then answer with `windrow decide`.",
        "无法判断某次尝试是否生效。请查看对象，然后用 `windrow decide` 回答。";
    EMPTY_LIST = "empty-list": "The list of a `for_each` is empty.",
        "`for_each` 的列表为空。";
    LIST_TOO_LONG = "list-too-long": "The list of a `for_each` is too long.",
        "`for_each` 的列表过长。";
    GUARD_BROKEN = "guard-broken": "A guard does not hold.",
        "守护条件不再成立。";
    LOCK_BROKEN = "lock-broken": "Somebody took a lock away.",
        "有人取走了锁。";
    LOCK_TIMEOUT = "lock-timeout": "The locks did not come in time.",
        "没有在期限内得到锁。";
    LOST_RECORD = "lost-record": "A record of the run's journal is bad or missing: the run is left as it is and waits for a person. `windrow show RUN` lists the answers; what is cut off then is kept in the state directory.",
        "该运行的日志有损坏或缺失的记录：运行保持原状并等待人工处理。`windrow show RUN` 列出可选的回答；届时截去的部分保存在状态目录中。";
    MARRED = "marred": "A step succeeded with a verdict that is not good: look at what it says.",
        "步骤成功，但判定并非良好：请查看其说明。";
    PRECONDITION = "precondition": "A precondition is not met.",
        "前提条件不满足。";
    PRECONDITION_TIMEOUT = "precondition-timeout": "A precondition was not met in time.",
        "前提条件没有在期限内满足。";
    RUN_TIMEOUT = "run-timeout": "The run took too long.",
        "运行超时。";
    STEP_TIMEOUT = "step-timeout": "The step took too long.",
        "步骤超时。";
    ATTEMPT_TIMEOUT = "attempt-timeout": "The attempt took too long.",
        "单次尝试超时。";
    TERMINATED = "terminated": "Somebody terminated the run.",
        "有人终止了该运行。";
    TOO_MANY_ATTEMPTS = "too-many-attempts": "The step was attempted too often.",
        "步骤尝试次数过多。";
    UNDO_FAILED = "undo-failed": "An undo failed. Look at the reason, then answer with `windrow decide`.",
        "撤销失败。请查看原因，然后用 `windrow decide` 回答。";
    UNOBSERVED = "unobserved": "The API could not be reached when a deadline came, so a person is asked instead of failing the step.",
        "到期时无法访问 API，因此没有判定失败，而是询问值班人员。";
    VERDICT = "verdict": "A verdict says that the step failed.",
        "某个判定认为步骤失败。";
    FAIL_IF = "fail-if": "A `fail_if` came true.",
        "某个 `fail_if` 成立。";
    WAIT_STALLED = "wait-stalled": "A wait made no progress.",
        "等待没有进展。";
    WAIT_TIMEOUT = "wait-timeout": "A wait took too long.",
        "等待超时。";
}

/// Verdict of the engine's own: time was up.
pub const TIMEOUT: &str = "timeout";
/// Verdict of the engine's own: no progress.
pub const STALLED: &str = "stalled";
/// Verdict of the engine's own: the evidence matches a known failure that is permanent.
pub const KNOWN_FAILURE: &str = "known_failure";

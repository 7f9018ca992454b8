//! The failure codes of this module, each with what it means. `windrow explain CODE` prints them.

crate::failure::codes! {
    NOT_PREPARED = "not-prepared": "The request of an attempt belongs to an earlier process; the world is looked at instead.",
        "该尝试的请求属于更早的进程，改为查看实际状态。";
    DEFINITION_REFUSED = "definition-refused": "This version does not accept the definition that the run is pinned to. Go on with the version that started it, or end the run with `windrow terminate`.",
        "当前版本不接受该运行所固定的定义。请用启动它的版本继续，或用 `windrow terminate` 结束。";
    NOT_KEPT = "value-not-kept": "A large value could not be written to the state directory.",
        "较大的值无法写入状态目录。";
    LOST_VALUE = "value-lost": "A large value is missing from the state directory, or is damaged.",
        "状态目录中缺少某个较大的值，或该值已损坏。";
    PAUSED = "paused": "Nothing new is started: `windrow pause --all` is in force. `windrow unpause --all` ends it.",
        "不再启动新的运行：`windrow pause --all` 正在生效，用 `windrow unpause --all` 解除。";
    LOCK_HELD = "lock-held": "Another run holds a lock that this one needs. `windrow locks` lists who holds which.",
        "本次运行需要的锁被另一个运行持有。`windrow locks` 列出持有者。";
    CHILD_START = "child-not-started": "A workflow that a step calls could not be started.",
        "步骤调用的工作流无法启动。";
    CHILD_UNKNOWN = "child-unknown": "The state of a called workflow could not be read.",
        "无法读取被调用工作流的状态。";
    TOO_DEEP = "too-deep": "Workflows call each other deeper than is allowed.",
        "工作流互相调用的层数超过上限。";
    CHILD_FAILED = "child-failed": "The called workflow did not succeed. `windrow show` of that run tells why.",
        "被调用的工作流没有成功，原因见 `windrow show` 该运行。";
}

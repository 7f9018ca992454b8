//! The codes of the surfaces, each with what it means. `windrow explain CODE` prints them.

crate::failure::codes! {
    AGENT_GONE = "agent-gone": "The process that owned the store ended while it was asked something. What it acknowledged is durable: ask again.",
        "持有存储的进程在被询问时结束。已确认的内容均已落盘：请再试一次。";
    AMBIGUOUS_RUN = "ambiguous-run": "A shortened run id fits several runs. Give more of it.",
        "缩写的运行 ID 对应多个运行，请多写几个字符。";
    BAD_CHOICE = "bad-choice": "What was given is not an answer that a run can take. `windrow show RUN` lists the answers with their commands.",
        "这不是运行能接受的回答。`windrow show RUN` 列出可用的回答及命令。";
    BAD_DEBT = "bad-debt": "A debt is named RUN/NUMBER, as `windrow debts` lists it.",
        "遗留事项写作 RUN/编号，见 `windrow debts`。";
    BAD_INPUTS = "bad-inputs": "Inputs were unknown, missing, given twice or of the wrong type. `windrow workflows` lists them.",
        "参数未知、缺失、重复或类型不符。`windrow workflows` 列出各工作流的参数。";
    BAD_LINE = "bad-line": "The socket got a line that is no request.",
        "套接字收到的一行不是合法请求。";
    BAD_SPEED = "bad-speed": "A speed is a number from 1 to 1000.",
        "速度是 1 到 1000 之间的数。";
    BAD_STEP = "bad-step": "A step is written `halt`, `halt[vm-1]` for an item, `halt/undo.0` for a rollback entry.",
        "步骤写作 `halt`，其中一项写作 `halt[vm-1]`，回滚条目写作 `halt/undo.0`。";
    BUG = "bug": "Windrow did something that it must never do. What was acknowledged is durable; please report it.",
        "Windrow 出现了不应出现的错误。已确认的内容均已落盘；请报告此问题。";
    FIXTURE = "fixture": "A file of objects for the rehearsal cluster cannot be read.",
        "无法读取演练集群的对象文件。";
    LISTEN = "listen": "The address is in use or not of this machine.",
        "地址已被占用，或不属于本机。";
    NO_EVIDENCE = "no-evidence": "The run has kept no such evidence. `windrow show RUN` tells whether it has kept any.",
        "该运行没有保存这份现场证据。`windrow show RUN` 可查看是否有证据。";
    NO_SUCH_OBJECT = "no-such-object": "The cluster has no object of that kind and name. Is --context right?",
        "集群中没有该类型和名称的对象。--context 是否正确？";
    NO_REASON = "no-reason": "The command wants to know why: the reason is kept in the journal.",
        "该命令需要说明原因，原因会写入日志。";
    NO_RUNTIME = "no-runtime": "The machine has no room for another process with threads.",
        "本机无法再启动新的线程。";
    NO_SIGNALS = "no-signals": "The process cannot listen to signals.",
        "进程无法监听信号。";
    NO_SUCH_LOCK = "no-such-lock": "Nobody holds that lock. `windrow locks` lists them.",
        "没有运行持有这把锁。`windrow locks` 列出所有锁。";
    NO_WORKFLOWS = "no-workflows": "There is nothing to check there: a workflow is a file that ends in .toml.",
        "该处没有可检查的内容：工作流是以 .toml 结尾的文件。";
    NOT_CONFIRMED = "not-confirmed": "The workflow has `confirm = true`: it shows its plan and wants a yes, or --yes.",
        "该工作流设有 `confirm = true`：会先显示计划并要求确认，或加 --yes。";
    REHEARSAL_SETUP = "rehearsal-setup": "The rehearsal cluster could not be made as the case wants it.",
        "无法按用例建立演练集群。";
    REJECTED = "rejected": "The run does not take this command in its state. `windrow show RUN` tells the state.",
        "运行在当前状态下不接受此命令。`windrow show RUN` 显示其状态。";
    STORE = "store": "The state directory cannot be used. `windrow store check` looks at it; nothing is ever deleted or made anew silently.",
        "状态目录无法使用。可用 `windrow store check` 检查；任何内容都不会被悄悄删除或重建。";
    STORE_IN_USE = "store-in-use": "Another process has the state directory open, and either is still starting, or lets nobody in, or is in the way of a command that needs the directory for itself. Try again in a moment. Wait until it ends, or end it; its runs go on with `windrow resume`.",
        "另一个进程正在使用该状态目录：它仍在启动，或不接受访问，或者本命令需要独占该目录。请稍后重试，等待其结束，或结束它；其中的运行可用 `windrow resume` 继续。";
    UNKNOWN_CODE = "unknown-code": "No such code is printed by this version.",
        "本版本不会输出这个代码。";
    UNKNOWN_FAULT = "unknown-fault": "`windrow sim --list-faults` lists the faults.",
        "`windrow sim --list-faults` 列出可用的故障。";
    UNKNOWN_REHEARSAL = "unknown-rehearsal": "The workflow has no rehearsal of that name.",
        "该工作流没有这个演练。";
    UNKNOWN_RUN = "unknown-run": "No run of this state directory is called so. `windrow runs` lists them; is --state right?",
        "本状态目录中没有这个运行。`windrow runs` 列出所有运行；--state 是否正确？";
    UNKNOWN_WORKFLOW = "unknown-workflow": "No workflow of that name was found without mistakes. `windrow workflows` lists those that can be run.",
        "没有找到这个名称且无错误的工作流。`windrow workflows` 列出可运行的工作流。";
    WRITE = "write": "A file cannot be written.",
        "无法写入文件。";
    WRONG_CLUSTER = "wrong-cluster": "The run belongs to another cluster than the kubeconfig points to. It was left untouched: use the right --kubeconfig or --context.",
        "该运行属于另一个集群，未作任何改动：请使用正确的 --kubeconfig 或 --context。";
}

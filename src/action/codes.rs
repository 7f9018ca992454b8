//! The failure codes of this module, each with what it means. `windrow explain CODE` prints them.

crate::failure::codes! {
    BAD_REQUEST = "bad-request": "The server, or Windrow before sending, found the request malformed. Correct the workflow.",
        "服务器（或 Windrow 在发送之前）认为请求格式有误。请修正工作流。";
    CONFLICT = "conflict": "The object changed between reading and writing. It is read again and decided again.",
        "读取与写入之间对象被修改：会重新读取并重新判断。";
    FIELD_CONFLICT = "field-conflict": "Another field manager owns a field of an applied object. Write `force = true` only if the workflow owns it.",
        "所应用的字段归另一个字段管理者所有。只有工作流确实拥有该字段时才写 `force = true`。";
    ALREADY_EXISTS = "already-exists": "An object of that name exists and was not made by this step.",
        "同名对象已存在，且不是本步骤创建的。";
    EXISTS_FINISHED = "exists-finished": "The object was made by an earlier attempt and has already ended; it is no success of this attempt.",
        "该对象由更早的一次尝试创建并已结束，不能算作本次尝试成功。";
    WRONG_STATE = "wrong-state": "The object is in the wrong state for that subresource. Look whether the wanted state is there already.",
        "对象当前状态不允许该子资源操作。请先看目标状态是否已经达到。";
    INVALID = "invalid": "The server refused the object as invalid; the causes are in the message.",
        "服务器认为对象无效，原因见消息。";
    QUOTA = "quota-exceeded": "A ResourceQuota of the namespace would be exceeded.",
        "会超出该命名空间的 ResourceQuota。";
    TERMINATING = "namespace-terminating": "The namespace is being deleted.",
        "该命名空间正在被删除。";
    FORBIDDEN = "forbidden": "The account may not do this (RBAC). Give it the right, or use another kubeconfig.",
        "该账号没有权限（RBAC）。请为其授权，或换用其他 kubeconfig。";
    UNAUTHORIZED = "unauthorized": "The credentials are refused, also after they were loaded again. The token may have expired: renew the kubeconfig.",
        "凭据被拒绝，重新加载之后仍然如此。令牌可能已过期：请更新 kubeconfig。";
    ADMISSION_DENIED = "admission-denied": "An admission webhook or policy refused the request.",
        "准入 webhook 或策略拒绝了请求。";
    ADMISSION_WAIT = "admission-wait": "An admission webhook refuses the request until something else is finished.",
        "准入 webhook 要求等另一件事结束后再提交请求。";
    WEBHOOK_FAILED = "webhook-failed": "An admission webhook could not be asked; while it is down, such writes fail.",
        "无法访问准入 webhook；它不可用期间此类写入都会失败。";
    WEBHOOK_CERTIFICATE = "webhook-certificate": "The certificate of an admission webhook is not accepted.",
        "准入 webhook 的证书不被接受。";
    UNDERWAY = "request-underway": "A start or stop of the virtual machine is queued already.",
        "该虚拟机已有一个启动或停止请求在排队。";
    ETCD_UNCERTAIN = "etcd-uncertain": "The server's database did not answer in time; a write may have happened.",
        "服务器的数据库没有及时应答，写入可能已经发生。";
    THROTTLED = "throttled": "The server has too many requests at the moment.",
        "服务器此刻请求过多。";
    EVICTION_BLOCKED = "eviction-blocked": "A disruption budget or KubeVirt does not allow the eviction now.",
        "中断预算（PDB）或 KubeVirt 暂不允许驱逐。";
    UNAVAILABLE = "unavailable": "The API server, or the aggregated API behind it, is not ready.",
        "API 服务器或其后的聚合 API 尚未就绪。";
    SERVER_ERROR = "server-error": "The server failed; a write may have happened.",
        "服务器出错，写入可能已经发生。";
    TIMEOUT = "timeout": "No answer in time; a write may have happened.",
        "没有及时收到应答，写入可能已经发生。";
    NOT_FOUND = "not-found": "The object does not exist.",
        "对象不存在。";
    UNKNOWN_KIND = "unknown-kind": "The server does not know the kind; its CustomResourceDefinition may be missing.",
        "服务器不认识该类型，可能缺少对应的 CustomResourceDefinition。";
    EXPIRED = "list-expired": "The server no longer has that version of the list.",
        "服务器已不再保留该版本的列表。";
    BAD_ANSWER = "bad-answer": "The answer is not one of a Kubernetes API server; something between may have made it.",
        "应答不像来自 Kubernetes API 服务器，可能由中间设备产生。";
    UNREACHABLE = "unreachable": "No connection; nothing was sent. Is the server up, and is its address in the kubeconfig right?",
        "无法建立连接，什么都没有发出。服务器是否在运行？kubeconfig 中的地址是否正确？";
    CONNECTION_LOST = "connection-lost": "The connection broke after the request was sent; a write may have happened.",
        "请求发出之后连接中断，写入可能已经发生。";
    CERTIFICATE = "certificate-expired": "A certificate of the cluster or of the account has expired.",
        "集群或账号的证书已过期。";
    CERTIFICATE_REFUSED = "certificate-refused": "The certificate of the other side is not accepted.",
        "对方的证书不被接受。";
    NO_CLUSTER = "no-cluster": "No cluster is configured. Give --kubeconfig FILE, set KUBECONFIG, or run in a pod with a service account.",
        "没有配置集群。请给出 --kubeconfig FILE、设置 KUBECONFIG，或在带服务账号的 Pod 中运行。";
    CONFIGURATION = "cluster-configuration": "The kubeconfig, or the service account, cannot be used. The message names the file and the reason.",
        "kubeconfig 或服务账号无法使用，消息中给出文件与原因。";
    TOO_LARGE = "too-large": "There are more objects, or more bytes, than Windrow takes.",
        "对象数量或字节数超过 Windrow 的上限。";
    RESTORE_CONFLICT = "restore-conflict": "A field that would be put back no longer holds what this run wrote.",
        "要恢复的字段已不是本次运行写入的值。";
    MASKED = "masked-value": "The request contains a masked value; sending it would destroy data.",
        "请求中含有被遮蔽的值，发送会破坏数据。";
    SECRET = "secret-unavailable": "A secret cannot be read. Its reference is resolved by the process that executes the run: look at its environment, its files, or the Secret in the cluster.",
        "无法读取机密。引用由执行运行的进程解析：请检查其环境变量、文件或集群中的 Secret。";
    SECRET_IN_ARGV = "secret-in-arguments": "A secret must not stand among a program's arguments, where every user can read it. Put it into `env`.",
        "机密不得出现在程序参数里，那里所有用户都能看到。请放入 `env`。";
    NO_SEALING_KEY = "no-sealing-key": "A secret was given itself, and there is no key to seal it with before it is kept. Give a reference: env:NAME, file:PATH or k8s:NAMESPACE/NAME/KEY.",
        "直接给出了机密，但没有可用于密封它的密钥。请给出引用：env:NAME、file:PATH 或 k8s:NAMESPACE/NAME/KEY。";
    SEALED = "seal-broken": "A sealed value cannot be opened with the key of this state directory.",
        "密封的值无法用本状态目录的密钥打开。";
    AMBIGUOUS_KIND = "ambiguous-kind": "Several kinds of the cluster are called so. Add the group, as in `volumes.longhorn.io`.",
        "集群中有多个类型使用这个名称。请加上组名，例如 `volumes.longhorn.io`。";
    HTTP_STATUS = "http-status": "The HTTP answer has a status that is not expected.",
        "HTTP 应答的状态码不在预期之内。";
    TCP_BANNER = "tcp-banner": "The other side did not send the expected text.",
        "对方没有发来预期的文本。";
    PROCESS_START = "process-start": "The program could not be started.",
        "程序无法启动。";
    PROCESS_EXIT = "process-exit": "The program ended with an exit code that is not expected.",
        "程序的退出码不在预期之内。";
    PROCESS_KILLED = "process-killed": "The program was ended by a signal; what it did until then is not known.",
        "程序被信号终止，在此之前做了什么不得而知。";
    PROCESS_LOST = "process-lost": "The program is gone and left no exit code; what it did is not known.",
        "程序已不在且没有留下退出码，做了什么不得而知。";
    EXTENSION = "unknown-extension": "No action of that name is registered.",
        "没有注册该名称的动作。";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_speakable() {
        let mut seen: Vec<&str> = ALL.iter().map(|known| known.code).collect();
        seen.sort_unstable();
        assert!(seen.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(seen.iter().all(|code| code.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')));
    }
}

//! The failure codes of this module, each with what it means. `windrow explain CODE` prints them.

macro_rules! codes {
    ($($name:ident = $code:literal: $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $name: &str = $code;)*

        /// Every code with its meaning.
        pub const ALL: &[(&str, &str)] = &[$(($code, $meaning)),*];
    };
}

codes! {
    BAD_REQUEST = "bad-request": "The server, or Windrow before sending, found the request malformed. Correct the workflow.";
    CONFLICT = "conflict": "The object changed between reading and writing. It is read again and decided again.";
    FIELD_CONFLICT = "field-conflict": "Another field manager owns a field of an applied object. Write `force = true` only if the workflow owns it.";
    ALREADY_EXISTS = "already-exists": "An object of that name exists and was not made by this step.";
    EXISTS_FINISHED = "exists-finished": "The object was made by an earlier attempt and has already ended; it is no success of this attempt.";
    WRONG_STATE = "wrong-state": "The object is in the wrong state for that subresource. Look whether the wanted state is there already.";
    INVALID = "invalid": "The server refused the object as invalid; the causes are in the message.";
    QUOTA = "quota-exceeded": "A ResourceQuota of the namespace would be exceeded.";
    TERMINATING = "namespace-terminating": "The namespace is being deleted.";
    FORBIDDEN = "forbidden": "The account may not do this (RBAC).";
    UNAUTHORIZED = "unauthorized": "The credentials are refused, also after they were loaded again.";
    ADMISSION_DENIED = "admission-denied": "An admission webhook or policy refused the request.";
    ADMISSION_WAIT = "admission-wait": "An admission webhook refuses the request until something else is finished.";
    WEBHOOK_FAILED = "webhook-failed": "An admission webhook could not be asked; while it is down, such writes fail.";
    WEBHOOK_CERTIFICATE = "webhook-certificate": "The certificate of an admission webhook is not accepted.";
    UNDERWAY = "request-underway": "A start or stop of the virtual machine is queued already.";
    ETCD_UNCERTAIN = "etcd-uncertain": "The server's database did not answer in time; a write may have happened.";
    THROTTLED = "throttled": "The server has too many requests at the moment.";
    EVICTION_BLOCKED = "eviction-blocked": "A disruption budget or KubeVirt does not allow the eviction now.";
    UNAVAILABLE = "unavailable": "The API server, or the aggregated API behind it, is not ready.";
    SERVER_ERROR = "server-error": "The server failed; a write may have happened.";
    TIMEOUT = "timeout": "No answer in time; a write may have happened.";
    NOT_FOUND = "not-found": "The object does not exist.";
    UNKNOWN_KIND = "unknown-kind": "The server does not know the kind; its CustomResourceDefinition may be missing.";
    EXPIRED = "list-expired": "The server no longer has that version of the list.";
    BAD_ANSWER = "bad-answer": "The answer is not one of a Kubernetes API server; something between may have made it.";
    UNREACHABLE = "unreachable": "No connection; nothing was sent.";
    CONNECTION_LOST = "connection-lost": "The connection broke after the request was sent; a write may have happened.";
    CERTIFICATE = "certificate-expired": "A certificate of the cluster or of the account has expired.";
    CERTIFICATE_REFUSED = "certificate-refused": "The certificate of the other side is not accepted.";
    NO_CLUSTER = "no-cluster": "No cluster is configured.";
    CONFIGURATION = "cluster-configuration": "The kubeconfig, or the service account, cannot be used.";
    TOO_LARGE = "too-large": "There are more objects, or more bytes, than Windrow takes.";
    RESTORE_CONFLICT = "restore-conflict": "A field that would be put back no longer holds what this run wrote.";
    MASKED = "masked-value": "The request contains a masked value; sending it would destroy data.";
    SECRET = "secret-unavailable": "A secret cannot be read.";
    SECRET_IN_ARGV = "secret-in-arguments": "A secret must not stand among a program's arguments, where every user can read it. Put it into `env`.";
    SEALED = "seal-broken": "A sealed value cannot be opened with the key of this state directory.";
    HTTP_STATUS = "http-status": "The HTTP answer has a status that is not expected.";
    TCP_BANNER = "tcp-banner": "The other side did not send the expected text.";
    PROCESS_START = "process-start": "The program could not be started.";
    PROCESS_EXIT = "process-exit": "The program ended with an exit code that is not expected.";
    PROCESS_KILLED = "process-killed": "The program was ended by a signal; what it did until then is not known.";
    PROCESS_LOST = "process-lost": "The program is gone and left no exit code; what it did is not known.";
    EXTENSION = "unknown-extension": "No action of that name is registered.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_speakable() {
        let mut seen: Vec<&str> = ALL.iter().map(|(code, _)| *code).collect();
        seen.sort_unstable();
        assert!(seen.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(seen.iter().all(|code| code.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')));
    }
}

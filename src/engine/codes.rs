//! The codes of the failures that the engine itself makes, each with what it means. `windrow explain CODE` prints them.

macro_rules! codes {
    ($($name:ident = $code:literal: $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $name: &str = $code;)*

        /// Every code with its meaning.
        pub const ALL: &[(&str, &str)] = &[$(($code, $meaning)),*];
    };
}

codes! {
    APPROVAL_EXPIRED = "approval-expired": "An approval expired.";
    APPROVAL_REJECTED = "approval-rejected": "An approval was rejected.";
    CHANGED_BY_OTHERS = "changed-by-others": "`k8s.restore` found another value than the one that this run wrote; made by the executor.";
    CANNOT_TELL = "cannot-tell": "It cannot be told whether an attempt took effect.";
    EMPTY_LIST = "empty-list": "The list of a `for_each` is empty.";
    LIST_TOO_LONG = "list-too-long": "The list of a `for_each` is too long.";
    GUARD_BROKEN = "guard-broken": "A guard does not hold.";
    LOCK_BROKEN = "lock-broken": "Somebody took a lock away.";
    LOCK_TIMEOUT = "lock-timeout": "The locks did not come in time.";
    LOST_RECORD = "lost-record": "A record of the run's journal is bad or missing: the run is left as it is and waits for a person. `windrow store check` tells which.";
    PRECONDITION = "precondition": "A precondition is not met.";
    PRECONDITION_TIMEOUT = "precondition-timeout": "A precondition was not met in time.";
    RUN_TIMEOUT = "run-timeout": "The run took too long.";
    STEP_TIMEOUT = "step-timeout": "The step took too long.";
    ATTEMPT_TIMEOUT = "attempt-timeout": "The attempt took too long.";
    TERMINATED = "terminated": "Somebody terminated the run.";
    TOO_MANY_ATTEMPTS = "too-many-attempts": "The step was attempted too often.";
    UNDO_FAILED = "undo-failed": "An undo failed.";
    UNOBSERVED = "unobserved": "The API could not be reached when a deadline came.";
    VERDICT = "verdict": "A verdict says that the step failed.";
    FAIL_IF = "fail-if": "A `fail_if` came true.";
    WAIT_STALLED = "wait-stalled": "A wait made no progress.";
    WAIT_TIMEOUT = "wait-timeout": "A wait took too long.";
}

/// Verdict of the engine's own: time was up.
pub const TIMEOUT: &str = "timeout";
/// Verdict of the engine's own: no progress.
pub const STALLED: &str = "stalled";
/// Verdict of the engine's own: the evidence matches a known failure that is permanent.
pub const KNOWN_FAILURE: &str = "known_failure";

//! Codes of the failures that the engine itself makes. `windrow explain CODE` tells more about each.

/// An approval expired.
pub const APPROVAL_EXPIRED: &str = "approval-expired";
/// An approval was rejected.
pub const APPROVAL_REJECTED: &str = "approval-rejected";
/// `k8s.restore` found another value than the one that this run wrote; made by the executor.
pub const CHANGED_BY_OTHERS: &str = "changed-by-others";
/// It cannot be told whether an attempt took effect.
pub const CANNOT_TELL: &str = "cannot-tell";
/// The list of a `for_each` is empty.
pub const EMPTY_LIST: &str = "empty-list";
/// The list of a `for_each` is too long.
pub const LIST_TOO_LONG: &str = "list-too-long";
/// A guard does not hold.
pub const GUARD_BROKEN: &str = "guard-broken";
/// Somebody took a lock away.
pub const LOCK_BROKEN: &str = "lock-broken";
/// The locks did not come in time.
pub const LOCK_TIMEOUT: &str = "lock-timeout";
/// The journal lost a record.
pub const LOST_RECORD: &str = "lost-record";
/// A precondition is not met.
pub const PRECONDITION: &str = "precondition";
/// A precondition was not met in time.
pub const PRECONDITION_TIMEOUT: &str = "precondition-timeout";
/// The run took too long.
pub const RUN_TIMEOUT: &str = "run-timeout";
/// The step took too long.
pub const STEP_TIMEOUT: &str = "step-timeout";
/// The attempt took too long.
pub const ATTEMPT_TIMEOUT: &str = "attempt-timeout";
/// Somebody terminated the run.
pub const TERMINATED: &str = "terminated";
/// The step was attempted too often.
pub const TOO_MANY_ATTEMPTS: &str = "too-many-attempts";
/// An undo failed.
pub const UNDO_FAILED: &str = "undo-failed";
/// The API could not be reached when a deadline came.
pub const UNOBSERVED: &str = "unobserved";
/// A verdict says that the step failed.
pub const VERDICT: &str = "verdict";
/// A `fail_if` came true.
pub const FAIL_IF: &str = "fail-if";
/// A wait made no progress.
pub const WAIT_STALLED: &str = "wait-stalled";
/// A wait took too long.
pub const WAIT_TIMEOUT: &str = "wait-timeout";

/// Verdict of the engine's own: time was up.
pub const TIMEOUT: &str = "timeout";
/// Verdict of the engine's own: no progress.
pub const STALLED: &str = "stalled";
/// Verdict of the engine's own: the evidence matches a known failure that is permanent.
pub const KNOWN_FAILURE: &str = "known_failure";

//! Every bound of the engine, with its reason (E13).

use std::time::Duration;

/// Items of one `for_each`: a cluster's worth of VMs, and few enough for one journal to be read in a second.
pub const ITEMS_MAX: usize = 10_000;

/// Attempts of one unit, crashes included: a step that takes the process down with it must not do so for ever.
pub const ATTEMPTS_MAX: u32 = 1_000;

/// Events that one command may lead to. A `for_each` of [`ITEMS_MAX`] items that is stopped needs two per item.
pub const CONSEQUENCES_MAX: usize = 8 * ITEMS_MAX;

/// Tries of reads before an attempt, even without a retry policy: reads change nothing, and an API server that
/// restarts is away for half a minute.
pub const READ_TRIES: u32 = 6;

/// Delay before the second try of such reads; doubled for each further one.
pub const READ_DELAY: Duration = Duration::from_secs(1);

/// The longest delay between such reads.
pub const READ_DELAY_MAX: Duration = Duration::from_secs(30);

/// Doublings after which a retry delay no longer grows: beyond it any factor above 1 has reached every cap.
pub const BACKOFF_STEPS_MAX: u32 = 64;

/// How long the executor has, after an attempt's deadline, to report the timeout itself; it knows more.
pub const REPORT_GRACE: Duration = Duration::from_secs(5);

/// A wait notes small changes (a reason, a rise) at most this often: hours of waiting stay a small journal.
pub const NOTE_EVERY: Duration = Duration::from_secs(10);

/// Confirmed reads that a `stable_for` needs at least (L5).
pub const STABLE_READS: u32 = 2;

/// What "wait" offers a person when the answer names no duration.
pub const WAIT_AGAIN: Duration = Duration::from_mins(10);

/// Open questions of one run; more than a person can read means that something else is wrong.
pub const ASKS_MAX: usize = 1_000;

/// Remarks on one run.
pub const NOTES_MAX: usize = 1_000;

/// Bytes of one remark or reason given by a person.
pub const TEXT_BYTES_MAX: usize = 4_096;

/// Runs that queue for locks; a longer queue is a runaway caller.
pub const LOCK_QUEUE_MAX: usize = 100_000;

/// Moments of trouble of which one run keeps evidence: a `for_each` that fails item by item looks alike after a few.
pub const EVIDENCE_MAX: usize = 64;

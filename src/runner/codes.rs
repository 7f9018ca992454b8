//! The failure codes of this module, each with what it means. `windrow explain CODE` prints them.

macro_rules! codes {
    ($($name:ident = $code:literal: $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $name: &str = $code;)*

        /// Every code with its meaning.
        pub const ALL: &[(&str, &str)] = &[$(($code, $meaning)),*];
    };
}

codes! {
    NOT_PREPARED = "not-prepared": "The request of an attempt belongs to an earlier process; the world is looked at instead.";
    NOT_KEPT = "value-not-kept": "A large value could not be written to the state directory.";
    LOST_VALUE = "value-lost": "A large value is missing from the state directory, or is damaged.";
    PAUSED = "paused": "Nothing new is started: `windrow pause --all` is in force. `windrow unpause --all` ends it.";
    LOCK_HELD = "lock-held": "Another run holds a lock that this one needs.";
    CHILD_START = "child-not-started": "A workflow that a step calls could not be started.";
    CHILD_UNKNOWN = "child-unknown": "The state of a called workflow could not be read.";
    TOO_DEEP = "too-deep": "Workflows call each other deeper than is allowed.";
    CHILD_FAILED = "child-failed": "The called workflow did not succeed. `windrow show` of that run tells why.";
}

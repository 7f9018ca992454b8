//! The failure codes of this module, each with what it means. `windrow explain CODE` prints them.

macro_rules! codes {
    ($($name:ident = $code:literal: $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $name: &str = $code;)*

        /// Every code with its meaning.
        pub const ALL: &[(&str, &str)] = &[$(($code, $meaning)),*];
    };
}

codes! {
    UNKNOWN_STEP = "unknown-step": "The pinned definition has no such step, guard or child: the journal and the definition do not belong together.";
    EXPRESSION = "expression-failed": "An expression or template has no value. The message shows it and why.";
    DURATION = "bad-duration": "A duration cannot be read. Write it like `90s`, `2h30m`, `1d`.";
    EMPTY_TARGET = "empty-target": "The name or selector of a target is empty. An empty selector would mean every object, so nothing is read.";
    NO_OBJECT = "no-object": "A target that must match something matches no object. Write `allow_empty = true` if that is fine.";
    TARGET_MISSING = "target-missing": "The object that the step is to change does not exist.";
    ASSERT = "assert-failed": "What an `assert` step demands does not hold.";
    LIST = "bad-list": "The list of a `for_each` is not usable: empty, too long, no list, or with items that cannot be told apart.";
    NOT_COVERED = "not-covered": "The items of a verifying step do not cover what they must.";
    KNOWN = "known-failure": "The evidence matches a known failure that waiting does not cure; cause and remedy are printed with it.";
}

//! Places where a test ends the process as `kill -9` would. Only in builds with debug assertions; in others nothing is
//! left of them.

/// Between which two things the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The intent is decided, not durable.
    BeforeAppend,
    /// The intent is durable, nothing is sent.
    AfterAppend,
    /// The request is on its way, no answer was seen.
    AfterSend,
    /// The answer was seen, the result is not durable.
    AfterAnswer,
}

impl Place {
    /// Every place, in the order of an attempt.
    pub const ALL: [Self; 4] = [Self::BeforeAppend, Self::AfterAppend, Self::AfterSend, Self::AfterAnswer];

    /// The word for it in `WINDROW_FAILPOINT`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::BeforeAppend => "before-append",
            Self::AfterAppend => "after-append",
            Self::AfterSend => "after-send",
            Self::AfterAnswer => "after-answer",
        }
    }
}

/// The environment variable that names a place, a workflow and a step of it, whose first item counts if it has several:
/// `after-send:vm-stop/halt`.
pub const VARIABLE: &str = "WINDROW_FAILPOINT";

/// True if the process is to end at this place of this unit.
#[cfg(debug_assertions)]
pub fn is_armed(place: Place, workflow: &str, unit: &str) -> bool {
    let step = unit.split('[').next().unwrap_or(unit);
    std::env::var(VARIABLE).is_ok_and(|armed| armed == format!("{}:{workflow}/{step}", place.word()))
}

/// Never, in a build for production.
#[cfg(not(debug_assertions))]
pub const fn is_armed(_place: Place, _workflow: &str, _unit: &str) -> bool {
    false
}

/// Ends the process if it is to end here.
pub fn reach(place: Place, workflow: &str, unit: &str) {
    if is_armed(place, workflow, unit) {
        std::process::abort();
    }
}

//! Time as a value and as a parameter. [`SystemClock`] is the only reader of the machine's clocks.

use std::fmt;
use std::future::Future;
use std::ops::Add;
use std::ops::Sub;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment in UTC, in milliseconds since 1970. Arithmetic saturates: no input makes it panic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The moment `ms` milliseconds after 1970 began.
    pub const fn from_millis(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since 1970 began.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is before.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(moment) => write!(f, "{moment:.3}"),
            Err(_) => write!(f, "{} ms", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    /// Reads RFC 3339, as Kubernetes writes it.
    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        text.parse::<jiff::Timestamp>().map(|moment| Self(moment.as_millisecond()))
    }
}

/// A future that ends at a moment.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where the time comes from. Handed to whatever needs it.
pub trait Clock: Send + Sync {
    /// The time now. Never runs backwards within a process.
    fn now(&self) -> Timestamp;

    /// Waits until `at`; at once if that has passed.
    fn sleep_until(&self, at: Timestamp) -> Sleep;

    /// How many times shorter durations are than written: 1 in production, more in a rehearsal.
    fn speed(&self) -> f64 {
        1.0
    }

    /// The moment `duration` from now, shortened by [`Clock::speed`].
    fn after(&self, duration: Duration) -> Timestamp {
        self.now() + shorten(duration, self.speed())
    }

    /// Waits for `duration`, shortened by [`Clock::speed`].
    fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until(self.after(duration))
    }
}

/// `duration` at `speed` times the pace.
pub fn shorten(duration: Duration, speed: f64) -> Duration {
    Duration::try_from_secs_f64(duration.as_secs_f64() / speed).unwrap_or(duration)
}

/// A clock that the whole process shares.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's time: the wall clock once, at the start, then the monotonic one, so that a step of the wall
/// clock (NTP, a restored snapshot of the machine) moves no deadline of a living process.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: tokio::time::Instant,
    start_at: Timestamp,
    speed: f64,
}

impl SystemClock {
    /// A clock that begins with the wall clock's time.
    pub fn new() -> Self {
        Self::at_speed(1.0)
    }

    /// The same, with all durations shortened by `speed`.
    pub fn at_speed(speed: f64) -> Self {
        Self::starting_at(wall_now(), speed)
    }

    /// A clock that begins at `start_at`: for a test, or for a store whose last record is later than the wall clock says.
    #[expect(clippy::disallowed_methods, reason = "this type is the one reader of the clock")]
    pub fn starting_at(start_at: Timestamp, speed: f64) -> Self {
        Self { start: tokio::time::Instant::now(), start_at, speed }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

/// What the machine's wall clock says.
#[expect(clippy::disallowed_methods, reason = "this module is the one reader of the clock")]
pub fn wall_now() -> Timestamp {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp(since_1970.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.start_at + self.start.elapsed()
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        // One millisecond more: a timestamp is cut to milliseconds, and waking early would find nothing due.
        let wait = at.since(self.start_at) + Duration::from_millis(1);
        Box::pin(tokio::time::sleep_until(self.start + wait))
    }

    fn speed(&self) -> f64 {
        self.speed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_reads_what_it_writes() {
        let moment: Timestamp = "2026-09-06T01:02:03Z".parse().expect("RFC 3339");
        assert_eq!(moment.to_string(), "2026-09-06T01:02:03.000Z");
        assert_eq!(moment + Duration::from_millis(1500) - Duration::from_millis(1500), moment);
        assert_eq!(moment.since(moment + Duration::from_secs(1)), Duration::ZERO);
        assert_eq!(Timestamp(i64::MAX) + Duration::MAX, Timestamp(i64::MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_reads_the_wall_once_and_then_follows_the_monotonic_clock() {
        let before = wall_now();
        let clock = SystemClock::new();
        let begun = clock.now();
        assert!((before..=wall_now()).contains(&begun));
        // The wall clock does not go along: to this process it is set back by two hours.
        let two_hours = Duration::from_hours(2);
        tokio::time::advance(two_hours).await;
        assert!(wall_now().since(before) < two_hours);
        assert_eq!(clock.now(), begun + two_hours);
        // Set forward or back before it starts, it begins there.
        for wall in [begun + two_hours, begun - two_hours] {
            let clock = SystemClock::starting_at(wall, 1.0);
            tokio::time::advance(two_hours).await;
            assert_eq!(clock.now(), wall + two_hours);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn sleeping_ends_when_the_moment_is_reached() {
        let clock = SystemClock::starting_at(Timestamp(1_000), 60.0);
        let due = clock.after(Duration::from_mins(1));
        assert_eq!(due, Timestamp(2_000));
        clock.sleep_until(due).await;
        assert!(clock.now() >= due);
    }
}

//! When a failed try is repeated: a pure function, so that replay, rehearsal and production agree.

use std::time::Duration;

use backoff::ExponentialBackoff;
use backoff::backoff::Backoff;

use crate::definition::model::Retry;
use crate::engine::event::RetryDelays;
use crate::engine::limits;
use crate::engine::unit::UnitId;
use crate::failure::Failure;
use crate::id::RunId;
use crate::time::Timestamp;

/// The moment of the next try after try number `tries` (from 1) failed.
pub fn due(
    run: RunId,
    unit: &UnitId,
    tries: u32,
    policy: &Retry,
    delays: RetryDelays,
    failure: &Failure,
    now: Timestamp,
) -> Timestamp {
    let base = base(tries, policy.factor, delays);
    let varied = vary(base, policy.jitter, seed(run, unit, tries));
    let asked = Duration::from_millis(failure.retry_after_ms.unwrap_or(0));
    now + varied.max(asked)
}

/// The moment of the next try after reading, which has no policy, failed for the `tries`th time.
pub fn due_read(run: RunId, unit: &UnitId, tries: u32, failure: &Failure, now: Timestamp) -> Timestamp {
    let delays = RetryDelays::new(limits::READ_DELAY, limits::READ_DELAY_MAX);
    let varied = vary(base(tries, 2.0, delays), 0.1, seed(run, unit, tries));
    now + varied.max(Duration::from_millis(failure.retry_after_ms.unwrap_or(0)))
}

/// The delay after try number `tries`, without jitter.
fn base(tries: u32, factor: f64, delays: RetryDelays) -> Duration {
    let initial = Duration::from_millis(delays.delay_ms.min(delays.max_ms));
    // The crate divides by the factor and multiplies with it: only a sane one may get there.
    let multiplier = if factor.is_finite() && factor >= 1.0 { factor } else { 1.0 };
    let mut backoff = ExponentialBackoff {
        current_interval: initial,
        initial_interval: initial,
        randomization_factor: 0.0,
        multiplier,
        max_interval: Duration::from_millis(delays.max_ms),
        max_elapsed_time: None,
        ..ExponentialBackoff::default()
    };
    let steps = tries.clamp(1, limits::BACKOFF_STEPS_MAX);
    (0..steps).fold(initial, |last, _| backoff.next_backoff().unwrap_or(last))
}

/// `delay` times something in `[1 - jitter, 1 + jitter]`.
fn vary(delay: Duration, jitter: f64, seed: u64) -> Duration {
    let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.0 };
    // 32 bits are a fraction finer than a millisecond of any delay, and exact in an f64.
    let fraction = f64::from(u32::try_from(seed >> 32).unwrap_or(0)) / f64::from(u32::MAX);
    delay.mul_f64(1.0 - jitter + 2.0 * jitter * fraction)
}

fn seed(run: RunId, unit: &UnitId, tries: u32) -> u64 {
    let text = unit.to_string();
    let bytes = run.to_be_bytes().into_iter().chain(text.bytes()).chain(tries.to_be_bytes());
    splitmix(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}

/// One step of SplitMix64: spreads neighbouring hashes over all 64 bits.
const fn splitmix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::unit::Block;

    const DELAYS: RetryDelays = RetryDelays { delay_ms: 1_000, max_ms: 300_000 };

    fn unit() -> UnitId {
        Block::forward("copy".parse().expect("a name")).unit(None)
    }

    #[test]
    fn delays_double_up_to_the_cap() {
        let delays: Vec<_> = (1..=11).map(|tries| base(tries, 2.0, DELAYS).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(base(u32::MAX, 2.0, DELAYS).as_secs(), 300);
    }

    #[test]
    fn a_senseless_factor_repeats_the_first_delay() {
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(base(5, factor, DELAYS), Duration::from_secs(1), "{factor}");
        }
    }

    #[test]
    fn jitter_stays_in_its_bounds_differs_by_try_and_is_the_same_each_time() {
        let run = RunId::new(7, 42);
        let seeds: Vec<_> = (1..100).map(|tries| seed(run, &unit(), tries)).collect();
        let delays: Vec<_> = seeds.iter().map(|s| vary(Duration::from_secs(10), 0.2, *s)).collect();
        assert!(delays.iter().all(|d| (8.0..=12.0).contains(&d.as_secs_f64())), "{delays:?}");
        assert!(delays.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(seed(run, &unit(), 1), seeds[0]);
        assert_ne!(seed(RunId::new(7, 43), &unit(), 1), seeds[0]);
    }
}

//! How long to wait after a failure: failures in, a delay with jitter out.
//!
//! The one place that decides a backoff. The queue asks it for keys, watches for their next attempt; the random numbers
//! come from the caller, so that a seed repeats a run.

use std::time::{Duration, Instant};

/// A delay that doubles with each failure, up to a longest one, times a random factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// The delay after the first failure.
    pub first: Duration,
    /// The longest delay, before jitter.
    pub max: Duration,
    /// The delay is multiplied by a random factor from this range: lowest, highest.
    pub jitter: (f64, f64),
}

impl Policy {
    /// For keys: 5 ms doubling to 1000 s (client-go `DefaultTypedControllerRateLimiter`), ±10 %.
    pub const KEY: Self = Self { first: Duration::from_millis(5), max: Duration::from_secs(1000), jitter: (0.9, 1.1) };
    /// For watches: 800 ms doubling to 30 s, times 1 to 2 (client-go `Reflector`'s backoff manager).
    pub const WATCH: Self =
        Self { first: Duration::from_millis(800), max: Duration::from_secs(30), jitter: (1.0, 2.0) };
    /// For an API server whose breaker is open: 200 ms doubling to 5 s, ±10 %.
    pub const BREAKER: Self =
        Self { first: Duration::from_millis(200), max: Duration::from_secs(5), jitter: (0.9, 1.1) };

    /// For work outside the cluster: 500 ms doubling to 1000 s, ±10 %.
    pub const EXTERNAL: Self =
        Self { first: Duration::from_millis(500), max: Duration::from_secs(1000), jitter: (0.9, 1.1) };

    /// The delay after `failures` failures in a row; zero failures count as one.
    pub fn delay(&self, failures: u32, rng: &mut fastrand::Rng) -> Duration {
        let doublings = failures.saturating_sub(1);
        let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let (lowest, highest) = self.jitter;
        self.first.saturating_mul(factor).min(self.max).mul_f64(lowest + (highest - lowest) * rng.f64())
    }
}

/// The backoff of something that is tried again and again, as a watch is: it starts over after a stable time.
///
/// client-go's `NewExponentialBackoffManager`: the count is reset when the last attempt was asked for longer ago than
/// `stable`.
#[derive(Clone, Debug)]
pub struct Backoff {
    policy: Policy,
    stable: Duration,
    failures: u32,
    last: Option<Instant>,
}

impl Backoff {
    /// How long a watch must live to be called stable (client-go's reflector: two minutes).
    pub const WATCH_STABLE: Duration = Duration::from_secs(120);

    /// A backoff by `policy` that starts over after `stable` without a failure.
    pub fn new(policy: Policy, stable: Duration) -> Self {
        Self { policy, stable, failures: 0, last: None }
    }

    /// The backoff of a watch.
    pub fn watch() -> Self {
        Self::new(Policy::WATCH, Self::WATCH_STABLE)
    }

    /// Counts a failure and gives the delay until the next attempt.
    pub fn next(&mut self, now: Instant, rng: &mut fastrand::Rng) -> Duration {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) > self.stable) {
            self.failures = 0;
        }
        self.last = Some(now);
        self.failures = self.failures.saturating_add(1);
        self.policy.delay(self.failures, rng)
    }

    /// Forgets every failure.
    pub fn reset(&mut self) {
        self.failures = 0;
        self.last = None;
    }

    /// Failures in a row so far.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// A token bucket that hands out delays: golang.org/x/time/rate's `Reserve().Delay()`.
#[derive(Clone, Debug)]
pub struct Bucket {
    interval: Duration,
    burst: u32,
    /// When the bucket would be full again if nothing more were taken, plus one interval a token taken.
    booked: Option<Instant>,
}

impl Bucket {
    /// The lowest rate is a token an hour.
    const SLOWEST: Duration = Duration::from_secs(3600);

    /// `per_second` tokens a second, `burst` of them at once; at least one. None where the rate is not a positive number.
    pub fn new(per_second: f64, burst: u32) -> Option<Self> {
        let interval = Duration::try_from_secs_f64(per_second.recip()).ok().filter(|interval| !interval.is_zero())?;
        let interval = interval.min(Self::SLOWEST);
        Some(Self { interval, burst: burst.max(1), booked: None })
    }

    /// Takes a token and gives the time until it may be used.
    pub fn reserve(&mut self, now: Instant) -> Duration {
        let booked = self.booked.map_or(now, |booked| booked.max(now));
        self.booked = Some(booked + self.interval);
        let at_once = self.interval.saturating_mul(self.burst - 1);
        booked.saturating_duration_since(now).saturating_sub(at_once)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_waits_from_5_ms_to_1000_s_give_or_take_a_tenth() {
        let mut rng = fastrand::Rng::with_seed(1);
        for failures in 0..200u32 {
            let plain = 0.005 * 2f64.powi(failures.saturating_sub(1).min(40) as i32);
            let plain = plain.min(1000.0);
            let delay = Policy::KEY.delay(failures, &mut rng).as_secs_f64();
            assert!(delay >= plain * 0.899 && delay <= plain * 1.101, "failure {failures}: waited {delay} s");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_delays() {
        let delays = |seed| {
            let mut rng = fastrand::Rng::with_seed(seed);
            (1..20).map(|failures| Policy::KEY.delay(failures, &mut rng)).collect::<Vec<_>>()
        };
        assert_eq!(delays(7), delays(7));
        assert_ne!(delays(7), delays(8));
    }

    #[test]
    fn a_watch_that_was_stable_starts_over() {
        let (mut rng, start) = (fastrand::Rng::with_seed(1), Instant::now());
        let mut backoff = Backoff::watch();
        for _ in 0..10 {
            backoff.next(start, &mut rng);
        }
        assert!(backoff.next(start + Duration::from_secs(119), &mut rng) >= Duration::from_secs(30));
        let after_a_stable_time = backoff.next(start + Duration::from_secs(119 + 121), &mut rng);
        assert!(after_a_stable_time < Duration::from_millis(1600), "waited {after_a_stable_time:?}");
    }

    #[test]
    fn a_bucket_gives_its_burst_at_once_and_then_its_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10.0, 3).expect("a positive rate");
        let delays: Vec<_> = (0..5).map(|_| bucket.reserve(start).as_millis()).collect();
        assert_eq!(delays, [0, 0, 0, 100, 200]);
        assert_eq!(bucket.reserve(start + Duration::from_secs(10)).as_millis(), 0, "it filled up again");
    }

    #[test]
    fn a_rate_that_is_no_rate_is_no_bucket() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Bucket::new(rate, 1).is_none(), "{rate}");
        }
    }
}

//! The slow start after a pause: an API server that has just come back must not meet all that waited for it at once.

use std::time::{Duration, Instant};

/// After so many seconds there is no limit.
const SECONDS: u32 = 8;
/// A shorter pause needs no slow start.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Counts passes since a pause ended.
#[derive(Debug)]
pub(super) struct SlowStart {
    since: Instant,
    /// Passes allowed in the first second; it doubles with each.
    first: u64,
    started: u64,
}

impl SlowStart {
    /// Half as many passes as workers in the first second: a pass makes some four requests.
    pub(super) fn after_pause(paused: Instant, now: Instant, was_slow: bool, workers: usize) -> Option<Self> {
        let was_long = now.saturating_duration_since(paused) >= PAUSE_MIN;
        (was_long || was_slow).then(|| Self { since: now, first: (workers as u64 / 2).max(1), started: 0 })
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.second(now) >= SECONDS
    }

    pub(super) fn allows(&self, now: Instant) -> bool {
        let second = self.second(now);
        // first + 2 first + 4 first + ... up to this second.
        second >= SECONDS || self.started < self.first.saturating_mul((2 << second) - 1)
    }

    pub(super) fn count(&mut self) {
        self.started += 1;
    }

    /// When more is allowed.
    pub(super) fn next(&self, now: Instant) -> Instant {
        self.since + Duration::from_secs(u64::from(self.second(now)) + 1)
    }

    fn second(&self, now: Instant) -> u32 {
        let seconds = now.saturating_duration_since(self.since).as_secs();
        u32::try_from(seconds).unwrap_or(u32::MAX).min(SECONDS)
    }
}

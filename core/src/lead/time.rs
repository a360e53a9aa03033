//! The clock of leases.

use std::ops::Add;
use std::time::Duration;

/// A moment by a monotonic clock that also runs while the machine is suspended (CLOCK_BOOTTIME): `std::time::Instant` stands still then, and
/// a lease does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(Duration);

impl BootTime {
    /// This long after the clock's beginning.
    pub const fn new(since_boot: Duration) -> Self {
        Self(since_boot)
    }

    /// The time since the clock's beginning.
    pub const fn since_boot(self) -> Duration {
        self.0
    }

    /// How long until `later`; zero where that has passed.
    pub fn until(self, later: Self) -> Duration {
        later.0.saturating_sub(self.0)
    }
}

impl Add<Duration> for BootTime {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

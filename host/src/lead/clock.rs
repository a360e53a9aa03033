//! The clock that leases are measured by.

use operator_core::lead::BootTime;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// CLOCK_BOOTTIME: a machine that was suspended must know that its term is over.
pub(crate) fn now() -> BootTime {
    let time = clock_gettime(ClockId::Boottime);
    // The clock begins at 0 and has no more than 10^9 nanoseconds a second.
    BootTime::new(Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

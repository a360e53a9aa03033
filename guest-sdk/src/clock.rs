//! The host's clock, frozen for a call.

use std::time::{Duration, SystemTime};

/// The time of this call; in unit tests what [`testing`](crate::testing) set.
pub(crate) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(imports::now())
}

#[cfg(target_family = "wasm")]
use crate::bindings::operator::reconciler::clock as imports;

#[cfg(not(target_family = "wasm"))]
pub(crate) mod imports {
    use std::cell::Cell;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn now() -> u64 {
        NOW.get()
    }

    /// Sets the time for calls on this thread.
    pub(crate) fn set(milliseconds: u64) {
        NOW.set(milliseconds);
    }
}

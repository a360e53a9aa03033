//! From a plan's steps to requests and what came of them.
//!
//! In come steps on single children; out go what the server now holds, which enters the table at once, or a [`Trouble`] that says what is
//! in the way and when to try again. No step touches an object that its parent does not control: a create can't adopt, a change carries
//! the uid, a delete carries uid and resourceVersion.

mod child;
pub(crate) mod finalizer;
mod managed_fields;
mod recreate;
mod report;
mod status;
mod trouble;

pub(crate) use child::{Applier, Step, Written};
pub(crate) use status::{Slowed, StatusWrite, StatusWritten, write_status};

use operator_core::reconciled::Problem;
use std::time::Duration;

/// Why a step did not come to its end.
#[derive(Debug)]
pub(crate) struct Trouble {
    /// For the condition.
    pub(crate) problem: Problem,
    /// When the key is worth another pass.
    pub(crate) again: Again,
    /// Whether the answer stands until the desired or the live object changes.
    pub(crate) stands: bool,
}

/// When a key is worth another pass: when something that it depends on changes, in any case, and perhaps before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Again {
    /// After the key's backoff, which this heats up.
    pub(crate) backoff: bool,
    /// After a time of its own.
    pub(crate) after: Option<Duration>,
}

impl Again {
    /// Level, not edge: what wakes the key is known.
    pub(crate) const ON_CHANGE: Self = Self { backoff: false, after: None };
    /// After the key's backoff.
    pub(crate) const BACKOFF: Self = Self { backoff: true, after: None };

    /// After a time of its own, without heating the key up.
    pub(crate) const fn after(time: Duration) -> Self {
        Self { backoff: false, after: Some(time) }
    }

    /// When the first of the two is worth it.
    #[must_use]
    pub(crate) fn or(self, other: Self) -> Self {
        Self { backoff: self.backoff || other.backoff, after: [self.after, other.after].into_iter().flatten().min() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_time_counts_and_no_backoff_hides_it() {
        let (soon, late) = (Again::after(Duration::from_secs(1)), Again::after(Duration::from_secs(30)));
        assert_eq!(late.or(soon).or(Again::ON_CHANGE), soon);
        assert_eq!(Again::BACKOFF.or(late).or(soon), Again { backoff: true, after: soon.after });
    }
}

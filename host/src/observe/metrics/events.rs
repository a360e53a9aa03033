//! Events on primaries.

use super::{Metrics, counter, counters};
use prometheus_client::metrics::counter::Counter;

/// What became of events. Clones count the same.
#[derive(Clone, Debug)]
pub struct EventCounts {
    /// An Event was made.
    pub created: Counter,
    /// The series of one was written.
    pub repeated: Counter,
    /// Like one that was told lately: counted, and said with a later one.
    pub counted: Counter,
    /// Its object has too many.
    pub limited: Counter,
    /// There was no room for it, it could not be written, or the term was over.
    pub dropped: Counter,
}

impl Metrics {
    /// What is counted of events, all at 0.
    pub fn count_events(&mut self) -> EventCounts {
        let total = counters(&mut self.0, "operator_events", "Events by what became of them");
        let of = |outcome| counter(&total, [("outcome", outcome)]);
        EventCounts {
            created: of("created"),
            repeated: of("repeated"),
            counted: of("counted"),
            limited: of("limited"),
            dropped: of("dropped"),
        }
    }
}

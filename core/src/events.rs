//! Which events become requests: equal ones are counted in one object, and an object that has too many is cut off.
//!
//! As client-go's `EventCorrelator` (`tools/record/events_cache.go`): of one source about one object 25 at once, then one in five minutes.
//! Equal events (`tools/events/event_broadcaster.go`: same object, type, reason and note) are one Event with a `series`. Stricter than
//! there: the series is written at growing intervals, not at each repetition.

use crate::backoff::Bucket;
use lru::LruCache;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

/// Events of one object that may come at once (client-go `defaultSpamBurst`).
const BURST: u32 = 25;
/// How often another may come then, in events a second (client-go `defaultSpamQPS`: one in five minutes).
const RATE: f64 = 1.0 / 300.0;
/// From the first repetition that was written to the next; doubled each time.
const FIRST: Duration = Duration::from_secs(10);
/// Longest time between two (client-go `refreshTime`).
const LONGEST: Duration = Duration::from_secs(1800);
/// After so long an event is told anew: the server keeps none for longer (`--event-ttl`).
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// What to do about one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Make an Event; this number is its own.
    Create {
        /// Unique among the events of this correlator.
        number: u64,
    },
    /// Say in the Event of this number how often it happened.
    Repeat {
        /// Of the Event.
        number: u64,
        /// How often, the first time included.
        count: u32,
    },
    /// Only counted: said with a later repetition.
    Counted,
    /// The object has too many.
    TooMany,
}

/// What was recorded of late. `O` is an object, `E` what an event says of it.
#[derive(Debug)]
pub struct Correlator<O: Eq + Hash, E: Eq + Hash> {
    known: LruCache<(O, E), Known>,
    /// How many more events each object may have.
    buckets: LruCache<O, Bucket>,
    next: u64,
}

#[derive(Debug)]
struct Known {
    number: u64,
    count: u32,
    last: Instant,
    /// When the count may be written again.
    due: Instant,
    interval: Duration,
}

impl<O: Clone + Eq + Hash, E: Clone + Eq + Hash> Correlator<O, E> {
    /// One that remembers so many events at most, and so many objects (client-go `maxLruCacheEntries`: 4096 of each); what was not used
    /// for longest goes first.
    pub fn new(limit: NonZeroUsize) -> Self {
        Self { known: LruCache::new(limit), buckets: LruCache::new(limit), next: 0 }
    }

    /// Counts an event and says what to do about it.
    pub fn happened(&mut self, object: &O, event: &E, now: Instant) -> Verdict {
        let key = (object.clone(), event.clone());
        if let Some(known) = self.known.get_mut(&key)
            && now.saturating_duration_since(known.last) < FORGOTTEN
        {
            return known.again(now);
        }
        if !self.is_allowed(object, now) {
            return Verdict::TooMany;
        }
        self.next += 1;
        let number = self.next;
        self.known.put(key, Known { number, count: 1, last: now, due: now, interval: FIRST / 2 });
        Verdict::Create { number }
    }

    /// The Event could not be made, or is gone: the next one like it is told anew.
    pub fn lost(&mut self, object: &O, event: &E) {
        self.known.pop(&(object.clone(), event.clone()));
    }

    fn is_allowed(&mut self, object: &O, now: Instant) -> bool {
        let Some(fresh) = Bucket::new(RATE, BURST) else { return true };
        let bucket = self.buckets.get_or_insert_mut_ref(object, || fresh);
        // One that would have to wait is not booked.
        let mut booked = bucket.clone();
        let is_free = booked.reserve(now).is_zero();
        if is_free {
            *bucket = booked;
        }
        is_free
    }
}

impl Known {
    fn again(&mut self, now: Instant) -> Verdict {
        self.count = self.count.saturating_add(1);
        self.last = now;
        if now < self.due {
            return Verdict::Counted;
        }
        self.interval = (self.interval * 2).min(LONGEST);
        self.due = now + self.interval;
        Verdict::Repeat { number: self.number, count: self.count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn remembering<O: Clone + Eq + Hash, E: Clone + Eq + Hash>(limit: usize) -> Correlator<O, E> {
        Correlator::new(NonZeroUsize::new(limit).expect("some"))
    }

    #[test]
    fn equal_events_are_one_and_the_repetitions_are_told_at_growing_intervals() {
        let (mut events, start) = (remembering(100), Instant::now());
        let Verdict::Create { number } = events.happened(&"a", &"failed", start) else { panic!("it is new") };
        let told: Vec<u32> = (1..=400)
            .filter_map(|second| match events.happened(&"a", &"failed", start + second * SECOND) {
                Verdict::Repeat { number: of, count } => {
                    assert_eq!(of, number);
                    Some(count)
                }
                Verdict::Counted => None,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(told, [2, 12, 32, 72, 152, 312]);
        let hour_later = start + Duration::from_secs(400) + FORGOTTEN;
        assert!(matches!(events.happened(&"a", &"failed", hour_later), Verdict::Create { .. }), "the server forgot it");
    }

    #[test]
    fn an_object_with_too_many_is_cut_off_and_others_are_not() {
        let (mut events, start) = (remembering(1000), Instant::now());
        for note in 0..BURST {
            assert!(matches!(events.happened(&"a", &note, start), Verdict::Create { .. }), "{note}");
        }
        assert_eq!(events.happened(&"a", &100, start), Verdict::TooMany);
        assert!(matches!(events.happened(&"b", &100, start), Verdict::Create { .. }));
        assert_eq!(
            events.happened(&"a", &3, start),
            Verdict::Repeat { number: 4, count: 2 },
            "what is known is counted"
        );
        assert_eq!(events.happened(&"a", &100, start + 299 * SECOND), Verdict::TooMany);
        assert!(matches!(events.happened(&"a", &100, start + 301 * SECOND), Verdict::Create { .. }));
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let (mut events, start) = (remembering(3), Instant::now());
        for object in 0..3 {
            events.happened(&object, &0, start);
        }
        assert_eq!(events.happened(&0, &0, start), Verdict::Repeat { number: 1, count: 2 });
        assert_eq!(events.happened(&3, &0, start), Verdict::Create { number: 4 }, "however many objects there are");
        assert_eq!(events.happened(&1, &0, start), Verdict::Create { number: 5 }, "the oldest was forgotten");
        assert_eq!(events.happened(&0, &0, start), Verdict::Counted, "the one that was used was not");
        assert_eq!((events.known.len(), events.buckets.len()), (3, 3));
    }

    #[test]
    fn an_event_that_is_lost_is_told_anew() {
        let (mut events, start) = (remembering(3), Instant::now());
        events.happened(&"a", &0, start);
        events.lost(&"a", &0);
        assert!(matches!(events.happened(&"a", &0, start), Verdict::Create { .. }));
    }
}

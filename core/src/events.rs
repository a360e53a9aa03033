//! Which events become requests: equal ones are counted in one object, and an object that has too many is cut off.
//!
//! As client-go's `EventCorrelator` (`tools/record/events_cache.go`): of one source about one object 25 at once, then one in five minutes.
//! Equal events (`tools/events/event_broadcaster.go`: same object, type, reason and note) are one Event with a `series`. Stricter than
//! there: the series is written at growing intervals, not at each repetition.

use crate::backoff::Bucket;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
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
pub struct Correlator<O, E> {
    known: HashMap<(O, E), Known>,
    /// The same by age, oldest first.
    ages: BTreeMap<u64, (O, E)>,
    buckets: HashMap<O, (Bucket, Instant)>,
    next: u64,
    /// Most events that are remembered, and most objects.
    limit: usize,
}

#[derive(Debug)]
struct Known {
    number: u64,
    count: u32,
    last: Instant,
    /// When the count may be written again.
    due: Instant,
    interval: Duration,
    age: u64,
}

impl<O: Clone + Eq + Hash + Ord, E: Clone + Eq + Hash + Ord> Correlator<O, E> {
    /// One that remembers so many events at most (client-go `maxLruCacheEntries`: 4096).
    pub fn new(limit: usize) -> Self {
        Self { known: HashMap::new(), ages: BTreeMap::new(), buckets: HashMap::new(), next: 0, limit: limit.max(1) }
    }

    /// Counts an event and says what to do about it.
    pub fn happened(&mut self, object: &O, event: &E, now: Instant) -> Verdict {
        let key = (object.clone(), event.clone());
        if let Some(known) = self.known.get_mut(&key)
            && now.saturating_duration_since(known.last) < FORGOTTEN
        {
            known.count = known.count.saturating_add(1);
            known.last = now;
            let is_due = known.due <= now;
            if is_due {
                known.interval = (known.interval * 2).min(LONGEST);
                known.due = now + known.interval;
            }
            let (number, count) = (known.number, known.count);
            self.touch(&key);
            return if is_due { Verdict::Repeat { number, count } } else { Verdict::Counted };
        }
        if !self.is_allowed(object, now) {
            return Verdict::TooMany;
        }
        self.forget(&key);
        let number = self.tick();
        let known = Known { number, count: 1, last: now, due: now, interval: FIRST / 2, age: number };
        self.known.insert(key.clone(), known);
        self.ages.insert(number, key);
        while self.known.len() > self.limit {
            let Some((_, oldest)) = self.ages.pop_first() else { break };
            self.known.remove(&oldest);
        }
        Verdict::Create { number }
    }

    /// The Event could not be made, or is gone: the next one like it is told anew.
    pub fn lost(&mut self, object: &O, event: &E) {
        self.forget(&(object.clone(), event.clone()));
    }

    fn is_allowed(&mut self, object: &O, now: Instant) -> bool {
        if self.buckets.len() >= self.limit && !self.buckets.contains_key(object) {
            // Those that are full again say nothing.
            let full = Duration::from_secs_f64(f64::from(BURST) / RATE);
            self.buckets.retain(|_, (_, last)| now.saturating_duration_since(*last) < full);
        }
        if self.buckets.len() >= self.limit && !self.buckets.contains_key(object) {
            return false;
        }
        let Some(fresh) = Bucket::new(RATE, BURST) else { return true };
        let (bucket, last) = self.buckets.entry(object.clone()).or_insert((fresh, now));
        *last = now;
        // One that would have to wait is not booked.
        let mut booked = bucket.clone();
        let is_free = booked.reserve(now).is_zero();
        if is_free {
            *bucket = booked;
        }
        is_free
    }

    fn touch(&mut self, key: &(O, E)) {
        let age = self.tick();
        if let Some(known) = self.known.get_mut(key) {
            self.ages.remove(&known.age);
            known.age = age;
            self.ages.insert(age, key.clone());
        }
    }

    fn forget(&mut self, key: &(O, E)) {
        if let Some(known) = self.known.remove(key) {
            self.ages.remove(&known.age);
        }
    }

    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn equal_events_are_one_and_the_repetitions_are_told_at_growing_intervals() {
        let (mut events, start) = (Correlator::new(100), Instant::now());
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
        let (mut events, start) = (Correlator::new(1000), Instant::now());
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
        let (mut events, start) = (Correlator::new(3), Instant::now());
        for object in 0..3 {
            events.happened(&object, &0, start);
        }
        assert_eq!(events.happened(&0, &0, start), Verdict::Repeat { number: 1, count: 2 });
        assert_eq!(events.happened(&3, &0, start), Verdict::TooMany, "so many objects are watched already");
        events.happened(&1, &1, start);
        assert_eq!(events.known.len(), 3);
        assert!(matches!(events.happened(&1, &0, start), Verdict::Create { .. }), "the oldest was forgotten");
        assert_eq!(events.happened(&0, &0, start), Verdict::Counted, "the one that was used was not");
        assert_eq!(events.known.len(), events.ages.len());
    }

    #[test]
    fn an_event_that_is_lost_is_told_anew() {
        let (mut events, start) = (Correlator::new(3), Instant::now());
        events.happened(&"a", &0, start);
        events.lost(&"a", &0);
        assert!(matches!(events.happened(&"a", &0, start), Verdict::Create { .. }));
    }
}

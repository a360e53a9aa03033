//! The work queue: keys and times in, at most one key at a time for each worker out.
//!
//! client-go's workqueue (`util/workqueue/queue.go`): a key that is waiting is not added twice, a key in flight is never
//! handed out again before [`Queue::done`], and one that was added meanwhile comes again after it. On top of it:
//! priorities that age, a backoff a key, lanes for modules that share the workers by the CPU time they used, and a pause
//! with a slow start for an API server that was away.
//!
//! A key is in exactly one state. A timer promises a pass *no later* than its time: the pass that comes first fulfils it
//! and sets the timer that it needs itself. A key without state takes no memory.

mod lanes;
mod slow_start;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

use crate::backoff::{Bucket, Policy};
pub use lanes::{Lane, Traffic};
use lanes::{Lanes, Taken};
use slow_start::SlowStart;

/// Longest delay of a timer; the resync comes long before.
const DELAY_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Why a key waits. The first is the most urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Something that the key depends on changed.
    Change,
    /// A failure is tried again, or the last pass asked to be called again.
    Retry,
    /// A resync, or a module was swapped.
    Resync,
    /// What was there when the host started.
    Backlog,
}

impl Priority {
    /// All of them, the most urgent first.
    pub const ALL: [Self; 4] = [Self::Change, Self::Retry, Self::Resync, Self::Backlog];
}

/// How a queue shares out its work.
#[derive(Clone, Debug)]
pub struct Options {
    /// Worker threads; at least one.
    pub workers: usize,
    /// Feeds the jitter of backoffs.
    pub seed: u64,
    /// An overall limit of retries (client-go's default limiter had 10 a second, burst 100); none by default.
    pub retries: Option<Bucket>,
}

/// A key that is now in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Popped<K> {
    /// The key; [`Queue::done`] must follow.
    pub key: K,
    /// Its lane.
    pub lane: Lane,
    /// Why it was waiting.
    pub priority: Priority,
    /// Failures in a row before this pass.
    pub failures: u32,
    /// How long it was ready before a worker took it.
    pub waited: Duration,
}

/// How many keys are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Due, waiting for a worker.
    pub ready: usize,
    /// Waiting for their time: backoff, requeue, resync.
    pub delayed: usize,
    /// In the hands of a worker.
    pub in_flight: usize,
}

#[derive(Clone, Copy, Debug)]
struct Timer {
    at: Instant,
    priority: Priority,
}

#[derive(Debug)]
enum Phase {
    /// Only its failures are remembered.
    Idle,
    /// Waiting for `timer.at`; `ticket` tells apart timers of the same time.
    Delayed { timer: Timer, ticket: u64 },
    /// Waiting for a worker; a lower ticket has waited longer.
    Ready { priority: Priority, ticket: u64 },
    /// With a worker, since `began`. `again`: added meanwhile. `timer`: starts at done.
    InFlight { began: Instant, again: Option<Priority>, timer: Option<Timer> },
}

#[derive(Debug)]
struct Entry {
    lane: Lane,
    failures: u32,
    phase: Phase,
}

/// The work queue of a process.
#[derive(Debug)]
pub struct Queue<K> {
    entries: HashMap<K, Entry>,
    timers: BTreeMap<(Instant, u64), K>,
    lanes: Lanes<K>,
    /// Numbers what becomes ready or delayed, in that order.
    tickets: u64,
    paused: Option<Instant>,
    slow_start: Option<SlowStart>,
    shut_down: bool,
    workers: usize,
    retries: Option<Bucket>,
    rng: fastrand::Rng,
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// An empty queue without lanes.
    pub fn new(options: Options) -> Self {
        let workers = options.workers.max(1);
        Self {
            entries: HashMap::new(),
            timers: BTreeMap::new(),
            lanes: Lanes::new(workers),
            tickets: 0,
            paused: None,
            slow_start: None,
            shut_down: false,
            workers,
            retries: options.retries,
            rng: fastrand::Rng::with_seed(options.seed),
        }
    }

    /// Opens a lane: keys of one module. Lanes share the workers by the CPU time they use; with two or more of them none
    /// has more than all workers but one (and at least one).
    pub fn open_lane(&mut self) -> Lane {
        self.lanes.open()
    }

    /// Makes a key due now, whatever it waits for; its failures stay counted. A key keeps its lane while it has any state.
    pub fn add(&mut self, now: Instant, lane: Lane, key: K, priority: Priority) {
        let entry = self.entries.entry(key.clone()).or_insert(Entry { lane, failures: 0, phase: Phase::Idle });
        match &mut entry.phase {
            Phase::InFlight { again, .. } => *again = Some(again.map_or(priority, |before| before.min(priority))),
            Phase::Ready { priority: before, ticket } => {
                if priority < *before {
                    self.lanes.promote(entry.lane, *ticket, *before, priority);
                    *before = priority;
                }
            }
            Phase::Delayed { timer, ticket } => {
                self.timers.remove(&(timer.at, *ticket));
                self.make_ready(now, key, priority);
            }
            Phase::Idle => self.make_ready(now, key, priority),
        }
    }

    /// Makes a key due after `delay` at the latest: an earlier timer, or being due already, stands. For a key in flight
    /// the timer starts to count now and takes effect at [`Queue::done`].
    pub fn add_after(&mut self, now: Instant, lane: Lane, key: K, delay: Duration, priority: Priority) {
        let later = Timer { at: now + delay.min(DELAY_MAX), priority };
        let entry = self.entries.entry(key.clone()).or_insert(Entry { lane, failures: 0, phase: Phase::Idle });
        if priority == Priority::Retry && !delay.is_zero() {
            self.lanes.count_retry(entry.lane);
        }
        match &mut entry.phase {
            Phase::Ready { .. } => {}
            Phase::InFlight { timer, .. } => match timer {
                Some(timer) if timer.at <= later.at => {}
                _ => *timer = Some(later),
            },
            Phase::Delayed { timer, .. } if timer.at <= later.at => {}
            Phase::Delayed { timer, ticket } => {
                self.timers.remove(&(timer.at, *ticket));
                self.delay(key, later);
            }
            Phase::Idle => self.delay(key, later),
        }
    }

    /// Hands out the key that is next, if any may run now. [`Queue::done`] must follow.
    pub fn pop(&mut self, now: Instant) -> Option<Popped<K>> {
        self.fire_timers(now);
        if self.shut_down || self.paused.is_some() {
            return None;
        }
        if self.slow_start.as_ref().is_some_and(|start| start.is_over(now)) {
            self.slow_start = None;
        }
        if self.slow_start.as_ref().is_some_and(|start| !start.allows(now)) {
            return None;
        }
        let Taken { key, lane, priority, since } = self.lanes.take(now)?;
        let entry = self.entries.get_mut(&key)?;
        entry.phase = Phase::InFlight { began: now, again: None, timer: None };
        if let Some(start) = &mut self.slow_start {
            start.count();
        }
        let waited = now.saturating_duration_since(since);
        Some(Popped { key, lane, priority, failures: entry.failures, waited })
    }

    /// Ends the pass of a key and charges its lane with the thread's CPU time that it took.
    pub fn done(&mut self, now: Instant, key: &K, cpu: Duration) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Phase::InFlight { began, again, timer } = entry.phase else { return };
        self.lanes.finish(entry.lane, began, cpu);
        entry.phase = Phase::Idle;
        match (again, timer) {
            (Some(priority), _) => self.make_ready(now, key.clone(), priority),
            (None, Some(timer)) => self.delay(key.clone(), timer),
            (None, None) => self.drop_if_empty(key),
        }
    }

    /// Counts a failure of a key in flight and makes it due after its backoff, which is returned. To be called before
    /// [`Queue::done`].
    pub fn failed(&mut self, now: Instant, key: &K) -> Duration {
        let overall = self.retries.as_mut().map_or(Duration::ZERO, |bucket| bucket.reserve(now));
        let Some(entry) = self.entries.get_mut(key) else { return overall };
        entry.failures = entry.failures.saturating_add(1);
        let delay = Policy::KEY.delay(entry.failures, &mut self.rng).max(overall);
        let lane = entry.lane;
        self.add_after(now, lane, key.clone(), delay, Priority::Retry);
        delay
    }

    /// Forgets the failures of a key: its pass succeeded.
    pub fn forget(&mut self, key: &K) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.failures = 0;
            self.drop_if_empty(key);
        }
    }

    /// Drops all that is known of a key whose primary is gone: failures, timer, being due. One in flight is finished, and comes again
    /// where it was added meanwhile: an object that was made anew under the name must not be missed.
    pub fn remove(&mut self, key: &K) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.failures = 0;
        match &mut entry.phase {
            Phase::InFlight { timer, .. } => *timer = None,
            Phase::Ready { priority, ticket } => {
                self.lanes.withdraw(entry.lane, *ticket, *priority);
                entry.phase = Phase::Idle;
            }
            Phase::Delayed { timer, ticket } => {
                self.timers.remove(&(timer.at, *ticket));
                entry.phase = Phase::Idle;
            }
            Phase::Idle => {}
        }
        self.drop_if_empty(key);
    }

    /// Holds the keys of a lane back, as while a type that its module needs is not synced.
    pub fn hold(&mut self, lane: Lane) {
        self.lanes.set_held(lane, true);
    }

    /// Lets the keys of a lane run again.
    pub fn release(&mut self, lane: Lane) {
        self.lanes.set_held(lane, false);
    }

    /// Hands out no key until [`Queue::resume`]: the API server's breaker is open.
    pub fn pause(&mut self, now: Instant) {
        self.paused.get_or_insert(now);
    }

    /// Ends a pause. After one of a second or more, or one that cut a slow start short, what waited is spread out: half as
    /// many passes as there are workers in the first second, twice as many in each that follows, no limit after eight.
    pub fn resume(&mut self, now: Instant) {
        let Some(since) = self.paused.take() else { return };
        let was_slow = self.slow_start.as_ref().is_some_and(|start| !start.is_over(since));
        self.slow_start = SlowStart::after_pause(since, now, was_slow, self.workers);
    }

    /// Hands out no key any more. Those in flight are finished by their workers.
    pub fn shut_down(&mut self) {
        self.shut_down = true;
    }

    /// Whether [`Queue::shut_down`] was called.
    pub fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    /// When [`Queue::pop`] can next succeed without another call in between, after it gave nothing: a timer ends or the
    /// slow start allows more. None: it takes an event.
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        if self.shut_down || self.paused.is_some() {
            return None;
        }
        let timer = self.timers.first_key_value().map(|(&(at, _), _)| at);
        let waiting = self.slow_start.as_ref().filter(|start| self.lanes.ready() > 0 && !start.allows(now));
        let allowed = waiting.map(|start| start.next(now));
        timer.into_iter().chain(allowed).min()
    }

    /// How many keys are where.
    pub fn depth(&self) -> Depth {
        Depth { ready: self.lanes.ready(), delayed: self.timers.len(), in_flight: self.lanes.in_flight() }
    }

    /// How a lane stands, and what has gone through it.
    pub fn traffic(&self, lane: Lane, now: Instant) -> Traffic {
        self.lanes.traffic(lane, now)
    }

    /// Failures in a row of a key.
    pub fn failures(&self, key: &K) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.failures)
    }

    /// Keys of which anything is known, those with failures alone included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is known of any key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn fire_timers(&mut self, now: Instant) {
        while let Some(first) = self.timers.first_entry()
            && first.key().0 <= now
        {
            let key = first.remove();
            let Some(Entry { phase: Phase::Delayed { timer, .. }, .. }) = self.entries.get(&key) else { continue };
            let priority = timer.priority;
            self.make_ready(now, key, priority);
        }
    }

    fn make_ready(&mut self, now: Instant, key: K, priority: Priority) {
        let ticket = self.next_ticket();
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.phase = Phase::Ready { priority, ticket };
        self.lanes.enqueue(entry.lane, ticket, priority, now, key);
    }

    fn delay(&mut self, key: K, timer: Timer) {
        let ticket = self.next_ticket();
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.phase = Phase::Delayed { timer, ticket };
        self.timers.insert((timer.at, ticket), key);
    }

    fn next_ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    fn drop_if_empty(&mut self, key: &K) {
        if let Some(Entry { phase: Phase::Idle, failures: 0, .. }) = self.entries.get(key) {
            self.entries.remove(key);
        }
    }
}

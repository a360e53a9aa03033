//! Which ready key is next: lanes take turns by the CPU time they used, within a lane priorities decide.
//!
//! Deficit round robin (Shreedhar and Varghese, 1995) with one difference: what a pass costs is known only afterwards, so a
//! lane runs while it has credit and is charged at the end; what it overdrew it waits for.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Priority;

/// Credit that a lane gets a round, in nanoseconds: some ten usual passes.
const QUANTUM: i64 = 1_000_000;
/// The least that a pass is charged, in nanoseconds: skipped calls take turns as well.
const CHARGE_MIN: i64 = 10_000;
/// One pop in so many takes the key that has waited longest, so that no priority starves.
const AGEING: u64 = 8;

/// The keys of one module, opened by [`Queue::open_lane`](super::Queue::open_lane) of the queue it is used with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane(usize);

/// How a lane stands, and what has gone through it since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Keys that wait for a worker, in the order of [`Priority::ALL`].
    pub ready: [usize; Priority::ALL.len()],
    /// Keys in the hands of workers.
    pub in_flight: usize,
    /// Most keys that may be in the hands of workers.
    pub in_flight_max: usize,
    /// How long the passes have been running that run, all of them together.
    pub running: Duration,
    /// How long the longest of them has.
    pub longest_running: Duration,
    /// How often a key became ready.
    pub added: u64,
    /// How often a key was given a delay after which it is tried again.
    pub retried: u64,
}

/// What [`Lanes::take`] hands out.
#[derive(Debug)]
pub(super) struct Taken<K> {
    pub(super) key: K,
    pub(super) lane: Lane,
    pub(super) priority: Priority,
    /// When it became ready.
    pub(super) since: Instant,
}

#[derive(Debug)]
struct State<K> {
    /// By priority, then by ticket: the lowest has waited longest.
    ready: [BTreeMap<u64, (Instant, K)>; Priority::ALL.len()],
    /// When the passes began that run.
    running: Vec<Instant>,
    added: u64,
    retried: u64,
    credit: i64,
    pops: u64,
    held: bool,
}

impl<K> State<K> {
    fn has_ready(&self) -> bool {
        self.ready.iter().any(|keys| !keys.is_empty())
    }

    fn take(&mut self) -> Option<(Priority, Instant, K)> {
        self.pops += 1;
        let mut waiting = Priority::ALL.into_iter().filter_map(|priority| {
            let (ticket, _) = self.ready[priority as usize].first_key_value()?;
            Some((priority, *ticket))
        });
        let (priority, ticket) =
            if self.pops.is_multiple_of(AGEING) { waiting.min_by_key(|(_, ticket)| *ticket) } else { waiting.next() }?;
        let (since, key) = self.ready[priority as usize].remove(&ticket)?;
        Some((priority, since, key))
    }
}

/// All lanes of a queue.
#[derive(Debug)]
pub(super) struct Lanes<K> {
    states: Vec<State<K>>,
    /// Whose turn it is.
    turn: usize,
    workers: usize,
    ready: usize,
    in_flight: usize,
}

impl<K> Lanes<K> {
    pub(super) fn new(workers: usize) -> Self {
        Self { states: Vec::new(), turn: 0, workers, ready: 0, in_flight: 0 }
    }

    pub(super) fn open(&mut self) -> Lane {
        let ready = std::array::from_fn(|_| BTreeMap::new());
        self.states.push(State { ready, running: Vec::new(), added: 0, retried: 0, credit: 0, pops: 0, held: false });
        Lane(self.states.len() - 1)
    }

    pub(super) fn ready(&self) -> usize {
        self.ready
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn set_held(&mut self, lane: Lane, held: bool) {
        self.states[lane.0].held = held;
    }

    pub(super) fn enqueue(&mut self, lane: Lane, ticket: u64, priority: Priority, now: Instant, key: K) {
        let state = &mut self.states[lane.0];
        state.ready[priority as usize].insert(ticket, (now, key));
        state.added += 1;
        self.ready += 1;
    }

    pub(super) fn withdraw(&mut self, lane: Lane, ticket: u64, priority: Priority) {
        if self.states[lane.0].ready[priority as usize].remove(&ticket).is_some() {
            self.ready -= 1;
        }
    }

    /// Moves a key up; it keeps its ticket, as it has waited as long as before.
    pub(super) fn promote(&mut self, lane: Lane, ticket: u64, from: Priority, to: Priority) {
        let ready = &mut self.states[lane.0].ready;
        if let Some(key) = ready[from as usize].remove(&ticket) {
            ready[to as usize].insert(ticket, key);
        }
    }

    pub(super) fn count_retry(&mut self, lane: Lane) {
        self.states[lane.0].retried += 1;
    }

    /// Takes the next key of the lane whose turn it is. [`Lanes::finish`] must follow.
    pub(super) fn take(&mut self, now: Instant) -> Option<Taken<K>> {
        let turn = self.choose()?;
        let state = &mut self.states[turn];
        let (priority, since, key) = state.take()?;
        state.running.push(now);
        self.in_flight += 1;
        self.ready -= 1;
        Some(Taken { key, lane: Lane(turn), priority, since })
    }

    /// Ends a pass that began then.
    pub(super) fn finish(&mut self, lane: Lane, began: Instant, cpu: Duration) {
        let state = &mut self.states[lane.0];
        let cost = i64::try_from(cpu.as_nanos()).unwrap_or(i64::MAX).max(CHARGE_MIN);
        state.credit = state.credit.saturating_sub(cost);
        if let Some(place) = state.running.iter().position(|other| *other == began) {
            state.running.swap_remove(place);
        }
        self.in_flight -= 1;
    }

    pub(super) fn traffic(&self, lane: Lane, now: Instant) -> Traffic {
        let State { ready, running, added, retried, .. } = &self.states[lane.0];
        let since = running.iter().map(|began| now.saturating_duration_since(*began));
        Traffic {
            ready: Priority::ALL.map(|priority| ready[priority as usize].len()),
            in_flight: running.len(),
            in_flight_max: self.cap(),
            running: since.clone().sum(),
            longest_running: since.max().unwrap_or_default(),
            added: *added,
            retried: *retried,
        }
    }

    /// Most keys of one lane that may be in flight.
    fn cap(&self) -> usize {
        if self.states.len() < 2 { self.workers } else { (self.workers - 1).max(1) }
    }

    /// The lane whose turn it is stays while it has credit, then the next one that has; when none has, all that could run
    /// get as many rounds' credit as the least indebted needs.
    fn choose(&mut self) -> Option<usize> {
        let cap = self.cap();
        let count = self.states.len();
        let runnable: Vec<usize> = (0..count)
            .map(|step| (self.turn + step) % count)
            .filter(|&lane| {
                let state = &self.states[lane];
                !state.held && state.running.len() < cap && state.has_ready()
            })
            .collect();
        let in_credit = runnable.iter().copied().find(|&lane| self.states[lane].credit > 0);
        self.turn = match in_credit {
            Some(lane) => lane,
            None => {
                let richest = runnable.iter().map(|&lane| self.states[lane].credit).max()?;
                let rounds = richest.saturating_neg() / QUANTUM + 1;
                for &lane in &runnable {
                    let state = &mut self.states[lane];
                    state.credit = state.credit.saturating_add(rounds.saturating_mul(QUANTUM));
                }
                // Who had the turn used it up: the one after it comes first.
                let after = runnable.iter().copied().filter(|&lane| lane != self.turn);
                after.chain(runnable.iter().copied()).find(|&lane| self.states[lane].credit > 0)?
            }
        };
        Some(self.turn)
    }
}

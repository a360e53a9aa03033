//! Random operations on the queue and on a naive model: nothing is lost, nothing runs twice at once, nothing comes early.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Add(u8, Priority),
    AddAfter(u8, u16, Priority),
    Pop,
    Done(u8),
    DoneFailed(u8),
    Remove(u8),
    Hold(bool),
    Pause,
    Resume,
    Advance(u16),
}

/// What is promised of a key: a pass by this time, of this priority, and whether one runs.
#[derive(Clone, Copy, Debug, Default)]
struct Promise {
    due: Option<(Instant, Priority)>,
    /// Of an event that came during the pass that runs.
    event: Option<(Instant, Priority)>,
    running: bool,
    failures: u32,
}

impl Promise {
    fn due_at(&mut self, now: Instant, at: Instant, priority: Priority) {
        self.due = Some(match self.due {
            // Two that are due already: the more urgent counts, for as long as the key has waited.
            Some((before, urgency)) if before <= now && at <= now => (before, urgency.min(priority)),
            Some((before, urgency)) if before <= at => (before, urgency),
            _ => (at, priority),
        });
    }
}

fn priority() -> impl Strategy<Value = Priority> {
    prop::sample::select(Priority::ALL.to_vec())
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..6u8;
    prop_oneof![
        4 => (key.clone(), priority()).prop_map(|(key, priority)| Step::Add(key, priority)),
        2 => (key.clone(), 0..2000u16, priority()).prop_map(|(key, ms, priority)| Step::AddAfter(key, ms, priority)),
        6 => Just(Step::Pop),
        4 => key.clone().prop_map(Step::Done),
        2 => key.clone().prop_map(Step::DoneFailed),
        1 => key.prop_map(Step::Remove),
        1 => any::<bool>().prop_map(Step::Hold),
        1 => Just(Step::Pause),
        1 => Just(Step::Resume),
        3 => (0..1500u16).prop_map(Step::Advance),
    ]
}

struct Run {
    queue: Queue<u8>,
    lanes: [Lane; 2],
    now: Instant,
    promises: BTreeMap<u8, Promise>,
    held: bool,
    paused: bool,
}

const WORKERS: usize = 3;

impl Run {
    fn new() -> Self {
        let (mut queue, first, now) = queue(WORKERS);
        let lanes = [first, queue.open_lane()];
        Self { queue, lanes, now, promises: BTreeMap::new(), held: false, paused: false }
    }

    /// Even keys are in the lane that is held now and then.
    fn lane(&self, key: u8) -> Lane {
        self.lanes[usize::from(key % 2)]
    }

    fn promise(&mut self, key: u8) -> &mut Promise {
        self.promises.entry(key).or_default()
    }

    fn running(&self, lane: Lane) -> usize {
        self.promises.iter().filter(|(key, promise)| promise.running && self.lane(**key) == lane).count()
    }

    fn take(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Add(key, priority) => {
                self.queue.add(now, self.lane(key), key, priority);
                let promise = self.promise(key);
                promise.due_at(now, now, priority);
                if promise.running {
                    promise.event.get_or_insert((now, priority));
                }
            }
            Step::AddAfter(key, ms, priority) => {
                let delay = Duration::from_millis(ms.into());
                self.queue.add_after(now, self.lane(key), key, delay, priority);
                self.promise(key).due_at(now, now + delay, priority);
            }
            Step::Pop => self.pop(),
            Step::Done(key) => self.done(key, false),
            Step::DoneFailed(key) => self.done(key, true),
            Step::Remove(key) => {
                self.queue.remove(&key);
                let promise = self.promise(key);
                // An event during a pass that finds its object gone may be another object of the name.
                *promise = Promise { running: promise.running, due: promise.event, event: promise.event, failures: 0 };
            }
            Step::Hold(held) => {
                let lane = self.lanes[0];
                if held {
                    self.queue.hold(lane)
                } else {
                    self.queue.release(lane)
                }
                self.held = held;
            }
            Step::Pause => {
                self.queue.pause(now);
                self.paused = true;
            }
            Step::Resume => {
                self.queue.resume(now);
                // The slow start has tests of its own.
                self.queue.slow_start = None;
                self.paused = false;
            }
            Step::Advance(ms) => self.now += Duration::from_millis(ms.into()),
        }
    }

    fn pop(&mut self) {
        let popped = self.queue.pop(self.now);
        let runnable: Vec<u8> = self.promises.keys().copied().filter(|key| self.may_run(*key)).collect();
        let Some(popped) = popped else {
            assert!(runnable.is_empty(), "lost: {runnable:?} could run, nothing was handed out");
            return;
        };
        assert!(runnable.contains(&popped.key), "{} came early, twice at once, or while held", popped.key);
        let promise = self.promise(popped.key);
        assert_eq!(popped.failures, promise.failures);
        promise.running = true;
        promise.due = None;
    }

    fn may_run(&self, key: u8) -> bool {
        let Promise { due, running, .. } = self.promises[&key];
        let lane = self.lane(key);
        let free = self.running(lane) < WORKERS - 1;
        let held = self.paused || (self.held && lane == self.lanes[0]);
        !running && !held && free && due.is_some_and(|(at, _)| at <= self.now)
    }

    fn done(&mut self, key: u8, failed: bool) {
        if !self.promises.get(&key).is_some_and(|promise| promise.running) {
            return;
        }
        let now = self.now;
        if failed {
            let delay = self.queue.failed(now, &key);
            let promise = self.promise(key);
            promise.failures += 1;
            promise.due_at(now, now + delay, Priority::Retry);
        } else {
            self.queue.forget(&key);
            self.promise(key).failures = 0;
        }
        self.queue.done(now, &key, MS);
        let promise = self.promise(key);
        (promise.running, promise.event) = (false, None);
    }

    /// A key is known exactly while something is promised of it.
    fn check_memory(&self) {
        let known =
            self.promises.values().filter(|promise| promise.due.is_some() || promise.running || promise.failures > 0);
        assert_eq!(self.queue.len(), known.count(), "state without a promise, or the other way round");
    }

    /// After everything is let go each promise is kept, once.
    fn finish(mut self) {
        self.take(Step::Resume);
        self.take(Step::Hold(false));
        self.now += Duration::from_secs(2000);
        for key in 0..6 {
            self.done(key, false);
        }
        let mut owed: Vec<u8> =
            self.promises.iter().filter(|(_, promise)| promise.due.is_some()).map(|(key, _)| *key).collect();
        let mut came = Vec::new();
        while let Some(popped) = self.queue.pop(self.now) {
            came.push(popped.key);
            self.queue.forget(&popped.key);
            self.queue.done(self.now, &popped.key, MS);
        }
        came.sort_unstable();
        owed.sort_unstable();
        assert_eq!(came, owed);
        assert_eq!(self.queue.depth(), Depth::default());
    }
}

proptest! {
    #[test]
    fn the_queue_keeps_the_model_s_promises(steps in prop::collection::vec(step(), 1..200)) {
        let mut run = Run::new();
        for step in steps {
            run.take(step);
            run.check_memory();
        }
        run.finish();
    }

    /// In one lane with workers to spare the order is the model's as well.
    #[test]
    fn the_most_urgent_and_among_those_the_oldest_comes_first(
        adds in prop::collection::vec((0..20u8, priority()), 1..60),
    ) {
        let (mut queue, lane, now) = queue(usize::MAX);
        let mut waiting: Vec<(u8, Priority)> = Vec::new();
        for (key, priority) in adds {
            queue.add(now, lane, key, priority);
            match waiting.iter_mut().find(|(known, _)| *known == key) {
                Some((_, before)) => *before = priority.min(*before),
                None => waiting.push((key, priority)),
            }
        }
        for pops in 1.. {
            let Some(popped) = queue.pop(now) else { break };
            let first = (0..waiting.len()).min_by_key(|&at| waiting[at].1).expect("the model has keys left");
            let expected = waiting.remove(if pops % 8 == 0 { 0 } else { first });
            prop_assert_eq!((popped.key, popped.priority), expected);
        }
        prop_assert!(waiting.is_empty());
    }
}

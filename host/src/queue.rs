//! The work queue for threads: [`operator_core::queue::Queue`] behind a lock, with waiting.
//!
//! Watches and passes put keys in, worker threads wait in [`WorkQueue::next`], and drive their connections meanwhile. The decisions are the core's; here is only
//! when to wake whom: each change that may make a key runnable wakes one sleeper, and whoever takes a key wakes the next,
//! which takes another key or learns when the next timer ends.

use std::hash::Hash;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use operator_core::queue::{Depth, Lane, Options, Popped, Priority, Queue, Traffic};
use tokio::sync::Notify;

/// A queue that worker threads share.
#[derive(Debug)]
pub struct WorkQueue<K> {
    queue: Mutex<Queue<K>>,
    /// A key may be runnable, a timer may be earlier than thought, or all is over.
    changed: Notify,
    /// A pass ended.
    finished: Condvar,
}

impl<K: Clone + Eq + Hash> WorkQueue<K> {
    /// An empty queue without lanes.
    pub fn new(options: Options) -> Self {
        Self { queue: Mutex::new(Queue::new(options)), changed: Notify::new(), finished: Condvar::new() }
    }

    /// Opens the lane of a module.
    pub fn open_lane(&self) -> Lane {
        self.lock().open_lane()
    }

    /// Waits for a key to work on; [`WorkQueue::done`] must follow. None after [`WorkQueue::shut_down`]: the thread ends.
    pub async fn next(&self) -> Option<Popped<K>> {
        loop {
            let due = match self.take() {
                Taken::Key(popped) => return Some(popped),
                Taken::End => return None,
                Taken::Nothing(due) => due,
            };
            match due {
                None => self.changed.notified().await,
                // Err: it is due.
                Some(due) => drop(tokio::time::timeout_at(due.into(), self.changed.notified()).await),
            }
        }
    }

    fn take(&self) -> Taken<K> {
        let mut queue = self.lock();
        let now = Instant::now();
        let popped = queue.pop(now);
        if popped.is_none() && !queue.is_shut_down() {
            return Taken::Nothing(queue.next_due(now));
        }
        self.changed.notify_one();
        popped.map_or(Taken::End, Taken::Key)
    }

    /// Makes a key due now.
    pub fn add(&self, lane: Lane, key: K, priority: Priority) {
        self.lock().add(Instant::now(), lane, key, priority);
        self.changed.notify_one();
    }

    /// Makes a key due after `delay` at the latest.
    pub fn add_after(&self, lane: Lane, key: K, delay: Duration, priority: Priority) {
        self.lock().add_after(Instant::now(), lane, key, delay, priority);
        self.changed.notify_one();
    }

    /// Ends the pass of a key, charged to its lane by the CPU time that the thread used.
    pub fn done(&self, key: &K, cpu: Duration) {
        self.lock().done(Instant::now(), key, cpu);
        self.changed.notify_one();
        self.finished.notify_all();
    }

    /// Counts a failure of a key in flight and gives its backoff. To be called before [`WorkQueue::done`].
    pub fn failed(&self, key: &K) -> Duration {
        self.lock().failed(Instant::now(), key)
    }

    /// Forgets the failures of a key.
    pub fn forget(&self, key: &K) {
        self.lock().forget(key);
    }

    /// Drops all that is known of a key whose primary is gone.
    pub fn remove(&self, key: &K) {
        self.lock().remove(key);
    }

    /// Holds the keys of a lane back.
    pub fn hold(&self, lane: Lane) {
        self.lock().hold(lane);
    }

    /// Lets the keys of a lane run again.
    pub fn release(&self, lane: Lane) {
        self.lock().release(lane);
        self.changed.notify_one();
    }

    /// Hands out no key until [`WorkQueue::resume`]: the API server's breaker is open.
    pub fn pause(&self) {
        self.lock().pause(Instant::now());
    }

    /// Ends a pause, slowly where it was long.
    pub fn resume(&self) {
        self.lock().resume(Instant::now());
        self.changed.notify_one();
    }

    /// How many keys are where.
    pub fn depth(&self) -> Depth {
        self.lock().depth()
    }

    /// How a lane stands, and what has gone through it.
    pub fn traffic(&self, lane: Lane) -> Traffic {
        self.lock().traffic(lane, Instant::now())
    }

    /// Ends every [`WorkQueue::next`] from now on; what is in flight may finish.
    pub fn shut_down(&self) {
        self.lock().shut_down();
        self.changed.notify_one();
    }

    /// Waits until no key is in flight. False where some still were at the deadline.
    pub fn wait_idle(&self, deadline: Instant) -> bool {
        let wait = deadline.saturating_duration_since(Instant::now());
        let busy = |queue: &mut Queue<K>| queue.depth().in_flight > 0;
        let (queue, _) =
            self.finished.wait_timeout_while(self.lock(), wait, busy).unwrap_or_else(PoisonError::into_inner);
        queue.depth().in_flight == 0
    }

    /// No code that holds the lock leaves the queue half changed, so that a panic elsewhere spoils nothing.
    fn lock(&self) -> MutexGuard<'_, Queue<K>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a look at the queue brought.
enum Taken<K> {
    Key(Popped<K>),
    /// When to look again, if a timer runs.
    Nothing(Option<Instant>),
    End,
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn next(queue: &WorkQueue<u32>) -> Option<Popped<u32>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(queue.next())
    }

    fn queue(workers: usize) -> (WorkQueue<u32>, Lane) {
        let queue = WorkQueue::new(Options { workers, seed: 1, retries: None });
        let lane = queue.open_lane();
        (queue, lane)
    }

    #[test]
    fn four_threads_do_every_key_and_none_twice_at_once() {
        let (queue, lane) = queue(4);
        let running: Vec<AtomicU32> = (0..50).map(|_| AtomicU32::new(0)).collect();
        let (passes, seen) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..4 {
                let passes = passes.clone();
                scope.spawn(|| {
                    let passes = passes;
                    while let Some(popped) = next(&queue) {
                        let slot = &running[popped.key as usize];
                        assert_eq!(slot.fetch_add(1, Ordering::SeqCst), 0, "key {} ran twice at once", popped.key);
                        thread::yield_now();
                        slot.fetch_sub(1, Ordering::SeqCst);
                        if popped.failures < 2 {
                            queue.failed(&popped.key);
                        } else {
                            queue.forget(&popped.key);
                        }
                        queue.done(&popped.key, Duration::from_micros(10));
                        passes.send((popped.key, popped.failures)).expect("the test listens");
                    }
                });
            }
            for key in 0..50 {
                queue.add(lane, key, Priority::Change);
            }
            // Each key fails twice and comes back after its backoff.
            let mut last: HashMap<u32, u32> = HashMap::new();
            while last.len() < 50 || last.values().any(|failures| *failures < 2) {
                let (key, failures) = seen.recv_timeout(Duration::from_secs(30)).expect("a key was lost");
                last.insert(key, failures);
            }
            queue.shut_down();
        });
        assert_eq!(queue.depth(), Depth::default());
    }

    #[test]
    fn a_timer_wakes_a_sleeping_worker() {
        let (queue, lane) = queue(1);
        thread::scope(|scope| {
            let worker = scope.spawn(|| next(&queue).map(|popped| popped.key));
            queue.add_after(lane, 2, Duration::from_secs(3600), Priority::Resync);
            queue.add_after(lane, 1, Duration::from_millis(5), Priority::Retry);
            assert_eq!(worker.join().expect("the worker lives"), Some(1));
        });
    }

    #[test]
    fn a_drain_waits_for_what_is_in_flight() {
        let (queue, lane) = queue(1);
        queue.add(lane, 1, Priority::Change);
        queue.add(lane, 2, Priority::Change);
        assert_eq!(next(&queue).map(|popped| popped.key), Some(1));
        queue.shut_down();
        assert_eq!(next(&queue), None, "a new pass began after the shutdown");
        assert!(!queue.wait_idle(Instant::now()), "one is in flight");
        thread::scope(|scope| {
            scope.spawn(|| queue.done(&1, Duration::ZERO));
            assert!(queue.wait_idle(Instant::now() + Duration::from_secs(30)));
        });
    }
}

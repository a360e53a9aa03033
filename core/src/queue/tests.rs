//! What a user of the queue sees, and the queue beside a naive model.

mod model;

use super::*;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn queue<K: Clone + Eq + Hash>(workers: usize) -> (Queue<K>, Lane, Instant) {
    let mut queue = Queue::new(Options { workers, seed: 1, retries: None });
    let lane = queue.open_lane();
    (queue, lane, Instant::now())
}

fn keys<K: Clone + Eq + Hash>(queue: &mut Queue<K>, now: Instant, most: usize) -> Vec<K> {
    std::iter::from_fn(|| queue.pop(now)).take(most).map(|popped| popped.key).collect()
}

#[test]
fn a_thousand_events_for_one_key_are_one_pass() {
    let (mut queue, lane, now) = queue(4);
    for _ in 0..1000 {
        queue.add(now, lane, "a", Priority::Change);
    }
    assert_eq!(keys(&mut queue, now, 10), ["a"]);
}

#[test]
fn events_during_a_pass_are_one_more_pass_after_it() {
    let (mut queue, lane, now) = queue(4);
    queue.add(now, lane, "a", Priority::Change);
    queue.pop(now).expect("a is ready");
    for _ in 0..1000 {
        queue.add(now, lane, "a", Priority::Change);
        assert_eq!(queue.pop(now), None, "the key ran twice at once");
    }
    queue.done(now, &"a", Duration::ZERO);
    assert_eq!(keys(&mut queue, now, 10), ["a"]);
    queue.done(now, &"a", Duration::ZERO);
    assert!(queue.is_empty());
}

#[test]
fn an_event_during_backoff_makes_the_key_due_now_and_keeps_its_failures() {
    let (mut queue, lane, now) = queue(4);
    queue.add(now, lane, "a", Priority::Change);
    for failures in 1..=20 {
        queue.pop(now).expect("the event made it due");
        let delay = queue.failed(now, &"a");
        queue.done(now, &"a", Duration::ZERO);
        assert_eq!(queue.pop(now), None, "a failed key must wait");
        assert_eq!(queue.next_due(now), Some(now + delay));
        queue.add(now, lane, "a", Priority::Change);
        assert_eq!(queue.failures(&"a"), failures);
    }
    queue.pop(now).expect("the event made it due");
    queue.forget(&"a");
    queue.done(now, &"a", Duration::ZERO);
    assert!(queue.is_empty(), "the backoff's timer must not bring a spare pass");
}

#[test]
fn a_failed_key_comes_back_by_itself() {
    let (mut queue, lane, now) = queue(4);
    queue.add(now, lane, "a", Priority::Change);
    queue.pop(now).expect("ready");
    let delay = queue.failed(now, &"a");
    queue.done(now, &"a", Duration::ZERO);
    assert_eq!(queue.pop(now + delay - MS), None);
    let popped = queue.pop(now + delay).expect("its backoff is over");
    assert_eq!((popped.priority, popped.failures), (Priority::Retry, 1));
}

#[test]
fn the_earliest_timer_wins() {
    let (mut queue, lane, now) = queue(4);
    queue.add_after(now, lane, "a", 10 * SECOND, Priority::Resync);
    queue.add_after(now, lane, "a", 2 * SECOND, Priority::Retry);
    queue.add_after(now, lane, "a", 5 * SECOND, Priority::Retry);
    assert_eq!(queue.next_due(now), Some(now + 2 * SECOND));
    assert_eq!(queue.pop(now + 2 * SECOND).map(|popped| popped.priority), Some(Priority::Retry));
    queue.done(now, &"a", Duration::ZERO);
    assert!(queue.is_empty());
}

#[test]
fn a_delay_beyond_all_time_is_no_panic() {
    let (mut queue, lane, now) = queue(4);
    queue.add_after(now, lane, "a", Duration::MAX, Priority::Retry);
    assert_eq!(queue.depth().delayed, 1);
}

#[test]
fn a_removed_key_leaves_nothing_behind() {
    let (mut queue, lane, now) = queue(4);
    for key in 0..10_000u32 {
        match key % 3 {
            0 => queue.add(now, lane, key, Priority::Change),
            1 => queue.add_after(now, lane, key, SECOND, Priority::Retry),
            _ => queue.add(now, lane, key, Priority::Backlog),
        }
    }
    let running = keys(&mut queue, now, 4);
    for key in &running {
        queue.failed(now, key);
    }
    (0..10_000).for_each(|key| queue.remove(&key));
    assert_eq!(queue.len(), running.len(), "only keys in flight are still known");
    for key in &running {
        queue.done(now, key, Duration::ZERO);
    }
    assert!(queue.is_empty());
    assert_eq!(queue.depth(), Depth::default());
    assert_eq!(queue.next_due(now), None);
}

#[test]
fn an_object_made_anew_while_a_pass_finds_it_gone_is_not_missed() {
    let (mut queue, lane, now) = queue(4);
    queue.add(now, lane, "a", Priority::Change);
    queue.pop(now).expect("a is ready");
    queue.add(now, lane, "a", Priority::Change);
    queue.remove(&"a");
    queue.done(now, &"a", Duration::ZERO);
    assert_eq!(keys(&mut queue, now, 10), ["a"]);
}

#[test]
fn more_urgent_keys_overtake_and_the_oldest_still_comes() {
    let (mut queue, lane, now) = queue(usize::MAX);
    queue.add(now, lane, "old".to_owned(), Priority::Backlog);
    for number in 0..20 {
        queue.add(now, lane, format!("new {number}"), Priority::Change);
    }
    let order = keys(&mut queue, now, 21);
    assert_eq!(order[0], "new 0");
    assert_eq!(order.iter().position(|key| key == "old"), Some(7), "one pop in eight takes the oldest");
}

#[test]
fn a_key_that_is_added_with_more_urgency_moves_up() {
    let (mut queue, lane, now) = queue(8);
    queue.add(now, lane, "a", Priority::Resync);
    queue.add(now, lane, "b", Priority::Backlog);
    queue.add(now, lane, "b", Priority::Change);
    queue.add(now, lane, "b", Priority::Resync);
    assert_eq!(keys(&mut queue, now, 2), ["b", "a"]);
}

#[test]
fn a_hundred_thousand_keys_come_once_each() {
    let (mut queue, lane, now) = queue(4);
    for key in 0..100_000u32 {
        queue.add(now, lane, key, Priority::ALL[key as usize % 4]);
    }
    let mut seen = vec![false; 100_000];
    while let Some(popped) = queue.pop(now) {
        assert!(!std::mem::replace(&mut seen[popped.key as usize], true), "{} came twice", popped.key);
        queue.done(now, &popped.key, MS);
    }
    assert!(seen.iter().all(|seen| *seen));
    assert!(queue.is_empty());
}

#[test]
fn a_module_that_uses_ten_times_the_cpu_runs_a_tenth_as_often() {
    let (mut queue, cheap, now) = queue(1);
    let dear = queue.open_lane();
    for key in 0..20_000u32 {
        queue.add(now, cheap, (cheap, key), Priority::Change);
        queue.add(now, dear, (dear, key), Priority::Change);
    }
    let mut passes = [0u32; 2];
    for _ in 0..10_000 {
        let popped = queue.pop(now).expect("both have work");
        let is_dear = popped.lane == dear;
        passes[usize::from(is_dear)] += 1;
        queue.done(now, &popped.key, if is_dear { MS } else { MS / 10 });
    }
    let ratio = f64::from(passes[0]) / f64::from(passes[1]);
    assert!((9.0..=11.0).contains(&ratio), "{passes:?}");
}

#[test]
fn a_slow_module_leaves_one_worker_to_the_others() {
    let (mut queue, slow, now) = queue(4);
    for key in 0..10 {
        queue.add(now, slow, key, Priority::Change);
    }
    let other = queue.open_lane();
    assert_eq!(keys(&mut queue, now, 10).len(), 3);
    queue.add(now, other, 100, Priority::Backlog);
    assert_eq!(keys(&mut queue, now, 10), [100]);
}

#[test]
fn with_one_worker_two_modules_both_run() {
    let (mut queue, first, now) = queue(1);
    let second = queue.open_lane();
    queue.add(now, first, 1, Priority::Change);
    queue.add(now, second, 2, Priority::Change);
    let mut ran = Vec::new();
    while let Some(popped) = queue.pop(now) {
        queue.done(now, &popped.key, SECOND);
        ran.push(popped.key);
    }
    ran.sort_unstable();
    assert_eq!(ran, [1, 2]);
}

#[test]
fn a_held_module_does_not_hold_the_others() {
    let (mut queue, held, now) = queue(4);
    let other = queue.open_lane();
    queue.hold(held);
    queue.add(now, held, "held", Priority::Change);
    queue.add(now, other, "other", Priority::Change);
    assert_eq!(keys(&mut queue, now, 10), ["other"]);
    queue.release(held);
    assert_eq!(keys(&mut queue, now, 10), ["held"]);
}

#[test]
fn after_shutdown_nothing_is_handed_out_and_what_runs_may_finish() {
    let (mut queue, lane, now) = queue(4);
    queue.add(now, lane, "a", Priority::Change);
    queue.pop(now).expect("ready");
    queue.add(now, lane, "a", Priority::Change);
    queue.add(now, lane, "b", Priority::Change);
    queue.shut_down();
    assert_eq!(queue.pop(now), None);
    assert_eq!(queue.depth().in_flight, 1);
    queue.done(now, &"a", MS);
    assert_eq!(queue.pop(now), None);
    assert_eq!(queue.next_due(now), None);
    assert_eq!(queue.depth(), Depth { ready: 2, delayed: 0, in_flight: 0 });
}

#[test]
fn the_overall_bucket_spreads_retries_when_it_is_on() {
    let mut queue = Queue::new(Options { workers: 64, seed: 1, retries: Bucket::new(10.0, 2) });
    let (lane, now) = (queue.open_lane(), Instant::now());
    (0..6u32).for_each(|key| queue.add(now, lane, key, Priority::Change));
    let delays: Vec<_> = keys(&mut queue, now, 6).iter().map(|key| queue.failed(now, key).as_millis()).collect();
    assert!(delays[0] < 10 && delays[1] < 10, "{delays:?}");
    assert_eq!(delays[2..], [100, 200, 300, 400]);
}

#[test]
fn a_short_pause_needs_no_slow_start() {
    let (mut queue, lane, now) = queue(100);
    (0..50u32).for_each(|key| queue.add(now, lane, key, Priority::Change));
    queue.pause(now);
    assert_eq!(queue.pop(now), None);
    queue.resume(now + 500 * MS);
    assert_eq!(keys(&mut queue, now + 500 * MS, 100).len(), 50);
}

#[test]
fn a_short_pause_within_a_slow_start_starts_it_over() {
    let (mut queue, lane, start) = queue(4);
    (0..50u32).for_each(|key| queue.add(start, lane, key, Priority::Change));
    queue.pause(start);
    let back = start + 60 * SECOND;
    queue.resume(back);
    assert_eq!(keys(&mut queue, back, 100).len(), 2);
    // The server that has only just come back asks for patience.
    queue.pause(back + 900 * MS);
    queue.resume(back + 1100 * MS);
    assert_eq!(keys(&mut queue, back + 1100 * MS, 100).len(), 2, "all at once");
}

/// The API server is away for half an hour while 500 keys have work; a pass makes 4 requests and takes 20 ms.
#[test]
fn after_an_outage_all_keys_converge_within_30_seconds_without_a_storm() {
    use crate::breaker::{Admission, Breaker, Signal, Transition};
    const WORKERS: usize = 4;
    const REQUESTS: usize = 4;
    let (mut queue, lane, start) = queue(WORKERS);
    let mut breaker = Breaker::new(1);
    let back = start + Duration::from_secs(1800);
    (0..500u32).for_each(|key| queue.add(start, lane, key, Priority::Change));

    let (mut now, mut returned, mut first_second, mut converged) = (start, None, 0, None);
    while converged.is_none() {
        assert!(now < back + 30 * SECOND, "not converged 30 s after the return: {:?}", queue.depth());
        if let Admission::Probe = breaker.admit(now) {
            let answer = if now >= back { Signal::Success } else { Signal::Transport };
            if breaker.report(now, answer) == Some(Transition::Closed) {
                queue.resume(now);
                returned = Some(now);
            }
        }
        let running: Vec<_> = std::iter::from_fn(|| queue.pop(now)).take(WORKERS).collect();
        for popped in running {
            if now >= back {
                queue.forget(&popped.key);
                first_second += if returned.is_some_and(|at| now < at + SECOND) { REQUESTS } else { 0 };
            } else {
                queue.failed(now, &popped.key);
                if breaker.report(now, Signal::Transport) == Some(Transition::Opened) {
                    queue.pause(now);
                }
            }
            queue.done(now, &popped.key, MS);
        }
        converged = queue.is_empty().then_some(now);
        now += 20 * MS;
    }
    assert!(first_second <= WORKERS * 2, "{first_second} requests in the first second");
    assert!(first_second > 0, "nothing happened in the first second");
}

#[test]
fn a_lane_tells_what_went_through_it_and_how_long_its_passes_have_run() {
    let (mut queue, lane, now) = queue(4);
    let other = queue.open_lane();
    for (key, priority) in
        [("a", Priority::Change), ("a", Priority::Change), ("b", Priority::Change), ("c", Priority::Backlog)]
    {
        queue.add(now, lane, key, priority);
    }
    assert_eq!(
        queue.traffic(lane, now),
        Traffic { ready: [2, 0, 0, 1], in_flight_max: 3, added: 3, ..Traffic::default() }
    );

    queue.pop(now).expect("a is ready");
    queue.pop(now + SECOND).expect("b is ready");
    queue.failed(now + SECOND, &"a");
    queue.add_after(now + SECOND, lane, "b", 10 * SECOND, Priority::Resync);
    let expected = Traffic {
        ready: [0, 0, 0, 1],
        in_flight: 2,
        in_flight_max: 3,
        running: 5 * SECOND,
        longest_running: 3 * SECOND,
        added: 3,
        retried: 1,
    };
    assert_eq!(queue.traffic(lane, now + 3 * SECOND), expected);

    queue.done(now + 3 * SECOND, &"a", MS);
    let after = queue.traffic(lane, now + 3 * SECOND);
    assert_eq!((after.in_flight, after.running, after.longest_running), (1, 2 * SECOND, 2 * SECOND));
    assert_eq!(queue.traffic(other, now), Traffic { in_flight_max: 3, ..Traffic::default() });
}

//! Whether the API server as a whole is in trouble: answers in, open or closed out.
//!
//! While it is open no key is worked on, so that an outage heats no key and its end meets no storm. What names a webhook,
//! a patch or a conversion is never reported here: a broken webhook must not stall the rest.

use std::time::{Duration, Instant};

use crate::backoff::Policy;
use crate::contract::TypeRef;

/// How long an unexplained 500 is remembered.
const WINDOW: Duration = Duration::from_secs(10);
/// Unexplained 500s on so many distinct (type, namespace) within the window open it.
const DISTINCT: usize = 3;
/// Longest `Retry-After` that is believed.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// A probe without an answer is given up after this time and another caller may try.
const PROBE: Duration = Duration::from_secs(10);

/// What an answer, or its absence, says of the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Any answer that shows a working server, also a refusal of the request.
    Success,
    /// No answer: connection refused, reset, timed out.
    Transport,
    /// The server's own 429.
    Throttled {
        /// Its `Retry-After` header.
        retry_after: Option<Duration>,
    },
    /// 502, 503 or 504.
    Unavailable,
    /// A 500 whose text explains nothing, on objects of this type in this namespace.
    ServerError {
        /// The type asked for.
        type_ref: TypeRef,
        /// None for cluster-scoped objects.
        namespace: Option<String>,
    },
}

/// Whether requests may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// They may.
    Closed,
    /// They may not; from `until` on one caller may probe.
    Open {
        /// When the next probe is due.
        until: Instant,
    },
}

/// What [`Breaker::admit`] lets a caller do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Make the request.
    Pass,
    /// Make one cheap request and report what came of it: everybody else waits for it.
    Probe,
    /// Make none; ask again at this time.
    Wait(Instant),
}

/// A change that the caller passes on to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// It opened: pause the queue.
    Opened,
    /// It closed: resume the queue.
    Closed,
}

#[derive(Debug)]
struct Open {
    until: Instant,
    probing: bool,
}

/// The breaker of one API server.
#[derive(Debug)]
pub struct Breaker {
    open: Option<Open>,
    /// Times in a row that it opened or stayed open.
    failures: u32,
    unexplained: Vec<(Instant, TypeRef, Option<String>)>,
    rng: fastrand::Rng,
}

impl Breaker {
    /// A closed breaker; `seed` feeds the jitter of its probes.
    pub fn new(seed: u64) -> Self {
        Self { open: None, failures: 0, unexplained: Vec::new(), rng: fastrand::Rng::with_seed(seed) }
    }

    /// Whether requests may be made.
    pub fn state(&self) -> State {
        match &self.open {
            None => State::Closed,
            Some(open) => State::Open { until: open.until },
        }
    }

    /// What a caller may do now. Whoever is told to probe must report an answer or its absence.
    pub fn admit(&mut self, now: Instant) -> Admission {
        match &mut self.open {
            None => Admission::Pass,
            Some(open) if now < open.until => Admission::Wait(open.until),
            Some(open) => {
                *open = Open { until: now + PROBE, probing: true };
                Admission::Probe
            }
        }
    }

    /// Takes what a request brought. A success closes an open breaker only while a probe is out: an answer that was on its
    /// way when it opened proves nothing.
    pub fn report(&mut self, now: Instant, signal: Signal) -> Option<Transition> {
        match signal {
            Signal::Success => self.succeed(),
            Signal::Transport | Signal::Unavailable => self.trip(now, None),
            Signal::Throttled { retry_after } => self.trip(now, retry_after),
            Signal::ServerError { type_ref, namespace } => self.note_unexplained(now, type_ref, namespace),
        }
    }

    fn succeed(&mut self) -> Option<Transition> {
        match &self.open {
            None => {
                self.failures = 0;
                None
            }
            Some(open) if !open.probing => None,
            Some(_) => {
                self.open = None;
                self.unexplained.clear();
                Some(Transition::Closed)
            }
        }
    }

    /// Opens it, or keeps it open longer. Answers to requests that were on their way when it opened change nothing, but
    /// for a `Retry-After`.
    fn trip(&mut self, now: Instant, retry_after: Option<Duration>) -> Option<Transition> {
        let asked = retry_after.map(|delay| now + delay.min(RETRY_AFTER_MAX));
        if let Some(open) = &mut self.open
            && !open.probing
        {
            open.until = asked.map_or(open.until, |asked| asked.max(open.until));
            return None;
        }
        self.failures = self.failures.saturating_add(1);
        let until = asked.unwrap_or_else(|| now + Policy::BREAKER.delay(self.failures, &mut self.rng));
        let was_closed = self.open.replace(Open { until, probing: false }).is_none();
        was_closed.then_some(Transition::Opened)
    }

    fn note_unexplained(&mut self, now: Instant, type_ref: TypeRef, namespace: Option<String>) -> Option<Transition> {
        if self.open.is_some() {
            return self.trip(now, None);
        }
        self.unexplained.retain(|(at, known_type, known_namespace)| {
            let same = *known_type == type_ref && *known_namespace == namespace;
            now.saturating_duration_since(*at) < WINDOW && !same
        });
        self.unexplained.push((now, type_ref, namespace));
        if self.unexplained.len() < DISTINCT {
            return None;
        }
        self.unexplained.clear();
        self.trip(now, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unexplained(kind: &str, namespace: &str) -> Signal {
        Signal::ServerError { type_ref: TypeRef::new("v1", kind), namespace: Some(namespace.into()) }
    }

    fn until(breaker: &Breaker) -> Instant {
        match breaker.state() {
            State::Open { until } => until,
            State::Closed => panic!("the breaker is closed"),
        }
    }

    #[test]
    fn no_answer_and_gateway_errors_open_it_at_once() {
        for signal in [Signal::Transport, Signal::Unavailable, Signal::Throttled { retry_after: None }] {
            let (mut breaker, now) = (Breaker::new(1), Instant::now());
            assert_eq!(breaker.report(now, signal), Some(Transition::Opened));
            assert!(matches!(breaker.admit(now), Admission::Wait(_)));
        }
    }

    #[test]
    fn one_caller_probes_and_its_success_closes_it() {
        let (mut breaker, now) = (Breaker::new(1), Instant::now());
        breaker.report(now, Signal::Transport);
        let due = until(&breaker);
        assert_eq!(breaker.admit(due), Admission::Probe);
        assert!(matches!(breaker.admit(due), Admission::Wait(_)), "two callers probed at once");
        assert_eq!(breaker.report(due, Signal::Success), Some(Transition::Closed));
        assert_eq!(breaker.admit(due), Admission::Pass);
    }

    #[test]
    fn a_late_success_does_not_close_it() {
        let (mut breaker, now) = (Breaker::new(1), Instant::now());
        breaker.report(now, Signal::Transport);
        assert_eq!(breaker.report(now, Signal::Success), None);
        assert!(matches!(breaker.state(), State::Open { .. }));
    }

    #[test]
    fn probes_of_a_server_that_stays_away_come_at_most_some_5_seconds_apart() {
        let (mut breaker, start) = (Breaker::new(1), Instant::now());
        let mut now = start;
        breaker.report(now, Signal::Transport);
        let mut probes = 0;
        while now < start + Duration::from_secs(1800) {
            let due = until(&breaker);
            assert!(
                due - now <= Duration::from_millis(5500),
                "the server's return would be seen after {:?}",
                due - now
            );
            now = due;
            assert_eq!(breaker.admit(now), Admission::Probe);
            probes += 1;
            assert_eq!(breaker.report(now, Signal::Transport), None, "it was open already");
        }
        assert!(probes < 500, "{probes} probes in half an hour");
    }

    #[test]
    fn a_probe_without_an_answer_is_given_up() {
        let (mut breaker, now) = (Breaker::new(1), Instant::now());
        breaker.report(now, Signal::Transport);
        let due = until(&breaker);
        assert_eq!(breaker.admit(due), Admission::Probe);
        assert_eq!(breaker.admit(due + PROBE), Admission::Probe);
    }

    #[test]
    fn retry_after_is_honoured_within_reason() {
        let (mut breaker, now) = (Breaker::new(1), Instant::now());
        breaker.report(now, Signal::Throttled { retry_after: Some(Duration::from_secs(7)) });
        assert_eq!(until(&breaker), now + Duration::from_secs(7));
        breaker.report(now, Signal::Throttled { retry_after: Some(Duration::from_secs(86_400)) });
        assert_eq!(until(&breaker), now + RETRY_AFTER_MAX);
    }

    #[test]
    fn server_errors_of_one_type_and_namespace_never_open_it() {
        let (mut breaker, now) = (Breaker::new(1), Instant::now());
        for _ in 0..100 {
            assert_eq!(breaker.report(now, unexplained("Service", "a")), None);
            assert_eq!(breaker.report(now, unexplained("Service", "b")), None);
        }
    }

    #[test]
    fn server_errors_of_three_open_it_only_within_the_window() {
        let (mut breaker, start) = (Breaker::new(1), Instant::now());
        breaker.report(start, unexplained("Service", "a"));
        breaker.report(start, unexplained("Service", "b"));
        assert_eq!(breaker.report(start + WINDOW, unexplained("Secret", "a")), None);
        breaker.report(start + WINDOW, unexplained("Secret", "b"));
        assert_eq!(breaker.report(start + WINDOW, unexplained("Secret", "c")), Some(Transition::Opened));
    }
}

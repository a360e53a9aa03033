//! How a type stands: the states of its watches, taken together.

use operator_core::reflector::{Reflector, State};
use std::time::Instant;

/// How a type stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeState {
    /// Not all of its watches have given a first answer, or one since the server went back in time.
    Syncing,
    /// The server refuses its first list for a reason of its own, as where an aggregated API has nobody behind it.
    Failing {
        /// In the server's words, or the transport's.
        message: String,
        /// Since when.
        since: Instant,
    },
    /// Its table may be acted upon. A server that can't be reached just now does not change that.
    Synced,
    /// The server does not serve it: what the table holds is not to be trusted.
    Absent {
        /// In the server's words.
        message: String,
        /// Since when.
        since: Instant,
        /// Whether it had been served before.
        was_synced: bool,
    },
    /// We may not list or watch it: what the table holds is not to be trusted.
    Forbidden {
        /// In the server's words.
        message: String,
        /// Since when.
        since: Instant,
        /// Whether we had been allowed before.
        was_synced: bool,
    },
}

impl TypeState {
    /// The one that decides where several must be as they should.
    pub fn worst(states: impl Iterator<Item = Self>) -> Self {
        let rank = |state: &Self| match state {
            Self::Absent { .. } => 4,
            Self::Forbidden { .. } => 3,
            Self::Failing { .. } => 2,
            Self::Syncing => 1,
            Self::Synced => 0,
        };
        states.max_by_key(rank).unwrap_or(Self::Syncing)
    }

    /// What keeps its objects from being worked on; None where nothing does.
    pub fn trouble(&self) -> Option<String> {
        match self {
            Self::Synced => None,
            Self::Syncing => Some("the first list is not in yet".into()),
            Self::Failing { message, .. } => Some(format!("failing: {message}")),
            Self::Absent { message, .. } => Some(format!("not served: {message}")),
            Self::Forbidden { message, .. } => Some(format!("forbidden: {message}")),
        }
    }
}

/// How one watch stands.
#[derive(Debug)]
pub(super) struct Standing {
    state: State,
    is_trusted: bool,
    /// The server went back in time, which the watch does not know yet.
    is_distrusted: bool,
    is_lost: bool,
    /// It was not found again soon after an outage.
    is_given_up: bool,
    was_synced: bool,
    /// Since when the type is away, in whichever way.
    away_since: Option<Instant>,
    /// Since when it fails in other ways.
    failing_since: Option<Instant>,
}

impl Standing {
    pub(super) fn new() -> Self {
        Self {
            state: State::Syncing,
            is_trusted: false,
            is_distrusted: false,
            is_lost: false,
            is_given_up: false,
            was_synced: false,
            away_since: None,
            failing_since: None,
        }
    }

    /// The server went back in time: nothing is to be trusted until the watch has listed anew, whatever its reflector says until
    /// [`Standing::follow_again`].
    pub(super) fn distrust(&mut self) {
        (self.is_trusted, self.is_distrusted) = (false, true);
    }

    /// The reflector knows as well.
    pub(super) fn follow_again(&mut self) {
        self.is_distrusted = false;
    }

    /// Whether the line broke, and the server has not shown since how far it is.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// A lost watch is waited for no longer: what it told is not to be trusted until it is found again.
    pub(super) fn give_up_if_lost(&mut self) {
        self.is_given_up = self.is_lost;
        self.is_trusted &= !self.is_lost;
    }

    /// Takes over what a reflector says; whether its state is another one than before.
    pub(super) fn update(&mut self, reflector: &Reflector, now: Instant) -> bool {
        self.is_lost = reflector.is_lost();
        self.is_given_up &= self.is_lost;
        self.is_trusted = reflector.is_trusted() && !self.is_distrusted && !self.is_given_up;
        self.was_synced |= self.is_trusted;
        match reflector.state() {
            State::Absent { .. } | State::Forbidden { .. } => _ = self.away_since.get_or_insert(now),
            State::Synced => self.away_since = None,
            State::Syncing | State::Failing { .. } => {}
        }
        match reflector.state() {
            State::Failing { .. } => _ = self.failing_since.get_or_insert(now),
            _ => self.failing_since = None,
        }
        let is_new = self.state != *reflector.state();
        if is_new {
            self.state = reflector.state().clone();
        }
        is_new
    }

    /// As far as this watch is concerned.
    fn type_state(&self) -> TypeState {
        let since = self.away_since;
        let was_synced = self.was_synced;
        match (&self.state, since) {
            (State::Absent { message }, Some(since)) => {
                TypeState::Absent { message: message.clone(), since, was_synced }
            }
            (State::Forbidden { message }, Some(since)) => {
                TypeState::Forbidden { message: message.clone(), since, was_synced }
            }
            _ if self.is_trusted => TypeState::Synced,
            _ if self.is_distrusted => TypeState::Syncing,
            (State::Failing { message }, _) => {
                TypeState::Failing { message: message.clone(), since: self.failing_since.unwrap_or_else(Instant::now) }
            }
            _ => TypeState::Syncing,
        }
    }
}

/// The worst of them decides.
pub(super) fn combine<'a>(standings: impl Iterator<Item = &'a Standing>) -> TypeState {
    TypeState::worst(standings.map(Standing::type_state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use operator_core::object::ResourceVersion;
    use operator_core::reflector::{Fault, Step};
    use std::time::Duration;

    fn synced(now: Instant) -> Reflector {
        let mut reflector = Reflector::new(1);
        assert!(matches!(reflector.next(now), Step::Send(_)));
        let _ = reflector.bookmark(ResourceVersion::new("5"), true, now);
        reflector
    }

    #[test]
    fn a_type_is_synced_when_each_of_its_watches_is() {
        let now = Instant::now();
        let (mut one, mut other) = (Standing::new(), Standing::new());
        one.update(&synced(now), now);
        assert_eq!(combine([&one, &other].into_iter()), TypeState::Syncing);
        other.update(&synced(now), now);
        assert_eq!(combine([&one, &other].into_iter()), TypeState::Synced);
    }

    #[test]
    fn a_type_that_went_away_says_since_when_though_it_is_tried_again_and_again() {
        let (start, mut standing) = (Instant::now(), Standing::new());
        let mut reflector = synced(start);
        standing.update(&reflector, start);
        for seconds in [10, 20, 40] {
            let now = start + Duration::from_secs(seconds);
            reflector.failed(Fault::absent("gone"), now);
            standing.update(&reflector, now);
        }
        let expected =
            TypeState::Absent { message: "gone".into(), since: start + Duration::from_secs(10), was_synced: true };
        assert_eq!(combine([&standing].into_iter()), expected);
    }

    #[test]
    fn a_type_that_never_came_says_since_when_it_fails() {
        let (start, mut standing) = (Instant::now(), Standing::new());
        let mut reflector = Reflector::new(1);
        for seconds in [1, 2, 4] {
            let now = start + Duration::from_secs(seconds);
            reflector.failed(Fault::unintelligible("service unavailable"), now);
            standing.update(&reflector, now);
        }
        let expected =
            TypeState::Failing { message: "service unavailable".into(), since: start + Duration::from_secs(1) };
        assert_eq!(combine([&standing].into_iter()), expected);
    }

    #[test]
    fn a_type_that_is_not_found_again_after_an_outage_fails_until_it_is() {
        let (now, mut standing) = (Instant::now(), Standing::new());
        let mut reflector = synced(now);
        reflector.failed(Fault::lost("connection refused"), now);
        standing.update(&reflector, now);
        assert_eq!(combine([&standing].into_iter()), TypeState::Synced);
        standing.give_up_if_lost();
        assert!(matches!(combine([&standing].into_iter()), TypeState::Failing { .. }));
        reflector.server_is_back(now);
        let later = now + Duration::from_secs(1);
        assert!(matches!(reflector.next(later), Step::Send(_)));
        standing.update(&reflector, later);
        assert!(matches!(combine([&standing].into_iter()), TypeState::Failing { .. }));
        reflector.opened(later);
        standing.update(&reflector, later);
        assert_eq!(combine([&standing].into_iter()), TypeState::Synced);
    }

    #[test]
    fn a_type_of_a_server_that_went_back_is_synced_again_only_by_a_list_that_began_since() {
        let (now, mut standing) = (Instant::now(), Standing::new());
        let mut reflector = synced(now);
        standing.update(&reflector, now);
        standing.distrust();
        standing.update(&reflector, now);
        assert_eq!(combine([&standing].into_iter()), TypeState::Syncing);
        reflector.relist();
        standing.follow_again();
        standing.update(&reflector, now);
        assert_eq!(combine([&standing].into_iter()), TypeState::Syncing);
        assert!(matches!(reflector.next(now), Step::Send(_)));
        let _ = reflector.bookmark(ResourceVersion::new("4"), true, now);
        standing.update(&reflector, now);
        assert_eq!(combine([&standing].into_iter()), TypeState::Synced);
    }

    #[test]
    fn a_server_that_cannot_be_reached_leaves_a_synced_type_synced() {
        let (now, mut standing) = (Instant::now(), Standing::new());
        let mut reflector = synced(now);
        reflector.failed(Fault::lost("connection refused"), now);
        standing.update(&reflector, now);
        assert_eq!(combine([&standing].into_iter()), TypeState::Synced);
    }
}

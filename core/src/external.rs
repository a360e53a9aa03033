//! When work outside the cluster is due for one object, and what is known of it.
//!
//! In come what a pass sees of the object and what the calls answered; out comes whether to call, to wait, or to go on. Nothing here
//! calls: `ensure` and `remove` run on threads of their own, at most one of the two at a time for an object.

use crate::backoff::Policy;
use crate::contract::{Observed, Removal};
use crate::reconciled::{Problem, Reason};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For which object, in which state, by which build a call is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Digest of the module.
    pub module: Arc<str>,
}

/// Which of the two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Make it, or look at it.
    Ensure,
    /// Take it away.
    Remove,
}

impl Work {
    /// The contract's name of the call.
    pub fn hook(self) -> &'static str {
        match self {
            Self::Ensure => "ensure",
            Self::Remove => "remove",
        }
    }
}

/// A call that gave no answer that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// For the condition.
    pub problem: Problem,
    /// Not tried again before the object or the module changes, or the resync.
    pub terminal: bool,
    /// In place of the backoff.
    pub retry_after: Option<Duration>,
}

/// What a pass does about `ensure`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ensure {
    /// Call it, and go on when it has answered.
    Call,
    /// Call it, and go on with what was observed last.
    CallBeside,
    /// It runs: go on when it has answered.
    Wait,
    /// Go on. The problem says why the last call failed; the time is when the next one is due.
    Go {
        /// What is in the way.
        problem: Option<Problem>,
        /// None: after a change.
        due: Option<Instant>,
    },
}

/// What a pass does about `remove`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remove {
    /// Call it.
    Call,
    /// A call runs.
    Wait,
    /// Nothing is left outside.
    Done,
    /// Something is left; call again then. None: after a change.
    Later(Problem, Option<Instant>),
}

/// What is known of one object's work outside.
#[derive(Debug, Default)]
pub struct Outside {
    running: Option<(Work, Subject)>,
    ensured: Option<Ensured>,
    removed: Option<Removed>,
    /// In a row.
    failures: u32,
}

#[derive(Debug)]
struct Ensured {
    subject: Subject,
    observation: Option<Arc<str>>,
    problem: Option<Problem>,
    due: Option<Instant>,
}

#[derive(Debug)]
struct Removed {
    subject: Subject,
    /// None: nothing is left.
    problem: Option<Problem>,
    due: Option<Instant>,
}

impl Outside {
    /// What to do before the object's children are looked at.
    pub fn ensure(&self, subject: &Subject, now: Instant) -> Ensure {
        let ensured = self.ensured_of(&subject.uid);
        let is_current = ensured.is_some_and(|ensured| ensured.subject == *subject);
        match (&self.running, ensured) {
            (Some(_), Some(ensured)) if is_current => Ensure::Go { problem: ensured.problem.clone(), due: None },
            (Some(_), _) => Ensure::Wait,
            (None, Some(ensured)) if is_current => match ensured.due {
                Some(due) if due <= now => Ensure::CallBeside,
                due => Ensure::Go { problem: ensured.problem.clone(), due },
            },
            (None, _) => Ensure::Call,
        }
    }

    /// What to do about the rest outside of an object that is being deleted. Another generation asks again: somebody may have mended
    /// what was in the way.
    pub fn remove(&self, subject: &Subject, now: Instant) -> Remove {
        if self.running.is_some() {
            return Remove::Wait;
        }
        match self.removed_of(&subject.uid) {
            Some(Removed { problem: None, .. }) => Remove::Done,
            Some(Removed { subject: of, problem: Some(problem), due })
                if of == subject && due.is_none_or(|due| due > now) =>
            {
                Remove::Later(problem.clone(), *due)
            }
            _ => Remove::Call,
        }
    }

    /// What `ensure` last observed of this object.
    pub fn observation(&self, uid: &str) -> Option<Arc<str>> {
        self.ensured_of(uid)?.observation.clone()
    }

    /// Whether a call runs.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether something was made, as far as anybody knows, that was not taken away.
    pub fn is_left(&self) -> bool {
        let Some(ensured) = &self.ensured else { return false };
        self.removed_of(&ensured.subject.uid).is_none_or(|removed| removed.problem.is_some())
    }

    /// A call begins.
    pub fn begins(&mut self, work: Work, subject: Subject) {
        self.running = Some((work, subject));
    }

    /// A call was given up before it was made.
    pub fn dropped(&mut self) {
        self.running = None;
    }

    /// `ensure` answered; whether that is news for the module. The last observation stays where it failed. `resync` is when it is asked
    /// again without any reason; None: never.
    pub fn ensured(
        &mut self,
        answer: Result<Observed, Failed>,
        now: Instant,
        resync: Option<Duration>,
        rng: &mut fastrand::Rng,
    ) -> bool {
        let Some((Work::Ensure, subject)) = self.running.take() else { return false };
        let before = self.ensured.take().filter(|before| before.subject.uid == subject.uid);
        let (observation, problem, after) = match answer {
            Ok(Observed { observation, recheck_after }) => {
                self.failures = 0;
                (Some(Arc::from(observation)), None, earliest(recheck_after, resync))
            }
            Err(failed) => {
                let after = self.failed(&failed, resync, rng);
                (before.as_ref().and_then(|before| before.observation.clone()), Some(failed.problem), after)
            }
        };
        let is_news = before.is_none_or(|before| {
            before.subject != subject || before.observation != observation || before.problem != problem
        });
        self.ensured = Some(Ensured { subject, observation, problem, due: after.map(|after| now + after) });
        is_news
    }

    /// `remove` answered.
    pub fn removed(
        &mut self,
        answer: Result<Removal, Failed>,
        now: Instant,
        resync: Option<Duration>,
        rng: &mut fastrand::Rng,
    ) {
        let Some((Work::Remove, subject)) = self.running.take() else { return };
        let (problem, after) = match answer {
            Ok(Removal { done: true, .. }) => {
                self.failures = 0;
                (None, None)
            }
            Ok(Removal { message, retry_after, .. }) => {
                let message =
                    if message.is_empty() { "something is left outside the cluster".to_owned() } else { message };
                let problem = Problem::new(Reason::Waiting, message);
                let failed = Failed { problem, terminal: false, retry_after };
                let after = self.failed(&failed, resync, rng);
                (Some(failed.problem), after)
            }
            Err(failed) => {
                let after = self.failed(&failed, resync, rng);
                (Some(failed.problem), after)
            }
        };
        self.removed = Some(Removed { subject, problem, due: after.map(|after| now + after) });
    }

    fn ensured_of(&self, uid: &str) -> Option<&Ensured> {
        self.ensured.as_ref().filter(|ensured| &*ensured.subject.uid == uid)
    }

    fn removed_of(&self, uid: &str) -> Option<&Removed> {
        self.removed.as_ref().filter(|removed| &*removed.subject.uid == uid)
    }

    fn failed(&mut self, failed: &Failed, resync: Option<Duration>, rng: &mut fastrand::Rng) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        match (failed.terminal, failed.retry_after) {
            (true, _) => resync,
            (false, Some(after)) => Some(after),
            (false, None) => Some(Policy::EXTERNAL.delay(self.failures, rng)),
        }
    }
}

fn earliest(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    [a, b].into_iter().flatten().min()
}

#[cfg(test)]
mod tests;

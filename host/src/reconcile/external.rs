//! Work outside the cluster: `ensure` and `remove`, on threads of their own.
//!
//! A pass asks; a call runs beside the workers, at most one for an object; its answer wakes the key. What is due when is the core's
//! ([`operator_core::external`]). Nothing is remembered beyond the process: a new leader asks anew, once for each object.

use super::pass::{Next, Pass, next, problem_of};
use super::serving::Serving;
use super::snapshot::Taken;
use super::{QueueKey, Shared};
use crate::apply::Again;
use crate::events::Event;
use crate::module::CallReport;
use crate::observe::traces;
use operator_core::contract::{Key, Snapshot};
use operator_core::external::{Ensure, Failed, Outside, Remove, Subject, Work};
use operator_core::object::Stored;
use operator_core::queue::Priority;
use operator_core::reconciled::{Problem, Reason};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Semaphore;
use tracing::{info_span, warn};

/// Calls that run at the same time.
const CALLS: usize = 4;

/// What is known of the work outside, by key.
pub(super) struct External {
    states: Mutex<HashMap<QueueKey, Outside>>,
    turns: Semaphore,
}

impl Default for External {
    fn default() -> Self {
        Self { states: Mutex::default(), turns: Semaphore::new(CALLS) }
    }
}

impl External {
    /// What was observed last of this object.
    pub(super) fn observation(&self, key: &QueueKey, uid: &str) -> Option<Arc<str>> {
        self.states().get(key)?.observation(uid)
    }

    /// Forgets an object that is gone, or let go of; whether something of it may be left outside. A call that still runs keeps its place, so
    /// that no other begins beside it, and wakes the key when it has ended.
    fn forget(&self, key: &QueueKey) -> bool {
        let mut states = self.states();
        match states.get(key) {
            Some(state) if !state.is_running() => states.remove(key).is_some_and(|state| state.is_left()),
            _ => false,
        }
    }

    /// Lets no call begin any more and waits for those that run.
    pub(super) async fn drain(&self) {
        // Err: closed, by whoever drained before.
        let _ = self.turns.acquire_many(CALLS as u32).await;
        self.turns.close();
    }

    fn with<T>(&self, key: &QueueKey, work: impl FnOnce(&mut Outside) -> T) -> T {
        work(self.states().entry(key.clone()).or_default())
    }

    fn states(&self) -> MutexGuard<'_, HashMap<QueueKey, Outside>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is to be made.
struct Job {
    work: Work,
    key: QueueKey,
    subject: Subject,
    serving: Arc<Serving>,
    snapshot: Snapshot,
    /// Of the pass that asked.
    id: String,
}

impl Pass<'_> {
    /// Sees to it that what the object needs outside was made or looked at. Gives what is in the way there, and when it is due again.
    ///
    /// # Errors
    /// Nothing is known yet: the answer wakes the key.
    pub(super) fn ensure(&mut self, taken: &Taken) -> Result<(Option<Problem>, Option<Instant>), Next> {
        let subject = self.subject(&taken.primary);
        match self.shared.external.with(self.key, |state| state.ensure(&subject, Instant::now())) {
            Ensure::Go { problem, due } => Ok((problem, due)),
            Ensure::Wait => Err(Next::Done),
            Ensure::Call => {
                self.begin(Work::Ensure, subject, taken);
                Err(Next::Done)
            }
            Ensure::CallBeside => {
                self.begin(Work::Ensure, subject, taken);
                Ok((None, None))
            }
        }
    }

    /// Sees to it that nothing of the object is left outside.
    ///
    /// # Errors
    /// Something is left, or nobody knows yet.
    pub(super) fn remove(&mut self, taken: &Taken) -> Result<(), Next> {
        let subject = self.subject(&taken.primary);
        match self.shared.external.with(self.key, |state| state.remove(&subject, Instant::now())) {
            Remove::Done => Ok(()),
            Remove::Wait => Err(Next::Done),
            Remove::Call => {
                self.begin(Work::Remove, subject, taken);
                Err(Next::Done)
            }
            Remove::Later(problem, due) => {
                let again =
                    due.map_or(Again::ON_CHANGE, |due| Again::after(due.saturating_duration_since(Instant::now())));
                Err(match self.report(&taken.primary, None, &[problem], again) {
                    // The wait is the call's own: the key is not at fault.
                    Next::FailedAfter(after) => Next::After(after),
                    other => other,
                })
            }
        }
    }

    /// Nothing is done about the object any more: says so where what was made outside stays there, as after somebody took our finalizer away.
    pub(super) fn leave_outside(&self, primary: Option<&Stored>) {
        if !self.shared.external.forget(self.key) {
            return;
        }
        let note = "The finalizer was removed by somebody else before the work outside of the cluster was undone: what it made may be left there";
        warn!("{note}");
        if let Some(primary) = primary {
            self.record(primary, Event::warning("LeftOutside", note.to_owned()));
        }
    }

    fn subject(&self, primary: &Stored) -> Subject {
        Subject {
            uid: Arc::clone(&primary.meta.uid),
            generation: primary.meta.generation,
            module: self.serving.module.digest().into(),
        }
    }

    fn begin(&self, work: Work, subject: Subject, taken: &Taken) {
        let job = Job {
            work,
            key: self.key.clone(),
            subject: subject.clone(),
            serving: Arc::clone(self.serving),
            snapshot: taken.for_module(),
            id: self.id.to_owned(),
        };
        self.shared.external.with(self.key, |state| state.begins(work, subject));
        let shared = Arc::clone(self.shared);
        self.shared.handle.spawn(async move { shared.work_outside(job).await });
    }
}

impl Shared {
    /// Makes a call when it is its turn, and wakes the key.
    async fn work_outside(self: Arc<Self>, job: Job) {
        let key = job.key.clone();
        let Ok(_turn) = self.external.turns.acquire().await else {
            return self.external.with(&key, Outside::dropped);
        };
        // The next holder of the Lease has the key.
        if self.permits.permit().is_err() {
            return self.external.with(&key, Outside::dropped);
        }
        let shared = Arc::clone(&self);
        let called = tokio::task::spawn_blocking(move || shared.call_outside(&job)).await;
        let is_news = called.unwrap_or_else(|error| {
            tracing::error!(object = %key.name, %error, "a call outside panicked; this is a bug of the host, please report it");
            self.external.with(&key, Outside::dropped);
            true
        });
        self.enqueue(key, if is_news { Priority::Change } else { Priority::Resync });
    }

    /// Whether the answer is news.
    fn call_outside(&self, job: &Job) -> bool {
        let Job { work, key, subject, serving, snapshot, id } = job;
        let module = serving.descriptor();
        let span = info_span!(
            "external",
            module = module.name,
            digest = serving.module.short_digest(),
            kind = module.primary.kind,
            namespace = key.name.namespace.as_deref(),
            name = &*key.name.name,
            id,
        );
        let _entered = span.enter();
        let _call = traces::call(work.hook()).entered();
        let of_call = Key { name: key.name.clone(), uid: subject.uid.to_string() };
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let (resync, mut rng) = (self.external_resync(), fastrand::Rng::new());
        let Some(operator) = self.operators.get(key.operator) else { return false };
        let calls = &operator.metrics.calls;
        match work {
            Work::Ensure => {
                let answer = answered(work.hook(), calls.count(|| serving.module.ensure(&of_call, snapshot, now_ms)));
                self.external.with(key, |state| state.ensured(answer, Instant::now(), resync, &mut rng))
            }
            Work::Remove => {
                let answer = answered(work.hook(), calls.count(|| serving.module.remove(&of_call, snapshot, now_ms)));
                self.external.with(key, |state| state.removed(answer, Instant::now(), resync, &mut rng));
                true
            }
        }
    }

    fn external_resync(&self) -> Option<Duration> {
        let resync = self.settings.resync;
        // A little earlier than the key's own, so that it is due when that one comes.
        (!resync.is_zero()).then(|| resync.mul_f64(0.89))
    }
}

fn answered<T>(hook: &'static str, report: CallReport<T>) -> Result<T, Failed> {
    let failed = match report.result {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(failure)) => Failed {
            problem: Problem::new(Reason::Module(failure.reason), failure.message),
            terminal: failure.terminal,
            retry_after: failure.retry_after,
        },
        Err(error) => Failed { problem: problem_of(&error), terminal: false, retry_after: None },
    };
    warn!(hook, terminal = failed.terminal, "{}: {}", failed.problem.reason.as_str(), failed.problem.message);
    Err(failed)
}

/// What a pass comes to, where the work outside is due before that.
pub(super) fn or_due(next_pass: Next, due: Option<Instant>) -> Next {
    let Some(due) = due.map(|due| due.saturating_duration_since(Instant::now())) else { return next_pass };
    match next_pass {
        Next::Done => Next::After(due),
        Next::After(after) => Next::After(after.min(due)),
        Next::Failed(after) => next(Again { backoff: true, after }.or(Again::after(due))),
        Next::FailedAfter(after) => Next::FailedAfter(after.min(due)),
        Next::FailedForGood | Next::Gone => next_pass,
    }
}

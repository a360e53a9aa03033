//! One pass of one key: finalizer → work outside → rounds of snapshot → call → plan → requests; then the status.
//!
//! If the plan writes children, the writes are answered first and the module is called again on the refreshed tables: its status is
//! written only from a round that has nothing left to write. Else an image change would be reported Ready under the new generation before
//! the rollout began.

use super::events::Deed;
use super::external::or_due;
use super::gate::Gate;
use super::memory::KeyMemory;
use super::outcome::Planned;
use super::serving::Serving;
use super::snapshot::Taken;
use super::worker::Line;
use super::{Operator, QueueKey, Shared, pause};
use crate::apply::{Again, Slowed, StatusWrite, Trouble, write_status};
use crate::module::{CallError, CallReport};
use crate::observe::traces;
use crate::watch::Writer;
use operator_core::contract::{Event, Hook, Key};
use operator_core::object::Stored;
use operator_core::reconciled::{Problem, Reason, summarize};
use operator_core::status::ModuleStatus;
use operator_core::table::Lookup;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::{debug, debug_span, info, warn};

/// Calls of one pass before it counts as unsettled.
const ROUNDS: usize = 3;

/// What becomes of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Settled, or nothing to do until something changes.
    Done,
    /// Look again after this time.
    After(Duration),
    /// Again after the key's backoff, or after this time if that is earlier.
    Failed(Option<Duration>),
    /// Failed, and it is known when to try again.
    FailedAfter(Duration),
    /// The module failed and does not want to be called again until something changes.
    FailedForGood,
    /// The primary is gone: forget the key.
    Gone,
}

/// Everything that one pass works with.
pub(super) struct Pass<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) operator: &'a Operator,
    /// The module of the whole pass.
    pub(super) serving: &'a Arc<Serving>,
    pub(super) key: &'a QueueKey,
    /// For logs.
    pub(super) id: &'a str,
    pub(super) line: &'a Line,
    pub(super) writer: Writer<'a>,
    pub(super) memory: &'a mut KeyMemory,
    /// What was written, for the one line of the log.
    pub(super) written: Vec<String>,
    /// What is in the way outside the cluster.
    pub(super) outside: Option<Problem>,
    /// The object, as it was last looked at.
    pub(super) primary: Option<Arc<Stored>>,
    /// What was done, for people.
    pub(super) deeds: Vec<(Deed, String)>,
    /// Events of the last call.
    pub(super) told: Option<Vec<Event>>,
}

/// What the rounds of a pass ask the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// `reconcile`.
    Alive,
    /// `finalize`: the object is being deleted.
    Leaving,
}

impl Pass<'_> {
    /// Runs the pass to its end.
    pub(super) fn run(&mut self) -> Next {
        let started = Instant::now();
        let next = self.rounds();
        self.tell();
        let took_ms = started.elapsed().as_millis() as u64;
        if self.written.is_empty() {
            debug!(?next, took_ms, "reconciled, nothing written");
        } else {
            info!(wrote = self.written.join(", "), ?next, took_ms, "reconciled");
        }
        next
    }

    fn rounds(&mut self) -> Next {
        let mut taken = match self.take() {
            Ok(taken) => taken,
            Err(next) => return next,
        };
        if taken.primary.meta.terminating {
            return self.finalize(taken);
        }
        match self.hold(&taken.primary) {
            Ok(false) => {}
            Ok(true) => match self.take() {
                Ok(held) => taken = held,
                Err(next) => return next,
            },
            Err(next) => return next,
        }
        let mut due = None;
        if self.serving.descriptor().has(Hook::External) {
            (self.outside, due) = match self.ensure(&taken) {
                Ok(known) => known,
                Err(next) => return next,
            };
        }
        or_due(self.converge(taken, Phase::Alive).err().unwrap_or(Next::Done), due)
    }

    /// Calls the module and carries out what it wants until nothing is left to write.
    ///
    /// # Errors
    /// How the pass ends; all but the end of a module's work on an object that is being deleted, which is what it was given last.
    pub(super) fn converge(&mut self, first: Taken, phase: Phase) -> Result<Taken, Next> {
        let (generation, was_terminating) = (first.primary.meta.generation, first.primary.meta.terminating);
        let mut first = Some(first);
        for _ in 0..ROUNDS {
            let taken = match first.take() {
                Some(taken) => taken,
                None => self.take()?,
            };
            let meta = &taken.primary.meta;
            if meta.generation != generation || meta.terminating != was_terminating {
                // Edited while children were written: a pass of its own, or a burst of edits would end this one as unsettled.
                return Err(Next::After(Duration::ZERO));
            }
            let digest = taken.digest(self.serving.module.digest(), &meta.resource_version.to_string());
            // Nothing that the call or the plan depends on has another version than when the last pass kept everything.
            if self.memory.settled == Some(digest) && self.outside.is_none() {
                self.operator.metrics.calls.skipped();
                return Err(Next::Done);
            }
            let planned = self.call_and_plan(&taken, phase)?;
            let again = planned.again.or(self.shared.wait_for(self.key, planned.waits.clone()));
            if planned.steps.is_empty() && planned.prunes.is_empty() {
                if !planned.problems.is_empty() {
                    return Err(self.report(&taken.primary, None, &planned.told(), again));
                }
                return match phase {
                    Phase::Alive => Err(self.settle(&taken, &planned)),
                    Phase::Leaving if planned.is_done => Ok(taken),
                    Phase::Leaving => Err(self.not_finalized(&taken, &planned)),
                };
            }
            let (mut problems, mut again) = (planned.problems.clone(), again);
            if self.carry_out(&taken, &planned, &mut problems, &mut again) {
                // The next round makes what is gone by now, waits for what is not, and meets what stood in the way again.
                continue;
            }
            if !problems.is_empty() {
                problems.extend(planned.waiting);
                return Err(self.report(&taken.primary, None, &problems, again));
            }
        }
        let taken = self.take().map_err(|_| Next::Failed(None))?;
        let unsettled = Problem::new(Reason::Waiting, "the module wants something else each time it is called");
        Err(self.report(&taken.primary, None, &[unsettled], Again::BACKOFF))
    }

    /// Takes what the pass works on from the tables; Err where there is nothing to work on.
    pub(super) fn take(&mut self) -> Result<Taken, Next> {
        let _snapshot = debug_span!(target: traces::TARGET, "snapshot").entered();
        if !Arc::ptr_eq(self.serving, &self.operator.serving()) {
            // What was called has been carried out; the next call is the new module's, in a pass of its own.
            return Err(Next::After(Duration::ZERO));
        }
        let descriptor = self.serving.descriptor();
        let primary = match self.shared.watches.lookup(&descriptor.primary, &self.key.name) {
            Lookup::Present(primary) => primary,
            Lookup::Absent => {
                self.let_go(None);
                return Err(Next::Gone);
            }
            Lookup::Unreadable(object) => {
                warn!(problem = object.message, "the object can't be read; nothing is done about it until it changes");
                return Err(Next::Done);
            }
        };
        self.primary = Some(Arc::clone(&primary));
        self.memory.belongs_to(&primary.meta.uid, self.shared.watches.epoch());
        if primary.meta.terminating && !self.is_held(&primary) {
            // Its children are the garbage collector's; none is made again.
            self.let_go(Some(&primary));
            debug!("the object is being deleted: nothing is done about it");
            return Err(Next::Done);
        }
        if primary.meta.paused {
            let paused = Problem::new(Reason::Paused, "suspended by the annotation operatorhost.dev/paused");
            return Err(self.report(&primary, None, &[paused], Again::ON_CHANGE));
        }
        if self.operator.is_paused.load(Ordering::Relaxed) {
            return Err(self.report(&primary, None, &[pause::problem(&descriptor.name)], Again::ON_CHANGE));
        }
        let gate = self.serving.gate().clone();
        let unavailable = match gate {
            Gate::Open(unavailable) => unavailable,
            // The gate enqueues every key when it opens.
            Gate::Held => return Err(Next::Done),
            Gate::Unavailable(problems) => return Err(self.report(&primary, None, &problems, Again::ON_CHANGE)),
        };
        let mut children = Vec::new();
        for child in descriptor.children.iter().filter(|child| !unavailable.contains(&child.type_ref)) {
            let live = self.shared.watches.children(&child.type_ref, &primary.meta.uid);
            children.extend(live.into_iter().map(|stored| (child.type_ref.clone(), stored)));
        }
        let schema = self.shared.schemas.revision(&descriptor.primary);
        self.memory.is_judged_by(schema);
        let observation = self.shared.external.observation(self.key, &primary.meta.uid);
        self.relate(Taken::new(primary, children, unavailable, observation, schema))
    }

    /// Nothing is done about the object any more: nothing is waited for, asked or remembered outside.
    fn let_go(&self, primary: Option<&Stored>) {
        self.shared.wait_for(self.key, HashSet::new());
        self.ask_nothing();
        self.leave_outside(primary);
    }

    fn call_and_plan(&mut self, taken: &Taken, phase: Phase) -> Result<Planned, Next> {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let key = Key { name: self.key.name.clone(), uid: taken.primary.meta.uid.to_string() };
        let (module, snapshot, calls) = (&self.serving.module, taken.for_module(), &self.operator.metrics.calls);
        let mut planned = match phase {
            Phase::Alive => {
                let report =
                    traces::call("reconcile").in_scope(|| calls.count(|| module.reconcile(&key, &snapshot, now_ms)));
                let (outcome, asked_clock) = self.answer(taken, report)?;
                self.plan(taken, outcome, asked_clock)?
            }
            Phase::Leaving => {
                let report =
                    traces::call("finalize").in_scope(|| calls.count(|| module.finalize(&key, &snapshot, now_ms)));
                let (progress, asked_clock) = self.answer(taken, report)?;
                let mut planned = self.plan(taken, progress.outcome, asked_clock)?;
                planned.is_done = progress.done;
                planned
            }
        };
        if let Some(problem) = self.outside.clone() {
            // When to try again is known, and woken by.
            planned.problem(problem, Again::ON_CHANGE);
        }
        Ok(planned)
    }

    /// The answer of a call, and whether it depends on time; Err where there is none, which the object says by now.
    pub(super) fn answer<T>(&mut self, taken: &Taken, report: CallReport<T>) -> Result<(T, bool), Next> {
        match report.result {
            Ok(Ok(answer)) => Ok((answer, report.asked_clock)),
            Ok(Err(failure)) => Err(self.module_failed(taken, failure, report.asked_clock)),
            Err(error) => {
                warn!(%error, reason = error.reason(), stopped_in = error.stopped_in(), "the call failed");
                Err(self.report(&taken.primary, None, &[problem_of(&error)], Again::BACKOFF))
            }
        }
    }

    /// Nothing is left to write and nothing in the way: the module's status goes out with the host's.
    fn settle(&mut self, taken: &Taken, planned: &Planned) -> Next {
        self.memory.children.retain(|identity, _| planned.wanted.contains(identity));
        let written = match self.status(
            &taken.primary,
            planned.status.as_ref(),
            &planned.waiting,
            taken.input(self.serving.module.digest()),
        ) {
            Ok(written) => written,
            // The object must say why its status stays behind.
            Err(Trouble { problem, again, .. }) if problem.reason == Reason::InvalidOutcome => {
                return self.report(&taken.primary, None, &[problem], again);
            }
            Err(trouble) => return next(trouble.again),
        };
        let depends_on_time =
            taken.asked_clock || planned.asked_clock || planned.requeue_after.is_some() || written.slowed.is_some();
        let version = written.primary.meta.resource_version.to_string();
        self.memory.settled = (!depends_on_time).then(|| taken.digest(self.serving.module.digest(), &version));
        match (written.slowed, planned.requeue_after) {
            (Some(slowed), Some(requeue)) => Next::After(slowed.after.min(requeue)),
            (Some(Slowed { after, .. }), None) | (None, Some(after)) => Next::After(after),
            (None, None) => Next::Done,
        }
    }

    /// Something is in the way: the host's condition says so, and the module's part only where it failed with a status of its own.
    pub(super) fn report(
        &mut self,
        primary: &Arc<Stored>,
        status: Option<&ModuleStatus>,
        problems: &[Problem],
        again: Again,
    ) -> Next {
        self.report_and_see(primary, status, problems, again, 0).0
    }

    /// The same; gives the primary as it then is as well. `input` is the digest of what the module's status was made of.
    pub(super) fn report_and_see(
        &mut self,
        primary: &Arc<Stored>,
        status: Option<&ModuleStatus>,
        problems: &[Problem],
        again: Again,
        input: u64,
    ) -> (Next, Arc<Stored>) {
        self.memory.settled = None;
        self.tell_of_trouble(primary, problems);
        match self.status(primary, status, problems, input) {
            Ok(written) => match (next(again), written.slowed) {
                (Next::Done, Some(slowed)) => (Next::FailedAfter(slowed.after), written.primary),
                (next, _) => (next, written.primary),
            },
            Err(trouble) => (next(again.or(trouble.again)), Arc::clone(primary)),
        }
    }

    fn status(
        &mut self,
        primary: &Arc<Stored>,
        module: Option<&ModuleStatus>,
        problems: &[Problem],
        input: u64,
    ) -> Result<crate::apply::StatusWritten, Trouble> {
        let descriptor = self.serving.descriptor();
        let Some(resource) = self.shared.watches.resource(&descriptor.primary) else {
            return Err(Trouble::unserved(&descriptor.primary));
        };
        let schema = self.line.wait(self.shared.schemas.load(self.writer.api, &descriptor.primary));
        let schema = schema.map_err(|error| Trouble::no_schema(&descriptor.primary, &error))?;
        let write = StatusWrite {
            writer: self.writer,
            watches: &self.shared.watches,
            resource: &resource,
            manager: &self.serving.manager,
            schema: schema.as_deref(),
            declared: &descriptor.condition_types,
            primary,
            module,
            reconciled: &summarize(problems),
            input,
        };
        let written = self.line.wait(write_status(&write, &mut self.memory.flapping));
        let written = written.inspect_err(|trouble| warn!(again = ?trouble.again, "{}", trouble.problem.message))?;
        if !written.changed.is_empty() {
            self.written.push(format!("status ({})", written.changed.join(", ")));
        }
        if let Some(Slowed { fields, why, .. }) = &written.slowed
            && self.memory.slowed != *fields
        {
            self.memory.slowed.clone_from(fields);
            warn!(fields = fields.join(", "), "{why}; it is written at growing intervals");
        }
        if !written.lost.is_empty() {
            let text = format!("{}: {}", descriptor.primary, written.lost.join(", "));
            self.shared.say_once(text, |text| {
                warn!("the published schema does not keep these fields of status, they are left out: {text}; add them to the CRD");
            });
        }
        if !written.not_kept.is_empty() {
            let text = format!("{}: {}", descriptor.primary, written.not_kept.join(", "));
            self.shared.say_once(format!("not kept: {text}"), |_| {
                warn!("the API server did not keep these fields of status, they are not written again: {text}");
            });
        }
        Ok(written)
    }
}

/// When a key with this in its way is looked at again.
pub(super) fn next(again: Again) -> Next {
    match again {
        Again { backoff: true, after } => Next::Failed(after),
        Again { after: Some(time), .. } => Next::FailedAfter(time),
        Again::ON_CHANGE => Next::Done,
    }
}

/// What the condition says of a call without an answer.
pub(super) fn problem_of(error: &CallError) -> Problem {
    let text = error.reason();
    let reasons = [
        Reason::ModuleTrapped,
        Reason::ModuleTimeout,
        Reason::ModuleOutOfMemory,
        Reason::LimitExceeded,
        Reason::InvalidOutcome,
    ];
    let reason = reasons.into_iter().find(|reason| reason.as_str() == text);
    Problem::new(reason.unwrap_or(Reason::ModuleTrapped), error.to_string())
}

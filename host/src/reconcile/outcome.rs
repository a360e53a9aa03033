//! From a module's answer to the steps of a round.

use super::pass::{Next, Pass};
use super::snapshot::Taken;
use crate::api::discovery::Resource;
use crate::apply::{Again, Step, Trouble};
use crate::observe::traces;
use operator_core::contract::{Extension, Failure, ObjectName, OnPrune, Outcome, TypeRef};
use operator_core::object::Stored;
use operator_core::plan::accept::{Accepted, Rules, Wanted, accept};
use operator_core::plan::decide::{self, Decision, Prune};
use operator_core::plan::order;
use operator_core::plan::ready::is_ready;
use operator_core::reconciled::{Problem, Reason};
use operator_core::schema::{Published, Schema};
use operator_core::status::ModuleStatus;
use operator_core::table::Lookup;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{debug_span, warn};

/// One round's plan.
#[derive(Default)]
pub(super) struct Planned {
    /// Creates and changes; independent of each other.
    pub(super) steps: Vec<(Arc<Resource>, Step)>,
    /// What is no longer wanted; after the steps were answered.
    pub(super) prunes: Vec<(Arc<Resource>, Step)>,
    /// What is in the way.
    pub(super) problems: Vec<Problem>,
    /// Waves that wait for earlier ones: not in the way of the module's status.
    pub(super) waiting: Vec<Problem>,
    /// When the worst of it is worth another pass.
    pub(super) again: Again,
    /// Names that the key waits for.
    pub(super) waits: HashSet<(TypeRef, ObjectName)>,
    /// Identities of all wanted children.
    pub(super) wanted: HashSet<(TypeRef, ObjectName)>,
    /// A wanted child is not there and can't be made: it may be what replaces one that is no longer wanted.
    lacks: bool,
    /// The module's status, checked.
    pub(super) status: Option<ModuleStatus>,
    pub(super) requeue_after: Option<Duration>,
    pub(super) asked_clock: bool,
    /// `finalize` has nothing left to wait for.
    pub(super) is_done: bool,
}

impl Planned {
    pub(super) fn problem(&mut self, problem: Problem, again: Again) {
        self.problems.push(problem);
        self.again = self.again.or(again);
    }

    /// All that the host's condition tells.
    pub(super) fn told(&self) -> Vec<Problem> {
        [&self.problems[..], &self.waiting[..]].concat()
    }

    /// Nobody knows whether a wanted child is there, or it can't be made.
    fn lacking(&mut self, trouble: Trouble) {
        self.lacks = true;
        self.problem(trouble.problem, trouble.again);
    }
}

impl Pass<'_> {
    /// Plans what an outcome needs; Err where the outcome can't be used at all.
    pub(super) fn plan(&mut self, taken: &Taken, outcome: Outcome, asked_clock: bool) -> Result<Planned, Next> {
        let _plan = debug_span!(target: traces::TARGET, "plan").entered();
        if let Some(problem) = unknown_extension(&outcome.extensions) {
            return Err(self.report(&taken.primary, None, &[problem], Again::BACKOFF));
        }
        self.hear(outcome.events);
        let mut planned = Planned { requeue_after: outcome.requeue_after, asked_clock, ..Planned::default() };
        if let Some(status) = &outcome.status {
            match ModuleStatus::check(status, &self.serving.descriptor().condition_types) {
                Ok(status) => planned.status = Some(status),
                Err(invalid) => {
                    planned.problem(Problem::new(Reason::InvalidOutcome, invalid.to_string()), Again::BACKOFF)
                }
            }
        }
        let Some(children) = outcome.children else { return Ok(planned) };
        // What the module was told is unavailable is not written either, though it may just have come to be served.
        let namespaced = |type_ref: &TypeRef| {
            let resource = self.shared.watches.resource(type_ref).filter(|_| !taken.is_unavailable(type_ref));
            resource.map(|resource| resource.namespaced)
        };
        let accepted = accept(
            children,
            &Rules {
                descriptor: self.serving.descriptor(),
                namespace: self.key.name.namespace.as_deref(),
                namespaced: &namespaced,
                max_children: self.shared.settings.max_children,
            },
        );
        let Accepted { wanted, problems, refused, unknown } = accepted;
        let is_there = |identity: &(TypeRef, ObjectName)| {
            let (type_ref, name) = identity;
            taken.is_unavailable(type_ref)
                || taken.children().iter().any(|(of, live)| of == type_ref && live.meta.name == *name)
        };
        planned.lacks = !refused.iter().all(is_there);
        let mut waves = Waves::new(&wanted, !refused.is_empty());
        planned.wanted = refused;
        for problem in problems {
            // The same call gives the same answer: only time or a change can help.
            planned.problem(problem, Again::BACKOFF);
        }
        let mut wanted: Vec<Arc<Wanted>> = wanted.into_iter().map(Arc::new).collect();
        planned.wanted.extend(wanted.iter().map(|w| (w.desired.type_ref.clone(), w.desired.name.clone())));
        // Stable: what is alike stays in the module's own order.
        wanted.sort_by_key(|wanted| (wanted.wave, order::rank(&wanted.desired.type_ref)));
        for wanted in wanted {
            waves.enter(wanted.wave);
            let kept = self.plan_child(taken, &wanted, &waves, &mut planned)?;
            waves.saw(&wanted, kept.as_deref());
        }
        if !unknown && !planned.lacks {
            self.plan_prunes(taken, &mut planned);
            planned.prunes.sort_by_key(|(resource, _)| Reverse(order::rank(&resource.type_ref)));
            // What an object's end takes away is meant so.
            if self.shared.settings.prune_guard && !taken.primary.meta.terminating {
                self.guard_prunes(taken, &mut planned);
            }
        }
        Ok(planned)
    }

    /// Plans one child; gives it where it is as wanted.
    fn plan_child(
        &mut self,
        taken: &Taken,
        wanted: &Arc<Wanted>,
        waves: &Waves,
        planned: &mut Planned,
    ) -> Result<Option<Arc<Stored>>, Next> {
        let desired = &wanted.desired;
        let identity = (desired.type_ref.clone(), desired.name.clone());
        let Some(resource) = self.shared.watches.resource(&desired.type_ref) else {
            planned.lacking(Trouble::unserved(&desired.type_ref));
            return Ok(None);
        };
        let live = match self.look(&resource, &desired.name) {
            Ok(live) => live,
            Err(trouble) => {
                planned.lacking(trouble);
                return Ok(None);
            }
        };
        let parent = self.serving.parent(&taken.primary);
        let mut schema = self.shared.schemas.known(&desired.type_ref);
        let decision = loop {
            let memory = self.memory.children.entry(identity.clone()).or_default();
            let decision = decide::decide(wanted, &live, parent, published(&schema), memory, Instant::now());
            if !matches!(decision, Decision::NeedsSchema) {
                break decision;
            }
            match self.line.wait(self.shared.schemas.load(self.writer.api, &desired.type_ref)) {
                Ok(loaded) => schema = Some(loaded),
                Err(error) => {
                    planned.lacking(Trouble::no_schema(&desired.type_ref, &error));
                    return Ok(None);
                }
            }
        };
        let is_there = matches!(&live, Lookup::Present(stored) if decide::not_ours(stored, parent).is_none() && !stored.meta.terminating);
        let is_written = matches!(decision, Decision::Create | Decision::Change(_) | Decision::Disown(_));
        if is_written && waves.is_held() {
            planned.lacks |= !is_there;
            waves.hold(planned);
            return Ok(None);
        }
        planned.lacks |= !is_there && !matches!(decision, Decision::Create);
        let wanted = Arc::clone(wanted);
        match decision {
            Decision::Keep => match live {
                Lookup::Present(stored) => return Ok(Some(stored)),
                Lookup::Absent | Lookup::Unreadable(_) => {}
            },
            Decision::NeedsSchema => {}
            Decision::Create => planned.steps.push((resource, Step::Create(wanted))),
            Decision::Change(live) => planned.steps.push((resource, Step::Change(wanted, live))),
            Decision::Disown(live) => planned.steps.push((resource, Step::Disown(live))),
            Decision::Wait(problem) => {
                planned.waits.insert(identity);
                planned.problem(problem, Again::ON_CHANGE);
            }
            Decision::Refuse(problem) => {
                self.operator.metrics.children.refuse.inc();
                if problem.reason == Reason::ChildNotOwned {
                    planned.waits.insert(identity);
                }
                planned.problem(problem, Again::ON_CHANGE);
            }
            Decision::Later(problem, until) => {
                planned.problem(problem, Again::after(until.saturating_duration_since(Instant::now())));
            }
        }
        Ok(None)
    }

    /// What the table says of a name; of one whose last write had no answer, what the server says.
    fn look(&self, resource: &Arc<Resource>, name: &ObjectName) -> Result<Lookup, Trouble> {
        let watches = &self.shared.watches;
        if watches.is_doubtful(&resource.type_ref, name) {
            let read = self.line.wait(watches.read(self.writer.api, resource, name));
            read.map_err(|error| Trouble::unread(resource, name, &error))?;
        }
        Ok(watches.lookup(&resource.type_ref, name))
    }

    /// Children that are ours and not in the outcome. Only types that are synced are looked at: no key runs before.
    fn plan_prunes(&self, taken: &Taken, planned: &mut Planned) {
        for (type_ref, stored) in taken.children() {
            if planned.wanted.contains(&(type_ref.clone(), stored.meta.name.clone())) {
                continue;
            }
            self.plan_prune(type_ref, stored, planned);
        }
    }

    /// What becomes of a child that is no longer wanted.
    pub(super) fn plan_prune(&self, type_ref: &TypeRef, stored: &Arc<Stored>, planned: &mut Planned) {
        let Some(resource) = self.shared.watches.resource(type_ref) else { return };
        let declared = self.serving.descriptor().children.iter().find(|child| child.type_ref == *type_ref);
        match decide::prune(stored, declared.map_or(OnPrune::Orphan, |child| child.on_prune)) {
            Prune::Delete => planned.prunes.push((resource, Step::Delete(Arc::clone(stored)))),
            Prune::Orphan => planned.prunes.push((resource, Step::Orphan(Arc::clone(stored)))),
            Prune::Leave => {}
        }
    }

    /// The module said that it can't say what it wants.
    pub(super) fn module_failed(&mut self, taken: &Taken, failure: Failure, asked_clock: bool) -> Next {
        self.hear(failure.events);
        let mut problems = vec![Problem::new(Reason::Module(failure.reason), failure.message)];
        problems.extend(unknown_extension(&failure.extensions));
        let mut status = None;
        match failure.status.as_ref().map(|s| ModuleStatus::check(s, &self.serving.descriptor().condition_types)) {
            Some(Ok(checked)) => status = Some(checked),
            Some(Err(invalid)) => problems.push(Problem::new(Reason::InvalidOutcome, invalid.to_string())),
            None => {}
        }
        let again = match (failure.terminal, failure.retry_after) {
            (true, _) => Again::ON_CHANGE,
            (false, Some(after)) => Again::after(after),
            (false, None) => Again::BACKOFF,
        };
        warn!(terminal = failure.terminal, again = ?again, "{}: {}", problems[0].reason.as_str(), problems[0].message);
        let (next, primary) = self.report_and_see(
            &taken.primary,
            status.as_ref(),
            &problems,
            again,
            taken.input(self.serving.module.digest()),
        );
        if !failure.terminal || next != Next::Done {
            return next;
        }
        if !asked_clock && !taken.asked_clock {
            // Not tried again, not even at resync, until the input is another.
            self.memory.settled =
                Some(taken.digest(self.serving.module.digest(), &primary.meta.resource_version.to_string()));
        }
        Next::FailedForGood
    }
}

/// Which waves may be applied: those before and with the first that has a child that is not ready.
struct Waves {
    current: u32,
    /// Nothing waits for its children.
    last: u32,
    /// Children of the current wave that are not ready.
    unready: Vec<String>,
    /// What the present wave, which is not the first, waits for.
    held_by: Vec<String>,
}

impl Waves {
    /// A refused child is of no known wave: nothing comes after it.
    fn new(wanted: &[Wanted], has_refused: bool) -> Self {
        let last = wanted.iter().map(|wanted| wanted.wave).max().unwrap_or(0);
        let unready = if has_refused { vec!["the children that are refused".to_owned()] } else { Vec::new() };
        Self { current: 0, last, unready, held_by: Vec::new() }
    }

    fn enter(&mut self, wave: u32) {
        if wave > self.current {
            self.current = wave;
            self.held_by.append(&mut self.unready);
        }
    }

    fn saw(&mut self, wanted: &Wanted, kept: Option<&Stored>) {
        if self.current < self.last && !kept.is_some_and(is_ready) {
            self.unready.push(format!("{} {}", wanted.desired.type_ref.kind, wanted.desired.name));
        }
    }

    fn is_held(&self) -> bool {
        !self.held_by.is_empty()
    }

    /// Says once a wave what it waits for. The change of a child wakes the key.
    fn hold(&self, planned: &mut Planned) {
        let message = format!("wave {} waits until these are ready: {}", self.current, self.held_by.join(", "));
        let problem = Problem::new(Reason::Waiting, message);
        if !planned.waiting.contains(&problem) {
            planned.waiting.push(problem);
        }
    }
}

fn published(schema: &Option<Option<Arc<Schema>>>) -> Published<'_> {
    match schema {
        None => Published::NotLoaded,
        Some(None) => Published::Nothing,
        Some(Some(schema)) => Published::Schema(schema),
    }
}

fn unknown_extension(extensions: &[Extension]) -> Option<Problem> {
    let required = extensions.iter().find(|extension| extension.required)?;
    let message = format!("extension {:?} is required and not known to this host; use a newer host", required.name);
    Some(Problem::new(Reason::InvalidOutcome, message))
}

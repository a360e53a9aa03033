//! The steps of a plan: sent, and what came of each remembered for the next plan, for the log and for people.

use super::events::Deed;
use super::outcome::Planned;
use super::pass::Pass;
use super::snapshot::Taken;
use crate::api::discovery::Resource;
use crate::apply::{Again, Applier, Step, Trouble, Written};
use futures::stream::{self, StreamExt as _};
use operator_core::contract::{ObjectName, TypeRef};
use operator_core::plan::accept::Wanted;
use operator_core::plan::canonical::Owner;
use operator_core::plan::order;
use operator_core::reconciled::{Problem, Reason};
use std::time::Instant;
use tracing::warn;

/// Requests of one pass that are on their way at the same time.
const REQUESTS: usize = 16;

impl Pass<'_> {
    /// Sends the steps of a plan: writes first, in the order of their types and otherwise all at once; when they are answered, what is no
    /// longer wanted. Says whether a child is being made anew.
    pub(super) fn carry_out(
        &mut self,
        taken: &Taken,
        planned: &Planned,
        problems: &mut Vec<Problem>,
        again: &mut Again,
    ) -> bool {
        let primary = &taken.primary;
        let (shared, serving) = (self.shared, self.serving);
        let descriptor = serving.descriptor();
        let applier = Applier {
            writer: self.writer,
            watches: &shared.watches,
            installation: &shared.settings.installation,
            owner: Owner { type_ref: &descriptor.primary, name: &primary.meta.name, uid: &primary.meta.uid },
            parent: serving.parent(primary),
            replaces: &descriptor.replaces_managers,
        };
        let (mut failed, mut recreates) = (false, false);
        for steps in [&planned.steps, &planned.prunes] {
            // A child that could not be written may be what replaces one that is no longer wanted.
            if failed {
                break;
            }
            for steps in steps.chunk_by(|(a, _), (b, _)| order::rank(&a.type_ref) == order::rank(&b.type_ref)) {
                let requests = steps.iter().map(|(resource, step)| applier.take(resource, step));
                let results = stream::iter(requests).buffered(REQUESTS).collect::<Vec<_>>();
                let results = self.line.wait(results);
                for ((resource, step), result) in steps.iter().zip(results) {
                    match result {
                        Ok(written) => recreates |= self.note(resource, step, &written),
                        Err(trouble) => {
                            failed = true;
                            *again = again.or(trouble.again);
                            self.note_trouble(resource, step, trouble, problems, again);
                        }
                    }
                }
            }
        }
        recreates
    }

    /// Remembers what a step did, for the next plan and for the log.
    fn note(&mut self, resource: &Resource, step: &Step, written: &Written) -> bool {
        let counted = &self.operator.metrics.children;
        let (verb, count, stored) = match written {
            Written::Created(stored) => ("created", &counted.create, Some(stored)),
            Written::Changed(stored) => ("changed", &counted.change, Some(stored)),
            Written::Deleted => ("deleted", &counted.delete, None),
            Written::Orphaned => ("released", &counted.orphan, None),
            Written::Recreating => ("deleted, to be made anew,", &counted.recreate, None),
            Written::Learned => return false,
        };
        count.inc();
        let identity = identity(resource, step);
        let what = format!("{} {}", identity.0.kind, identity.1);
        self.written.push(format!("{verb} {what}"));
        let deed = match written {
            Written::Created(_) => Some(Deed::Created),
            Written::Deleted => Some(Deed::Pruned),
            Written::Orphaned => Some(Deed::Orphaned),
            Written::Recreating => Some(Deed::Recreating),
            Written::Changed(_) | Written::Learned => None,
        };
        self.deeds.extend(deed.map(|deed| (deed, what)));
        if let (Some(wanted), Some(stored)) = (wanted(step), stored) {
            let memory = self.memory.children.entry(identity).or_default();
            let (hash, manager) = (&wanted.desired.hash, &self.serving.manager);
            match written {
                Written::Changed(_) => memory.changed(hash, stored, manager, Instant::now()),
                _ => memory.applied(hash, stored, manager),
            }
        }
        matches!(written, Written::Recreating)
    }

    fn note_trouble(
        &mut self,
        resource: &Resource,
        step: &Step,
        trouble: Trouble,
        problems: &mut Vec<Problem>,
        again: &mut Again,
    ) {
        warn!(reason = trouble.problem.reason.as_str(), again = ?trouble.again, "{}", trouble.problem.message);
        let identity = identity(resource, step);
        if trouble.problem.reason == Reason::ChildNotOwned {
            self.operator.metrics.children.refuse.inc();
        }
        if matches!(trouble.problem.reason, Reason::ChildNotOwned | Reason::Waiting) {
            *again = again.or(self.shared.wait_also(self.key, identity.clone()));
        }
        if let Some(wanted) = wanted(step).filter(|_| trouble.stands) {
            let live = match step {
                Step::Change(_, live) => Some(&**live),
                _ => None,
            };
            let memory = self.memory.children.entry(identity).or_default();
            let stands = memory.rejected(&wanted.desired.hash, live, trouble.problem.clone(), Instant::now());
            *again = again.or(Again::after(stands));
        }
        problems.push(trouble.problem);
    }
}

fn wanted(step: &Step) -> Option<&Wanted> {
    match step {
        Step::Create(wanted) | Step::Change(wanted, _) => Some(wanted),
        Step::Disown(_) | Step::Delete(_) | Step::Orphan(_) => None,
    }
}

fn identity(resource: &Resource, step: &Step) -> (TypeRef, ObjectName) {
    let name = match step {
        Step::Create(wanted) => &wanted.desired.name,
        Step::Change(_, live) | Step::Disown(live) | Step::Delete(live) | Step::Orphan(live) => &live.meta.name,
    };
    (resource.type_ref.clone(), name.clone())
}

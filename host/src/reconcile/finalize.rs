//! An object that is being deleted and carries our finalizer: what is left is cleaned up, then the finalizer goes.
//!
//! First the module's `finalize`, for children in the cluster, then `external.remove`, then the children that no owner reference reaches,
//! then the finalizer. A host that dies in between does the same again: each step is made to be repeated. What owner references reach is the
//! garbage collector's. An object without our finalizer is left alone.

use super::events::Deed;
use super::outcome::Planned;
use super::pass::{Next, Pass, Phase};
use super::snapshot::Taken;
use crate::apply::finalizer::{self, FinalizerChange};
use crate::apply::{Again, Trouble};
use operator_core::contract::{ChildType, Hook};
use operator_core::object::{ControllerRef, Stored};
use operator_core::reconciled::{Problem, Reason};
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// How long a list of finalizers that somebody else changed may take to come by the watch.
const OVERTAKEN: Duration = Duration::from_secs(5);

impl Pass<'_> {
    /// Whether the object carries the module's finalizer.
    pub(super) fn is_held(&self, primary: &Stored) -> bool {
        let finalizer = self.serving.descriptor().finalizer();
        primary.meta.finalizers.iter().any(|name| **name == *finalizer)
    }

    /// Puts the module's finalizer on an object before anything is made for it that the garbage collector would leave behind; whether the
    /// object is another one by that.
    ///
    /// # Errors
    /// It could not be put there.
    pub(super) fn hold(&mut self, primary: &Arc<Stored>) -> Result<bool, Next> {
        match self.serving.descriptor().needed_finalizer() {
            Some(name) if !self.is_held(primary) => {
                self.change_finalizer(primary, &name, FinalizerChange::Add).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Cleans up, as far as it goes in this pass.
    pub(super) fn finalize(&mut self, taken: Taken) -> Next {
        self.try_finalize(taken).unwrap_or_else(|next| next)
    }

    fn try_finalize(&mut self, mut taken: Taken) -> Result<Next, Next> {
        let descriptor = self.serving.descriptor();
        let Some(finalizer) = descriptor.needed_finalizer() else { return Err(self.unserved(&taken)) };
        if descriptor.has(Hook::Finalize) {
            taken = self.converge(taken, Phase::Leaving)?;
        }
        if descriptor.has(Hook::External) {
            self.remove(&taken)?;
        }
        if descriptor.children.iter().any(|child| child.any_namespace) {
            self.remove_tracked(taken)?;
            taken = self.take()?;
        }
        self.change_finalizer(&taken.primary, &finalizer, FinalizerChange::Remove)?;
        Ok(Next::Done)
    }

    /// Deletes the children that no owner reference reaches, or cuts them loose where their policy says so, and waits until they are gone.
    fn remove_tracked(&mut self, mut taken: Taken) -> Result<(), Next> {
        for _ in 0..2 {
            let unknown = self
                .serving
                .descriptor()
                .children
                .iter()
                .find(|c| c.any_namespace && taken.is_unavailable(&c.type_ref));
            if let Some(ChildType { type_ref, .. }) = unknown {
                let message =
                    format!("the object is being deleted, and nobody knows which {type_ref} it leaves behind");
                let problem = Problem::new(Reason::TypeUnavailable, message);
                return Err(self.report(&taken.primary, None, &[problem], Again::ON_CHANGE));
            }
            let is_tracked = |stored: &Stored| stored.meta.controller.as_deref().is_some_and(ControllerRef::is_tracked);
            let left: Vec<_> = taken.children().iter().filter(|(_, stored)| is_tracked(stored)).cloned().collect();
            if left.is_empty() {
                return Ok(());
            }
            let mut planned = Planned::default();
            left.iter().for_each(|(type_ref, stored)| self.plan_prune(type_ref, stored, &mut planned));
            if planned.prunes.is_empty() {
                let names = left.iter().map(|(type_ref, stored)| format!("{} {}", type_ref.kind, stored.meta.name));
                let names = names.collect::<Vec<_>>().join(", ");
                let waiting = Problem::new(Reason::Waiting, format!("the object is being deleted, and so are {names}"));
                return Err(self.report(&taken.primary, None, &[waiting], Again::ON_CHANGE));
            }
            let (mut problems, mut again) = (Vec::new(), Again::ON_CHANGE);
            self.carry_out(&taken, &planned, &mut problems, &mut again);
            if !problems.is_empty() {
                return Err(self.report(&taken.primary, None, &problems, again));
            }
            taken = self.take()?;
        }
        Err(Next::After(Duration::ZERO))
    }

    /// This build cleans nothing up, and an earlier one promised to. Nobody but a person knows whether anything is left.
    fn unserved(&mut self, taken: &Taken) -> Next {
        let module = &self.serving.descriptor().name;
        let problem = Problem::new(
            Reason::Waiting,
            format!(
                "finalizer {} was set by an earlier version of module {module:?}, and this version has no hook that cleans up; run that \
                 version, or let go of the object: operator release --module FILE --dry-run",
                self.serving.descriptor().finalizer()
            ),
        );
        self.report(&taken.primary, None, &[problem], Again::ON_CHANGE)
    }

    /// The module has more to do in the cluster.
    pub(super) fn not_finalized(&mut self, taken: &Taken, planned: &Planned) -> Next {
        let mut problems = planned.told();
        problems.push(Problem::new(Reason::Waiting, "the object is being deleted; its module is not done with it yet"));
        let input = taken.input(self.serving.module.digest());
        let again = planned.requeue_after.map_or(Again::ON_CHANGE, Again::after);
        let (next, _) = self.report_and_see(&taken.primary, planned.status.as_ref(), &problems, again, input);
        match next {
            Next::FailedAfter(after) => Next::After(after),
            other => other,
        }
    }

    fn change_finalizer(&mut self, primary: &Arc<Stored>, name: &str, change: FinalizerChange) -> Result<(), Next> {
        let descriptor = self.serving.descriptor();
        let result = match self.shared.watches.resource(&descriptor.primary) {
            None => Err(Trouble::unserved(&descriptor.primary)),
            Some(resource) => {
                let manager = &self.serving.manager;
                let sent =
                    finalizer::change(self.writer, &self.shared.watches, &resource, manager, primary, name, change);
                self.line.wait(sent)
            }
        };
        match result {
            Ok(Some(_)) => {
                let (deed, text) = match change {
                    FinalizerChange::Add => (Deed::Held, format!("added finalizer {name}")),
                    FinalizerChange::Remove => (Deed::Finalized, format!("removed finalizer {name}")),
                };
                self.written.push(text);
                self.deeds.push((deed, name.to_owned()));
                Ok(())
            }
            // What is there instead is on its way to the table, and wakes the key; this is for when it is not.
            Ok(None) => Err(Next::After(OVERTAKEN)),
            Err(trouble) => {
                warn!(again = ?trouble.again, "{}", trouble.problem.message);
                Err(self.report(primary, None, &[trouble.problem], trouble.again))
            }
        }
    }
}

//! Prunes on their way from the plan to the requests, where `--prune-guard` asks whether they are too many.

use super::outcome::Planned;
use super::pass::Pass;
use super::snapshot::Taken;
use crate::api::discovery::Resource;
use crate::apply::{Again, Step};
use operator_core::contract::ChildType;
use operator_core::names;
use operator_core::plan::prune_guard::{Asked, Why};
use operator_core::reconciled::{Problem, Reason};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;
use tracing::warn;

/// Children that the condition names.
const NAMED: usize = 20;

impl Pass<'_> {
    /// Holds prunes back that are too many to be carried out unconfirmed. The rest of the outcome goes on.
    pub(super) fn guard_prunes(&mut self, taken: &Taken, planned: &mut Planned) {
        let (watches, descriptor) = (&self.shared.watches, self.serving.descriptor());
        let live = planned.prunes.iter().filter_map(|(_, step)| step.live());
        let prunes: HashSet<Arc<str>> = live.map(|live| Arc::clone(&live.meta.uid)).collect();
        let asked = Asked {
            children: taken.children().iter().filter(|(_, stored)| !stored.meta.terminating).count(),
            shown: taken.shown(|stored| prunes.contains(&stored.meta.uid)),
            released: taken.primary.meta.release_prune,
            prunes,
        };
        let of_type = |child: &ChildType| watches.count_children(&child.type_ref, &descriptor.primary);
        let all = || descriptor.children.iter().map(of_type).sum();
        let now = Instant::now();
        let judged = self.operator.prune_guard().judge(now, self.memory.held.take(), asked, all);
        let Err(held) = judged else { return };
        let problem = self.held(taken, &planned.prunes, held.why);
        if held.since == now {
            warn!(reason = problem.reason.as_str(), "{}", problem.message);
        }
        planned.prunes.clear();
        planned.problem(problem, Again::after(held.until().saturating_duration_since(now)));
        self.memory.held = Some(held);
    }

    /// Names the children, and what lets them go.
    fn held(&self, taken: &Taken, prunes: &[(Arc<Resource>, Step)], why: Why) -> Problem {
        let name = |(resource, step): &(Arc<Resource>, Step)| {
            step.live().map(|live| format!("{} {}", resource.type_ref.kind, live.meta.name))
        };
        let mut children: Vec<String> = prunes.iter().filter_map(name).collect();
        children.sort();
        let more = children.len().saturating_sub(NAMED);
        children.truncate(NAMED);
        children.extend((more > 0).then(|| format!("{more} more")));
        let children = children.join(", ");
        let what = match why {
            Why::All => format!("the outcome prunes every child: {children}"),
            Why::Half => {
                format!("more than half of the module's children would go within a minute, of this object {children}")
            }
        };
        Problem::new(
            Reason::PruneGuard,
            format!(
                "{what}; held for a minute, or until the module answers the same though it is shown something else, or: {}",
                self.release(taken)
            ),
        )
    }

    /// The command that lets them go.
    fn release(&self, taken: &Taken) -> String {
        let (primary, name) = (&self.serving.descriptor().primary, &taken.primary.meta.name);
        let resource = self.shared.watches.resource(primary);
        let resource = resource.map_or_else(|| primary.kind.to_lowercase(), |resource| resource.qualified());
        let namespace = name.namespace.as_deref().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
        format!("kubectl annotate {resource} {}{namespace} {}=true", name.name, names::RELEASE_PRUNE_ANNOTATION)
    }
}

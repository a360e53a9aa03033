//! What a pass has to tell of its object: what the host did, what is in the way, and what the module says.

use super::pass::Pass;
use crate::events::Event;
use operator_core::contract::{self, ConditionStatus, EventType};
use operator_core::object::Stored;
use operator_core::reconciled::{Problem, Reason, summarize};
use tracing::{info, warn};

/// Events taken of one call.
const EVENTS: usize = 20;

/// What was done, beyond setting right what somebody changed: of that there may be much, and the log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Created,
    Recreating,
    Pruned,
    Orphaned,
    Held,
    Finalized,
}

impl Deed {
    const ALL: [Self; 6] = [Self::Held, Self::Created, Self::Recreating, Self::Pruned, Self::Orphaned, Self::Finalized];

    fn reason(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Recreating => "Recreated",
            Self::Pruned => "Pruned",
            Self::Orphaned => "Orphaned",
            Self::Held => "FinalizerAdded",
            Self::Finalized => "FinalizerRemoved",
        }
    }

    fn note(self, what: &str) -> String {
        match self {
            Self::Created => format!("Created {what}"),
            Self::Recreating => format!("Deleted {what} to make it anew"),
            Self::Pruned => format!("Deleted {what} as no longer wanted"),
            Self::Orphaned => format!("Left {what} behind as no longer wanted"),
            Self::Held => format!("Added the finalizer {what}"),
            Self::Finalized => format!("Cleaned up, and removed the finalizer {what}"),
        }
    }
}

impl Pass<'_> {
    /// Tells, at the end of a pass, what was done in it: one event a kind of deed, not one for each child.
    pub(super) fn tell(&mut self) {
        let Some(primary) = self.primary.clone() else { return };
        for deed in Deed::ALL {
            let what: Vec<&str> = self.deeds.iter().filter(|(of, _)| *of == deed).map(|(_, what)| &**what).collect();
            if !what.is_empty() {
                self.record(&primary, Event::normal(deed.reason(), deed.note(&what.join(", "))));
            }
        }
        self.tell_of_module(&primary);
    }

    /// The module's events, where they are news: a call that gives what the last one gave has nothing to tell, unless something was
    /// written. So a resync, a restart and a swap of a settled object tell nothing.
    fn tell_of_module(&mut self, primary: &Stored) {
        let Some(told) = self.told.take() else { return };
        for event in &told {
            let is_news = match &self.memory.told {
                _ if !self.written.is_empty() => true,
                Some(before) => !before.contains(event),
                None => false,
            };
            if !is_news {
                continue;
            }
            let contract::Event { type_, reason, message } = event.clone();
            match type_ {
                EventType::Normal => info!(reason, "event of the module: {message}"),
                EventType::Warning => warn!(reason, "event of the module: {message}"),
            }
            self.record(primary, Event { type_, reason, note: message });
        }
        self.memory.told = Some(told);
    }

    /// Keeps what a call has to tell until the pass has ended: the last call's counts.
    pub(super) fn hear(&mut self, mut events: Vec<contract::Event>) {
        if events.len() > EVENTS {
            warn!(dropped = events.len() - EVENTS, "the module gave more events than are taken of one call");
            events.truncate(EVENTS);
        }
        self.told = Some(events);
    }

    /// Tells what is in the way. What the host only waits for is no event, but for an object that can't go.
    pub(super) fn tell_of_trouble(&self, primary: &Stored, problems: &[Problem]) {
        let summary = summarize(problems);
        let is_trouble = summary.status == ConditionStatus::False || primary.meta.terminating;
        let is_meant = problems.iter().all(|problem| problem.reason == Reason::Paused);
        if is_trouble && !is_meant {
            self.record(primary, Event::warning(&summary.reason, summary.message));
        }
    }

    pub(super) fn record(&self, primary: &Stored, event: Event) {
        self.shared.events.record(&self.operator.name, primary, event);
    }
}

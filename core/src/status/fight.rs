//! Two writers of the same fields of a status: what is changed back again and again is written again at growing intervals, as a child is.

use super::Said;
use crate::revert::RevertBudget;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

/// What was last written, and how often it had to be written again.
#[derive(Clone, Debug, Default)]
pub(super) struct Fight {
    written: Option<u64>,
    asked: u64,
    budget: RevertBudget,
}

impl Fight {
    /// Whether this may be written now; `module` is a digest of the module's part. What was written before, and is to be written again, somebody else changed.
    ///
    /// # Errors
    /// The time from which on it may.
    pub(super) fn check(&mut self, now: Instant, said: &Said<'_>, module: Option<u64>) -> Result<(), Instant> {
        let mut hasher = DefaultHasher::new();
        (said.generation, module).hash(&mut hasher);
        if let Some(reconciled) = said.reconciled {
            (reconciled.status.as_str(), &reconciled.reason, &reconciled.message).hash(&mut hasher);
        }
        self.asked = hasher.finish();
        if self.written == Some(self.asked) { self.budget.check(now) } else { Ok(()) }
    }

    /// The server took what was asked for.
    pub(super) fn written(&mut self, now: Instant) {
        if self.written.replace(self.asked) == Some(self.asked) {
            self.budget.spend(now);
        }
    }
}

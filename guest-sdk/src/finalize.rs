//! The hook `finalize`: work in the cluster while the primary is being deleted.

use crate::{Failure, Operator, Outcome, Progress, Snapshot};

/// An operator that has something to do in the cluster before an object of its type may go. Its primaries carry the
/// module's finalizer.
pub trait Finalize: Operator {
    /// Called in place of [`reconcile`](Operator::reconcile) once the object is being deleted, until it is done. A
    /// function of `object` and nothing else. Most operators need none: what the object controls goes with it.
    ///
    /// The spec is not decoded yet, so that an object with a bad one can be deleted too.
    ///
    /// # Errors
    /// What the operator can't decide on: the object waits, and the failure is shown to the user.
    fn finalize(object: &Snapshot<Self>) -> Result<Progress, Failure>;
}

impl Progress {
    /// Nothing is left to wait for: the finalizer may go, the garbage collector takes the rest.
    pub fn done() -> Self {
        Self { done: true, outcome: Outcome::waiting() }
    }

    /// Not yet: this should exist meanwhile.
    pub fn unfinished(outcome: Outcome) -> Self {
        Self { done: false, outcome }
    }
}

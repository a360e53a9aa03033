//! The hook `external`: work outside the cluster.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bindings::working_outside::exports::operator::reconciler::external;
use crate::context::decode;
use crate::outcome::milliseconds;
use crate::{Context, Failure, Operator, Removal, Snapshot};

/// An operator that keeps something outside the cluster. Its primaries carry the module's finalizer before `ensure` is
/// called for the first time.
///
/// Here alone what was granted is live: a folder, an address, as asked for with
/// [`Descriptor::capability`](crate::Descriptor::capability). Both functions may be called again at any time, also after
/// a call whose end nobody saw: they must be idempotent.
pub trait External: Operator {
    /// What [`ensure`](Self::ensure) tells [`reconcile`](Operator::reconcile).
    type Observation: Serialize + DeserializeOwned;

    /// Makes what is outside as the spec says, and tells what it found. Called after a change of the spec or of the
    /// module, at the host's resync and when it asked to be.
    ///
    /// # Errors
    /// What went wrong: tried again with backoff, and shown to the user.
    fn ensure(ctx: &Context<Self>) -> Result<Observed<Self::Observation>, Failure>;

    /// Removes what is outside, while the object is being deleted. "Already gone" is [done](Removal::done).
    ///
    /// The spec is not decoded yet, so that an object with a bad one can be deleted too.
    ///
    /// # Errors
    /// What went wrong: the object waits, the removal is tried again with backoff, and the user sees why.
    fn remove(object: &Snapshot<Self>) -> Result<Removal, Failure>;
}

/// What was found outside the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed<T> {
    /// For [`Snapshot::observation`].
    pub observation: T,
    /// When to look again without a change.
    pub recheck_after: Option<Duration>,
}

impl<T> Observed<T> {
    /// Found, and not looked at again until something changes or the host's resync.
    pub fn new(observation: T) -> Self {
        Self { observation, recheck_after: None }
    }

    /// Looks again after this time.
    pub fn recheck_after(mut self, time: Duration) -> Self {
        self.recheck_after = Some(time);
        self
    }
}

impl<T: Serialize> Observed<T> {
    /// In the contract's terms.
    pub(crate) fn into_contract(self) -> Result<external::Observed, Failure> {
        let observation = serde_json::to_string(&self.observation)
            .map_err(|error| Failure::terminal("InvalidObservation", format!("the observation is no JSON: {error}")))?;
        Ok(external::Observed { observation, recheck_after: self.recheck_after.map(milliseconds) })
    }
}

impl Removal {
    /// Nothing is left outside: the finalizer may go.
    pub fn done() -> Self {
        Self { done: true, message: String::new(), retry_after: None }
    }

    /// Something is still there; `message` says what it waits for.
    pub fn waiting(message: impl Into<String>) -> Self {
        Self { done: false, message: message.into(), retry_after: None }
    }

    /// Calls again after this time instead of the queue's backoff.
    pub fn retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(milliseconds(time));
        self
    }
}

impl<O: External> Snapshot<O> {
    /// What [`External::ensure`] last told; None before its first answer.
    ///
    /// # Errors
    /// `InvalidObservation`, naming the field: an older build of this operator told something else. Tried again, because
    /// this build is asked before long.
    pub fn observation(&self) -> Result<Option<O::Observation>, Failure> {
        let Some(observation) = &self.contents().observation else { return Ok(None) };
        decode(observation).map(Some).map_err(|error| Failure::retry("InvalidObservation", error))
    }
}

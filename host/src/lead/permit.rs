//! The right to write, and the term that it lasts for.

use super::clock;
use operator_core::lead::BootTime;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::info;

/// This process does not hold the Lease: nothing is written, the outcome is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process does not hold the Lease")]
pub struct NotLeading;

/// The right to write during the present term. It can't be made elsewhere.
#[derive(Debug)]
pub struct Permit(Option<Arc<Term>>);

impl Permit {
    /// How much longer it surely lasts: a renewal that comes meanwhile lengthens it. Zero: not at all.
    pub fn left(&self) -> Duration {
        self.0.as_ref().map_or(Duration::MAX, |term| term.left())
    }
}

/// Gives permits.
#[derive(Clone, Debug)]
pub struct Permits(Option<Arc<Term>>);

impl Permits {
    /// Always gives them: leader election is off. Two such processes with one installation id would work against each
    /// other, so that it is said in the log.
    pub fn always() -> Self {
        info!("leader election is off: this process writes without holding a Lease, run one replica of it");
        Self(None)
    }

    /// Gives them while a [`Leadership`](super::Leadership) that was given these permits holds the Lease.
    pub fn while_leading() -> Self {
        Self(Some(Arc::default()))
    }

    /// A permit for what begins now.
    ///
    /// # Errors
    /// While this process does not lead.
    pub fn permit(&self) -> Result<Permit, NotLeading> {
        let permit = Permit(self.0.clone());
        if permit.left().is_zero() { Err(NotLeading) } else { Ok(permit) }
    }

    pub(crate) fn term(&self) -> Option<&Arc<Term>> {
        self.0.as_ref()
    }
}

/// The one term of this process, as everybody sees it who writes. Its end is a matter of the clock: nobody has to notice it first.
#[derive(Debug, Default)]
pub(crate) struct Term {
    /// Nanoseconds of [`BootTime`]; 0: it has not begun, or was given back.
    until: AtomicU64,
    lost: CancellationToken,
}

impl Term {
    /// Begins, lengthens, or gives back.
    pub(super) fn set(&self, until: Option<BootTime>) {
        let until = until.map_or(0, |until| u64::try_from(until.since_boot().as_nanos()).unwrap_or(u64::MAX));
        self.until.store(until, Ordering::SeqCst);
    }

    /// Ends it for good. Permits end first, then the connections.
    pub(crate) fn lose(&self) {
        self.set(None);
        self.lost.cancel();
    }

    fn left(&self) -> Duration {
        clock::now().until(BootTime::new(Duration::from_nanos(self.until.load(Ordering::SeqCst))))
    }

    /// Whether it had begun and passed without being renewed or given back.
    pub(crate) fn is_over(&self) -> bool {
        self.lost.is_cancelled() || (self.until.load(Ordering::SeqCst) > 0 && self.left().is_zero())
    }

    /// Waits until it was [lost](Self::lose).
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_given_in_the_term_alone() {
        let permits = Permits::while_leading();
        let term = Arc::clone(permits.term().expect("a term"));
        assert_eq!(permits.permit().expect_err("it has not begun"), NotLeading);
        assert!(!term.is_over());

        term.set(Some(clock::now() + Duration::from_secs(60)));
        let permit = permits.permit().expect("it has begun");
        assert!(permit.left() > Duration::from_secs(50));
        term.set(Some(clock::now() + Duration::from_secs(120)));
        assert!(permit.left() > Duration::from_secs(110), "a renewal did not lengthen it");

        term.set(Some(clock::now()));
        assert!(permit.left().is_zero() && term.is_over(), "the clock ended it");
        assert!(permits.permit().is_err());

        term.set(None);
        assert!(permit.left().is_zero() && !term.is_over(), "given back");

        term.set(Some(clock::now() + Duration::from_secs(60)));
        term.lose();
        assert!(permit.left().is_zero() && term.is_over() && permits.permit().is_err());
    }

    #[test]
    fn without_election_permits_do_not_end() {
        assert_eq!(Permits::always().permit().expect("always").left(), Duration::MAX);
    }
}

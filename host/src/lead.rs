//! Who may write: every request that changes something needs a [`Permit`], and only [`Permits`] gives one.
//!
//! Without leader election permits are always given, which is said once at start. A holder of a Lease gives them only for
//! its own term; a function that takes a `&Permit` needs no other check.

use tracing::info;

/// The right to write, for one pass. It can't be made elsewhere.
#[derive(Debug)]
pub struct Permit(());

/// This process does not hold the Lease: nothing is written, the outcome is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this process does not hold the lease")]
pub struct NotLeading;

/// Gives permits.
#[derive(Debug)]
pub struct Permits(());

impl Permits {
    /// Always gives them: leader election is off. Two such processes with one installation id would work against each
    /// other, so that it is said in the log.
    pub fn always() -> Self {
        info!("leader election is off: this process writes without holding a Lease, run one replica of it");
        Self(())
    }

    /// A permit for what begins now.
    ///
    /// # Errors
    /// While another process leads.
    pub fn permit(&self) -> Result<Permit, NotLeading> {
        Ok(Permit(()))
    }
}

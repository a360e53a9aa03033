//! Whether a live object already is the desired one, so that nothing needs to be written.
//!
//! In: a [`Desired`], the live object with what our manager owns of it, and what the API server publishes of the type.
//! Out: a [`Verdict`]. The live annotation must hold the desired hash, and our owned set must stand for the desired
//! object, no less and no more: what another manager changed or removed has left our set, while what the server, a
//! webhook or a quantity's normalisation rewrote on the way in has not. Values are not compared, but for the order of
//! lists in which order means something.
//!
//! What can't be seen: writes under our own manager's name, forged `managedFields`, and a rewrite by admission that
//! outlived its cause (`tests/data/keep_limits`, rule `none`).

mod covers;
mod order;

use crate::contract::OnPrune;
use crate::object::{OwnedSet, Stored};
use crate::schema::{NeedsSchema, Published};

use super::canonical::Desired;

/// Whether something has to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The live object is as desired.
    Keep,
    /// It has to be applied.
    Apply(Drift),
}

/// Why an object has to be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drift {
    /// The live annotation is of another wish, or gone.
    Hash,
    /// Our manager has no entry: it never applied the object, or somebody wiped the entries.
    NotApplied,
    /// Our set lacks a desired path, or has one that is not desired.
    Ownership,
    /// A list in which order means something is in another order.
    Order,
}

/// Whether the live object already is the desired one. `applied` is our set after our last apply of this very wish,
/// where this process made it: a set that is still the same needs no look at its paths. `is_tracked`: the host's annotation stands for the
/// owner reference.
///
/// # Errors
/// [`NeedsSchema`] where only the published schema can tell and `published` is [`Published::NotLoaded`].
pub fn keep(
    desired: &Desired,
    on_prune: OnPrune,
    is_tracked: bool,
    live: &Stored,
    manager: &str,
    applied: Option<&OwnedSet>,
    published: Published<'_>,
) -> Result<Verdict, NeedsSchema> {
    if live.meta.desired.as_deref() != Some(&*desired.hash) {
        return Ok(Verdict::Apply(Drift::Hash));
    }
    let Some(owned) = live.owned.applied(manager) else {
        return Ok(Verdict::Apply(Drift::NotApplied));
    };
    if applied != Some(owned) && !covers::object(desired, on_prune, is_tracked, owned, published)? {
        return Ok(Verdict::Apply(Drift::Ownership));
    }
    if !order::holds(desired, live) {
        return Ok(Verdict::Apply(Drift::Order));
    }
    Ok(Verdict::Keep)
}

#[cfg(test)]
mod tests;

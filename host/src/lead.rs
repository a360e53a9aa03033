//! Who may write: every request that changes something needs a [`Permit`], and only [`Permits`] gives one.
//!
//! Without leader election permits are always given, which is said once at start. With it, [`Leadership`] runs the elector
//! ([`operator_core::lead`]) against the Lease: permits are given during its term alone and end with it, and so does every connection. A
//! function that takes a `&Permit` needs no other check.

pub(crate) mod clock;
mod election;
mod identity;
mod news;
mod permit;

pub use election::{Config, Leadership};
pub use identity::identity;
pub use permit::{NotLeading, Permit, Permits};

pub(crate) use permit::Term;

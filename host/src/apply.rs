//! From a plan's steps to requests and what came of them.
//!
//! In come steps on single children; out go what the server now holds, which enters the table at once, or a [`Trouble`] that says what is
//! in the way and when to try again. No step touches an object that its parent does not control: a create can't adopt, a change carries
//! the uid, a delete carries uid and resourceVersion.

mod child;
mod managed_fields;
mod recreate;
mod report;
mod status;
mod trouble;

pub(crate) use child::{Applier, Step, Written};
pub(crate) use status::{StatusWrite, StatusWritten, write_status};

use operator_core::reconciled::Problem;
use std::time::Duration;

/// Why a step did not come to its end.
#[derive(Debug)]
pub(crate) struct Trouble {
    /// For the condition.
    pub(crate) problem: Problem,
    /// When the key is worth another pass.
    pub(crate) again: Again,
    /// Whether the answer stands until the desired or the live object changes.
    pub(crate) stands: bool,
}

/// When a key is worth another pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Again {
    /// When something that it depends on changes.
    #[default]
    OnChange,
    /// After a time of its own, without heating the key up.
    After(Duration),
    /// After the key's backoff.
    Backoff,
}

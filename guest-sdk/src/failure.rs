//! Why a reconcile can't say what it wants.

use std::ops::Deref;
use std::time::Duration;
use std::{error, fmt};

use crate::bindings::operator::reconciler::types;
use crate::outcome::milliseconds;
use crate::{Event, Status};

/// Why a reconcile can't say what it wants: children stay as they are, and the host shows reason and message in the
/// object's condition `Reconciled`. Boxed, because every fallible function of an operator returns it.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure(Box<types::Failure>);

impl Failure {
    /// Input that only an edit can mend: not tried again until something changes. `reason` is one CamelCase word.
    pub fn terminal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(true, reason.into(), message.into())
    }

    /// Something that may go by itself: tried again with backoff. `reason` is one CamelCase word.
    pub fn retry(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(false, reason.into(), message.into())
    }

    /// Tries again after this time instead of the queue's backoff.
    pub fn retry_after(mut self, time: Duration) -> Self {
        self.0.retry_after = Some(milliseconds(time));
        self
    }

    /// What the status should say. Without it the operator's part of the status stays as it is.
    pub fn status(mut self, status: Status) -> Self {
        self.0.status = Some(status);
        self
    }

    /// Adds an event on the object. For now the host only writes it to its log.
    pub fn event(mut self, event: Event) -> Self {
        self.0.events.push(event);
        self
    }

    fn new(terminal: bool, reason: String, message: String) -> Self {
        Self(Box::new(types::Failure {
            terminal,
            reason,
            message,
            retry_after: None,
            status: None,
            events: Vec::new(),
            extensions: Vec::new(),
        }))
    }
}

/// Reads the contract's record.
impl Deref for Failure {
    type Target = types::Failure;

    fn deref(&self) -> &types::Failure {
        &self.0
    }
}

impl From<Failure> for types::Failure {
    fn from(failure: Failure) -> Self {
        *failure.0
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

impl error::Error for Failure {}

//! What a reconcile answers.

use std::time::Duration;

use serde::Serialize;

use crate::child::remove_nulls;
use crate::{Child, Condition, ConditionStatus, Event, EventType, Failure, Outcome, Status};

impl Outcome {
    /// The complete set of children: what this object controls beside them is pruned.
    pub fn new(children: impl IntoIterator<Item = Child>) -> Self {
        Self { children: Some(children.into_iter().collect()), ..Self::waiting() }
    }

    /// Leaves all children as they are, while waiting for something.
    pub fn waiting() -> Self {
        Self { children: None, status: None, events: Vec::new(), requeue_after: None, extensions: Vec::new() }
    }

    /// What the status should say. Without it the operator's part of the status stays as it is.
    pub fn status(mut self, status: Status) -> Self {
        self.status = Some(status);
        self
    }

    /// Adds an event on the object. For now the host only writes it to its log.
    pub fn event(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Calls again after this time even if nothing changes. A change of a child needs no timer.
    pub fn requeue_after(mut self, time: Duration) -> Self {
        self.requeue_after = Some(milliseconds(time));
        self
    }
}

impl Status {
    /// All fields of `.status` that the operator owns; a field written before and now missing is removed. Nulls are
    /// left out. `conditions` and `observedGeneration` are the host's: it refuses them here.
    ///
    /// # Errors
    /// `InvalidStatus`, terminal: it does not serialize to a JSON object.
    pub fn new(fields: &impl Serialize) -> Result<Self, Failure> {
        let mut fields = serde_json::to_value(fields)
            .map_err(|error| Failure::terminal("InvalidStatus", format!("the status is no JSON: {error}")))?;
        if !fields.is_object() {
            return Err(Failure::terminal("InvalidStatus", format!("the status is no JSON object: {fields}")));
        }
        remove_nulls(&mut fields);
        Ok(Self { fields: fields.to_string(), conditions: Vec::new() })
    }

    /// A status of conditions alone.
    pub fn conditions_only() -> Self {
        Self { fields: "{}".to_owned(), conditions: Vec::new() }
    }

    /// Adds a condition, of a type that `describe` declares.
    pub fn condition(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }
}

impl Condition {
    /// A condition: `reason` is one CamelCase word, `message` is for people and must not change while nothing else
    /// does.
    pub fn new(
        type_: impl Into<String>,
        status: ConditionStatus,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { type_: type_.into(), status, reason: reason.into(), message: message.into() }
    }

    /// A condition that holds.
    pub fn is_true(type_: impl Into<String>, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(type_, ConditionStatus::True, reason, message)
    }

    /// A condition that does not hold.
    pub fn is_false(type_: impl Into<String>, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(type_, ConditionStatus::False, reason, message)
    }

    /// A condition of which nothing is known.
    pub fn unknown(type_: impl Into<String>, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(type_, ConditionStatus::Unknown, reason, message)
    }
}

impl Event {
    /// Something that went as it should.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { type_: EventType::Normal, reason: reason.into(), message: message.into() }
    }

    /// Something that a person should look at.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { type_: EventType::Warning, reason: reason.into(), message: message.into() }
    }
}

/// The contract counts in whole milliseconds; less than one is one, so that a short wait is not none.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

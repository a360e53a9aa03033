//! From what a request came to, to what the condition says and when the key is worth another pass.

use super::child::Applier;
use super::{Again, Trouble};
use crate::api::ApiError;
use crate::api::discovery::Resource;
use operator_core::answer::{Answer, Class, Request, classify, foreign_elements, message};
use operator_core::contract::{ObjectName, TypeRef};
use operator_core::object::Stored;
use operator_core::plan::accept::Wanted;
use operator_core::reconciled::{Problem, Reason};
use std::sync::Arc;
use std::time::Duration;

/// How long a full quota, or a type that goes away, is left alone: neither heats the key up.
const NO_HEAT: Duration = Duration::from_secs(30);

/// What a class of answers means for a key: the condition's reason, when to try again, whether the answer stands.
fn verdict(class: Class, answer: &Answer) -> (Reason, Again, bool) {
    match class {
        Class::ModuleError | Class::Invalid => (Reason::ChildRejected, Again::ON_CHANGE, true),
        Class::Immutable => (Reason::ChildImmutable, Again::ON_CHANGE, true),
        // Not asked again for: what belongs to the namespace goes with it.
        Class::Terminating if answer.is_namespace_terminating() => (Reason::ApplyFailed, Again::ON_CHANGE, true),
        Class::Quota | Class::Terminating => (Reason::ApplyFailed, Again::after(NO_HEAT), false),
        Class::TooMany => (Reason::ApplyFailed, answer.retry_after.map_or(Again::BACKOFF, Again::after), false),
        Class::Ok
        | Class::Retry
        | Class::Forbidden
        | Class::NotFound
        | Class::Conflict
        | Class::Refuse
        | Class::Gone => (Reason::ApplyFailed, Again::BACKOFF, false),
    }
}

impl Trouble {
    /// The type went away since the pass began.
    pub(crate) fn unserved(type_ref: &TypeRef) -> Self {
        let problem = Problem::new(Reason::TypeUnavailable, format!("{type_ref} is not served"));
        Self { problem, again: Again::BACKOFF, stands: false }
    }

    /// The published schema could not be read.
    pub(crate) fn no_schema(type_ref: &TypeRef, error: &ApiError) -> Self {
        tracing::warn!(r#type = %type_ref, %error, "can't read the published schema");
        let problem =
            Problem::new(Reason::ApplyFailed, format!("the API server did not give its schema of {type_ref}"));
        Self { problem, again: Again::BACKOFF, stands: false }
    }

    /// A child whose state is in doubt could not be read.
    pub(crate) fn unread(resource: &Resource, name: &ObjectName, error: &ApiError) -> Self {
        unanswered(&resource.type_ref, name, error)
    }
}

impl Applier<'_> {
    /// The server refused an apply of a wanted child.
    pub(super) fn refused(
        &self,
        wanted: &Wanted,
        live: Option<&Arc<Stored>>,
        answer: &Answer,
        class: Class,
        about: &Request<'_>,
    ) -> Trouble {
        let (reason, again, stands) = verdict(class, answer);
        let mut text = message(answer, class, about);
        let foreign = live.map(|live| foreign_elements(answer, live, self.parent.manager)).unwrap_or_default();
        if !foreign.is_empty() {
            text.push_str(&format!(
                "; {} on the live object is not ours and stands against what is applied",
                foreign.join(", ")
            ));
        }
        let desired = &wanted.desired;
        Trouble { problem: Problem::of_child(reason, &desired.type_ref, &desired.name, text), again, stands }
    }

    /// A request about a live child came to nothing.
    pub(super) fn failed(&self, resource: &Resource, live: &Stored, error: &ApiError, about: &Request<'_>) -> Trouble {
        match error {
            ApiError::Answer(answer) => {
                let class = classify(answer, about);
                let (reason, again, stands) = verdict(class, answer);
                let text = message(answer, class, about);
                Trouble { problem: Problem::of_child(reason, &resource.type_ref, &live.meta.name, text), again, stands }
            }
            error => unanswered(&resource.type_ref, &live.meta.name, error),
        }
    }

    /// No answer to an apply or a read of a wanted child.
    pub(super) fn no_answer(&self, wanted: &Wanted, error: &ApiError) -> Trouble {
        unanswered(&wanted.desired.type_ref, &wanted.desired.name, error)
    }

    /// Somebody else's object has the name; what is being deleted will free it.
    pub(super) fn taken(&self, wanted: &Wanted, stored: &Stored, why: String) -> Trouble {
        if stored.meta.terminating {
            return self.in_the_way(wanted, Reason::Waiting, &format!("{why}; it is being deleted"));
        }
        self.not_owned(wanted, &why)
    }

    /// Somebody else's object has the name.
    pub(super) fn not_owned(&self, wanted: &Wanted, why: &str) -> Trouble {
        self.in_the_way(wanted, Reason::ChildNotOwned, why)
    }

    /// Something stands at the name, and the key waits for it to change.
    pub(super) fn in_the_way(&self, wanted: &Wanted, reason: Reason, why: &str) -> Trouble {
        let desired = &wanted.desired;
        let problem = Problem::of_child(reason, &desired.type_ref, &desired.name, why);
        Trouble { problem, again: Again::ON_CHANGE, stands: false }
    }
}

fn unanswered(type_ref: &TypeRef, name: &ObjectName, error: &ApiError) -> Trouble {
    // What the client saw differs from try to try (ports, durations): the log has it, the condition stays the same.
    tracing::warn!(kind = type_ref.kind, object = %name, %error, "no answer to a request");
    let text = match error {
        ApiError::TooLarge { .. } => error.to_string(),
        _ => "the API server did not answer; tried again".to_owned(),
    };
    Trouble {
        problem: Problem::of_child(Reason::ApplyFailed, type_ref, name, text),
        again: Again::BACKOFF,
        stands: false,
    }
}

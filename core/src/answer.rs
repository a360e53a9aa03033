//! What an API server's answer means: code, headers and body in, one [`Class`] and one message out.
//!
//! The code alone never decides: a 500 is also a bad quantity or a dead webhook, a 403 also a full quota or a namespace
//! that is being deleted, a 409 also another object's conflict. One table ([`classify`]) looks at code, reason, causes,
//! the kind that the answer speaks of, and text; it is tested on answers recorded from a real server
//! (`tests/data/errors`).

mod classify;
mod foreign;
mod message;
mod parse;

use std::time::Duration;

use crate::contract::TypeRef;

pub use classify::{classify, signal};
pub use foreign::foreign_elements;
pub use message::message;
pub(crate) use message::without_ports;

/// An answer, as far as anybody decides by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status; that of the `Status` where one came in a stream.
    pub code: u16,
    /// `Conflict`, `Invalid`; empty where the server gave none.
    pub reason: String,
    /// The server's words; the body where it is no `Status`.
    pub message: String,
    /// What the answer is about.
    pub details: Details,
    /// The header, or else `details.retryAfterSeconds`.
    pub retry_after: Option<Duration>,
    /// `Warning` headers, as they stand.
    pub warnings: Vec<String>,
    /// Whether the object in a successful answer has a deletionTimestamp.
    pub terminating: bool,
    /// Whether there was no body at all.
    pub empty: bool,
}

/// `details` of a `Status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// API group; empty for the core group.
    pub group: String,
    /// A kind (`ConfigMap`) or a plural (`configmaps`), as the place in the server has it. Empty where there is none.
    pub kind: String,
    /// Of the object; empty where there is none.
    pub name: String,
    /// Of the deleted object, where the deletion is done.
    pub uid: String,
    /// Field by field.
    pub causes: Vec<Cause>,
}

/// One of the reasons that a `Status` lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid`.
    pub reason: String,
    /// `spec.ports[0].name`; empty where it is about no field.
    pub field: String,
    /// The server's words.
    pub message: String,
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// What to do.
    pub verb: Verb,
    /// The type of the object.
    pub type_ref: &'a TypeRef,
    /// Its plural, as it stands in the URL.
    pub plural: &'a str,
    /// None for cluster-scoped objects and for requests across namespaces.
    pub namespace: Option<&'a str>,
    /// None where the request is about no single object.
    pub name: Option<&'a str>,
}

/// What a request asks the server to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// GET of one object.
    Get,
    /// GET of a collection.
    List,
    /// A watch, streaming lists included.
    Watch,
    /// POST.
    Create,
    /// Server-side apply that must find nothing: `resourceVersion: "1"`.
    ApplyCreate,
    /// Server-side apply of an object that is there.
    Apply,
    /// JSON merge patch.
    MergePatch,
    /// JSON patch; `tested` says whether it has a `test`, which another's write makes fail.
    JsonPatch {
        /// Whether it has one.
        tested: bool,
    },
    /// PUT.
    Update,
    /// DELETE.
    Delete,
}

/// What an answer means for the object it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Done as meant.
    Ok,
    /// The desired object, or our way of writing it, can't be read: final for this child.
    ModuleError,
    /// The desired object breaks a rule: final for this child.
    Invalid,
    /// A field that can't be changed: the child's policy decides.
    Immutable,
    /// Server, network or webhook: later, with backoff.
    Retry,
    /// Authorisation or admission says no.
    Forbidden,
    /// The object, its namespace or its type is not there.
    NotFound,
    /// Our copy is older than the server's: the watch brings the newer one.
    Conflict,
    /// Another object than the one that we know: read it and look who controls it.
    Refuse,
    /// The object, its namespace or its type is being deleted: wait.
    Terminating,
    /// The version asked for is no longer known: list anew.
    Gone,
    /// A quota or a limit range: later, without heat.
    Quota,
    /// The server asks for patience.
    TooMany,
}

impl Answer {
    /// Whether a 404 is about a type that is not served, not about one object or its namespace.
    pub fn is_missing_type(&self) -> bool {
        self.code == 404 && self.details.kind.is_empty()
    }

    /// Whether the namespace is being deleted, in which nothing can be made any more for as long as it is there.
    pub fn is_namespace_terminating(&self) -> bool {
        self.details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
    }

    /// Whether the server does not know versions as new as ours: it lags, or was restored from a backup.
    pub fn is_version_ahead(&self) -> bool {
        self.details.causes.iter().any(|cause| cause.reason == "ResourceVersionTooLarge")
    }
}

#[cfg(test)]
mod tests;

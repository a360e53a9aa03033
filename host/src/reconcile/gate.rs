//! Whether the keys of an operator may run: "unknown is not empty".
//!
//! No key runs before its primary and every declared child type gave a first answer. A required type that is not served or forbidden
//! lets keys run only to say so; an optional one is named to the module instead.

use crate::watch::TypeState;
use operator_core::contract::{Descriptor, TypeRef};
use operator_core::reconciled::{Problem, Reason};
use std::time::{Duration, Instant};

/// How long a type that was synced may be away before its objects' status says so.
pub(super) const ABSENCE: Duration = Duration::from_secs(30);

/// What keys of one operator may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// Nothing yet: a type has not answered, or went away just now.
    Held,
    /// Say why nothing can be done.
    Unavailable(Vec<Problem>),
    /// Run; these optional types are to be named as unavailable.
    Open(Vec<TypeRef>),
}

/// Decides from the state of each declared type. `state` answers for the primary and every child type.
pub(super) fn gate(descriptor: &Descriptor, state: impl Fn(&TypeRef) -> TypeState, now: Instant) -> Gate {
    let mut problems = Vec::new();
    let mut unavailable = Vec::new();
    let mut held = !matches!(state(&descriptor.primary), TypeState::Synced);
    for child in &descriptor.children {
        let why = match state(&child.type_ref) {
            TypeState::Synced => continue,
            TypeState::Syncing => {
                held = true;
                continue;
            }
            TypeState::Absent { message, since, was_synced } | TypeState::Forbidden { message, since, was_synced } => {
                if was_synced && now.saturating_duration_since(since) < ABSENCE && !child.optional {
                    held = true;
                    continue;
                }
                message
            }
        };
        if child.optional {
            unavailable.push(child.type_ref.clone());
        } else {
            problems.push(Problem::new(Reason::TypeUnavailable, format!("{}: {why}", child.type_ref)));
        }
    }
    match (held, problems.is_empty()) {
        (true, _) => Gate::Held,
        (false, false) => Gate::Unavailable(problems),
        (false, true) => Gate::Open(unavailable),
    }
}

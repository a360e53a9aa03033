//! The host's own condition: what stands in the way of an object, as one status, reason and message.
//!
//! [`Problem`]s come from every step of a pass; [`summarize`] makes the `Reconciled` condition of them. The same problems give the
//! same text: sorted, without counters or times, so that a condition is not written again for words alone.

use crate::contract::{ConditionStatus, ObjectName, TypeRef};
use std::fmt;

/// Why an object is not (yet) as its module wants it, worst first: the first of several gives the condition its reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The module trapped.
    ModuleTrapped,
    /// The module ran over its CPU time or deadline.
    ModuleTimeout,
    /// The module asked for more memory than it may have.
    ModuleOutOfMemory,
    /// Something is larger or more numerous than the host's limits allow.
    LimitExceeded,
    /// The module's answer breaks the contract.
    InvalidOutcome,
    /// The module answered with a failure; this is its reason.
    Module(String),
    /// An object of a wanted name is not controlled by this primary.
    ChildNotOwned,
    /// The API server says that a changed field is immutable, and the child may not be made anew.
    ChildImmutable,
    /// The API server refuses the child for good.
    ChildRejected,
    /// Somebody keeps changing a child back.
    RevertLimit,
    /// So many children would be pruned that it waits to be confirmed.
    PruneGuard,
    /// A request failed and is tried again.
    ApplyFailed,
    /// A declared type is not served, or forbidden.
    TypeUnavailable,
    /// An earlier object of a wanted name is still terminating, or the pass could not settle yet.
    Waiting,
    /// Work on the object is suspended by annotation.
    Paused,
}

impl Reason {
    /// CamelCase, as conditions carry it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::ModuleTrapped => "ModuleTrapped",
            Self::ModuleTimeout => "ModuleTimeout",
            Self::ModuleOutOfMemory => "ModuleOutOfMemory",
            Self::LimitExceeded => "LimitExceeded",
            Self::InvalidOutcome => "InvalidOutcome",
            Self::Module(reason) => reason,
            Self::ChildNotOwned => "ChildNotOwned",
            Self::ChildImmutable => "ChildImmutable",
            Self::ChildRejected => "ChildRejected",
            Self::RevertLimit => "RevertLimit",
            Self::PruneGuard => "PruneGuard",
            Self::ApplyFailed => "ApplyFailed",
            Self::TypeUnavailable => "TypeUnavailable",
            Self::Waiting => "Waiting",
            Self::Paused => "Paused",
        }
    }

    /// Unknown while the host waits for something; False when something is wrong.
    pub fn status(&self) -> ConditionStatus {
        match self {
            Self::TypeUnavailable | Self::Waiting => ConditionStatus::Unknown,
            _ => ConditionStatus::False,
        }
    }
}

/// One thing that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// What kind.
    pub reason: Reason,
    /// A sentence that names the object, the field and what to do.
    pub message: String,
}

impl Problem {
    /// A problem that is not about one child.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// A problem of one child: `Deployment shop/api: …`.
    pub fn of_child(reason: Reason, type_ref: &TypeRef, name: &ObjectName, message: impl fmt::Display) -> Self {
        Self { reason, message: format!("{} {name}: {message}", type_ref.kind) }
    }
}

/// The `Reconciled` condition, without the host's times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconciled {
    /// True only when nothing is in the way.
    pub status: ConditionStatus,
    /// `Settled`, or the worst problem's reason.
    pub reason: String,
    /// Every problem, sorted.
    pub message: String,
}

/// Makes the condition of what stands in the way; of nothing it is True `Settled`.
pub fn summarize(problems: &[Problem]) -> Reconciled {
    let mut sorted: Vec<&Problem> = problems.iter().collect();
    sorted.sort();
    sorted.dedup();
    let Some(worst) = sorted.first() else {
        return Reconciled {
            status: ConditionStatus::True,
            reason: "Settled".into(),
            message: "All children are as the module wants them".into(),
        };
    };
    let several_kinds = sorted.iter().any(|p| p.reason != worst.reason);
    let lines: Vec<String> = sorted
        .iter()
        .map(|p| if several_kinds { format!("{}: {}", p.reason.as_str(), p.message) } else { p.message.clone() })
        .collect();
    Reconciled { status: worst.reason.status(), reason: worst.reason.as_str().into(), message: lines.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_way_is_settled() {
        let condition = summarize(&[]);
        assert_eq!((condition.status, condition.reason.as_str()), (ConditionStatus::True, "Settled"));
    }

    #[test]
    fn the_order_in_which_problems_came_does_not_show() {
        let a = Problem::new(Reason::ApplyFailed, "b");
        let b = Problem::new(Reason::ChildNotOwned, "a");
        assert_eq!(summarize(&[a.clone(), b.clone(), a.clone()]), summarize(&[b, a]));
    }

    #[test]
    fn the_worst_gives_the_reason_and_all_are_named() {
        let condition = summarize(&[
            Problem::new(Reason::Waiting, "old one is terminating"),
            Problem::new(Reason::ChildNotOwned, "taken"),
        ]);
        assert_eq!(condition.status, ConditionStatus::False);
        assert_eq!(condition.reason, "ChildNotOwned");
        assert_eq!(condition.message, "ChildNotOwned: taken; Waiting: old one is terminating");
    }
}

//! How a process stands with the Lease, and how its term ends, in words for people.

use super::Older;
use std::fmt;
use std::time::Duration;

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The term ended by itself: this process may do nothing more.
    Lost(Loss),
    /// It was asked to [stop](super::Elector::stop), and holds nothing any more.
    Released,
    /// It was asked to stop and could not give the Lease back, which expires by itself.
    Kept,
}

/// Why a term ended by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// No renewal succeeded in time.
    #[error("it could not be renewed within {} s{}", .within.as_secs_f64(), because(.problem.as_ref()))]
    NotRenewed {
        /// The renew deadline.
        within: Duration,
        /// What the last attempt came to.
        problem: Option<String>,
    },
    /// Somebody else's name stands in it.
    #[error("{0} holds it now")]
    Taken(String),
    /// Somebody took our name out of it.
    #[error("somebody else released it")]
    Cleared,
    /// Nobody renews it any more.
    #[error("the election ended by itself, which is a bug of the host; please report it")]
    Unattended,
}

fn because(problem: Option<&String>) -> String {
    problem.map(|problem| format!(": {problem}")).unwrap_or_default()
}

/// How the process stands with the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has not been read yet, or can't be.
    Unknown {
        /// What the last attempt came to.
        problem: Option<String>,
    },
    /// Somebody else holds it, or did until now.
    Standby {
        /// Who; empty: nobody.
        holder: String,
        /// Why the last attempt to read or take it failed.
        problem: Option<String>,
    },
    /// It could be taken, but the last holder ran newer modules.
    HoldsBack {
        /// Who the last holder was, as far as the Lease tells.
        holder: String,
        /// Which modules are older here.
        older: Vec<Older>,
    },
    /// This process holds it.
    Leading,
    /// It has ended.
    Ended(End),
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = |problem: &Option<String>| match problem {
            Some(problem) => format!("; the last attempt failed: {problem}"),
            None => String::new(),
        };
        match self {
            Self::Unknown { problem: None } => f.write_str("has not been read yet"),
            Self::Unknown { problem: Some(problem) } => write!(f, "can't be read or taken: {problem}"),
            Self::Standby { holder, problem: why } if holder.is_empty() => write!(f, "is free{}", problem(why)),
            Self::Standby { holder, problem: why } => write!(f, "is held by {holder}{}", problem(why)),
            Self::HoldsBack { holder, older } => {
                let older: Vec<String> = older.iter().map(ToString::to_string).collect();
                let holder = if holder.is_empty() { "the last holder" } else { holder };
                write!(f, "is left to newer modules, as {holder} ran them until lately: {}", older.join(", "))
            }
            Self::Leading => f.write_str("is held by this process"),
            Self::Ended(End::Lost(loss)) => write!(f, "was lost: {loss}"),
            Self::Ended(End::Released) => f.write_str("is not held"),
            Self::Ended(End::Kept) => f.write_str("could not be released and expires by itself"),
        }
    }
}

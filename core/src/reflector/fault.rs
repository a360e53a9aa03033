//! What went wrong with a list or a watch, as far as it decides what comes next.

use std::time::Duration;

use crate::answer::{Answer, without_ports};

/// Why a list or watch failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What it means.
    pub kind: FaultKind,
    /// For people: the server's words or the transport's.
    pub message: String,
    /// When the server wants to be asked again.
    pub retry_after: Option<Duration>,
}

/// What a failure means for the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// 410: the version or page is too old.
    Expired,
    /// 504 with cause ResourceVersionTooLarge: the server has not come so far, or went back in time.
    TooLarge,
    /// 404: the type is not served.
    Absent,
    /// 403.
    Forbidden,
    /// 429 "storage is (re)initializing", as right after a type was created: it passes by itself.
    Initializing,
    /// 400 or 422: the server does not take these parameters.
    Unsupported,
    /// No answer, or a stream that broke.
    Lost,
    /// Anything else.
    Other,
}

impl Fault {
    /// What an answer that is no success means, or the `Status` of an ERROR line.
    pub fn answer(answer: &Answer) -> Self {
        let kind = match answer.code {
            410 => FaultKind::Expired,
            504 if answer.is_version_ahead() => FaultKind::TooLarge,
            404 => FaultKind::Absent,
            403 => FaultKind::Forbidden,
            429 if answer.message.contains("storage is (re)initializing") => FaultKind::Initializing,
            400 | 422 => FaultKind::Unsupported,
            _ => FaultKind::Other,
        };
        let message = match answer.message.as_str() {
            "" => format!("HTTP status {}", answer.code),
            message => without_ports(message),
        };
        Self { kind, message, retry_after: answer.retry_after }
    }

    /// No answer, or a stream that broke.
    pub fn lost(message: impl Into<String>) -> Self {
        Self { kind: FaultKind::Lost, message: message.into(), retry_after: None }
    }

    /// A type that discovery does not show.
    pub fn absent(message: impl Into<String>) -> Self {
        Self { kind: FaultKind::Absent, message: message.into(), retry_after: None }
    }

    /// An answer that is not what was asked for.
    pub fn unintelligible(message: impl Into<String>) -> Self {
        Self { kind: FaultKind::Other, message: message.into(), retry_after: None }
    }
}

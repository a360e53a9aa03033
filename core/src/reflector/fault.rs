//! What went wrong with a list or a watch, as far as it decides what comes next.

use std::time::Duration;

use serde::Deserialize;

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

/// `metav1.Status`, as far as it is needed here.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    message: String,
    code: u16,
    details: Option<Details>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    causes: Vec<Cause>,
    retry_after_seconds: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
}

impl Fault {
    /// What an answer that is no success means: its code and body, and its `Retry-After`.
    pub fn answer(code: u16, body: &[u8], retry_after: Option<Duration>) -> Self {
        match serde_json::from_slice::<Status>(body) {
            Ok(status) => Self::status(code, status, retry_after),
            // "404 page not found" of a group that nobody serves is no Status.
            Err(_) => {
                let text = String::from_utf8_lossy(body);
                Self::status(code, Status { message: text.trim().into(), ..Status::default() }, retry_after)
            }
        }
    }

    /// What the object of an ERROR line means.
    pub fn in_stream(object: &str) -> Self {
        let status = serde_json::from_str::<Status>(object);
        let status = status.unwrap_or_else(|_| Status { message: object.into(), ..Status::default() });
        Self::status(status.code, status, None)
    }

    /// No answer, or a stream that broke.
    pub fn lost(message: impl Into<String>) -> Self {
        Self { kind: FaultKind::Lost, message: message.into(), retry_after: None }
    }

    /// A type that discovery does not show.
    pub fn absent(message: impl Into<String>) -> Self {
        Self { kind: FaultKind::Absent, message: message.into(), retry_after: None }
    }

    fn status(code: u16, status: Status, retry_after: Option<Duration>) -> Self {
        let details = status.details.unwrap_or_default();
        let is_too_large = |cause: &Cause| {
            // Older servers give the message alone (apimachinery `HasStatusCause`, client-go `isTooLargeResourceVersionError`).
            cause.reason == "ResourceVersionTooLarge" || cause.message == "Too large resource version"
        };
        let kind = match code {
            410 => FaultKind::Expired,
            504 if details.causes.iter().any(is_too_large) => FaultKind::TooLarge,
            404 => FaultKind::Absent,
            403 => FaultKind::Forbidden,
            429 if status.message.contains("storage is (re)initializing") => FaultKind::Initializing,
            400 | 422 => FaultKind::Unsupported,
            _ => FaultKind::Other,
        };
        let in_body = Some(details.retry_after_seconds).filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let message = if status.message.is_empty() { format!("HTTP status {code}") } else { status.message };
        Self { kind, message, retry_after: retry_after.or(in_body) }
    }
}

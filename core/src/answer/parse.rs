//! From code, headers and body to an [`Answer`].

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Answer, Cause, Details};

/// Longest text of a body that is no `Status`.
const TEXT_MAX: usize = 1024;

impl Answer {
    /// Reads an answer, or the `Status` of an `ERROR` event in a watch that was answered with 200. Header names are
    /// compared without case. Never fails: what is no `Status` is taken as text, as a proxy or a server's time-out may
    /// write it.
    pub fn parse<'h>(code: u16, headers: impl IntoIterator<Item = (&'h str, &'h str)>, body: &[u8]) -> Self {
        let mut answer = Self { code, empty: body.is_empty(), ..Self::default() };
        for (name, value) in headers {
            if name.eq_ignore_ascii_case("retry-after") {
                // A date is allowed and never written by an API server.
                answer.retry_after = value.trim().parse().ok().map(Duration::from_secs);
            } else if name.eq_ignore_ascii_case("warning") {
                answer.warnings.push(value.to_owned());
            }
        }
        let head: Head<'_> = serde_json::from_slice(body).unwrap_or_default();
        answer.terminating = head.metadata.is_some_and(|metadata| metadata.deletion_timestamp.is_some());
        // The answer to a passed `?timeout=` is a Status without a kind.
        if code >= 400 || head.kind.as_deref() == Some("Status") {
            answer.read_status(body);
        }
        answer
    }

    fn read_status(&mut self, body: &[u8]) {
        let Ok(status) = serde_json::from_slice::<WireStatus>(body) else {
            let text = String::from_utf8_lossy(body);
            self.message = text.trim().chars().take(TEXT_MAX).collect();
            return;
        };
        self.code = status.code.filter(|_| self.code < 400).unwrap_or(self.code);
        self.reason = status.reason;
        self.message = status.message;
        let details = status.details.unwrap_or_default();
        self.retry_after = self.retry_after.or(details.retry_after_seconds.map(Duration::from_secs));
        let causes = details.causes.unwrap_or_default().into_iter();
        self.details = Details {
            group: details.group,
            kind: details.kind,
            name: details.name,
            uid: details.uid,
            causes: causes
                .map(|cause| Cause { reason: cause.reason, field: cause.field, message: cause.message })
                .collect(),
        };
    }
}

#[derive(Default, Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    metadata: Option<HeadMetadata>,
}

#[derive(Deserialize)]
struct HeadMetadata {
    #[serde(rename = "deletionTimestamp")]
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    reason: String,
    message: String,
    code: Option<u16>,
    details: Option<WireDetails>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireDetails {
    group: String,
    kind: String,
    name: String,
    uid: String,
    causes: Option<Vec<WireCause>>,
    retry_after_seconds: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireCause {
    reason: String,
    field: String,
    message: String,
}

//! What the API server was asked, from its audit log: the honest count, whatever a client believes it sent.
//!
//! In comes the log file at level Metadata; out come [`Requests`] since a [`Mark`], which tests narrow by user agent,
//! verb and resource. Both ends of the span are exact: a mark and a look each send a request of their own and wait until
//! the log shows it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use serde::Deserialize;

use crate::client::Client;
use crate::wait::eventually;

/// Requests with this user agent are the harness's marks and are left out everywhere.
const MARK: &str = "operator-e2e-mark";

/// How long the log may lag behind on a busy machine.
const LAG: Duration = Duration::from_secs(30);

/// A cluster's audit log.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    client: Client,
}

/// A place in the audit log.
#[derive(Debug, Clone, Copy)]
pub struct Mark(u64);

impl Mark {
    /// The beginning of the log: everything since the cluster started.
    pub const START: Self = Self(0);
}

/// One request that the API server answered, or a watch that it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// `deployments.apps`, `services`; empty for paths that are no resource.
    pub resource: String,
    /// `status`, `scale`; empty when it is the object itself.
    pub subresource: String,
    /// Empty for cluster-scoped objects and requests across namespaces.
    pub namespace: String,
    /// Empty for lists and watches.
    pub name: String,
    /// The client's user agent.
    pub agent: String,
    /// Who asked.
    pub user: String,
    /// The answer's HTTP status code.
    pub code: u16,
    /// Path and query.
    pub uri: String,
    /// Whether this is the beginning of a stream (stage `ResponseStarted`) rather than a finished request.
    pub started: bool,
    /// When the server received it, RFC 3339 in UTC with microseconds (compares as text).
    pub received: String,
    /// When it was answered, in the same form.
    pub answered: String,
}

impl Record {
    /// Whether it asked for a change: create, update, patch or delete, dry runs and no-ops included, but not of Leases
    /// and Events.
    #[must_use]
    pub fn is_write(&self) -> bool {
        let writes = ["create", "update", "patch", "delete", "deletecollection"];
        writes.contains(&self.verb.as_str()) && !self.is_lease() && !self.is_event()
    }

    /// Whether it was about a Lease.
    #[must_use]
    pub fn is_lease(&self) -> bool {
        self.resource == "leases.coordination.k8s.io"
    }

    /// Whether it was about an Event, of either group.
    #[must_use]
    pub fn is_event(&self) -> bool {
        self.resource == "events" || self.resource == "events.events.k8s.io"
    }

    /// How long after the answer to another request this one was received; zero where it was before.
    ///
    /// # Errors
    /// When a time in the log can't be read.
    pub fn received_after(&self, other: &Self) -> crate::Result<Duration> {
        let (answered, received): (Timestamp, Timestamp) = (other.answered.parse()?, self.received.parse()?);
        Ok(Duration::try_from(received.duration_since(answered)).unwrap_or_default())
    }

    /// Whether it was a watch.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.verb == "watch"
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { received, verb, uri, code, agent, .. } = self;
        write!(f, "{received} {verb} {uri} -> {code} ({agent})")
    }
}

impl Audit {
    pub(crate) const fn new(path: PathBuf, client: Client) -> Self {
        Self { path, client }
    }

    /// A place after every request that was answered until now.
    ///
    /// # Errors
    /// When the server does not answer or the log can't be read.
    pub async fn mark(&self) -> crate::Result<Mark> {
        self.settle().await?;
        self.end()
    }

    /// All requests answered since the mark until now.
    ///
    /// # Errors
    /// When the server does not answer or the log can't be read.
    pub async fn since(&self, mark: Mark) -> crate::Result<Requests> {
        self.settle().await?;
        Ok(Requests(read(&self.path, mark)?))
    }

    /// Waits until the log holds every request that was answered before this call.
    ///
    /// The server writes the line before it ends the response, so that a mark that came later is written later; a second
    /// mark gives a line that was just being written the time of a whole request.
    async fn settle(&self) -> crate::Result<()> {
        for _ in 0..2 {
            self.pass_mark().await?;
        }
        Ok(())
    }

    fn end(&self) -> crate::Result<Mark> {
        let context = || format!("cannot read {}", self.path.display());
        let mut log = File::open(&self.path).with_context(context)?;
        Ok(Mark(end_of_lines(&mut log).with_context(context)?))
    }

    async fn pass_mark(&self) -> crate::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let uri = format!("/version?{MARK}={}-{number}", std::process::id());
        let from = if self.path.exists() { self.end()? } else { Mark::START };
        self.client.text(&uri).await.context("the mark in the audit log")?;
        eventually("the audit log shows the mark", LAG, || async {
            let records = read_all(&self.path, from)?;
            anyhow::ensure!(records.iter().any(|record| record.uri == uri), "{} other records", records.len());
            Ok(())
        })
        .await;
        Ok(())
    }
}

/// Requests, in the order of the log; finished ones, and beginnings of watches.
#[derive(Debug, Clone, Default)]
pub struct Requests(Vec<Record>);

impl Requests {
    /// Those whose user agent starts so.
    #[must_use]
    pub fn by_agent(&self, prefix: &str) -> Self {
        self.matching(|record| record.agent.starts_with(prefix))
    }

    /// Those of one kind: `deployments.apps`, `services`.
    #[must_use]
    pub fn of(&self, resource: &str) -> Self {
        self.matching(|record| record.resource == resource)
    }

    /// Those of one user.
    #[must_use]
    pub fn by_user(&self, user: &str) -> Self {
        self.matching(|record| record.user == user)
    }

    /// Those in one namespace.
    #[must_use]
    pub fn within(&self, namespace: &str) -> Self {
        self.matching(|record| record.namespace == namespace)
    }

    /// Those with one verb.
    #[must_use]
    pub fn verb(&self, verb: &str) -> Self {
        self.matching(|record| record.verb == verb)
    }

    /// Creates, updates, patches and deletes, no-ops and dry runs included, except of Leases and Events.
    #[must_use]
    pub fn writes(&self) -> Self {
        self.matching(Record::is_write)
    }

    /// Everything but watches and Leases: what a settled operator makes none of.
    #[must_use]
    pub fn beyond_watches(&self) -> Self {
        self.matching(|record| !record.is_watch() && !record.is_lease())
    }

    /// Watches that began, each once.
    #[must_use]
    pub fn watches(&self) -> Self {
        self.matching(|record| record.is_watch() && record.started)
    }

    /// Those for which `keep` is true.
    #[must_use]
    pub fn matching(&self, keep: impl Fn(&Record) -> bool) -> Self {
        Self(self.0.iter().filter(|record| keep(record)).cloned().collect())
    }

    /// How many finished requests there were by verb and resource (with `/subresource`); open watches are not counted.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(String, String), usize> {
        let mut counts = BTreeMap::new();
        for record in self.0.iter().filter(|record| !record.is_watch() && !record.started) {
            let resource = if record.subresource.is_empty() {
                record.resource.clone()
            } else {
                format!("{}/{}", record.resource, record.subresource)
            };
            *counts.entry((record.verb.clone(), resource)).or_default() += 1;
        }
        counts
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there were none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One after the other.
    pub fn iter(&self) -> std::slice::Iter<'_, Record> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Requests {
    type Item = &'a Record;
    type IntoIter = std::slice::Iter<'a, Record>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for record in &self.0 {
            writeln!(f, "{record}")?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    #[serde(rename = "requestURI", default)]
    request_uri: String,
    verb: String,
    #[serde(default)]
    user: UserLine,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectLine,
    #[serde(default)]
    response_status: StatusLine,
    request_received_timestamp: String,
    stage_timestamp: String,
}

#[derive(Deserialize, Default)]
struct UserLine {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ObjectLine {
    resource: String,
    namespace: String,
    name: String,
    api_group: String,
    subresource: String,
}

#[derive(Deserialize, Default)]
struct StatusLine {
    #[serde(default)]
    code: u16,
}

/// Where the last whole line ends: the server may be in the middle of the next one.
fn end_of_lines(log: &mut (impl Read + Seek)) -> std::io::Result<u64> {
    const STEP: u64 = 64 << 10;
    let mut from = log.seek(SeekFrom::End(0))?;
    while from > 0 {
        from = from.saturating_sub(STEP);
        log.seek(SeekFrom::Start(from))?;
        let mut tail = Vec::new();
        log.read_to_end(&mut tail)?;
        if let Some(end) = tail.iter().rposition(|&byte| byte == b'\n') {
            return Ok(from + end as u64 + 1);
        }
    }
    Ok(0)
}

fn read(path: &Path, mark: Mark) -> crate::Result<Vec<Record>> {
    let mut records = read_all(path, mark)?;
    records.retain(|record| !record.agent.starts_with(MARK));
    // A stream has two lines: its beginning counts for watches only.
    records.retain(|record| !record.started || record.is_watch());
    Ok(records)
}

fn read_all(path: &Path, Mark(from): Mark) -> crate::Result<Vec<Record>> {
    let context = || format!("cannot read {}", path.display());
    let mut file = File::open(path).with_context(context)?;
    file.seek(SeekFrom::Start(from)).with_context(context)?;
    let mut text = String::new();
    file.read_to_string(&mut text).with_context(context)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(parse).collect()
}

fn parse(line: &str) -> crate::Result<Record> {
    let line: Line = serde_json::from_str(line).with_context(|| format!("a line of the audit log: {line}"))?;
    let ObjectLine { resource, namespace, name, api_group, subresource } = line.object_ref;
    Ok(Record {
        verb: line.verb,
        resource: if api_group.is_empty() { resource } else { format!("{resource}.{api_group}") },
        subresource,
        namespace,
        name,
        agent: line.user_agent,
        user: line.user.username,
        code: line.response_status.code,
        uri: line.request_uri,
        started: line.stage == "ResponseStarted",
        received: line.request_received_timestamp,
        answered: line.stage_timestamp,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn a_mark_never_lies_within_a_line_that_is_being_written() -> crate::Result<()> {
        let long = format!("one\n{}", "x".repeat(200 << 10));
        for (text, end) in [("", 0), ("half", 0), ("one\n", 4), ("one\ntwo\nhal\u{e4}", 8), (&long, 4)] {
            assert_eq!(end_of_lines(&mut Cursor::new(text))?, end);
        }
        Ok(())
    }
}

//! The one status write of a pass: planned by the core, sent as a merge patch with resourceVersion.

use super::child::about;
use super::{Again, Trouble};
use crate::api::discovery::Resource;
use crate::api::escape::escape;
use crate::api::{self, ApiError, Write};
use crate::watch::{Watches, Writer};
use http::Method;
use operator_core::answer::{Class, Verb, classify, message};
use operator_core::object::{Fields, Stored};
use operator_core::reconciled::{Problem, Reason, Reconciled};
use operator_core::schema::Schema;
use operator_core::status::{self, Flapping, Input, ModuleStatus, Said, StatusPlan, Verdict};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Another writer was faster: its version is on its way and wakes the key; this is for when it does not.
const CONFLICT: Duration = Duration::from_secs(5);

/// What a status write is made of.
pub(crate) struct StatusWrite<'a> {
    pub(crate) writer: Writer<'a>,
    pub(crate) watches: &'a Watches,
    pub(crate) resource: &'a Resource,
    pub(crate) manager: &'a str,
    /// What the server publishes of the type.
    pub(crate) schema: Option<&'a Schema>,
    pub(crate) declared: &'a [String],
    pub(crate) primary: &'a Arc<Stored>,
    /// The module's part; None leaves it.
    pub(crate) module: Option<&'a ModuleStatus>,
    /// The host's part.
    pub(crate) reconciled: &'a Reconciled,
    /// Digest of what the module saw, for finding a status that differs on equal input.
    pub(crate) input: u64,
}

/// What became of it.
pub(crate) struct StatusWritten {
    /// The primary as it now is.
    pub(crate) primary: Arc<Stored>,
    /// Paths that were written; empty if nothing was to be.
    pub(crate) changed: Vec<String>,
    /// Paths that the type's schema does not keep.
    pub(crate) lost: Vec<String>,
    /// Paths that the server did not keep though the schema has them.
    pub(crate) not_kept: Vec<String>,
    /// What was not written yet.
    pub(crate) slowed: Option<Slowed>,
}

/// Fields of a status that are written at growing intervals.
pub(crate) struct Slowed {
    /// When to look again.
    pub(crate) after: Duration,
    /// Their paths.
    pub(crate) fields: Vec<String>,
    /// For the log.
    pub(crate) why: &'static str,
}

impl Slowed {
    fn new(until: Instant, fields: Vec<String>, why: &'static str) -> Self {
        Self { after: until.saturating_duration_since(Instant::now()), fields, why }
    }
}

/// Writes the status where the live one differs.
///
/// # Errors
/// What is in the way, and when to try again.
pub(crate) async fn write_status(write: &StatusWrite<'_>, flapping: &mut Flapping) -> Result<StatusWritten, Trouble> {
    let parts = Parts { module: true, reconciled: !flapping.is_forbidden(write.reconciled) };
    let mut plan = write.plan(write.primary, parts);
    let mut done = StatusWritten {
        primary: Arc::clone(write.primary),
        changed: Vec::new(),
        lost: std::mem::take(&mut plan.lost),
        not_kept: Vec::new(),
        slowed: None,
    };
    let Some(patch) = plan.patch else { return Ok(done) };
    match flapping.judge(Instant::now(), &write.said(parts), &patch) {
        Verdict::Write => {}
        Verdict::Fought { until, fields } => {
            done.slowed = Some(Slowed::new(until, fields, "another writer of the status changes these fields back"));
            return Ok(done);
        }
        Verdict::Slowed { until, fields } => {
            done.slowed =
                Some(Slowed::new(until, fields, "the module's status differs from call to call on equal input"));
            // The host's own condition waits for nobody.
            if let Some(patch) = write.plan(write.primary, Parts { module: false, ..parts }).patch {
                done.primary = write.send(&patch.body).await.map_err(Refused::into_trouble)?;
                done.changed = patch.changed;
            }
            return Ok(done);
        }
        Verdict::Futile { .. } => return Ok(done),
    }
    let (stored, changed) = match write.send(&patch.body).await {
        Ok(stored) => (stored, patch.changed),
        // The schema may forbid a condition of ours: the module's part is worth writing without it.
        Err(Refused::Invalid(_)) if parts.reconciled => {
            let written = match write.plan(write.primary, Parts { reconciled: false, ..parts }).patch {
                None => (Arc::clone(write.primary), Vec::new()),
                Some(without) => {
                    let stored = write.send(&without.body).await.map_err(Refused::into_trouble)?;
                    (stored, without.changed)
                }
            };
            flapping.forbid(write.reconciled);
            written
        }
        Err(refused) => return Err(refused.into_trouble()),
    };
    done.not_kept = flapping.written(Instant::now(), write.plan(&stored, parts).patch);
    done.primary = stored;
    done.changed = changed;
    Ok(done)
}

enum Refused {
    /// 422: the object as it would be breaks its schema.
    Invalid(Trouble),
    Other(Trouble),
}

impl Refused {
    fn into_trouble(self) -> Trouble {
        match self {
            Self::Invalid(trouble) | Self::Other(trouble) => trouble,
        }
    }
}

/// Whose part of a status is planned.
#[derive(Clone, Copy)]
struct Parts {
    module: bool,
    reconciled: bool,
}

impl StatusWrite<'_> {
    fn said(&self, parts: Parts) -> Said<'_> {
        Said {
            input: self.input,
            generation: self.primary.meta.generation,
            module: self.module,
            reconciled: parts.reconciled.then_some(self.reconciled),
        }
    }

    fn plan(&self, primary: &Stored, parts: Parts) -> StatusPlan {
        let owned: Vec<Fields<'_>> = primary.owned.status(self.manager).filter_map(|set| set.fields().ok()).collect();
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        status::plan(&Input {
            live: primary.status().map(|raw| raw.get()),
            resource_version: &primary.meta.resource_version.to_string(),
            generation: primary.meta.generation.filter(|_| self.resource.status),
            owned: &owned,
            declared: self.declared,
            module: self.module.filter(|_| parts.module),
            reconciled: parts.reconciled.then_some(self.reconciled),
            now: &now,
            schema: self.schema,
        })
    }

    async fn send(&self, body: &Value) -> Result<Arc<Stored>, Refused> {
        let name = &self.primary.meta.name;
        let about = about(self.resource, Verb::MergePatch, name);
        let subresource = if self.resource.status { "/status" } else { "" };
        let write = Write {
            method: Method::PATCH,
            path: format!("{}{subresource}?fieldManager={}", self.resource.object(name), escape(self.manager)),
            content_type: api::MERGE_PATCH,
            body: body.to_string(),
            about,
        };
        let error = match self.watches.write(self.writer, self.resource, name, write).await {
            Ok(stored) => return Ok(stored),
            Err(error) => error,
        };
        let ApiError::Answer(answer) = error else {
            tracing::warn!(%error, "no answer to a status write");
            return Err(Refused::Other(self.trouble("the API server did not answer; tried again", Again::BACKOFF)));
        };
        let class = classify(&answer, &about);
        let text = message(&answer, class, &about);
        Err(match class {
            Class::Conflict | Class::Refuse => Refused::Other(self.trouble(&text, Again::after(CONFLICT))),
            // Deleted meanwhile: its event ends the key.
            Class::NotFound => Refused::Other(self.trouble(&text, Again::ON_CHANGE)),
            Class::Invalid => Refused::Invalid(Trouble {
                problem: Problem::new(Reason::InvalidOutcome, format!("status: {text}")),
                again: Again::BACKOFF,
                stands: false,
            }),
            Class::TooMany => {
                Refused::Other(self.trouble(&text, answer.retry_after.map_or(Again::BACKOFF, Again::after)))
            }
            _ => Refused::Other(self.trouble(&text, Again::BACKOFF)),
        })
    }

    fn trouble(&self, text: &str, again: Again) -> Trouble {
        Trouble { problem: Problem::new(Reason::ApplyFailed, format!("status: {text}")), again, stands: false }
    }
}

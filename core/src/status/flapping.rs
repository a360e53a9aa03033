//! What is remembered of a key's status writes, so that neither a status that flaps nor a server that drops what it took
//! makes a write a pass.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::fight::Fight;
use super::{ModuleStatus, StatusPatch};
use crate::reconciled::Reconciled;

/// So many different statuses on equal input are written at once.
const FREE: u32 = 3;
/// The first delay after them; it doubles.
const DELAY: Duration = Duration::from_secs(10);
/// The longest delay.
const DELAY_MAX: Duration = Duration::from_secs(300);
/// After so long without a different status the count starts over.
const QUIET: Duration = Duration::from_secs(600);

/// What to do with a planned patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it.
    Write,
    /// The module's status differs from pass to pass on equal input, in these fields, as one with a counter or a time of its
    /// own does. Look again at `until`; until then a plan without the module's status still moves the host's condition.
    Slowed {
        /// When the next write is allowed.
        until: Instant,
        /// Paths that flap.
        fields: Vec<String>,
    },
    /// Somebody changes back what was written, in these fields. Look again at `until`.
    Fought {
        /// When the next write is allowed.
        until: Instant,
        /// Paths that are changed back.
        fields: Vec<String>,
    },
    /// The server took the same change before and dropped it or changed it back, these fields: a default, or a schema that
    /// was not known. Nothing will come of it until something else changes.
    Futile {
        /// Paths that the server does not take.
        fields: Vec<String>,
    },
}

/// What a patch is to make the status say.
#[derive(Clone, Copy, Debug)]
pub struct Said<'a> {
    /// Digest of all that the module saw but its own status and resourceVersions.
    pub input: u64,
    /// The generation that it is of.
    pub generation: Option<i64>,
    /// The module's part; None when it said nothing.
    pub module: Option<&'a ModuleStatus>,
    /// The host's part.
    pub reconciled: Option<&'a Reconciled>,
}

/// The status writes of one key, as far as they must be remembered.
#[derive(Clone, Debug, Default)]
pub struct Flapping {
    last: Option<Last>,
    fight: Fight,
    /// Changes of the last write that its own answer still lacked.
    futile: Option<Value>,
    /// The host's condition that the type's schema forbids.
    forbidden: Option<Reconciled>,
}

/// The last status of a module's that was let through.
#[derive(Clone, Debug)]
struct Last {
    input: u64,
    status: u64,
    at: Instant,
    /// Different statuses on this input so far.
    flaps: u32,
}

impl Flapping {
    /// Judges a planned patch. One that the server then takes is to be told by [`Flapping::written`].
    pub fn judge(&mut self, now: Instant, said: &Said<'_>, patch: &StatusPatch) -> Verdict {
        if self.futile.as_ref() == Some(&without_times(patch.change())) {
            return Verdict::Futile { fields: patch.changed.clone() };
        }
        let status = said.module.map(digest);
        if let Err(until) = self.fight.check(now, said, status) {
            return Verdict::Fought { until, fields: patch.changed.clone() };
        }
        let input = said.input;
        let Some(status) = status else { return Verdict::Write };
        let flaps = match &self.last {
            Some(last) if last.input == input && last.status == status => return Verdict::Write,
            Some(last) if last.input == input && now.saturating_duration_since(last.at) < QUIET => {
                let until = last.at + delay(last.flaps);
                if now < until {
                    return Verdict::Slowed { until, fields: patch.changed.clone() };
                }
                last.flaps + 1
            }
            _ => 0,
        };
        self.last = Some(Last { input, status, at: now, flaps });
        Verdict::Write
    }

    /// Whether the server refused a status for this condition of the host: asked again with each change, it would refuse again.
    pub fn is_forbidden(&self, reconciled: &Reconciled) -> bool {
        self.forbidden.as_ref() == Some(reconciled)
    }

    /// The server refused a status with this condition and took the one without.
    pub fn forbid(&mut self, reconciled: &Reconciled) {
        self.forbidden = Some(reconciled.clone());
    }

    /// Takes what is still to be changed after a write, planned from its own answer: by rights nothing. Says which fields
    /// the server did not take.
    pub fn written(&mut self, now: Instant, left: Option<StatusPatch>) -> Vec<String> {
        self.fight.written(now);
        let (futile, fields) = left.map(|left| (without_times(left.change()), left.changed)).unzip();
        self.futile = futile;
        fields.unwrap_or_default()
    }
}

/// A change as it is planned again later: a condition that would flip has another time then.
fn without_times(change: &Value) -> Value {
    let mut change = change.clone();
    for condition in change["conditions"].as_array_mut().into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("lastTransitionTime");
        }
    }
    change
}

fn delay(flaps: u32) -> Duration {
    match flaps.checked_sub(FREE) {
        None => Duration::ZERO,
        Some(doublings) => DELAY.saturating_mul(1 << doublings.min(16)).min(DELAY_MAX),
    }
}

fn digest(status: &ModuleStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    // Keys are sorted: equal fields are equal text.
    Value::Object(status.fields().clone()).to_string().hash(&mut hasher);
    for condition in status.conditions() {
        (&condition.type_, condition.status.as_str(), &condition.reason, &condition.message).hash(&mut hasher);
    }
    hasher.finish()
}

//! `.spec` of a Probe.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProbeSpec {
    /// What to do; empty to pass the rest of the spec on.
    #[serde(default)]
    pub behaviour: String,
    /// How much of it, where a behaviour has a measure: bytes, lines or children.
    pub amount: Option<usize>,
    /// `data` of the ConfigMap that sound behaviours want.
    #[serde(default)]
    pub data: Map<String, Value>,

    /// The complete set of children.
    #[serde(default)]
    pub children: Vec<WantedChild>,
    /// Leave all children as they are instead.
    #[serde(default)]
    pub leave_children: bool,
    /// None: leave it.
    pub status: Option<WantedStatus>,
    /// Add what the snapshot shows to the status, as `.seen`.
    #[serde(default)]
    pub report: bool,
    #[serde(default)]
    pub events: Vec<WantedEvent>,
    pub requeue_after_ms: Option<u64>,
    /// Fail instead.
    pub failure: Option<WantedFailure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WantedChild {
    /// Passed on as it is, nulls included.
    pub object: Box<RawValue>,
    #[serde(default)]
    pub on_immutable: OnImmutable,
    #[serde(default)]
    pub on_prune: OnPrune,
    #[serde(default)]
    pub wave: u32,
    #[serde(default)]
    pub release: Vec<String>,
}

#[derive(Clone, Copy, Default, Deserialize)]
pub(crate) enum OnImmutable {
    #[default]
    Fail,
    Recreate,
}

#[derive(Clone, Copy, Default, Deserialize)]
pub(crate) enum OnPrune {
    #[default]
    Delete,
    Orphan,
}

#[derive(Deserialize)]
pub(crate) struct WantedStatus {
    /// Passed on as they are, objects or not.
    #[serde(default)]
    pub fields: Value,
    #[serde(default)]
    pub conditions: Vec<WantedCondition>,
}

#[derive(Deserialize)]
pub(crate) struct WantedCondition {
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or anything else for unknown.
    pub status: String,
    pub reason: String,
    #[serde(default)]
    pub message: String,
}

#[derive(Deserialize)]
pub(crate) struct WantedEvent {
    #[serde(default)]
    pub warning: bool,
    pub reason: String,
    pub message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WantedFailure {
    #[serde(default)]
    pub terminal: bool,
    pub reason: String,
    pub message: String,
    pub retry_after_ms: Option<u64>,
}

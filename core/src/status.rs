//! The status of a primary: what the module and the host say and what stands there in, one merge patch out, or none.
//!
//! A module's fields, its conditions and `observedGeneration` move together and only after a settled pass; otherwise
//! nothing but the host's own condition does. What others wrote is carried over byte for byte. What is desired is pruned
//! first by the schema that the server publishes, so that equal input never plans a second write.

mod checked;
mod conditions;
mod fields;
mod fight;
mod flapping;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use crate::contract::Condition;
use crate::names::RECONCILED;
use crate::object::{Element, Fields};
use crate::reconciled::{Reason, Reconciled};
use crate::schema::Schema;
pub use checked::{Invalid, ModuleStatus, is_reason};
pub use flapping::{Flapping, Said, Verdict};

/// Where the host writes the generation that a status is of.
const OBSERVED_GENERATION: &str = "observedGeneration";
/// Where conditions stand.
const CONDITIONS: &str = "conditions";

/// What a status is planned from.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Text of the live `.status`; None where there is none.
    pub live: Option<&'a str>,
    /// `metadata.resourceVersion` of the live object: the precondition of the patch.
    pub resource_version: &'a str,
    /// `metadata.generation`. None for a type without status subresource: each write to it raises the generation, so
    /// that writing it down would never end.
    pub generation: Option<i64>,
    /// What our manager owns by its status writes ([`crate::object::Ownership::status`]).
    pub owned: &'a [Fields<'a>],
    /// Condition types that the module declared.
    pub declared: &'a [String],
    /// What the module said after a settled pass, or with its failure; None leaves it as it is.
    pub module: Option<&'a ModuleStatus>,
    /// The host's condition. None after the server refused the status with it (422).
    pub reconciled: Option<&'a Reconciled>,
    /// The time that a condition that flips gets: RFC 3339 with whole seconds.
    pub now: &'a str,
    /// What the server publishes of the type; None prunes nothing.
    pub schema: Option<&'a Schema>,
}

/// What is to be done about a status.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusPlan {
    /// None where the live status is as desired.
    pub patch: Option<StatusPatch>,
    /// What the schema does not keep: sorted paths like `status.conditions[].reason`. To be said once for a type and schema.
    pub lost: Vec<String>,
}

/// A JSON merge patch (RFC 7386), for `/status` or for the object where its type has no such subresource.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusPatch {
    /// With `metadata.resourceVersion` as precondition.
    pub body: Value,
    /// Paths that it changes: `status.readyReplicas`, `status.conditions[type="Ready"].message`.
    pub changed: Vec<String>,
}

/// Plans the one write that makes the live status the desired one.
pub fn plan(input: &Input<'_>) -> StatusPlan {
    let live = read_live(input.live);
    let desired = desire(input);

    let (mut patch, mut changed) = match &desired.fields {
        Some(fields) => fields::diff(&live, fields, &owned_status(input.owned)),
        None => Default::default(),
    };
    if let Some(ours) = desired.conditions {
        let is_ours = |type_: &str| match type_ {
            RECONCILED => input.reconciled.is_some(),
            _ => input.module.is_some() && input.declared.iter().any(|declared| declared == type_),
        };
        if let Some(merged) = conditions::merge(live.get(CONDITIONS), ours, is_ours, &mut changed) {
            patch.insert(CONDITIONS.into(), merged.into());
        }
    }
    let body = json!({ "metadata": { "resourceVersion": input.resource_version }, "status": patch });
    StatusPlan { patch: (!changed.is_empty()).then_some(StatusPatch { body, changed }), lost: desired.lost }
}

impl StatusPatch {
    /// What it changes, without the precondition.
    fn change(&self) -> &Value {
        &self.body["status"]
    }
}

/// The live status as fields; what is no object counts as none.
fn read_live(text: Option<&str>) -> Map<String, Value> {
    match text.map(serde_json::from_str) {
        Some(Ok(Value::Object(fields))) => fields,
        _ => Map::new(),
    }
}

/// What is ours of a status, as the schema keeps it.
struct Desired {
    /// None: leave them.
    fields: Option<Map<String, Value>>,
    /// None: there is no place for them.
    conditions: Option<Vec<Value>>,
    /// What the schema drops.
    lost: Vec<String>,
}

fn desire(input: &Input<'_>) -> Desired {
    let ours = input.module.map(ModuleStatus::conditions).unwrap_or_default().iter();
    let ours = ours.map(|condition| conditions::entry(condition, input.generation, input.now));
    let host = input.reconciled.map(|host| conditions::entry(&host_condition(host), input.generation, input.now));

    let mut status = input.module.map(|module| module.fields().clone()).unwrap_or_default();
    if let (Some(generation), Some(_)) = (input.generation, input.module) {
        status.insert(OBSERVED_GENERATION.into(), generation.into());
    }
    status.insert(CONDITIONS.into(), ours.chain(host).collect());

    let mut status = Value::Object(status);
    let mut lost = input.schema.map(|schema| schema.prune_status(&mut status)).unwrap_or_default();
    // Nobody asked for it: it is written where there is a place for it.
    lost.retain(|path| !path.ends_with(".observedGeneration"));
    let conditions = match status.get_mut(CONDITIONS).map(Value::take) {
        Some(Value::Array(conditions)) => Some(conditions),
        _ => None,
    };
    let fields = match (status, input.module) {
        (Value::Object(mut fields), Some(_)) => {
            fields.remove(CONDITIONS);
            Some(fields)
        }
        _ => None,
    };
    Desired { fields, conditions, lost }
}

/// The host's condition. A module's own reason to fail may be one that the API server would refuse.
fn host_condition(host: &Reconciled) -> Condition {
    let reason = if is_reason(&host.reason) { &host.reason } else { Reason::InvalidOutcome.as_str() };
    Condition {
        type_: RECONCILED.to_owned(),
        status: host.status,
        reason: reason.to_owned(),
        message: host.message.clone(),
    }
}

/// The trees of what we own below `.status`.
fn owned_status<'a>(owned: &'a [Fields<'a>]) -> Vec<&'a Fields<'a>> {
    owned.iter().filter_map(|fields| fields.child(&Element::Field("status".into()))).collect()
}

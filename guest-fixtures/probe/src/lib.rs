//! A module that does what its objects tell it to, good or bad.
//!
//! `spec.behaviour` of a Probe picks one by its name (see [`misbehave`] and [`sandbox`]). Without one, the spec is the
//! outcome: `children`, `status`, `failure` and the rest are passed on as they are (see [`passthrough`]).
//! Builds of it that differ are made by rewriting its [`plan`].

mod misbehave;
mod passthrough;
mod plan;
mod sandbox;
mod spec;

use operator_guest::{ChildType, Context, Descriptor, Failure, OnImmutable, OnPrune, Operator, Outcome};
use serde_json::Value;

use crate::plan::Plan;
use crate::spec::ProbeSpec;

struct Probe;

operator_guest::operator!(Probe);

impl Operator for Probe {
    type Spec = ProbeSpec;
    type Status = Value;

    fn describe() -> Descriptor {
        Plan::read()
            .descriptor()
            .child(ChildType::new("v1", "ConfigMap"))
            .child(ChildType::new("v1", "Secret").on_immutable(OnImmutable::Recreate))
            .child(ChildType::new("v1", "Service"))
            .child(ChildType::new("v1", "ServiceAccount").on_prune(OnPrune::Orphan))
            .child(ChildType::new("apps/v1", "Deployment"))
            .child(ChildType::new("batch/v1", "Job").on_immutable(OnImmutable::Recreate))
            .child(ChildType::new("example.com/v1", "Widget").optional())
            .condition_type("Ready")
            .condition_type("Degraded")
    }

    fn reconcile(ctx: &Context<Self>) -> Result<Outcome, Failure> {
        let plan = Plan::read();
        plan.begin(ctx);
        plan.mark(answer(ctx)?)
    }
}

fn answer(ctx: &Context<Probe>) -> Result<Outcome, Failure> {
    let name = ctx.spec().behaviour.as_str();
    if name.is_empty() {
        return passthrough::answer(ctx);
    }
    match misbehave::find(name).or_else(|| sandbox::find(name)) {
        Some(behaviour) => behaviour(ctx),
        None => Err(Failure::terminal("UnknownBehaviour", format!("spec.behaviour: there is no {name:?}"))),
    }
}

/// What one behaviour answers.
type Behaviour = fn(&Context<Probe>) -> Result<Outcome, Failure>;

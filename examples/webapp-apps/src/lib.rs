//! A WebApp that is a Deployment and nothing more, of the group `apps.example.com`: another operator than
//! `guest-webapp`, with which it can share a host.

#[cfg(test)]
mod crd;
mod deployment;
mod spec;
#[cfg(test)]
mod tests;

use deployment::Applied;
use operator_guest::live::Deployment;
use operator_guest::{
    ChildType, Condition, Context, Descriptor, Event, Failure, OnPrune, Operator, Outcome, Status, TypeRef,
};

pub use spec::{WebAppSpec, WebAppStatus};

/// The operator of `WebApp.apps.example.com/v1`.
#[derive(Debug)]
pub struct WebApp;

operator_guest::operator!(WebApp);

impl Operator for WebApp {
    type Spec = WebAppSpec;
    type Status = WebAppStatus;

    fn describe() -> Descriptor {
        Descriptor::new("webapp-operator", env!("CARGO_PKG_VERSION"), TypeRef::new("apps.example.com/v1", "WebApp"))
            // Always wanted: the host needs no right to delete one.
            .child(ChildType::new("apps/v1", "Deployment").on_prune(OnPrune::Orphan))
            .condition_type("Available")
            .crd(include_str!("../crd.json"))
    }

    fn reconcile(ctx: &Context<Self>) -> Result<Outcome, Failure> {
        let spec = ctx.spec();
        let name = deployment::name(ctx.name())?;

        let live: Option<Deployment> = ctx.child(&name)?;
        let ready_replicas = live.as_ref().map_or(0, |live| live.status.ready_replicas);
        let available = if live.is_some_and(|live| live.is_rolled_out(spec.replicas)) {
            Condition::is_true("Available", "DeploymentReady", "All replicas are available")
        } else {
            let message = format!("{ready_replicas}/{} replicas are available", spec.replicas);
            Condition::is_false("Available", "DeploymentNotReady", message)
        };

        let mut outcome = Outcome::new([deployment::wanted(&name, ctx.name(), spec)])
            .status(Status::new(&WebAppStatus { ready_replicas })?.condition(available));
        // Once for each spec, when its Deployment is written.
        let is_unreported = ctx.observed_generation()? != ctx.metadata().generation;
        if is_unreported && ctx.child::<Applied>(&name)?.is_some_and(|live| live.is_of(spec)) {
            let message = format!("Deployment {name} updated to {} replicas", spec.replicas);
            outcome = outcome.event(Event::normal("Reconciled", message));
        }
        Ok(outcome)
    }
}

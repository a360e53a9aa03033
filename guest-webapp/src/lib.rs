//! The WebApp operator: an image, a number of replicas and a port become a Deployment and a Service.

mod children;
#[cfg(test)]
mod crd;
mod spec;
#[cfg(test)]
mod tests;

use operator_guest::live::Deployment;
use operator_guest::{
    ChildType, Condition, Context, Descriptor, Failure, OnImmutable, OnPrune, Operator, Outcome, Status, TypeRef,
};

pub use spec::{WebAppSpec, WebAppStatus};

/// The operator of `WebApp.webapp.example.com/v1`.
#[derive(Debug)]
pub struct WebApp;

operator_guest::operator!(WebApp);

impl Operator for WebApp {
    type Spec = WebAppSpec;
    type Status = WebAppStatus;

    fn describe() -> Descriptor {
        Descriptor::new("webapp", env!("CARGO_PKG_VERSION"), TypeRef::new("webapp.example.com/v1", "WebApp"))
            // Both are always wanted: the host needs no right to delete one.
            .child(ChildType::new("apps/v1", "Deployment").on_immutable(OnImmutable::Fail).on_prune(OnPrune::Orphan))
            .child(ChildType::new("v1", "Service").on_immutable(OnImmutable::Fail).on_prune(OnPrune::Orphan))
            .condition_type("Ready")
            .crd(include_str!("../crds/webapps.json"))
    }

    fn reconcile(ctx: &Context<Self>) -> Result<Outcome, Failure> {
        let name = children::name(ctx.name())?;
        let spec = ctx.spec();

        let deployment: Option<Deployment> = ctx.child(name)?;
        let ready_replicas = deployment.as_ref().map_or(0, |deployment| deployment.status.ready_replicas);
        let rolled_out = deployment.is_some_and(|deployment| deployment.is_rolled_out(spec.replicas));

        let message = format!("{ready_replicas}/{} replicas ready", spec.replicas);
        let ready = if rolled_out {
            Condition::is_true("Ready", "ReplicasReady", message)
        } else {
            Condition::is_false("Ready", "ReplicasNotReady", message)
        };
        let status = Status::new(&WebAppStatus { ready_replicas })?.condition(ready);
        Ok(Outcome::new([children::deployment(name, spec), children::service(name, spec)]).status(status))
    }
}

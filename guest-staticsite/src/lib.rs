//! The StaticSite operator: a page becomes a ConfigMap, a Deployment of nginx that serves it, a Service, and a record outside
//! the cluster that says where it is.

mod children;
#[cfg(test)]
mod crd;
mod ready;
mod records;
mod spec;
#[cfg(test)]
mod tests;

use operator_guest::live::Deployment;
use operator_guest::{
    Capability, ChildType, Context, Descriptor, External, Failure, Observed, OnPrune, Operator, Outcome, Removal,
    Snapshot, Status, TypeRef,
};

use records::{Record, Records};
pub use spec::{StaticSiteSpec, StaticSiteStatus, Tier};

/// The operator of `StaticSite.learn.cloudcaptain.io/v1alpha1`.
#[derive(Debug)]
pub struct StaticSite;

operator_guest::operator!(StaticSite, hooks: [external]);

impl Operator for StaticSite {
    type Spec = StaticSiteSpec;
    type Status = StaticSiteStatus;

    fn describe() -> Descriptor {
        // All three are always wanted: the host needs no right to delete one.
        let child = |api_version, kind| ChildType::new(api_version, kind).on_prune(OnPrune::Orphan);
        let primary = TypeRef::new("learn.cloudcaptain.io/v1alpha1", "StaticSite");
        Descriptor::new("staticsite", env!("CARGO_PKG_VERSION"), primary)
            .child(child("v1", "ConfigMap"))
            .child(child("apps/v1", "Deployment"))
            .child(child("v1", "Service"))
            .condition_type("Ready")
            .finalizer("learn.cloudcaptain.io/external-record")
            .capability(Capability::new("records", records::FOLDER, "one file for each site says where it is"))
            .crd(include_str!("../crds/staticsites.json"))
    }

    fn reconcile(ctx: &Context<Self>) -> Result<Outcome, Failure> {
        let (name, spec) = (children::name(ctx.name())?, ctx.spec());
        let record = Record::of(ctx);
        let deployment: Option<Deployment> = ctx.child(name)?;
        let status = StaticSiteStatus {
            ready_replicas: deployment.as_ref().map_or(0, |deployment| deployment.status.ready_replicas),
            url: ctx.observation()?.map(|published| published.url),
        };
        let ready = ready::condition(deployment.as_ref(), spec.replicas, &record.url);
        Ok(Outcome::new([children::config_map(name, spec), children::deployment(name, spec), children::service(name)])
            .status(Status::new(&status)?.condition(ready)))
    }
}

impl External for StaticSite {
    type Observation = Record;

    fn ensure(ctx: &Context<Self>) -> Result<Observed<Record>, Failure> {
        children::name(ctx.name())?;
        let record = Record::of(ctx);
        Records::granted().publish(&record).map_err(|error| failed("published", &record, &error))?;
        Ok(Observed::new(record))
    }

    fn remove(object: &Snapshot<Self>) -> Result<Removal, Failure> {
        let record = Record::of(object);
        Records::granted().remove(&record).map_err(|error| failed("removed", &record, &error))?;
        Ok(Removal::done())
    }
}

fn failed(what: &str, record: &Record, error: &std::io::Error) -> Failure {
    Failure::retry("RecordFailed", format!("the record {} can't be {what}: {error}", record.file_name()))
}

//! The CustomResourceDefinition, generated from the types in [`spec`](crate::spec).

use std::path::Path;

use kube::CustomResourceExt;

use crate::spec::{StaticSite, Tier};

/// `.status` with the fields that the host writes.
pub(crate) type StaticSiteStatus = operator_guest::crd::StatusSchema<crate::StaticSiteStatus>;

// The API server fills in defaults, the module does not.

pub(crate) fn default_replicas() -> i32 {
    1
}

pub(crate) fn default_tier() -> Tier {
    Tier::Dev
}

#[test]
fn the_crd_files_are_up_to_date() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    operator_guest::crd::assert_up_to_date(
        &StaticSite::crd(),
        &[&here.join("../crds/staticsite/staticsites.yaml"), &here.join("crds/staticsites.json")],
    );
}

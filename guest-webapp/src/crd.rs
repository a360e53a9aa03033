//! The CustomResourceDefinition, generated from the types in [`spec`](crate::spec).

use std::path::Path;

use kube::CustomResourceExt;

use crate::spec::WebApp;

/// `.status` with the fields that the host writes.
pub(crate) type WebAppStatus = operator_guest::crd::StatusSchema<crate::WebAppStatus>;

// The API server fills in defaults, the module does not: where a CRD lacks them, the failure names the field.

pub(crate) fn default_replicas() -> i32 {
    1
}

pub(crate) fn default_port() -> i32 {
    8080
}

#[test]
fn the_crd_files_are_up_to_date() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    operator_guest::crd::assert_up_to_date(
        &WebApp::crd(),
        &[&here.join("../crds/webapp/webapps.yaml"), &here.join("crds/webapps.json")],
    );
}

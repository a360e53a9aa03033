//! The CustomResourceDefinition, generated from the types in [`spec`](crate::spec).

use std::path::Path;

use kube::CustomResourceExt;

use crate::spec::WebApp;

/// `.status` with the fields that the host writes.
pub(crate) type WebAppStatus = operator_guest::crd::StatusSchema<crate::WebAppStatus>;

/// The module names what is missing: the API server need not.
pub(crate) fn nothing_is_required(schema: &mut schemars::Schema) {
    schema.remove("required");
}

#[test]
fn the_crd_files_are_up_to_date() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    operator_guest::crd::assert_up_to_date(&WebApp::crd(), &[&here.join("crd.yaml"), &here.join("crd.json")]);
}

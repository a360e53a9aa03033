//! What a module's CustomResourceDefinitions say.

use operator_core::contract::Descriptor;
use serde::Deserialize;

#[derive(Deserialize)]
struct Crd {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    group: String,
    names: Names,
    scope: String,
}

#[derive(Deserialize)]
struct Names {
    kind: String,
}

/// `Namespaced` or `Cluster`, of the module's primary type; None where the module does not bring its CRD.
pub(super) fn scope(descriptor: &Descriptor) -> Option<String> {
    let crds = descriptor.crds.iter().filter_map(|text| serde_json::from_str::<Crd>(text).ok());
    let primary = &descriptor.primary;
    crds.map(|crd| crd.spec)
        .find(|spec| spec.group == primary.group() && spec.names.kind == primary.kind)
        .map(|s| s.scope)
}

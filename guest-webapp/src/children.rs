//! The children of a WebApp, both of its own name.

use operator_guest::names::is_dns_label;
use operator_guest::{Child, Failure, OnPrune};
use serde_json::json;

use crate::WebAppSpec;

/// The name of the children: the WebApp's, if a Service and a label value can carry it.
pub(crate) fn name(primary: &str) -> Result<&str, Failure> {
    if is_dns_label(primary) {
        return Ok(primary);
    }
    Err(Failure::terminal(
        "InvalidName",
        format!(
            "metadata.name: {primary:?} can't name a Service: it must be at most 63 characters of a-z, 0-9 and '-', \
             start with a letter and end with a letter or digit (RFC 1035); make the WebApp under another name"
        ),
    ))
}

pub(crate) fn deployment(name: &str, spec: &WebAppSpec) -> Child {
    Child::new(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": {
            "replicas": spec.replicas,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": {
                    "containers": [{
                        "name": "web",
                        "image": spec.image,
                        "ports": [{ "containerPort": spec.port }],
                    }],
                },
            },
        },
    }))
    .on_prune(OnPrune::Orphan)
}

pub(crate) fn service(name: &str, spec: &WebAppSpec) -> Child {
    Child::new(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": {
            "selector": { "app": name },
            "ports": [{ "port": 80, "targetPort": spec.port }],
        },
    }))
    .on_prune(OnPrune::Orphan)
}

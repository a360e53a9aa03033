//! The children of a StaticSite, all of its own name.

use operator_guest::names::is_dns_label;
use operator_guest::{Child, Failure, OnPrune};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::StaticSiteSpec;

/// On the pods: with other content they are other pods, so that the Deployment rolls them.
pub(crate) const CONTENT: &str = "learn.cloudcaptain.io/content-sha256";
const IMAGE: &str = "nginx:1.30-alpine";

/// The name of the children: the site's, if a Service and a label value can carry it.
pub(crate) fn name(primary: &str) -> Result<&str, Failure> {
    if is_dns_label(primary) {
        return Ok(primary);
    }
    Err(Failure::terminal(
        "InvalidName",
        format!(
            "metadata.name: {primary:?} can't name a Service: it must be at most 63 characters of a-z, 0-9 and '-', \
             start with a letter and end with a letter or digit (RFC 1035); make the site under another name"
        ),
    ))
}

pub(crate) fn config_map(name: &str, spec: &StaticSiteSpec) -> Child {
    child(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "labels": labels(name) },
        "data": { "index.html": spec.content },
    }))
}

pub(crate) fn deployment(name: &str, spec: &StaticSiteSpec) -> Child {
    child(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": name, "labels": labels(name) },
        "spec": {
            "replicas": spec.replicas,
            "selector": { "matchLabels": selector(name) },
            "template": {
                "metadata": { "labels": labels(name), "annotations": { CONTENT: sha256(&spec.content) } },
                "spec": {
                    "containers": [{
                        "name": "nginx",
                        "image": IMAGE,
                        "ports": [{ "name": "http", "containerPort": 80 }],
                        "readinessProbe": { "httpGet": { "path": "/", "port": "http" } },
                        "volumeMounts": [
                            { "name": "content", "mountPath": "/usr/share/nginx/html", "readOnly": true },
                        ],
                    }],
                    "volumes": [{ "name": "content", "configMap": { "name": name } }],
                },
            },
        },
    }))
}

pub(crate) fn service(name: &str) -> Child {
    child(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name, "labels": labels(name) },
        "spec": {
            "selector": selector(name),
            "ports": [{ "name": "http", "port": 80, "targetPort": "http" }],
        },
    }))
}

fn child(object: Value) -> Child {
    Child::new(object).on_prune(OnPrune::Orphan)
}

fn labels(name: &str) -> Value {
    let mut labels = selector(name);
    labels["app.kubernetes.io/managed-by"] = json!("minioperator");
    labels
}

fn selector(name: &str) -> Value {
    json!({ "app.kubernetes.io/name": "staticsite", "app.kubernetes.io/instance": name })
}

fn sha256(content: &str) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

//! The types of a WebApp: what is decoded in every call, and what its CustomResourceDefinition is generated from.
//!
//! Doc comments become the descriptions that `kubectl explain webapp` shows. Schema derives exist in tests alone, so
//! that none of it is in the module.

#![cfg_attr(test, allow(clippy::duplicated_attributes, reason = "a type has more than one printer column"))]

use serde::{Deserialize, Serialize};

/// What should run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(kube::CustomResource, schemars::JsonSchema))]
#[cfg_attr(test, kube(group = "webapp.example.com", version = "v1", kind = "WebApp", namespaced))]
#[cfg_attr(
    test,
    kube(doc = "A stateless web application: an image that runs in a number of replicas behind a service.")
)]
#[cfg_attr(test, kube(status = "crate::crd::WebAppStatus", shortname = "wa"))]
#[cfg_attr(test, kube(scale(spec_replicas_path = ".spec.replicas", status_replicas_path = ".status.readyReplicas")))]
#[cfg_attr(test, kube(printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas")))]
#[cfg_attr(test, kube(printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas")))]
#[cfg_attr(test, kube(printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")))]
pub struct WebAppSpec {
    /// The container image to run, as a pod names it.
    #[cfg_attr(test, schemars(length(min = 1)))]
    pub image: String,
    /// How many pods run at the same time. Defaults to 1.
    #[cfg_attr(test, schemars(default = "crate::crd::default_replicas", range(min = 1, max = 50)))]
    pub replicas: i32,
    /// The port that the container listens on; the service serves it on port 80. Defaults to 8080.
    #[cfg_attr(test, schemars(default = "crate::crd::default_port", range(min = 1, max = 65535)))]
    pub port: i32,
}

/// What was seen of a WebApp.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WebAppStatus {
    /// How many pods are ready.
    #[serde(default)]
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub ready_replicas: i32,
}

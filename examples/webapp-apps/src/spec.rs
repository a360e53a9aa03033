//! The types of a WebApp: what is decoded in every call, and what its CustomResourceDefinition is generated from.
//!
//! The schema has no defaults and requires no field: an incomplete WebApp is stored, and the module says what is missing.

use serde::{Deserialize, Serialize};

/// What should run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(kube::CustomResource, schemars::JsonSchema))]
#[cfg_attr(test, kube(group = "apps.example.com", version = "v1", kind = "WebApp", namespaced))]
#[cfg_attr(test, kube(doc = "A web application: an image that runs in a number of replicas."))]
#[cfg_attr(test, kube(status = "crate::crd::WebAppStatus", shortname = "wa"))]
#[cfg_attr(test, schemars(transform = crate::crd::nothing_is_required))]
pub struct WebAppSpec {
    /// The container image to run, as a pod names it.
    pub image: String,
    /// How many pods run at the same time.
    #[cfg_attr(test, schemars(range(min = 1)))]
    pub replicas: i32,
    /// The port that the container listens on.
    pub port: i32,
}

/// What was seen of a WebApp.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WebAppStatus {
    /// How many pods are ready.
    #[serde(default)]
    pub ready_replicas: i32,
}

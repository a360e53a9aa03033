//! The types of a StaticSite: what is decoded in every call, and what its CustomResourceDefinition is generated from.
//!
//! Doc comments become the descriptions that `kubectl explain staticsite` shows. Schema derives exist in tests alone, so
//! that none of it is in the module.

#![cfg_attr(test, allow(clippy::duplicated_attributes, reason = "a type has more than one printer column"))]

use serde::{Deserialize, Serialize};

/// What the site should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(kube::CustomResource, schemars::JsonSchema))]
#[cfg_attr(test, kube(group = "learn.cloudcaptain.io", version = "v1alpha1", kind = "StaticSite", namespaced))]
#[cfg_attr(test, kube(doc = "A web site of one page, served by nginx and published by a record outside the cluster."))]
#[cfg_attr(test, kube(status = "crate::crd::StaticSiteStatus", shortname = "site"))]
#[cfg_attr(test, kube(printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas")))]
#[cfg_attr(
    test,
    kube(printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ))
)]
#[cfg_attr(
    test,
    kube(printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ))
)]
#[cfg_attr(test, kube(printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")))]
#[cfg_attr(test, schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.tier != 'prod' || self.replicas >= 2",
    "message": "prod sites need at least 2 replicas",
}])))]
pub struct StaticSiteSpec {
    /// The page that is served at `/`, as HTML.
    #[cfg_attr(test, schemars(length(min = 1, max = 65536)))]
    pub content: String,
    /// How many pods serve the page. Defaults to 1.
    #[cfg_attr(test, schemars(default = "crate::crd::default_replicas", range(min = 1, max = 10)))]
    pub replicas: i32,
    /// What the site is for; prod sites need at least 2 replicas. Defaults to dev, and can't be changed.
    #[cfg_attr(test, schemars(default = "crate::crd::default_tier"))]
    #[cfg_attr(test, schemars(extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "tier cannot change after creation",
    }])))]
    pub tier: Tier,
}

/// What a site is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[allow(missing_docs, reason = "a description of a value would be a schema of its own")]
pub enum Tier {
    Dev,
    Prod,
}

/// What was seen of a StaticSite.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StaticSiteStatus {
    /// How many pods are ready.
    #[serde(default)]
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub ready_replicas: i32,
    /// Where the site is, as its external record says.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "String"))]
    pub url: Option<String>,
}

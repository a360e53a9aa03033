//! The part of an object's metadata that operators read.

use std::collections::BTreeMap;

use serde::Deserialize;

/// `.metadata` of the primary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its namespace; None for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Its uid. The same name with another uid is another object.
    #[serde(default)]
    pub uid: String,
    /// Grows with each change of the spec.
    #[serde(default)]
    pub generation: i64,
    /// When it was created, in RFC 3339.
    pub creation_timestamp: Option<String>,
    /// When it is to be deleted, in RFC 3339; None unless it is being deleted.
    pub deletion_timestamp: Option<String>,
    /// Its labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

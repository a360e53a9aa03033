//! A CustomResourceDefinition, as far as the host reads it.
//!
//! In: its JSON, as a module brings it. Out: which type it defines, and that type's [`Schema`].

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::document::Builder;
use super::{Schema, Unreadable};
use crate::contract::{Descriptor, TypeRef};

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "CustomResourceDefinition";

/// A CustomResourceDefinition, which borrows from its text.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Definition<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    spec: Spec<'a>,
}

/// Why a text is no CustomResourceDefinition.
#[derive(Debug, thiserror::Error)]
pub enum NoDefinition {
    /// Not JSON, or without what each has.
    #[error("is not the JSON of a {KIND}: {0}")]
    Json(#[from] serde_json::Error),
    /// An object of another type.
    #[error("is a {0}, not a {KIND}.{API_VERSION}")]
    Other(TypeRef),
}

impl<'a> Definition<'a> {
    /// Reads one.
    ///
    /// # Errors
    /// [`NoDefinition`].
    pub fn parse(text: &'a str) -> Result<Self, NoDefinition> {
        let definition: Self = serde_json::from_str(text)?;
        if definition.kind != KIND || definition.api_version != API_VERSION {
            return Err(NoDefinition::Other(TypeRef::new(definition.api_version, definition.kind)));
        }
        Ok(definition)
    }

    /// The definition of a type that a module brings.
    pub fn of(descriptor: &'a Descriptor, type_ref: &TypeRef) -> Option<Self> {
        let mut definitions = descriptor.crds.iter().filter_map(|text| Self::parse(text).ok());
        definitions.find(|definition| definition.is_of(type_ref))
    }

    /// Whether it defines this type, in whatever versions.
    pub fn is_of(&self, type_ref: &TypeRef) -> bool {
        self.spec.group == type_ref.group() && self.spec.names.kind == type_ref.kind
    }

    /// Whether the type is served in this version.
    pub fn serves(&self, version: &str) -> bool {
        self.spec.versions.iter().any(|served| served.served && served.name == version)
    }

    /// Its name in paths and in RBAC: `webapps`.
    pub fn plural(&self) -> &str {
        &self.spec.names.plural
    }

    /// Whether this version of the type has a status of its own to write to.
    pub fn has_status(&self, version: &str) -> bool {
        let version = self.spec.versions.iter().find(|described| described.name == version);
        version
            .and_then(|version| version.subresources.as_ref())
            .is_some_and(|subresources| subresources.status.is_some())
    }

    /// Whether objects of the type are in no namespace.
    pub fn is_cluster_scoped(&self) -> bool {
        self.spec.scope == "Cluster"
    }

    /// The schema of this version of the type; None where it has none.
    ///
    /// # Errors
    /// What is no schema.
    pub fn schema(&self, version: &str) -> Result<Option<Schema>, Unreadable> {
        let version = self.spec.versions.iter().find(|described| described.name == version);
        let Some(raw) = version.and_then(|version| version.schema.as_ref()?.open_api_v3_schema) else {
            return Ok(None);
        };
        let named = BTreeMap::new();
        let mut builder = Builder::new(&named);
        let root = builder.place(raw)?;
        Ok(Some(builder.finish(root)))
    }
}

#[derive(Debug, Deserialize)]
struct Spec<'a> {
    #[serde(borrow)]
    group: Cow<'a, str>,
    #[serde(borrow)]
    scope: Cow<'a, str>,
    #[serde(borrow)]
    names: Names<'a>,
    #[serde(borrow)]
    versions: Vec<Version<'a>>,
}

#[derive(Debug, Deserialize)]
struct Names<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    plural: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct Version<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    served: bool,
    #[serde(borrow)]
    schema: Option<Validation<'a>>,
    subresources: Option<Subresources>,
}

#[derive(Debug, Deserialize)]
struct Subresources {
    status: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct Validation<'a> {
    #[serde(borrow, rename = "openAPIV3Schema")]
    open_api_v3_schema: Option<&'a RawValue>,
}

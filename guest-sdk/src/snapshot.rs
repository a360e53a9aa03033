//! What the host knows about one object.

use std::marker::PhantomData;
use std::time::SystemTime;

use serde::Deserialize;

use crate::bindings::operator::reconciler::types::{self, Key};
use crate::context::decode;
use crate::live::{Live, LiveObject};
use crate::{Failure, Metadata, Operator, TypeRef, clock};

/// One object and what the host knows about it, all of the same moment. The spec is not decoded yet: a
/// [`Context`](crate::Context) is this with the spec.
pub struct Snapshot<O> {
    metadata: Metadata,
    contents: types::Snapshot,
    operator: PhantomData<O>,
}

impl<O: Operator> Snapshot<O> {
    /// Decodes the primary's metadata.
    pub(crate) fn new(key: Key, contents: types::Snapshot) -> Result<Self, Failure> {
        let primary: Identified =
            decode(&contents.primary).map_err(|error| Failure::terminal("InvalidMetadata", error))?;
        Ok(Self::with(primary.metadata, key, contents))
    }

    /// The key is the authority on identity; a snapshot of a recording may lack parts of the metadata.
    pub(crate) fn with(metadata: Metadata, key: Key, contents: types::Snapshot) -> Self {
        let metadata = Metadata { name: key.name, namespace: key.namespace, uid: key.uid, ..metadata };
        Self { metadata, contents, operator: PhantomData }
    }

    /// The primary's name.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    /// The primary's namespace; None for cluster-scoped ones.
    pub fn namespace(&self) -> Option<&str> {
        self.metadata.namespace.as_deref()
    }

    /// The primary's metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Decodes the primary's spec.
    ///
    /// # Errors
    /// `InvalidSpec`, terminal, naming the field.
    pub fn spec(&self) -> Result<O::Spec, Failure> {
        let primary: Specified<O::Spec> =
            decode(&self.contents.primary).map_err(|error| Failure::terminal("InvalidSpec", error))?;
        Ok(primary.spec)
    }

    /// The primary's status as it was last written; None while there is none. Status is a report, not a memory: decide
    /// from the spec and the children wherever they say it.
    ///
    /// # Errors
    /// `InvalidStatus`, terminal, naming the field: somebody else wrote it, or an older version of this operator.
    pub fn status(&self) -> Result<Option<O::Status>, Failure> {
        let primary: Reported<O::Status> =
            decode(&self.contents.primary).map_err(|error| Failure::terminal("InvalidStatus", error))?;
        Ok(primary.status)
    }

    /// The generation that the status was last written for; 0 while there is none. Where it is not
    /// [`metadata().generation`](Metadata::generation), nobody was told yet how the present spec fares.
    ///
    /// # Errors
    /// `InvalidStatus`, terminal, naming the field: somebody else wrote it.
    pub fn observed_generation(&self) -> Result<i64, Failure> {
        let primary: Reported<Observed> =
            decode(&self.contents.primary).map_err(|error| Failure::terminal("InvalidStatus", error))?;
        Ok(primary.status.map_or(0, |status| status.observed_generation))
    }

    /// The child of this type and name in the primary's namespace; None when there is none that this primary controls.
    ///
    /// # Errors
    /// `UndecodableObject`, terminal, naming the object.
    pub fn child<'a, T: Live<'a>>(&'a self, name: &str) -> Result<Option<T>, Failure> {
        self.children()
            .find(|child| child.is::<T>() && child.name() == name && child.namespace() == self.namespace())
            .map(|child| child.read())
            .transpose()
    }

    /// All live children that this primary controls, of every declared type and namespace, terminating ones too.
    pub fn children(&self) -> impl Iterator<Item = LiveObject<'_>> {
        self.contents.children.iter().map(LiveObject::new)
    }

    /// Types declared optional that are not served or forbidden: their objects are unknown, not absent, and desired
    /// children of them would be refused.
    pub fn unavailable(&self) -> &[TypeRef] {
        &self.contents.unavailable
    }

    /// The time of this call. Asking twice gives the same answer; asking at all makes the outcome depend on time, so
    /// the host calls again even when nothing changed.
    pub fn now(&self) -> SystemTime {
        clock::now()
    }

    /// In the contract's terms.
    pub(crate) fn contents(&self) -> &types::Snapshot {
        &self.contents
    }
}

#[derive(Deserialize)]
struct Identified {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Specified<S> {
    spec: S,
}

#[derive(Deserialize)]
struct Reported<S> {
    status: Option<S>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Observed {
    #[serde(default)]
    observed_generation: i64,
}

//! What a reconcile is given.

use std::time::SystemTime;

use serde::Deserialize;

use crate::bindings::operator::reconciler::types::{Key, Snapshot};
use crate::live::{Live, LiveObject};
use crate::{Failure, Metadata, Operator, TypeRef, clock};

/// One object and what the host knows about it, all of the same moment.
pub struct Context<O: Operator> {
    metadata: Metadata,
    spec: O::Spec,
    snapshot: Snapshot,
}

impl<O: Operator> Context<O> {
    /// Decodes the primary.
    pub(crate) fn new(key: Key, snapshot: Snapshot) -> Result<Self, Failure> {
        let primary: Primary<O::Spec> =
            decode(&snapshot.primary).map_err(|error| Failure::terminal("InvalidSpec", error))?;
        // The key is the authority on identity; a snapshot of a recording may lack parts of the metadata.
        let metadata = Metadata { name: key.name, namespace: key.namespace, uid: key.uid, ..primary.metadata };
        Ok(Self { metadata, spec: primary.spec, snapshot })
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

    /// The primary's spec.
    pub fn spec(&self) -> &O::Spec {
        &self.spec
    }

    /// The primary's status as it was last written; None while there is none. Status is a report, not a memory: decide
    /// from the spec and the children wherever they say it.
    ///
    /// # Errors
    /// `InvalidStatus`, terminal, naming the field: somebody else wrote it, or an older version of this operator.
    pub fn status(&self) -> Result<Option<O::Status>, Failure> {
        let primary: Reported<O::Status> =
            decode(&self.snapshot.primary).map_err(|error| Failure::terminal("InvalidStatus", error))?;
        Ok(primary.status)
    }

    /// The child of this type and name in the primary's namespace; None when there is none that this primary controls.
    ///
    /// # Errors
    /// `UndecodableChild`, terminal, naming the object.
    pub fn child<'a, T: Live<'a>>(&'a self, name: &str) -> Result<Option<T>, Failure> {
        self.children()
            .find(|child| child.is::<T>() && child.name() == name && child.namespace() == self.namespace())
            .map(|child| child.read())
            .transpose()
    }

    /// All live children that this primary controls, of every declared type and namespace, terminating ones too.
    pub fn children(&self) -> impl Iterator<Item = LiveObject<'_>> {
        self.snapshot.children.iter().map(LiveObject::new)
    }

    /// Types declared optional that are not served or forbidden: their children are unknown, not absent, and desired
    /// ones would be refused.
    pub fn unavailable(&self) -> &[TypeRef] {
        &self.snapshot.unavailable
    }

    /// The time of this call. Asking twice gives the same answer; asking at all makes the outcome depend on time, so
    /// the host calls again even when nothing changed.
    pub fn now(&self) -> SystemTime {
        clock::now()
    }
}

#[derive(Deserialize)]
struct Primary<S> {
    #[serde(default)]
    metadata: Metadata,
    spec: S,
}

#[derive(Deserialize)]
struct Reported<S> {
    status: Option<S>,
}

/// Decodes JSON; the error starts with the path of the field at fault.
pub(crate) fn decode<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, String> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let error = error.into_inner();
        // Where in one line of compact JSON means nothing to who wrote YAML.
        let message = error.to_string();
        let position = format!(" at line {} column {}", error.line(), error.column());
        let message = message.strip_suffix(&position).unwrap_or(&message);
        if path == "." { message.to_owned() } else { format!("{path}: {message}") }
    })
}

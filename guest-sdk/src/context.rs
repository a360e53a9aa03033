//! What a reconcile is given.

use std::ops::Deref;

use serde::Deserialize;

use crate::bindings::operator::reconciler::types::{self, Key};
use crate::{Failure, Metadata, Operator, Snapshot};

/// One object with its spec, and what the host knows about it, all of the same moment. Everything but the spec is read
/// from the [`Snapshot`] in it.
pub struct Context<O: Operator> {
    snapshot: Snapshot<O>,
    spec: O::Spec,
}

impl<O: Operator> Context<O> {
    /// Decodes the primary.
    pub(crate) fn new(key: Key, contents: types::Snapshot) -> Result<Self, Failure> {
        let primary: Primary<O::Spec> =
            decode(&contents.primary).map_err(|error| Failure::terminal("InvalidSpec", error))?;
        Ok(Self { snapshot: Snapshot::with(primary.metadata, key, contents), spec: primary.spec })
    }

    /// The primary's spec.
    pub fn spec(&self) -> &O::Spec {
        &self.spec
    }
}

impl<O: Operator> Deref for Context<O> {
    type Target = Snapshot<O>;

    fn deref(&self) -> &Snapshot<O> {
        &self.snapshot
    }
}

#[derive(Deserialize)]
struct Primary<S> {
    #[serde(default)]
    metadata: Metadata,
    spec: S,
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

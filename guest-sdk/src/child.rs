//! Desired children.

use serde::Serialize;
use serde_json::Value;

use crate::{Child, Failure, OnImmutable, OnPrune};

impl Child {
    /// A child from its JSON, as `json!` makes it: apiVersion, kind, metadata.name and only the fields that this
    /// operator decides. Nulls are left out at every depth. Not recreated on a refused change
    /// ([`OnImmutable::Fail`]), deleted when no longer returned ([`OnPrune::Delete`]).
    pub fn new(mut object: Value) -> Self {
        remove_nulls(&mut object);
        Self {
            object: object.to_string(),
            on_immutable: OnImmutable::Fail,
            on_prune: OnPrune::Delete,
            wave: 0,
            release: Vec::new(),
            extensions: Vec::new(),
        }
    }

    /// The same from a type that serializes to such an object, `k8s-openapi`'s for example.
    ///
    /// # Errors
    /// `InvalidChild`, terminal: it does not serialize to JSON.
    pub fn typed(object: &impl Serialize) -> Result<Self, Failure> {
        serde_json::to_value(object)
            .map(Self::new)
            .map_err(|error| Failure::terminal("InvalidChild", format!("a desired child is no JSON: {error}")))
    }

    /// What to do when the API server says that a changed field can't be changed. At most what its type in `describe`
    /// allows.
    pub fn on_immutable(mut self, policy: OnImmutable) -> Self {
        self.on_immutable = policy;
        self
    }

    /// Its place in the order of creation: children of a later wave wait until those of all earlier ones are ready.
    /// Defaults to 0.
    pub fn wave(mut self, wave: u32) -> Self {
        self.wave = wave;
        self
    }

    /// Hands a field to somebody else, such as `spec.replicas` to an autoscaler: it is no longer applied and keeps its
    /// live value.
    pub fn release(mut self, path: impl Into<String>) -> Self {
        self.release.push(path.into());
        self
    }

    /// What to do when it is no longer returned. At most what its type in `describe` allows.
    pub fn on_prune(mut self, policy: OnPrune) -> Self {
        self.on_prune = policy;
        self
    }
}

/// Server-side apply reads null as "remove this field", typed objects write it for "not set".
pub(crate) fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

//! Reading what lives in the cluster, with small structs of one's own that take only the fields one looks at.
//!
//! Parsing is most of a call's time, so borrow (`&'a str`) and leave out what is not needed. Live types are read-only
//! by design: they are no use as desired objects, because the host refuses fields that the server owns.

use serde::Deserialize;

use crate::bindings::operator::reconciler::types::Object;
use crate::{Failure, TypeRef};

/// A type of live objects that decodes from their JSON.
///
/// ```
/// use operator_guest::live::Live;
///
/// #[derive(serde::Deserialize)]
/// struct Claim<'a> {
///     #[serde(borrow)]
///     status: ClaimStatus<'a>,
/// }
///
/// #[derive(serde::Deserialize)]
/// struct ClaimStatus<'a> {
///     phase: Option<&'a str>,
/// }
///
/// impl<'a> Live<'a> for Claim<'a> {
///     const API_VERSION: &'static str = "v1";
///     const KIND: &'static str = "PersistentVolumeClaim";
/// }
/// ```
pub trait Live<'a>: Deserialize<'a> {
    /// Group and version as `describe` declares them: `apps/v1`.
    const API_VERSION: &'static str;
    /// The kind: `Deployment`.
    const KIND: &'static str;
}

/// A live object, a child or a related one, not yet decoded.
#[derive(Clone, Copy, Debug)]
pub struct LiveObject<'a>(&'a Object);

impl<'a> LiveObject<'a> {
    pub(crate) fn new(object: &'a Object) -> Self {
        Self(object)
    }

    /// Its type.
    pub fn type_ref(&self) -> TypeRef {
        TypeRef::new(&self.0.api_version, &self.0.kind)
    }

    /// Its namespace; None for cluster-scoped objects.
    pub fn namespace(&self) -> Option<&'a str> {
        self.0.namespace.as_deref()
    }

    /// Its name.
    pub fn name(&self) -> &'a str {
        &self.0.name
    }

    /// Whether it is of the type `T`.
    pub fn is<T: Live<'a>>(&self) -> bool {
        self.0.kind == T::KIND && self.0.api_version == T::API_VERSION
    }

    /// Decodes the whole object.
    ///
    /// # Errors
    /// `UndecodableObject`, terminal, naming the object.
    pub fn read<T: Deserialize<'a>>(&self) -> Result<T, Failure> {
        // Not `decode`: following the path costs an allocation for each key of an object that is mostly ignored.
        serde_json::from_str(&self.0.json).map_err(|error| {
            Failure::terminal("UndecodableObject", format!("live {} {}: {error}", self.0.kind, self.0.name))
        })
    }
}

/// A live Deployment, as far as telling whether it is rolled out takes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Deployment {
    /// Its metadata.
    pub metadata: DeploymentMetadata,
    /// What it should be.
    pub spec: DeploymentSpec,
    /// What the Deployment controller saw.
    #[serde(default)]
    pub status: DeploymentStatus,
}

/// `.metadata` of a [`Deployment`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentMetadata {
    /// Grows with each change of the spec.
    pub generation: i64,
    /// Set while it is being deleted.
    pub deletion_timestamp: Option<String>,
}

/// `.spec` of a [`Deployment`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DeploymentSpec {
    /// Wanted pods.
    pub replicas: i32,
}

/// `.status` of a [`Deployment`]; the server leaves out zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeploymentStatus {
    /// The generation that the numbers are about.
    pub observed_generation: i64,
    /// Pods, of older templates too.
    pub replicas: i32,
    /// Pods of the latest template.
    pub updated_replicas: i32,
    /// Pods that are ready, of older templates too.
    pub ready_replicas: i32,
}

impl Live<'_> for Deployment {
    const API_VERSION: &'static str = "apps/v1";
    const KIND: &'static str = "Deployment";
}

impl Deployment {
    /// Whether exactly `replicas` pods exist, all of the latest template and ready, and the Deployment controller
    /// has seen the latest spec: the condition of `kubectl rollout status`, without minReadySeconds.
    pub fn is_rolled_out(&self, replicas: i32) -> bool {
        let status = &self.status;
        self.metadata.deletion_timestamp.is_none()
            && status.observed_generation == self.metadata.generation
            && [self.spec.replicas, status.replicas, status.updated_replicas, status.ready_replicas]
                .iter()
                .all(|count| *count == replicas)
    }
}

//! From a type to its URL: what the API server says of the group and version.
//!
//! Only the groups that are needed are asked for, one by one, so that an aggregated group that fails never fails the others.

use super::escape::escape;
use super::{ApiError, ApiServer};
use operator_core::contract::{ObjectName, TypeRef};
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a type is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The type.
    pub type_ref: TypeRef,
    /// Its name in URLs: `deployments`.
    pub plural: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether it has a status subresource.
    pub status: bool,
}

impl Resource {
    /// Path of all objects of the type, or of those in a namespace.
    pub fn collection(&self, namespace: Option<&str>) -> String {
        let root = group_path(&self.type_ref.api_version);
        match namespace {
            Some(namespace) if self.namespaced => format!("{root}/namespaces/{}/{}", escape(namespace), self.plural),
            _ => format!("{root}/{}", self.plural),
        }
    }

    /// Path of one object.
    pub fn object(&self, name: &ObjectName) -> String {
        format!("{}/{}", self.collection(name.namespace.as_deref()), escape(&name.name))
    }

    /// As kubectl takes it: `deployments.apps`, `services`.
    pub fn qualified(&self) -> String {
        match self.type_ref.group() {
            "" => self.plural.clone(),
            group => format!("{}.{group}", self.plural),
        }
    }
}

/// What is known of the served types. Absence is not remembered: a type may appear.
#[derive(Debug, Default)]
pub struct Discovery(Mutex<HashMap<TypeRef, Arc<Resource>>>);

impl Discovery {
    /// How a type is served; None when it is not. Asked once, and again after [`Discovery::forget`].
    ///
    /// # Errors
    /// The group and version could not be asked for.
    pub async fn resource(&self, api: &ApiServer, type_ref: &TypeRef) -> Result<Option<Arc<Resource>>, ApiError> {
        match self.known(type_ref) {
            Some(known) => Ok(Some(known)),
            None => self.refresh(api, type_ref).await,
        }
    }

    /// Asks how a type is served though it may be known: its definition may have changed.
    ///
    /// # Errors
    /// The group and version could not be asked for.
    pub async fn refresh(&self, api: &ApiServer, type_ref: &TypeRef) -> Result<Option<Arc<Resource>>, ApiError> {
        let document = match api.get(&group_path(&type_ref.api_version)).await {
            Ok(document) => document,
            Err(ApiError::Answer(answer)) if answer.code == 404 => return Ok(None),
            Err(error) => return Err(error),
        };
        let list: ApiResourceList = serde_json::from_slice(&document).map_err(|error| ApiError::Transport {
            message: format!("{} answered with what is no APIResourceList: {error}", group_path(&type_ref.api_version)),
            unsent: false,
        })?;
        let Some(resource) = list.find(type_ref) else { return Ok(None) };
        let resource = Arc::new(resource);
        self.lock().insert(type_ref.clone(), Arc::clone(&resource));
        Ok(Some(resource))
    }

    /// How a type is served, as far as it was asked for.
    pub fn known(&self, type_ref: &TypeRef) -> Option<Arc<Resource>> {
        self.lock().get(type_ref).cloned()
    }

    /// A request for the type was answered with 404: ask again next time.
    pub fn forget(&self, type_ref: &TypeRef) {
        self.lock().remove(type_ref);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TypeRef, Arc<Resource>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `/api/v1`, `/apis/apps/v1`.
pub(super) fn group_path(api_version: &str) -> String {
    if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") }
}

#[derive(Deserialize)]
struct ApiResourceList {
    #[serde(default)]
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
struct ApiResource {
    /// The plural; with `/` it is a subresource.
    name: String,
    kind: String,
    namespaced: bool,
}

impl ApiResourceList {
    fn find(&self, type_ref: &TypeRef) -> Option<Resource> {
        let resource = self.resources.iter().find(|r| r.kind == type_ref.kind && !r.name.contains('/'))?;
        let status = format!("{}/status", resource.name);
        Some(Resource {
            type_ref: type_ref.clone(),
            plural: resource.name.clone(),
            namespaced: resource.namespaced,
            status: self.resources.iter().any(|r| r.name == status),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> ApiResourceList {
        let resource = |name: &str, kind: &str| ApiResource { name: name.into(), kind: kind.into(), namespaced: true };
        ApiResourceList {
            resources: vec![
                resource("deployments", "Deployment"),
                resource("deployments/scale", "Scale"),
                resource("deployments/status", "Deployment"),
                resource("bindings", "Binding"),
            ],
        }
    }

    #[test]
    fn the_plural_is_the_name_without_a_slash() {
        let deployment = list().find(&TypeRef::new("apps/v1", "Deployment")).expect("is in the list");
        assert_eq!((deployment.plural.as_str(), deployment.status), ("deployments", true));
        assert_eq!(list().find(&TypeRef::new("apps/v1", "Scale")), None, "a subresource is no type of objects");
        assert!(!list().find(&TypeRef::new("v1", "Binding")).expect("is in the list").status);
    }

    #[test]
    fn paths_are_those_of_the_api_conventions() {
        let deployment = list().find(&TypeRef::new("apps/v1", "Deployment")).expect("is in the list");
        assert_eq!(deployment.collection(None), "/apis/apps/v1/deployments");
        assert_eq!(
            deployment.object(&ObjectName::new(Some("shop"), "api")),
            "/apis/apps/v1/namespaces/shop/deployments/api"
        );
        assert_eq!(group_path("v1"), "/api/v1");
        assert_eq!(deployment.qualified(), "deployments.apps");
    }
}

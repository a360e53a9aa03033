//! The schema that the API server publishes of a type, loaded once a type and again when its watch ends.

use super::discovery::group_path;
use super::{ApiError, ApiServer};
use operator_core::contract::TypeRef;
use operator_core::schema::Schema;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Published schemas by type; None where the server publishes none.
#[derive(Debug, Default)]
pub struct Schemas {
    known: Mutex<HashMap<TypeRef, Option<Arc<Schema>>>>,
    /// Held while a document is asked for: passes that start together ask once.
    loading: tokio::sync::Mutex<()>,
}

impl Schemas {
    /// The schema of a type, loaded now if need be; None where the server publishes none, or nothing readable.
    ///
    /// # Errors
    /// The document could not be asked for.
    pub async fn load(&self, api: &ApiServer, type_ref: &TypeRef) -> Result<Option<Arc<Schema>>, ApiError> {
        if let Some(known) = self.known(type_ref) {
            return Ok(known);
        }
        let _loading = self.loading.lock().await;
        if let Some(known) = self.known(type_ref) {
            return Ok(known);
        }
        let document = match api.get(&format!("/openapi/v3{}", group_path(&type_ref.api_version))).await {
            Ok(document) => Some(document),
            Err(ApiError::Answer(answer)) if answer.code == 404 => None,
            Err(error) => return Err(error),
        };
        let schema = document.and_then(|document| match Schema::parse(&document, type_ref) {
            Ok(schema) => schema.map(Arc::new),
            Err(error) => {
                tracing::warn!(r#type = %type_ref, %error, "going on without the published schema");
                None
            }
        });
        self.lock().insert(type_ref.clone(), schema.clone());
        Ok(schema)
    }

    /// What was loaded of a type: None if nothing was, Some(None) if the server publishes nothing.
    pub fn known(&self, type_ref: &TypeRef) -> Option<Option<Arc<Schema>>> {
        self.lock().get(type_ref).cloned()
    }

    /// The type's watch ended: its definition may have changed.
    pub fn forget(&self, type_ref: &TypeRef) {
        self.lock().remove(type_ref);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TypeRef, Option<Arc<Schema>>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

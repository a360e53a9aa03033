//! The schema that the API server publishes of a type: loaded once, and again where the definition may have changed.

use super::discovery::group_path;
use super::{ApiError, ApiServer};
use operator_core::contract::TypeRef;
use operator_core::schema::Schema;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Published schemas by type.
#[derive(Debug, Default)]
pub struct Schemas {
    known: Mutex<HashMap<TypeRef, Known>>,
    /// Held while the schema of a type is asked for: passes that start together ask once, and one that hangs holds up its own type alone.
    loading: Mutex<HashMap<TypeRef, Arc<tokio::sync::Mutex<()>>>>,
}

#[derive(Clone, Debug)]
struct Known {
    /// None where the server publishes none.
    schema: Option<Arc<Schema>>,
    /// How often another one was found than before.
    revision: u64,
    is_outdated: bool,
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
        let turn = {
            let mut loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(loading.entry(type_ref.clone()).or_default())
        };
        let _turn = turn.lock().await;
        if let Some(known) = self.known(type_ref) {
            return Ok(known);
        }
        let schema = ask(api, type_ref).await?;
        let mut all = self.lock();
        let revision = match all.get(type_ref) {
            None => 0,
            Some(before) => before.revision + u64::from(before.schema != schema),
        };
        all.insert(type_ref.clone(), Known { schema: schema.clone(), revision, is_outdated: false });
        Ok(schema)
    }

    /// What was loaded of a type: None if it is to be loaded, Some(None) if the server publishes nothing.
    pub fn known(&self, type_ref: &TypeRef) -> Option<Option<Arc<Schema>>> {
        self.lock().get(type_ref).filter(|known| !known.is_outdated).map(|known| known.schema.clone())
    }

    /// Changes whenever the schema of a type is found to be another one than before.
    pub fn revision(&self, type_ref: &TypeRef) -> u64 {
        self.lock().get(type_ref).map_or(0, |known| known.revision)
    }

    /// Has the schema of a type loaded again when it is next needed.
    pub fn outdate(&self, type_ref: &TypeRef) {
        if let Some(known) = self.lock().get_mut(type_ref) {
            known.is_outdated = true;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TypeRef, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask(api: &ApiServer, type_ref: &TypeRef) -> Result<Option<Arc<Schema>>, ApiError> {
    let document = match api.get(&format!("/openapi/v3{}", group_path(&type_ref.api_version))).await {
        Ok(document) => document,
        Err(ApiError::Answer(answer)) if answer.code == 404 => return Ok(None),
        Err(error) => return Err(error),
    };
    match Schema::parse(&document, type_ref) {
        Ok(schema) => Ok(schema.map(Arc::new)),
        Err(error) => {
            tracing::warn!(r#type = %type_ref, %error, "going on without the published schema");
            Ok(None)
        }
    }
}

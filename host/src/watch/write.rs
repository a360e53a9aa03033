//! Writes and single reads: their answers enter the tables at once.

use super::{Author, Shared, WatchedType, Watches};
use crate::api::discovery::Resource;
use crate::api::{ApiError, ApiServer, Write};
use crate::lead::Permit;
use bytes::Bytes;
use operator_core::contract::ObjectName;
use operator_core::object::Stored;
use operator_core::table::{Content, Effects, Lookup};
use serde::Deserialize;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

/// Who writes, and by what right.
#[derive(Clone, Copy)]
pub struct Writer<'a> {
    /// The connections to write by.
    pub api: &'a ApiServer,
    /// The right to.
    pub permit: &'a Permit,
    /// The key whose pass it is.
    pub author: &'a Author,
}

impl Watches {
    /// Reads one object from the server, whoever's it is, and gives what is there. The table learns of it as far as a
    /// watch selects it.
    ///
    /// # Errors
    /// No answer, or one that is no success; 404 of the object is no error.
    pub async fn read(&self, api: &ApiServer, resource: &Resource, name: &ObjectName) -> Result<Lookup, ApiError> {
        let watched = self.0.watched_or_new(&resource.type_ref);
        let known = watched.read().known(name);
        let content = self.0.read_content(api, &watched, name).await?;
        let (lookup, effects) = match content {
            None => (Lookup::Absent, watched.write().observed_absent(name, known.as_ref())),
            Some(content) => {
                let lookup = match &content {
                    Content::Present(object) => Lookup::Present(object.clone()),
                    Content::Unreadable(object) => Lookup::Unreadable(object.clone()),
                };
                (lookup, watched.write().observed(content, known.as_ref(), Instant::now()))
            }
        };
        self.0.dispatch(&watched, effects, None);
        Ok(lookup)
    }

    /// Lets an object that was read enter the table: for a name that came to be watched since.
    pub fn seen(&self, resource: &Resource, object: &Arc<Stored>) {
        let watched = self.0.watched_or_new(&resource.type_ref);
        let effects = {
            let mut table = watched.write();
            let known = table.known(&object.meta.name);
            table.observed(Content::Present(Arc::clone(object)), known.as_ref(), Instant::now())
        };
        self.0.dispatch(&watched, effects, None);
    }

    /// Sends a write that is answered with the object, and lets the answer enter the table. Every interested key but
    /// the author's is woken.
    ///
    /// # Errors
    /// As [`ApiServer::write`](crate::api::ApiServer::write). Where nobody knows whether it was carried out the object
    /// is doubtful from then on.
    pub async fn write(
        &self,
        writer: Writer<'_>,
        resource: &Resource,
        name: &ObjectName,
        write: Write<'_>,
    ) -> Result<Arc<Stored>, ApiError> {
        let in_flight = InFlight::new(self, resource, name, writer.author);
        let body = match writer.api.write(writer.permit, write).await {
            Ok(body) => body,
            Err(error) => return Err(in_flight.failed(error)),
        };
        match in_flight.decode(&body) {
            Ok(object) => Ok(in_flight.wrote(object)),
            Err(error) => Err(in_flight.failed(error)),
        }
    }

    /// Sends a delete. Ok: the object is gone, or on its way.
    ///
    /// # Errors
    /// As [`Watches::write`]; 404 is no error.
    pub async fn delete(
        &self,
        writer: Writer<'_>,
        resource: &Resource,
        live: &Arc<Stored>,
        write: Write<'_>,
    ) -> Result<(), ApiError> {
        let in_flight = InFlight::new(self, resource, &live.meta.name, writer.author);
        let body = match writer.api.write(writer.permit, write).await {
            Ok(body) => body,
            Err(ApiError::Answer(answer)) if answer.code == 404 && !answer.is_missing_type() => {
                in_flight.deleted(&live.meta.uid);
                return Ok(());
            }
            Err(error) => return Err(in_flight.failed(error)),
        };
        // Some types answer with a Status, some with the object as it last was; one that waits for finalizers or its
        // grace period has a deletionTimestamp.
        match in_flight.decode(&body) {
            Ok(object) if object.meta.terminating && object.meta.uid == live.meta.uid => drop(in_flight.wrote(object)),
            Ok(_) => in_flight.deleted(&live.meta.uid),
            Err(_) if is_status(&body) => in_flight.deleted(&live.meta.uid),
            Err(error) => return Err(in_flight.failed(error)),
        }
        Ok(())
    }
}

/// A write between its start and its answer. Dropped without an answer, as when its task is cancelled, it is lost.
struct InFlight<'a> {
    shared: &'a Arc<Shared>,
    watched: Arc<WatchedType>,
    name: &'a ObjectName,
    author: &'a Author,
    answered: bool,
}

impl<'a> InFlight<'a> {
    fn new(watches: &'a Watches, resource: &Resource, name: &'a ObjectName, author: &'a Author) -> Self {
        let watched = watches.0.watched_or_new(&resource.type_ref);
        watched.write().write_started(name);
        Self { shared: &watches.0, watched, name, author, answered: false }
    }

    fn decode(&self, body: &Bytes) -> Result<Stored, ApiError> {
        let known = |name: &ObjectName| match self.watched.read().lookup(name) {
            Lookup::Present(object) => Some(object),
            Lookup::Absent | Lookup::Unreadable(_) => None,
        };
        let unreadable = |message: String| ApiError::Transport { message, unsent: false };
        let decoded = self.shared.decoder.decode_over(body, &self.watched.type_ref, known);
        let object = decoded.map_err(|error| unreadable(format!("the answer to a write can't be read: {error}")))?;
        match object.meta.name == *self.name {
            true => Ok(object),
            false => Err(unreadable(format!("a write of {} was answered with {}", self.name, object.meta.name))),
        }
    }

    fn wrote(mut self, object: Stored) -> Arc<Stored> {
        let object = Arc::new(object);
        let effects = self.watched.write().own_write(Arc::clone(&object), Instant::now());
        self.answered(effects);
        object
    }

    fn deleted(mut self, uid: &Arc<str>) {
        let effects = self.watched.write().own_delete(self.name, uid);
        self.answered(effects);
    }

    fn failed(mut self, error: ApiError) -> ApiError {
        let is_lost = match &error {
            // The server gave up waiting; what it waited for may still happen.
            ApiError::Answer(answer) => answer.code == 504,
            ApiError::Transport { unsent, .. } => !unsent,
            ApiError::TooLarge { .. } => true,
            ApiError::NotLeading(_) => false,
        };
        let effects = if is_lost {
            self.watched.write().write_lost(self.name)
        } else {
            self.watched.write().write_failed(self.name)
        };
        self.answered(effects);
        error
    }

    fn answered(&mut self, effects: Effects) {
        self.answered = true;
        self.shared.dispatch(&self.watched, effects, Some(self.author));
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let effects = self.watched.write().write_lost(self.name);
            self.shared.dispatch(&self.watched, effects, Some(self.author));
        }
    }
}

fn is_status(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow)]
        kind: Cow<'a, str>,
    }
    serde_json::from_slice::<Head<'_>>(body).is_ok_and(|head| head.kind == "Status")
}

//! What became of a child that left the label selection: deleted, or robbed of its label.

use super::{Shared, TypeState, WatchedType, request};
use crate::api::{ApiError, ApiServer};
use operator_core::backoff::Backoff;
use operator_core::contract::ObjectName;
use operator_core::reflector::FaultKind;
use operator_core::table::{Content, Effects, Lookup, Vanished};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::warn;

/// Longest wait between two attempts at an answer.
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Finds out and tells the table, in a task of its own.
pub(super) fn ask(shared: Arc<Shared>, watched: Arc<WatchedType>, vanished: Vanished) {
    let (handle, stop) = (shared.handle.clone(), shared.stop.clone());
    handle.spawn(async move { stop.run_until_cancelled(find_out(&shared, &watched, &vanished)).await });
}

async fn find_out(shared: &Arc<Shared>, watched: &Arc<WatchedType>, vanished: &Vanished) {
    let mut backoff = Backoff::watch();
    let mut rng = fastrand::Rng::new();
    while watched.read().is_vanished(&vanished.name) {
        if !shared.has_parent(watched, &vanished.name) {
            let effects = watched.write().presumed_gone(&vanished.name, &vanished.uid);
            return shared.dispatch(watched, effects, None);
        }
        match read(shared, watched, vanished).await {
            Ok(effects) => return shared.dispatch(watched, effects, None),
            Err(error) => {
                let wait = backoff.next(Instant::now(), &mut rng).min(RETRY_MAX);
                let (type_ref, name) = (&watched.type_ref, &vanished.name);
                warn!(r#type = %type_ref, object = %name, %error, ?wait, "can't find out whether a child is deleted; trying again");
                tokio::time::sleep(wait).await;
            }
        }
    }
}

async fn read(shared: &Shared, watched: &WatchedType, vanished: &Vanished) -> Result<Effects, ApiError> {
    // Err: closed, which nobody does.
    let _turn = shared.questions.acquire().await;
    let known = watched.read().known(&vanished.name);
    match shared.read_content(&shared.api, watched, &vanished.name).await {
        Ok(Some(content)) => Ok(watched.write().vanished_found(content, Instant::now())),
        Ok(None) => Ok(watched.write().observed_absent(&vanished.name, known.as_ref())),
        // Who may not read it can only believe the watch.
        Err(error) if request::fault(&error).kind == FaultKind::Forbidden => {
            Ok(watched.write().presumed_gone(&vanished.name, &vanished.uid))
        }
        Err(error) => Err(error),
    }
}

impl Shared {
    /// Whether the object that controls a child is there and not going away, as far as the tables know. The version of
    /// its type in the owner reference may be another one than that of its table.
    fn has_parent(&self, watched: &WatchedType, child: &ObjectName) -> bool {
        let Lookup::Present(child) = watched.read().lookup(child) else { return false };
        let Some(controller) = child.meta.controller.as_deref() else { return false };
        let parents: Vec<_> = {
            let types = self.types.read().unwrap_or_else(std::sync::PoisonError::into_inner);
            types
                .values()
                .filter(|parents| parents.is_watched() && controller.is_a(&parents.type_ref))
                .cloned()
                .collect()
        };
        parents.iter().any(|parents| {
            let owner = controller.owner_of(&child.meta.name);
            let mut names = [ObjectName { namespace: None, ..owner.clone() }, owner].into_iter();
            // A table that is not to be trusted can't tell that a parent is gone.
            parents.state() != TypeState::Synced
                || names.any(|name| match parents.read().lookup(&name) {
                    Lookup::Present(parent) => parent.meta.uid == controller.uid && !parent.meta.terminating,
                    Lookup::Unreadable(_) => true,
                    Lookup::Absent => false,
                })
        })
    }

    /// A consistent read; None where nothing is.
    pub(super) async fn read_content(
        &self,
        api: &ApiServer,
        watched: &WatchedType,
        name: &ObjectName,
    ) -> Result<Option<Content>, ApiError> {
        let type_ref = &watched.type_ref;
        let unreadable = |message: String| ApiError::Transport { message, unsent: false };
        let Some(resource) = self.discovery.resource(api, type_ref).await? else {
            return Err(unreadable(format!("the API server does not serve {type_ref}")));
        };
        let body = match api.get(&resource.object(name)).await {
            Ok(body) => body,
            Err(ApiError::Answer(answer)) if answer.code == 404 && !answer.is_missing_type() => return Ok(None),
            Err(error) => return Err(error),
        };
        let known = |name: &ObjectName| match watched.read().lookup(name) {
            Lookup::Present(object) => Some(object),
            Lookup::Absent | Lookup::Unreadable(_) => None,
        };
        let decoded = self.decoder.decode_over(&body, type_ref, known);
        Content::from_decoded(decoded).map(Some).map_err(|error| unreadable(error.to_string()))
    }
}

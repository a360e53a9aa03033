//! Our finalizer on a primary: one JSON patch that tests what it was made for, so that no finalizer of others is lost or moved.

use super::child::about;
use super::{Again, Trouble};
use crate::api::discovery::Resource;
use crate::api::escape::escape;
use crate::api::{self, ApiError, Write};
use crate::watch::{Watches, Writer};
use http::Method;
use operator_core::answer::{Class, Verb, classify, message};
use operator_core::contract::ObjectName;
use operator_core::object::Stored;
use operator_core::reconciled::{Problem, Reason};
use serde_json::{Value, json};
use std::sync::Arc;

/// Adds it, or takes it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinalizerChange {
    Add,
    Remove,
}

/// The patch that changes exactly this state of the list; None where it is as wanted.
pub(crate) fn patch(primary: &Stored, finalizer: &str, change: FinalizerChange) -> Option<Value> {
    let list: Vec<&str> = primary.meta.finalizers.iter().map(|name| &**name).collect();
    let at = list.iter().position(|name| *name == finalizer);
    let same_object = json!({ "op": "test", "path": "/metadata/uid", "value": &*primary.meta.uid });
    match (change, at) {
        (FinalizerChange::Add, Some(_)) | (FinalizerChange::Remove, None) => None,
        (FinalizerChange::Remove, Some(at)) => {
            let path = format!("/metadata/finalizers/{at}");
            Some(json!([
                same_object,
                { "op": "test", "path": path, "value": finalizer },
                { "op": "remove", "path": path },
            ]))
        }
        (FinalizerChange::Add, None) => {
            // An absent list tests equal to null alone.
            let before = if list.is_empty() { Value::Null } else { json!(list) };
            let after: Vec<&str> = list.into_iter().chain([finalizer]).collect();
            Some(json!([
                same_object,
                { "op": "test", "path": "/metadata/finalizers", "value": before },
                { "op": "add", "path": "/metadata/finalizers", "value": after },
            ]))
        }
    }
}

/// The request that sends it.
pub(crate) fn request<'a>(resource: &'a Resource, manager: &str, name: &'a ObjectName, patch: &Value) -> Write<'a> {
    Write {
        method: Method::PATCH,
        path: format!("{}?fieldManager={}", resource.object(name), escape(manager)),
        content_type: api::JSON_PATCH,
        body: patch.to_string(),
        about: about(resource, Verb::JsonPatch { tested: true }, name),
    }
}

/// Sends the change. Ok(None): the list is another one by now, of which the watch will tell.
///
/// # Errors
/// What is in the way, and when to try again.
pub(crate) async fn change(
    writer: Writer<'_>,
    watches: &Watches,
    resource: &Resource,
    manager: &str,
    primary: &Stored,
    finalizer: &str,
    change: FinalizerChange,
) -> Result<Option<Arc<Stored>>, Trouble> {
    let Some(patch) = patch(primary, finalizer, change) else { return Ok(None) };
    let name = &primary.meta.name;
    let write = request(resource, manager, name, &patch);
    let about = write.about;
    let trouble = |text: &str, again| Trouble {
        problem: Problem::new(Reason::ApplyFailed, format!("finalizer {finalizer}: {text}")),
        again,
        stands: false,
    };
    let answer = match watches.write(writer, resource, name, write).await {
        Ok(stored) => return Ok(Some(stored)),
        Err(ApiError::Answer(answer)) => answer,
        Err(error) => {
            tracing::warn!(%error, "no answer to a change of the finalizer");
            return Err(trouble("the API server did not answer; tried again", Again::BACKOFF));
        }
    };
    let class = classify(&answer, &about);
    let text = message(&answer, class, &about);
    match class {
        Class::Conflict | Class::Refuse | Class::NotFound => Ok(None),
        // Being deleted: nothing is begun any more.
        Class::Terminating => Err(trouble(&text, Again::ON_CHANGE)),
        Class::TooMany => Err(trouble(&text, answer.retry_after.map_or(Again::BACKOFF, Again::after))),
        _ => Err(trouble(&text, Again::BACKOFF)),
    }
}

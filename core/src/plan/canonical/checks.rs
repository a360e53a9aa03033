//! What is not a module's to say.

use serde_json::{Map, Value};

use super::Refusal;
use crate::contract::ObjectName;
use crate::names;
use crate::path::Path;
use crate::schema::{NeedsSchema, Published};

/// Fields of `metadata` that the server writes.
const SERVER_OWNED: [&str; 8] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Drops a status that says nothing, as Go's typed objects carry it (`{}`, `{"loadBalancer": {}}`), and refuses others.
pub(super) fn status(object: &mut Map<String, Value>) -> Result<(), Refusal> {
    match object.remove("status") {
        Some(status) if !says_nothing(&status) => Err(Refusal::Status),
        _ => Ok(()),
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.values().all(says_nothing),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Checks `metadata`, at the top and in templates, and takes the namespace out of it.
pub(super) fn metadata(object: &mut Map<String, Value>) -> Result<ObjectName, Refusal> {
    let metadata = match object.get_mut("metadata") {
        Some(Value::Object(metadata)) => metadata,
        Some(_) => return Err(Refusal::Type { path: "metadata".into(), expected: "an object" }),
        None => return Err(Refusal::Missing { path: "metadata.name" }),
    };
    if metadata.contains_key("generateName") {
        return Err(Refusal::GenerateName);
    }
    if let Some(field) = SERVER_OWNED.into_iter().find(|field| metadata.contains_key(*field)) {
        // A template may carry one by mistake; several are a copy.
        let edited = ["uid", "resourceVersion", "managedFields"].iter().any(|field| metadata.contains_key(*field));
        return Err(Refusal::ServerOwned { path: format!("metadata.{field}"), edited });
    }
    if metadata.contains_key("ownerReferences") {
        return Err(Refusal::HostOwned { path: "metadata.ownerReferences".into() });
    }
    let namespace = text(metadata, "namespace")?;
    let name = text(metadata, "name")?.ok_or(Refusal::Missing { path: "metadata.name" })?;
    for (path, text) in [("metadata.namespace", namespace.as_deref()), ("metadata.name", Some(&*name))] {
        if text.is_some_and(|text| !is_segment(text)) {
            return Err(Refusal::NoSegment { path });
        }
    }
    let name = ObjectName::new(namespace.as_deref(), &name);
    metadata.remove("namespace");
    for field in ["labels", "annotations"] {
        if metadata.get(field).is_some_and(|value| !value.is_object()) {
            return Err(Refusal::Type { path: format!("metadata.{field}"), expected: "an object" });
        }
    }
    host_keys(object, &Path::Root)?;
    Ok(name)
}

fn is_segment(text: &str) -> bool {
    !matches!(text, "." | "..") && !text.contains(['/', '%'])
}

/// A text of `metadata` that may be absent or empty.
fn text(metadata: &Map<String, Value>, field: &str) -> Result<Option<String>, Refusal> {
    match metadata.get(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(_) => Err(Refusal::Type { path: format!("metadata.{field}"), expected: "a string" }),
    }
}

/// Refuses the host's labels and annotations wherever there is a `metadata`: a pod that a template makes would be
/// selected as a child.
fn host_keys(object: &Map<String, Value>, path: &Path<'_>) -> Result<(), Refusal> {
    let in_metadata = matches!(path, Path::Field(_, "metadata"));
    for (field, value) in object {
        let path = path.field(field);
        if in_metadata && (field == "labels" || field == "annotations") {
            let keys = value.as_object().into_iter().flat_map(Map::keys);
            if let Some(key) = keys.into_iter().find(|key| key.starts_with(names::PREFIX)) {
                return Err(Refusal::HostOwned { path: path.field(key).to_string() });
            }
        } else {
            host_keys_below(value, &path)?;
        }
    }
    Ok(())
}

fn host_keys_below(value: &Value, path: &Path<'_>) -> Result<(), Refusal> {
    match value {
        Value::Object(fields) => host_keys(fields, path),
        Value::Array(items) => {
            items.iter().enumerate().try_for_each(|(index, item)| host_keys_below(item, &path.item(index)))
        }
        _ => Ok(()),
    }
}

/// The path of an element `{}` of a list that is not atomic, nor within an atomic value.
pub(super) fn empty_element(
    value: &Value,
    path: &Path<'_>,
    published: Published<'_>,
) -> Result<Option<String>, NeedsSchema> {
    let mut found = None;
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                found = empty_element(value, &path.field(name), published)?;
                if found.is_some() {
                    break;
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let path = path.item(index);
                let is_empty = item.as_object().is_some_and(Map::is_empty);
                found = if is_empty { Some(path.to_string()) } else { empty_element(item, &path, published)? };
                if found.is_some() {
                    break;
                }
            }
        }
        _ => {}
    }
    // Asked only on the way up from a find; within an atomic value there is nothing else to find.
    if found.is_some() && published.is_atomic(path, value)?.unwrap_or(true) { Ok(None) } else { Ok(found) }
}

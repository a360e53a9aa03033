//! What an apply would change: the server's answer to a dry run, compared with the object as it is.

use serde_json::{Map, Value};

/// What differs between two versions of an object.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Nothing but who owns what.
    Nothing,
    /// The order of lists alone.
    Order,
    /// Empty lists that come back, perhaps with the map key that holds nothing else, and perhaps the order of others.
    EmptyList,
    /// Values, at these paths.
    Values(Vec<String>),
}

/// What differs, beside what the server writes with every change.
pub(crate) fn change(live: &Value, would_be: &Value) -> Change {
    let (live, would_be) = (bare(live), bare(would_be));
    if live == would_be {
        return Change::Nothing;
    }
    let (live, would_be) = (ordered(&live), ordered(&would_be));
    if live == would_be {
        return Change::Order;
    }
    let mut paths = Vec::new();
    collect(Some(&live), Some(&would_be), "", &mut paths);
    if paths.is_empty() { Change::EmptyList } else { Change::Values(paths) }
}

fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(field);
        }
    }
    object
}

/// The same with every list sorted by its elements' text.
fn ordered(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), ordered(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(ordered).collect();
            items.sort_by_key(Value::to_string);
            items.into()
        }
        scalar => scalar.clone(),
    }
}

/// Paths at which values differ; an absent value and one that holds nothing but empty lists are the same here.
fn collect(live: Option<&Value>, would_be: Option<&Value>, path: &str, paths: &mut Vec<String>) {
    match (live, would_be) {
        (Some(Value::Object(live)), Some(Value::Object(would_be))) => {
            let names = live.keys().chain(would_be.keys().filter(|name| !live.contains_key(*name)));
            for name in names {
                collect(live.get(name), would_be.get(name), &format!("{path}/{name}"), paths);
            }
        }
        (None, Some(value)) if only_empty_lists(value) => {}
        (live, would_be) if live == would_be => {}
        _ => paths.push(path.to_owned()),
    }
}

fn only_empty_lists(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => !fields.is_empty() && fields.values().all(only_empty_lists),
        _ => false,
    }
}

//! The order of our elements in keyed lists whose order means something, though nobody owns it.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::object::Stored;
use crate::plan::canonical::Desired;

/// `initContainers` run one after the other; an `env` entry can use those before it as `$(NAME)`.
const ORDERED: [&str; 2] = ["initContainers", "env"];

/// Whether such elements of ours stand in our order in the live object; others may stand between them.
pub(super) fn holds(desired: &Desired, live: &Stored) -> bool {
    if !has_order(&desired.value) {
        return true;
    }
    // What is stored was read before, so that it is JSON; were it not, an apply would not help.
    serde_json::from_str(&live.json).map_or(true, |live| fields_ordered(&desired.value, &live))
}

/// Whether there is such a list of two or more anywhere, so that the live object has to be looked at.
fn has_order(want: &Map<String, Value>) -> bool {
    want.iter().any(|(name, value)| match value {
        Value::Array(items) => {
            items.len() > 1 && ORDERED.contains(&name.as_str())
                || items.iter().filter_map(Value::as_object).any(has_order)
        }
        value => value.as_object().is_some_and(has_order),
    })
}

fn fields_ordered(want: &Map<String, Value>, live: &Map<String, Value>) -> bool {
    want.iter().all(|(name, want)| match live.get(name) {
        Some(live) => (!ORDERED.contains(&name.as_str()) || in_order(want, live)) && ordered(want, live),
        None => !ORDERED.contains(&name.as_str()) || names(want).is_empty(),
    })
}

fn ordered(want: &Value, live: &Value) -> bool {
    match (want, live) {
        (Value::Object(want), Value::Object(live)) => fields_ordered(want, live),
        (Value::Array(want), Value::Array(live)) => want.iter().all(|want| {
            let name = want.get("name").and_then(Value::as_str);
            let is_same = |live: &&Value| name.is_some() && live.get("name").and_then(Value::as_str) == name;
            live.iter().find(is_same).is_none_or(|live| ordered(want, live))
        }),
        _ => true,
    }
}

fn in_order(want: &Value, live: &Value) -> bool {
    let ours = names(want);
    let wanted: HashSet<_> = ours.iter().copied().collect();
    names(live).into_iter().filter(|name| wanted.contains(name)).eq(ours)
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(|item| item.get("name")?.as_str()).collect()
}

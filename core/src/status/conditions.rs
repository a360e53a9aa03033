//! Conditions merged by type: ours are replaced in place, appended or removed, all others stay as they are.

use serde_json::{Map, Value, json};

use super::OBSERVED_GENERATION;
use crate::contract::Condition;

/// Longest message (metav1.Condition), in bytes here: never more than as many characters.
const MESSAGE_MAX: usize = 32 * 1024;
const TYPE: &str = "type";
const STATUS: &str = "status";
const TRANSITION: &str = "lastTransitionTime";

/// A condition as it is written when its status flips now.
pub(super) fn entry(condition: &Condition, generation: Option<i64>, now: &str) -> Value {
    let mut entry = json!({
        TYPE: condition.type_,
        STATUS: condition.status.as_str(),
        TRANSITION: now,
        "reason": condition.reason,
        "message": cut(&condition.message),
    });
    if let Some(generation) = generation {
        entry[OBSERVED_GENERATION] = generation.into();
    }
    entry
}

/// The whole list as it shall be, or None where it is so already. `desired` is ours, pruned; what of the live list `is_ours`
/// and not desired is removed. Says which paths change.
pub(super) fn merge(
    live: Option<&Value>,
    desired: Vec<Value>,
    is_ours: impl Fn(&str) -> bool,
    changed: &mut Vec<String>,
) -> Option<Vec<Value>> {
    let live = match live {
        None | Some(Value::Null) => &[],
        Some(Value::Array(live)) => live.as_slice(),
        // A type that calls something else its conditions.
        Some(_) => return None,
    };
    let before = changed.len();
    // A schema that drops the type leaves nothing that could be found again.
    let mut desired: Vec<(String, Value)> =
        desired.into_iter().filter_map(|entry| Some((type_of(&entry)?.to_owned(), entry))).collect();
    let mut merged = Vec::with_capacity(live.len() + desired.len());
    for entry in live {
        let Some(type_) = type_of(entry).filter(|type_| is_ours(type_)) else {
            merged.push(entry.clone());
            continue;
        };
        match desired.iter().position(|(desired, _)| desired == type_) {
            Some(at) => merged.push(replace(entry, desired.remove(at), changed)),
            // No longer returned, or there a second time.
            None => changed.push(path(type_)),
        }
    }
    for (type_, entry) in desired {
        changed.push(path(&type_));
        merged.push(entry);
    }
    (changed.len() > before).then_some(merged)
}

/// The live entry where it differs in nothing but its time; otherwise the desired one, with the live time unless the status
/// flips.
fn replace(live: &Value, (type_, mut desired): (String, Value), changed: &mut Vec<String>) -> Value {
    let none = Map::new();
    let (before, after) = (live.as_object().unwrap_or(&none), desired.as_object().unwrap_or(&none));
    let members = before.keys().chain(after.keys().filter(|member| !before.contains_key(*member)));
    let mut differing: Vec<String> = members
        .filter(|member| *member != TRANSITION && before.get(*member) != after.get(*member))
        .map(|member| format!("{}.{member}", path(&type_)))
        .collect();
    if differing.is_empty() {
        return live.clone();
    }
    differing.sort_unstable();
    changed.append(&mut differing);
    let flips = before.get(STATUS) != after.get(STATUS);
    if let Some(time) = before.get(TRANSITION).filter(|time| time.is_string() && !flips)
        && after.contains_key(TRANSITION)
    {
        desired[TRANSITION] = time.clone();
    }
    desired
}

fn type_of(entry: &Value) -> Option<&str> {
    entry.get(TYPE)?.as_str()
}

fn path(type_: &str) -> String {
    format!("status.conditions[type={type_:?}]")
}

/// The longest start of a message that the API server takes.
fn cut(message: &str) -> &str {
    &message[..message.floor_char_boundary(MESSAGE_MAX)]
}

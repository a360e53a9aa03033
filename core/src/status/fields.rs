//! The difference between the live fields and the module's, as a merge patch.

use serde_json::{Map, Value};

use super::{CONDITIONS, OBSERVED_GENERATION};
use crate::object::{Element, Fields};

/// The merge patch that makes the live fields the desired ones, and the paths that it changes. Fields that the module no
/// longer returns are removed where `owned` says that we wrote them; others' stay.
pub(super) fn diff(
    live: &Map<String, Value>,
    desired: &Map<String, Value>,
    owned: &[&Fields<'_>],
) -> (Map<String, Value>, Vec<String>) {
    let mut paths = Vec::new();
    let patch = diff_map(live, desired, owned, "status", &mut paths);
    (patch, paths)
}

fn diff_map(
    live: &Map<String, Value>,
    desired: &Map<String, Value>,
    owned: &[&Fields<'_>],
    path: &str,
    paths: &mut Vec<String>,
) -> Map<String, Value> {
    let mut patch = Map::new();
    for (name, desired) in desired {
        let path = format!("{path}.{name}");
        match (live.get(name), desired) {
            (Some(live), desired) if live == desired => {}
            (Some(Value::Object(live)), Value::Object(desired)) => {
                let below = diff_map(live, desired, &children(owned, name), &path, paths);
                if !below.is_empty() {
                    patch.insert(name.clone(), below.into());
                }
            }
            _ => {
                patch.insert(name.clone(), desired.clone());
                paths.push(path);
            }
        }
    }
    // A map that is owned as a whole has no marks below.
    let atomic = path != "status" && owned.iter().any(|fields| fields.is_leaf());
    let dropped = live.iter().filter(|(name, _)| !desired.contains_key(*name) && !is_the_hosts(path, name));
    for (name, live) in dropped {
        let removal = if atomic { Some(Value::Null) } else { remove(live, &children(owned, name)) };
        if let Some(removal) = removal {
            patch.insert(name.clone(), removal);
            paths.push(format!("{path}.{name}"));
        }
    }
    patch
}

/// What removes our part of a value: all of it (null), the fields below that are ours, or nothing.
fn remove(live: &Value, owned: &[&Fields<'_>]) -> Option<Value> {
    if owned.is_empty() {
        return None;
    }
    let Value::Object(fields) = live else { return Some(Value::Null) };
    if owned.iter().any(|owned| owned.is_leaf()) {
        return Some(Value::Null);
    }
    let removals: Map<String, Value> =
        fields.iter().filter_map(|(name, live)| Some((name.clone(), remove(live, &children(owned, name))?))).collect();
    let all = removals.len() == fields.len() && removals.values().all(Value::is_null);
    match (all, removals.is_empty()) {
        (true, _) => Some(Value::Null),
        (false, true) => None,
        (false, false) => Some(removals.into()),
    }
}

fn children<'a>(owned: &[&'a Fields<'a>], name: &str) -> Vec<&'a Fields<'a>> {
    owned.iter().filter_map(|fields| fields.child(&Element::Field(name.into()))).collect()
}

fn is_the_hosts(path: &str, name: &str) -> bool {
    path == "status" && (name == CONDITIONS || name == OBSERVED_GENERATION)
}

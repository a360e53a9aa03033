//! What the server stored otherwise than it was applied: a number cut to the field's width, a value that a webhook rewrote.
//!
//! Said once for each write. Nothing is written for it: ownership tells whether a child is as wanted, values do not.

use operator_core::object::Stored;
use operator_core::plan::canonical::Desired;
use serde_json::{Map, Value};
use std::fmt;

/// More differences than this are not listed.
const MAX: usize = 5;
/// Characters of a value that are shown.
const VALUE_MAX: usize = 100;

/// A value that is another than was applied.
struct Difference {
    path: String,
    applied: String,
    stored: String,
}

impl Difference {
    fn new(path: &str, applied: &Value, stored: &Value) -> Self {
        Self { path: path.to_owned(), applied: applied.to_string(), stored: stored.to_string() }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = |text: &str| text.chars().take(VALUE_MAX).collect::<String>();
        write!(f, "{}: {} became {}", self.path, cut(&self.applied), cut(&self.stored))
    }
}

/// Logs scalars of the desired object that the answer shows with another value.
pub(super) fn differences(desired: &Desired, stored: &Stored) {
    let Ok(live) = serde_json::from_str::<Map<String, Value>>(&stored.json) else { return };
    let mut found = Vec::new();
    compare_fields(&desired.value, &live, &mut String::new(), &mut found);
    if found.is_empty() {
        return;
    }
    let found: Vec<String> = match &*desired.type_ref.kind {
        // Its values belong into no log.
        "Secret" => found.into_iter().map(|difference| difference.path).collect(),
        _ => found.iter().map(ToString::to_string).collect(),
    };
    tracing::warn!(
        kind = desired.type_ref.kind,
        object = %desired.name,
        fields = found.join(", "),
        "the API server stored other values than were applied: admission, or the field's type, changed them; no further write is made"
    );
}

fn compare_fields(
    desired: &Map<String, Value>,
    live: &Map<String, Value>,
    path: &mut String,
    found: &mut Vec<Difference>,
) {
    let length = path.len();
    for (key, value) in desired {
        let Some(live) = live.get(key) else { continue };
        path.push_str(if length == 0 { "" } else { "." });
        path.push_str(key);
        compare(value, live, path, found);
        path.truncate(length);
    }
}

fn compare(desired: &Value, live: &Value, path: &mut String, found: &mut Vec<Difference>) {
    if found.len() >= MAX {
        return;
    }
    let length = path.len();
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => compare_fields(desired, live, path, found),
        (Value::Array(desired), Value::Array(live)) => {
            for (index, value) in desired.iter().enumerate() {
                let Some(live) = counterpart(value, index, live) else { continue };
                path.push_str(&format!("[{index}]"));
                compare(value, live, path, found);
                path.truncate(length);
            }
        }
        (Value::Number(desired), Value::Number(live)) if desired.as_f64() == live.as_f64() => {}
        (Value::Number(_) | Value::Bool(_), live) if desired != live => {
            found.push(Difference::new(path, desired, live));
        }
        // A quantity may be stored in other words: those are the same value.
        (Value::String(_), Value::String(_)) if desired != live && !is_quantity(path) => {
            found.push(Difference::new(path, desired, live));
        }
        _ => {}
    }
}

/// The live element of a list that a desired one became: by name where it has one, as admission may insert others.
fn counterpart<'a>(desired: &Value, index: usize, live: &'a [Value]) -> Option<&'a Value> {
    match desired.get("name") {
        Some(name) => live.iter().find(|element| element.get("name") == Some(name)),
        None => live.get(index),
    }
}

fn is_quantity(path: &str) -> bool {
    ["limits.", "requests.", "capacity.", "hard."].iter().any(|part| path.contains(part))
        || path.ends_with("sizeLimit")
        || path.ends_with("divisor")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(desired: &Value, live: &Value) -> Vec<String> {
        let mut found = Vec::new();
        compare(desired, live, &mut String::new(), &mut found);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_truncated_number_and_a_rewritten_image_are_named() {
        let desired = json!({"spec": {"replicas": 4_294_967_297_u64, "containers": [{"name": "web", "image": "a"}]}});
        let live = json!({"spec": {"replicas": 1, "containers": [{"name": "sidecar"}, {"name": "web", "image": "b"}]}});
        assert_eq!(
            found(&desired, &live),
            ["spec.containers[0].image: \"a\" became \"b\"", "spec.replicas: 4294967297 became 1"]
        );
    }

    #[test]
    fn a_quantity_in_other_words_is_no_difference() {
        let desired = json!({"resources": {"limits": {"cpu": "1000m"}}, "x": 1});
        assert_eq!(found(&desired, &json!({"resources": {"limits": {"cpu": "1"}}, "x": 1.0})), Vec::<String>::new());
    }
}

//! What the server stored otherwise than it was applied: a number cut to the field's width, a value that a webhook rewrote.
//!
//! Said once for each write. Nothing is written for it: ownership tells whether a child is as wanted, values do not.

use operator_core::object::Stored;
use operator_core::plan::canonical::Desired;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
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
    let found = compare(&desired.value, &stored.json);
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

/// Reads the live object along the desired one: what was not applied is skipped, and nothing is kept.
fn compare(desired: &Map<String, Value>, live: &str) -> Vec<Difference> {
    let (mut path, mut found) = (String::new(), Vec::new());
    let fields = Fields { desired, path: &mut path, found: &mut found };
    // Err: it was read as an object before.
    let _ = serde_json::Deserializer::from_str(live).deserialize_map(fields);
    found
}

/// Compares the fields of an object.
struct Fields<'a> {
    desired: &'a Map<String, Value>,
    path: &'a mut String,
    found: &'a mut Vec<Difference>,
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut live: A) -> Result<(), A::Error> {
        let length = self.path.len();
        while let Some(field) = live.next_key_seed(Known(self.desired))? {
            let Some((name, desired)) = field else {
                live.next_value::<IgnoredAny>()?;
                continue;
            };
            self.path.push_str(if length == 0 { "" } else { "." });
            self.path.push_str(name);
            live.next_value_seed(Against { desired, path: self.path, found: self.found })?;
            self.path.truncate(length);
        }
        Ok(())
    }
}

/// Finds a field by its name; None: not applied.
struct Known<'a>(&'a Map<String, Value>);

impl<'de, 'a> DeserializeSeed<'de> for Known<'a> {
    type Value = Option<(&'a String, &'a Value)>;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<Self::Value, D::Error> {
        name.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Known<'a> {
    type Value = Option<(&'a String, &'a Value)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.get_key_value(name))
    }
}

/// Compares one value.
struct Against<'a> {
    desired: &'a Value,
    path: &'a mut String,
    found: &'a mut Vec<Difference>,
}

impl<'de> DeserializeSeed<'de> for Against<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, live: D) -> Result<(), D::Error> {
        let Self { desired, path, found } = self;
        match desired {
            _ if found.len() >= MAX => IgnoredAny::deserialize(live).map(drop),
            Value::Object(desired) => match <&RawValue>::deserialize(live)?.get() {
                live if live.starts_with('{') => serde_json::Deserializer::from_str(live)
                    .deserialize_map(Fields { desired, path, found })
                    .map_err(D::Error::custom),
                _ => Ok(()),
            },
            Value::Array(desired) => {
                // Something else than a list is nothing to compare with.
                let live: Vec<&RawValue> =
                    serde_json::from_str(<&RawValue>::deserialize(live)?.get()).unwrap_or_default();
                elements(desired, &live, path, found).map_err(D::Error::custom)
            }
            _ => {
                scalar(desired, &Value::deserialize(live)?, path, found);
                Ok(())
            }
        }
    }
}

fn elements(
    desired: &[Value],
    live: &[&RawValue],
    path: &mut String,
    found: &mut Vec<Difference>,
) -> Result<(), serde_json::Error> {
    let length = path.len();
    for (index, desired) in desired.iter().enumerate() {
        let Some(live) = counterpart(desired, index, live) else { continue };
        path.push_str(&format!("[{index}]"));
        Against { desired, path, found }.deserialize(live)?;
        path.truncate(length);
    }
    Ok(())
}

fn scalar(desired: &Value, live: &Value, path: &str, found: &mut Vec<Difference>) {
    match (desired, live) {
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
fn counterpart<'a>(desired: &Value, index: usize, live: &[&'a RawValue]) -> Option<&'a RawValue> {
    #[derive(Deserialize)]
    struct Named {
        name: Option<Value>,
    }
    let name_of = |live: &RawValue| serde_json::from_str::<Named>(live.get()).ok().and_then(|named| named.name);
    match desired.get("name") {
        Some(name) => live.iter().copied().find(|live| name_of(live).as_ref() == Some(name)),
        None => live.get(index).copied(),
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
        let desired = desired.as_object().expect("an object");
        compare(desired, &live.to_string()).iter().map(ToString::to_string).collect()
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

    #[test]
    fn what_is_of_another_kind_or_not_there_is_no_difference() {
        let desired = json!({"a": {"b": 1}, "c": [1], "d": "x", "e": [{"name": "n", "f": 1}]});
        assert_eq!(
            found(&desired, &json!({"a": [1], "c": {"b": 1}, "d": 1, "e": [{"name": "m", "f": 2}]})),
            Vec::<String>::new()
        );
        assert_eq!(found(&desired, &json!({})), Vec::<String>::new());
    }
}

//! Looking into JSON text without building a tree.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The text at a path of field names; None where one is absent or null, or the text is no JSON object.
pub(super) fn at<'a>(json: &'a str, path: &[&str]) -> Option<&'a RawValue> {
    let [name, rest @ ..] = path else { return serde_json::from_str(json).ok() };
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let found = Member { name }.deserialize(&mut deserializer).ok().flatten()?;
    if rest.is_empty() { Some(found) } else { at(found.get(), rest) }
}

/// The bytes of a member to cut, so that what is left of its object is JSON: from its key to its value, and one comma.
///
/// `value` must be a slice of `text`, as a borrowed [`RawValue`] is.
pub(super) fn member_span(text: &str, value: &str) -> Option<Range<usize>> {
    let start = value.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    let end = start.checked_add(value.len())?;
    // Backwards over the colon and the key; keys that are asked for contain no quote.
    let before = text.get(..start)?.trim_end().strip_suffix(':')?.trim_end().strip_suffix('"')?;
    let before = before[..before.rfind('"')?].trim_end();
    if let Some(before) = before.strip_suffix(',') {
        return Some(before.len()..end);
    }
    let after = text.get(end..)?;
    let after = after.trim_start().strip_prefix(',').unwrap_or(after);
    Some(before.len()..text.len() - after.len())
}

/// Borrows one member of an object and skips the others.
struct Member<'n> {
    name: &'n str,
}

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(Text(key)) = map.next_key()? {
            if key == self.name {
                let value: &RawValue = map.next_value()?;
                found = (value.get() != "null").then_some(value);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// A string that is borrowed where it holds no escapes.
#[derive(Debug, serde::Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_member_leaves_json_wherever_it_stands() {
        for (text, left) in [
            (r#"{"a":1,"x":[{}],"b":2}"#, r#"{"a":1,"b":2}"#),
            (r#"{"x":[{}],"b":2}"#, r#"{"b":2}"#),
            (r#"{"a":1,"x":[{}]}"#, r#"{"a":1}"#),
            (r#"{"x":{}}"#, "{}"),
            ("{ \"a\" : 1 ,\n \"x\" : [ { } ] ,\n \"b\" : 2 }", "{ \"a\" : 1  ,\n \"b\" : 2 }"),
            ("{ \"x\" : 1 , \"b\" : 2 }", "{ \"b\" : 2 }"),
        ] {
            let value = at(text, &["x"]).expect("x is there");
            let mut cut = text.to_owned();
            cut.replace_range(member_span(text, value.get()).expect("a slice of the text"), "");
            let parsed: serde_json::Value = serde_json::from_str(&cut).expect("still JSON");
            assert_eq!(parsed, serde_json::from_str::<serde_json::Value>(left).expect("JSON"), "{text}");
        }
    }

    #[test]
    fn absent_null_and_not_an_object_are_nothing() {
        assert!(at(r#"{"a":{"b":1}}"#, &["a", "b"]).is_some_and(|raw| raw.get() == "1"));
        for (text, path) in [("{}", ["a", "b"]), (r#"{"a":null}"#, ["a", "b"]), (r#"{"a":[1]}"#, ["a", "b"])] {
            assert!(at(text, &path).is_none(), "{text}");
        }
    }
}

//! JSON as strictly as the contract says, and what no serialiser should have written left out.

use std::cell::{OnceCell, RefCell};
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::Refusal;
use super::body::is_long_key;
use crate::path::Path;

/// Integers of this size and more are no 64-bit integers.
const INTEGER_END: f64 = 9_223_372_036_854_775_808.0;

/// Shorter ones are surely less.
const INTEGER_DIGITS: usize = 18;

/// One JSON value without duplicate keys, without nulls and empty `creationTimestamp`s in objects, and with every
/// number that is an integer written as one.
pub(crate) fn strict(text: &str) -> Result<Value, Refusal> {
    let reader = Reader { text, refusal: RefCell::new(None), long_integers: OnceCell::new() };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let parsed = Strict { reader: &reader, path: Path::Root }.deserialize(&mut deserializer);
    let value = parsed.and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|error| reader.refusal.take().unwrap_or_else(|| Refusal::Syntax(error.to_string())))
}

struct Reader<'t> {
    text: &'t str,
    /// What was refused: serde's errors carry nothing but text.
    refusal: RefCell<Option<Refusal>>,
    /// Bits of the floats that are nearest to what was written as an integer beyond all integers; looked for once, if at all.
    long_integers: OnceCell<HashSet<u64>>,
}

impl Reader<'_> {
    fn refuse<E: Error>(&self, refusal: Refusal) -> E {
        let error = E::custom(&refusal);
        self.refusal.replace(Some(refusal));
        error
    }

    /// Whether the number was written as an integer. Only asked for numbers beyond all integers, of which a reader is
    /// given the nearest float: 1e21 is one that is meant, 1000000000000000000001 is not.
    fn is_integer_literal(&self, number: f64) -> bool {
        let find = || {
            let literals =
                self.text.split(|char: char| !(char.is_ascii_alphanumeric() || matches!(char, '.' | '+' | '-')));
            literals
                .filter(|literal| literal.len() > INTEGER_DIGITS)
                .filter(|literal| literal.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit()))
                .filter_map(|literal| literal.parse::<f64>().ok())
                .map(f64::to_bits)
                .collect()
        };
        self.long_integers.get_or_init(find).contains(&number.to_bits())
    }
}

struct Strict<'a> {
    reader: &'a Reader<'a>,
    path: Path<'a>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        // The API server holds integers as int64; what is beyond becomes a float there.
        i64::try_from(value)
            .map(Value::from)
            .map_err(|_| self.reader.refuse(Refusal::Number { path: self.path.to_string() }))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        let whole = value.fract() == 0.0;
        if whole && value.abs() < INTEGER_END {
            #[allow(clippy::cast_possible_truncation, reason = "whole and within i64, checked above")]
            return Ok((value as i64).into());
        }
        if whole && self.reader.is_integer_literal(value) {
            return Err(self.reader.refuse(Refusal::Number { path: self.path.to_string() }));
        }
        // JSON has neither NaN nor infinity, so that the float always is a number.
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) =
            list.next_element_seed(Strict { reader: self.reader, path: self.path.item(items.len()) })?
        {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = self.path.field(&key);
            if fields.contains_key(&key) {
                return Err(self.reader.refuse(Refusal::DuplicateKey { path: path.to_string() }));
            }
            if is_long_key(&key) {
                return Err(self.reader.refuse(Refusal::LongKey { path: self.path.to_string() }));
            }
            let value = map.next_value_seed(Strict { reader: self.reader, path })?;
            fields.insert(key, value);
        }
        // Only now: a null key counts as a duplicate too.
        fields.retain(|key, value| !(value.is_null() || key == "creationTimestamp" && value == ""));
        Ok(fields.into())
    }
}

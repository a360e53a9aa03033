//! Random changes by another: anything that a PUT may do to an object.

use operator_core::plan::canonical::Desired;
use serde_json::{Map, Value, json};

/// A changed copy of a live object, and what was done to it.
pub(crate) fn change(live: &Value, rng: &mut fastrand::Rng) -> (Value, Vec<String>) {
    let mut object = live.clone();
    let mut done = Vec::new();
    for _ in 0..rng.usize(1..=2) {
        // Two of three changes are of what the object is about, else of its labels and annotations.
        let below = match rng.u32(0..6) {
            0 => &["metadata", "labels"][..],
            1 => &["metadata", "annotations"],
            _ => &["spec"],
        };
        let mut at = &mut object;
        for name in below {
            at = &mut at[*name];
        }
        let mut path = below.join("/");
        step(at, rng, &mut path, &mut done);
    }
    (object, done)
}

/// Goes down at random and changes what is there.
fn step(value: &mut Value, rng: &mut fastrand::Rng, path: &mut String, done: &mut Vec<String>) {
    let goes_down = rng.u32(0..4) != 0;
    match value {
        Value::Object(fields) if goes_down && !fields.is_empty() => {
            let names: Vec<String> = fields.keys().cloned().collect();
            let name = &names[rng.usize(0..names.len())];
            path.push('/');
            path.push_str(name);
            if let Some(below) = fields.get_mut(name) {
                step(below, rng, path, done);
            }
        }
        Value::Array(items) if goes_down && !items.is_empty() => {
            let index = rng.usize(0..items.len());
            path.push_str(&format!("/{index}"));
            step(&mut items[index], rng, path, done);
        }
        value => {
            done.push(format!("{path}: {}", spoil(value, rng)));
        }
    }
}

fn spoil(value: &mut Value, rng: &mut fastrand::Rng) -> &'static str {
    match value {
        Value::Object(fields) => spoil_map(fields, rng),
        Value::Array(items) => spoil_list(items, rng),
        Value::String(text) => {
            *text = rng.choice(["other", "TCP", "UDP", "2", "500m", "", "None"]).unwrap_or("other").to_owned();
            "another text"
        }
        Value::Number(_) => {
            *value = json!(rng.u32(1..100));
            "another number"
        }
        Value::Bool(flag) => {
            *flag = !*flag;
            "the other flag"
        }
        Value::Null => {
            *value = json!({"theirs": "x"});
            "a map where nothing was"
        }
    }
}

fn spoil_map(fields: &mut Map<String, Value>, rng: &mut fastrand::Rng) -> &'static str {
    let names: Vec<String> = fields.keys().cloned().collect();
    match rng.u32(0..4) {
        0 => {
            fields.clear();
            "emptied"
        }
        1 if !names.is_empty() => {
            fields.remove(&names[rng.usize(0..names.len())]);
            "a field removed"
        }
        _ => {
            fields.insert(format!("theirs{}", rng.u32(0..3)), json!("x"));
            "a field added"
        }
    }
}

fn spoil_list(items: &mut Vec<Value>, rng: &mut fastrand::Rng) -> &'static str {
    match rng.u32(0..4) {
        0 => {
            items.clear();
            "emptied"
        }
        1 if !items.is_empty() => {
            items.remove(rng.usize(0..items.len()));
            "an element removed"
        }
        2 if items.len() > 1 => {
            items.reverse();
            "reversed"
        }
        _ => {
            items.push(another(items.first(), rng));
            "an element added"
        }
    }
}

/// An element like this one, with other key fields.
fn another(like: Option<&Value>, rng: &mut fastrand::Rng) -> Value {
    let number = rng.u32(9000..9100);
    match like {
        Some(Value::Object(fields)) => {
            let mut fields = fields.clone();
            for (name, value) in &mut fields {
                match value {
                    Value::String(text) if name == "name" || name == "mountPath" => *text = format!("x{number}"),
                    Value::Number(_) => *value = json!(number),
                    _ => {}
                }
            }
            fields.into()
        }
        Some(Value::Number(_)) => json!(number),
        _ => json!(format!("x{number}")),
    }
}

/// Whether a map that is desired empty holds something: the server may not have stored it, and then nobody owns it.
pub(crate) fn fills_an_empty_map(desired: &Desired, live: &Value) -> bool {
    fills(&Value::Object(desired.value.clone()), live)
}

fn fills(desired: &Value, live: &Value) -> bool {
    match (desired, live) {
        (Value::Object(want), Value::Object(have)) if want.is_empty() => !have.is_empty(),
        (Value::Object(want), Value::Object(have)) => {
            want.iter().any(|(name, want)| have.get(name).is_some_and(|have| fills(want, have)))
        }
        (Value::Array(want), Value::Array(have)) => want.iter().any(|want| have.iter().any(|have| fills(want, have))),
        _ => false,
    }
}

//! What somebody else put into a child, so that no apply of ours can be valid beside it.
//!
//! An apply leaves what others own in place: a second member of a union, a port of the same name. Validation then names
//! a field of the merged object; what of the live object lies there and is not ours is what has to go.

use serde_json::Value;

use super::Answer;
use crate::object::{Element, Fields, Stored};

/// The values at the fields that a 422 names which the live object has and our manager does not own, as paths with
/// indices of the live object. Empty where our own fields are to blame.
pub fn foreign_elements(answer: &Answer, live: &Stored, manager: &str) -> Vec<String> {
    let Ok(object) = serde_json::from_str::<Value>(&live.json) else { return Vec::new() };
    let owned = live.owned.applied(manager).and_then(|set| set.fields().ok()).unwrap_or_default();
    let mut found = Vec::new();
    for cause in &answer.details.causes {
        collect(&object, &owned, &steps(&cause.field), &mut String::new(), &mut found);
    }
    found.sort();
    found.dedup();
    found
}

fn collect(value: &Value, owned: &Fields<'_>, steps: &[Step<'_>], path: &mut String, found: &mut Vec<String>) {
    let Some((step, rest)) = steps.split_first() else { return };
    let mut visit = |below: &Value, node: Option<&Fields<'_>>, step: &str| {
        let length = path.len();
        path.push_str(step);
        match node {
            None => {
                let path = path.trim_start_matches('.');
                match below {
                    Value::Array(items) if rest.first() == Some(&Step::Item) => {
                        found.extend((0..items.len()).map(|index| format!("{path}[{index}]")));
                    }
                    _ => found.push(path.to_owned()),
                }
            }
            Some(node) => collect(below, node, rest, path, found),
        }
        path.truncate(length);
    };
    match (step, value) {
        (Step::Field(name), Value::Object(fields)) => {
            if let Some(below) = fields.get(*name) {
                visit(below, owned.child(&Element::Field((*name).into())), &format!(".{name}"));
            }
        }
        // The index is one of the merged list, in which ours has its place too: any element of the live list may be
        // meant.
        (Step::Item, Value::Array(items)) if !owned.is_leaf() => {
            for (index, item) in items.iter().enumerate() {
                visit(item, element(owned, item), &format!("[{index}]"));
            }
        }
        _ => {}
    }
}

/// The owned node of an element of a keyed list.
fn element<'f>(owned: &'f Fields<'f>, item: &Value) -> Option<&'f Fields<'f>> {
    owned.children.iter().find_map(|(element, below)| match element {
        Element::Key(key) if key.iter().all(|(name, value)| item.get(name) == Some(value)) => Some(below),
        _ => None,
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    Field(&'a str),
    Item,
}

/// The steps of a path as validation writes it: `spec.ports[1].name`, `data[a/b]`.
fn steps(field: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    let mut rest = field;
    while !rest.is_empty() {
        if let Some((inside, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            let is_index = !inside.is_empty() && inside.bytes().all(|byte| byte.is_ascii_digit());
            steps.push(if is_index { Step::Item } else { Step::Field(inside) });
            rest = after;
        } else {
            rest = rest.trim_start_matches('.');
            let end = rest.find(['.', '[']).unwrap_or(rest.len()).max(usize::from(!rest.is_empty()));
            steps.push(Step::Field(&rest[..end]));
            rest = &rest[end..];
        }
    }
    steps
}

//! Does an owned set stand for a desired object, no less and no more?
//!
//! A field of a map is owned by its name, an element of a keyed list by its key fields, a member of a set by its value;
//! an atomic value is owned whole. Two things look alike in a set, and only the schema tells: a bare `{}` is an atomic
//! value, an empty map, or what lost all below it; and of an empty list nothing is recorded, unless it is atomic. Where
//! nothing is published, the set counts as whole.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::contract::OnPrune;
use crate::object::{Element, Fields, OwnedSet};
use crate::path::Path;
use crate::plan::canonical::{Desired, host_metadata};
use crate::schema::{NeedsSchema, Published};

/// Whether the set covers the object with what the host adds to it.
///
/// # Errors
/// [`NeedsSchema`] where only the schema can tell and it is not loaded.
pub(super) fn object(
    desired: &Desired,
    on_prune: OnPrune,
    is_tracked: bool,
    owned: &OwnedSet,
    published: Published<'_>,
) -> Result<bool, NeedsSchema> {
    // What can't be read is not whole; the next apply makes it anew.
    let Ok(owned) = owned.fields() else { return Ok(false) };
    let cover = Cover { published };
    let fields = &desired.value;
    let never_owned = |name: &str| matches!(name, "apiVersion" | "kind");
    let known = |element: &Element<'_>| match element {
        Element::Field(name) => !never_owned(name) && fields.contains_key(&**name),
        _ => false,
    };
    if !owned.children.iter().all(|(element, _)| known(element)) {
        return Ok(false);
    }
    for (name, want) in fields.iter().filter(|(name, _)| !never_owned(name) && *name != "metadata") {
        if !cover.value(want, owned.child(&Element::Field(name.into())), &Path::Root.field(name))? {
            return Ok(false);
        }
    }
    // The host's label and annotations must be ours by name; their values are compared elsewhere.
    let mut metadata = host_metadata(desired, "", on_prune, is_tracked.then_some(""));
    metadata.remove("name");
    let node = owned.child(&Element::Field("metadata".into()));
    cover.value(&Value::Object(metadata), node, &Path::Root.field("metadata"))
}

struct Cover<'a> {
    published: Published<'a>,
}

impl Cover<'_> {
    /// Whether a node stands for a value; no node is None.
    fn value(&self, want: &Value, node: Option<&Fields<'_>>, path: &Path<'_>) -> Result<bool, NeedsSchema> {
        let Some(node) = node else {
            return Ok(leaves_no_mark(want) && !self.any_atomic(want, path)?);
        };
        if node.is_leaf() {
            return self.leaf(want, path);
        }
        match want {
            Value::Object(fields) => self.map(fields, node, path),
            Value::Array(items) if node.children.iter().all(|(element, _)| matches!(element, Element::Value(_))) => {
                Ok(is_set_of(items, node))
            }
            Value::Array(items) => self.keyed(items, node, path),
            _ => Ok(false),
        }
    }

    /// Whether a bare `{}` stands for a value: a scalar, an empty or an atomic one; or what never left a mark.
    /// Otherwise all below it was lost.
    fn leaf(&self, want: &Value, path: &Path<'_>) -> Result<bool, NeedsSchema> {
        if is_scalar_or_empty(want) || self.published.is_atomic(path, want)?.unwrap_or(true) {
            return Ok(true);
        }
        Ok(leaves_no_mark(want) && !self.any_atomic(want, path)?)
    }

    fn map(&self, want: &Map<String, Value>, node: &Fields<'_>, path: &Path<'_>) -> Result<bool, NeedsSchema> {
        let mut owned = HashSet::with_capacity(node.children.len());
        for (element, below) in &node.children {
            let Element::Field(name) = element else { return Ok(false) };
            let Some(want) = want.get(&**name) else { return Ok(false) };
            if !self.value(want, Some(below), &path.field(name))? {
                return Ok(false);
            }
            owned.insert(&**name);
        }
        for (name, want) in want.iter().filter(|(name, _)| !owned.contains(name.as_str())) {
            if !self.value(want, None, &path.field(name))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Elements pair one to one: first those that say all their key fields, then those that leave some to the server's
    /// defaults and so match what no other claims.
    fn keyed(&self, want: &[Value], node: &Fields<'_>, path: &Path<'_>) -> Result<bool, NeedsSchema> {
        let mut free = Vec::with_capacity(node.children.len());
        for (element, below) in &node.children {
            let Element::Key(key) = element else { return Ok(false) };
            free.push((key, below));
        }
        if want.len() != free.len() || !want.iter().all(Value::is_object) {
            return Ok(false);
        }
        let mut rest: Vec<_> =
            want.iter().enumerate().filter_map(|(at, item)| Some((at, item, item.as_object()?))).collect();
        for exact in [true, false] {
            let mut unpaired = Vec::new();
            for (at, item, fields) in rest {
                let mut pair = None;
                for (number, (key, below)) in free.iter().enumerate() {
                    if key_fits(fields, key, exact) && self.value(item, Some(below), &path.item(at))? {
                        pair = Some(number);
                        break;
                    }
                }
                match pair {
                    Some(number) => drop(free.remove(number)),
                    None => unpaired.push((at, item, fields)),
                }
            }
            rest = unpaired;
        }
        Ok(rest.is_empty())
    }

    /// Whether the value, or one below it, is atomic.
    fn any_atomic(&self, want: &Value, path: &Path<'_>) -> Result<bool, NeedsSchema> {
        if self.published.is_atomic(path, want)? == Some(true) {
            return Ok(true);
        }
        for (name, want) in want.as_object().into_iter().flatten() {
            if self.any_atomic(want, &path.field(name))? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn key_fits(item: &Map<String, Value>, key: &Map<String, Value>, exact: bool) -> bool {
    key.iter().all(|(name, value)| item.get(name).map_or(!exact, |own| same(own, value)))
}

fn is_set_of(want: &[Value], node: &Fields<'_>) -> bool {
    let is_member = |want: &Value| {
        node.children.iter().any(|(element, _)| matches!(element, Element::Value(member) if same(want, member)))
    };
    want.len() == node.children.len() && want.iter().all(is_member)
}

fn is_scalar_or_empty(want: &Value) -> bool {
    match want {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    }
}

/// An empty list of keyed elements or set members owns nothing, nor does a struct that holds only such lists.
fn leaves_no_mark(want: &Value) -> bool {
    match want {
        Value::Object(fields) => !fields.is_empty() && fields.values().all(leaves_no_mark),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// JSON equality: 1 and 1.0 are equal, true and 1 are not.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a == b,
            _ => a.as_f64() == b.as_f64(),
        },
        _ => a == b,
    }
}

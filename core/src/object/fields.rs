//! The tree of a `fieldsV1`: which fields of an object a manager owns.
//!
//! Keys say what they are by a prefix (structured-merge-diff `fieldpath/serialize-pe.go`): `f:` a field of a struct or
//! map, `k:` an element of a keyed list, `v:` a member of a set, `i:` an index. `.` marks that the node itself is
//! owned.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::raw::Text;

/// A node of the tree, without its mark on itself: what is below it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields<'a> {
    /// As the server sorted them. Empty for a leaf.
    pub children: Vec<(Element<'a>, Fields<'a>)>,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
pub enum Element<'a> {
    /// `f:`, a field of a struct or a key of a map; any text.
    Field(Cow<'a, str>),
    /// `k:`, an element of a list by its key fields.
    Key(Map<String, Value>),
    /// `v:`, a member of a set.
    Value(Value),
    /// `i:`, an index. No list of the API server is recorded by it.
    Index(u64),
}

impl<'a> Fields<'a> {
    /// The tree of a `fieldsV1` text.
    ///
    /// # Errors
    /// What is no such tree, or is nested more than 127 deep.
    pub fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// What is below a child; None where there is none.
    pub fn child(&self, element: &Element<'_>) -> Option<&Self> {
        self.children.iter().find(|(own, _)| own == element).map(|(_, below)| below)
    }

    /// Whether nothing is below.
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }

    /// Whether a path leads to something owned.
    pub(super) fn contains(&self, path: &[&Element<'_>]) -> bool {
        match path {
            [] => true,
            [first, rest @ ..] => self.child(first).is_some_and(|below| below.contains(rest)),
        }
    }

    /// The leaves of this tree that the other lacks, at most `limit`.
    pub(super) fn leaves_not_in<'s>(&'s self, other: &Self, limit: usize) -> Vec<Vec<&'s Element<'a>>> {
        let mut found = Vec::new();
        self.collect_missing(Some(other), &mut Vec::new(), limit, &mut found);
        found
    }

    fn collect_missing<'s>(
        &'s self,
        other: Option<&Self>,
        path: &mut Vec<&'s Element<'a>>,
        limit: usize,
        found: &mut Vec<Vec<&'s Element<'a>>>,
    ) {
        for (element, below) in &self.children {
            if found.len() == limit {
                return;
            }
            let theirs = other.and_then(|other| other.child(element));
            path.push(element);
            if below.is_leaf() && theirs.is_none() {
                found.push(path.clone());
            }
            below.collect_missing(theirs, path, limit, found);
            path.pop();
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tree of owned fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut children = Vec::new();
        while let Some(Text(key)) = map.next_key()? {
            let below = map.next_value()?;
            if key != "." {
                children.push((element(key).map_err(A::Error::custom)?, below));
            }
        }
        Ok(Fields { children })
    }
}

/// Reads one key of the tree.
fn element(key: Cow<'_, str>) -> Result<Element<'_>, String> {
    let unreadable = |error: serde_json::Error| error.to_string();
    match key.split_at_checked(2) {
        Some(("f:", _)) => Ok(Element::Field(match key {
            Cow::Borrowed(key) => Cow::Borrowed(&key[2..]),
            Cow::Owned(key) => Cow::Owned(key[2..].to_owned()),
        })),
        Some(("k:", fields)) => serde_json::from_str(fields).map(Element::Key).map_err(unreadable),
        Some(("v:", value)) => serde_json::from_str(value).map(Element::Value).map_err(unreadable),
        Some(("i:", index)) => serde_json::from_str(index).map(Element::Index).map_err(unreadable),
        _ => Err(format!("unknown path element {key:?}")),
    }
}

impl fmt::Display for Element<'_> {
    /// As the API server prints paths: `.spec`, `[name="web"]`, `[="member"]`, `[0]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(fields) => {
                for (number, (name, value)) in fields.iter().enumerate() {
                    write!(f, "{}{name}={value}", if number == 0 { "[" } else { "," })?;
                }
                f.write_str("]")
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

//! What the API server publishes of one type, reduced to what the host asks.
//!
//! In: an OpenAPI v3 document of one group and version (`/openapi/v3/apis/apps/v1`). Out: a [`Schema`] that says which
//! values of an object are atomic to server-side apply, and which fields of a status the server would prune. A type's
//! CustomResourceDefinition gives a [`Schema`] as well, so that the two can be compared.
//! Descriptions, formats and validation are dropped; what the type does not reach is not even parsed.

mod compare;
mod definition;
mod document;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::contract::TypeRef;
use crate::path::Path;

pub use definition::{Definition, NoDefinition};

/// What is known of a type's published schema.
#[derive(Clone, Copy, Debug)]
pub enum Published<'a> {
    /// Not asked for yet.
    NotLoaded,
    /// The server publishes none.
    Nothing,
    /// This one.
    Schema(&'a Schema),
}

/// The published schema decides, and is not loaded: load it and ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsSchema;

impl Published<'_> {
    /// Whether the value at this path is atomic; None where nothing is published.
    ///
    /// # Errors
    /// [`NeedsSchema`] where it is not loaded.
    pub fn is_atomic(self, path: &Path<'_>, value: &Value) -> Result<Option<bool>, NeedsSchema> {
        match self {
            Self::NotLoaded => Err(NeedsSchema),
            Self::Nothing => Ok(None),
            Self::Schema(schema) => Ok(Some(schema.is_atomic(path, value))),
        }
    }
}

/// A document that can't be read.
#[derive(Debug, thiserror::Error)]
#[error("the published OpenAPI document is unreadable: {0}")]
pub struct Unreadable(#[from] serde_json::Error);

/// The fields of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Types refer to each other, and some to themselves.
    nodes: Box<[Node]>,
    root: usize,
}

/// A schema of the document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    /// The schema that this one refers to; what is said here is said in addition.
    base: Option<usize>,
    /// By name, sorted.
    properties: Box<[(Box<str>, usize)]>,
    /// Of keys that are no property.
    additional: Option<usize>,
    items: Option<usize>,
    /// `x-kubernetes-preserve-unknown-fields`, or `additionalProperties: true`.
    open: bool,
    /// `x-kubernetes-embedded-resource`: has a type and metadata though the schema may not say so.
    embedded: bool,
    /// `x-kubernetes-map-type: atomic`, or another.
    atomic_map: Option<bool>,
    /// `x-kubernetes-list-type: atomic`, or another.
    atomic_list: Option<bool>,
    /// `x-kubernetes-patch-strategy` with `merge`: a keyed list of a time before list types.
    merge: bool,
}

impl Schema {
    /// The schema of a type; None where the document has none of it.
    ///
    /// # Errors
    /// What is no OpenAPI v3 document.
    pub fn parse(document: &[u8], type_ref: &TypeRef) -> Result<Option<Self>, Unreadable> {
        document::parse(document, type_ref)
    }

    /// Whether server-side apply takes the value at this path whole, by the rules of kube-openapi's `schemaconv`.
    /// Untyped values are taken apart when they are maps, and whole when they are lists.
    pub fn is_atomic(&self, path: &Path<'_>, value: &Value) -> bool {
        let node = self.at(path);
        match value {
            Value::Object(_) => node.is_some_and(|node| self.is_atomic_map(node)),
            Value::Array(_) => node.is_none_or(|node| self.is_atomic_list(node)),
            _ => false,
        }
    }

    /// Whether the server keeps a value at this path of fields: it is declared, or what is not declared is kept.
    pub fn keeps(&self, path: &[&str]) -> bool {
        let mut node = Some(self.root);
        for name in path {
            match node.map(|node| self.member(node, name)) {
                None | Some(Member::Kept) => return true,
                Some(Member::Pruned) => return false,
                Some(Member::Described(below)) => node = Some(below),
            }
        }
        true
    }

    /// Removes from a status what the server would prune, as apiextensions' structural pruning does, and says what that
    /// was: sorted paths like `status.conditions[].reason`, each once.
    pub fn prune_status(&self, status: &mut Value) -> Vec<String> {
        let mut lost = BTreeSet::new();
        match self.member(self.root, "status") {
            Member::Described(node) => self.prune(status, node, "status", &mut lost),
            Member::Kept => {}
            Member::Pruned => {
                if let Some(fields) = status.as_object_mut() {
                    lost.extend(fields.keys().map(|name| format!("status.{name}")));
                    fields.clear();
                }
            }
        }
        lost.into_iter().collect()
    }

    fn prune(&self, value: &mut Value, node: usize, path: &str, lost: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => self.prune_fields(fields, node, path, lost),
            Value::Array(items) => {
                let Some(below) = self.find(node, |node| node.items) else { return };
                for item in items {
                    self.prune(item, below, &format!("{path}[]"), lost);
                }
            }
            _ => {}
        }
    }

    fn prune_fields(&self, fields: &mut Map<String, Value>, node: usize, path: &str, lost: &mut BTreeSet<String>) {
        fields.retain(|name, value| {
            let path = format!("{path}.{name}");
            match self.member(node, name) {
                Member::Described(below) => self.prune(value, below, &path, lost),
                Member::Kept => {}
                Member::Pruned => {
                    lost.insert(path);
                    return false;
                }
            }
            true
        });
    }

    /// The schema of the value at a path; None where nothing is said of it.
    fn at(&self, path: &Path<'_>) -> Option<usize> {
        match path {
            Path::Root => Some(self.root),
            Path::Field(parent, name) => match self.member(self.at(parent)?, name) {
                Member::Described(node) => Some(node),
                Member::Kept | Member::Pruned => None,
            },
            Path::Item(parent, _) => self.find(self.at(parent)?, |node| node.items),
        }
    }

    fn member(&self, node: usize, name: &str) -> Member {
        let property = self.find(node, |node| {
            let at = node.properties.binary_search_by(|(own, _)| (**own).cmp(name)).ok()?;
            Some(node.properties[at].1)
        });
        if let Some(below) = property.or_else(|| self.find(node, |node| node.additional)) {
            return Member::Described(below);
        }
        let of_resource = matches!(name, "apiVersion" | "kind" | "metadata");
        let kept = self.any(node, |node| node.open || node.embedded && of_resource);
        if kept { Member::Kept } else { Member::Pruned }
    }

    fn is_atomic_map(&self, node: usize) -> bool {
        let is_described = |node: &Node| !node.properties.is_empty() || node.additional.is_some() || node.open;
        // A plain `type: object` is untyped.
        self.find(node, |node| node.atomic_map).unwrap_or_else(|| !self.any(node, is_described))
    }

    fn is_atomic_list(&self, node: usize) -> bool {
        self.find(node, |node| node.atomic_list).unwrap_or_else(|| !self.any(node, |node| node.merge))
    }

    /// What is said first, by the schema itself or by those that it refers to.
    fn find<T>(&self, node: usize, said: impl Fn(&Node) -> Option<T>) -> Option<T> {
        self.chain(node).find_map(said)
    }

    fn any(&self, node: usize, said: impl Fn(&Node) -> bool) -> bool {
        self.chain(node).any(said)
    }

    fn chain(&self, node: usize) -> impl Iterator<Item = &Node> {
        // A reference that leads back to itself ends after as many steps as there are schemas.
        std::iter::successors(self.nodes.get(node), |node| self.nodes.get(node.base?)).take(self.nodes.len())
    }
}

/// What a schema says of one field.
enum Member {
    /// It is declared, as this.
    Described(usize),
    /// It is not declared, and kept.
    Kept,
    /// It is not declared, and pruned.
    Pruned,
}

#[cfg(test)]
mod tests;

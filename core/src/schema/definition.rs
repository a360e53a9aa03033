//! A type as its CustomResourceDefinition describes it, and what another schema of the type lacks of it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::document::Builder;
use super::{Member, Schema, Unreadable};
use crate::contract::TypeRef;

/// Fields that every object has, whatever its definition says of them.
const OF_EVERY_OBJECT: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Schema {
    /// The schema of a type by the text of its CustomResourceDefinition; None where that defines another type or version, or
    /// gives no schema.
    ///
    /// # Errors
    /// What is no CustomResourceDefinition.
    pub fn of_definition(definition: &str, type_ref: &TypeRef) -> Result<Option<Self>, Unreadable> {
        let Definition { spec } = serde_json::from_str(definition)?;
        if spec.group != type_ref.group() || spec.names.kind != type_ref.kind {
            return Ok(None);
        }
        let version = spec.versions.into_iter().find(|version| version.name == type_ref.version());
        let Some(raw) = version.and_then(|version| version.schema?.open_api_v3_schema) else { return Ok(None) };
        let named = BTreeMap::new();
        let mut builder = Builder::new(&named);
        let root = builder.place(raw)?;
        Ok(Some(builder.finish(root)))
    }

    /// Fields that the other schema of the type describes and this one prunes: sorted paths like
    /// `status.conditions[].reason`, of a whole subtree its top alone. One of the two must be of a definition: those refer
    /// to nothing, so the walk ends.
    pub fn lacks(&self, other: &Self) -> Vec<String> {
        let mut lacking = BTreeSet::new();
        for (name, theirs) in other.described(other.root).filter(|(name, _)| !OF_EVERY_OBJECT.contains(name)) {
            self.compare(self.root, other, theirs, name, name.to_owned(), &mut lacking);
        }
        lacking.into_iter().collect()
    }

    /// Compares one field of a node with what the other schema says of it.
    fn compare(
        &self,
        node: usize,
        other: &Self,
        theirs: usize,
        name: &str,
        path: String,
        lacking: &mut BTreeSet<String>,
    ) {
        match self.member(node, name) {
            Member::Described(ours) => self.compare_below(ours, other, theirs, &path, lacking),
            Member::Kept => {}
            Member::Pruned => {
                lacking.insert(path);
            }
        }
    }

    fn compare_below(&self, node: usize, other: &Self, theirs: usize, path: &str, lacking: &mut BTreeSet<String>) {
        for (name, below) in other.described(theirs) {
            self.compare(node, other, below, name, format!("{path}.{name}"), lacking);
        }
        if let (Some(ours), Some(theirs)) = (self.find(node, |node| node.items), other.find(theirs, |node| node.items))
        {
            self.compare_below(ours, other, theirs, &format!("{path}[]"), lacking);
        }
        let additional = |schema: &Self, node| schema.find(node, |node| node.additional);
        if let (Some(ours), Some(theirs)) = (additional(self, node), additional(other, theirs)) {
            self.compare_below(ours, other, theirs, &format!("{path}.*"), lacking);
        }
    }

    /// The fields that a node describes by name.
    fn described(&self, node: usize) -> impl Iterator<Item = (&str, usize)> {
        self.chain(node).flat_map(|node| node.properties.iter().map(|(name, below)| (&**name, *below)))
    }
}

#[derive(Deserialize)]
struct Definition<'a> {
    #[serde(borrow)]
    spec: Spec<'a>,
}

#[derive(Deserialize)]
struct Spec<'a> {
    #[serde(borrow)]
    group: Cow<'a, str>,
    #[serde(borrow)]
    names: Names<'a>,
    #[serde(borrow)]
    versions: Vec<Version<'a>>,
}

#[derive(Deserialize)]
struct Names<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Version<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    schema: Option<Validation<'a>>,
}

#[derive(Deserialize)]
struct Validation<'a> {
    #[serde(borrow, rename = "openAPIV3Schema")]
    open_api_v3_schema: Option<&'a RawValue>,
}

//! From an OpenAPI v3 document to the nodes that one type reaches.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Node, Schema, Unreadable};
use crate::contract::TypeRef;

pub(super) fn parse(document: &[u8], type_ref: &TypeRef) -> Result<Option<Schema>, Unreadable> {
    let document: Document<'_> = serde_json::from_slice(document)?;
    let schemas = document.components.map(|components| components.schemas).unwrap_or_default();
    let mut root = None;
    for (name, raw) in &schemas {
        let types: Types<'_> = serde_json::from_str(raw.get())?;
        if types.of.iter().flatten().any(|of| of.is(type_ref)) {
            root = Some(&**name);
            break;
        }
    }
    let Some(root) = root else { return Ok(None) };
    let mut builder = Builder::new(&schemas);
    let root = builder.named(root)?;
    Ok(Some(builder.finish(root)))
}

/// Schemas within schemas, and references to others, that are followed: a text of any size must not end the stack.
const DEPTH_MAX: usize = 100;

/// Builds the nodes that a root reaches.
pub(super) struct Builder<'d> {
    schemas: &'d BTreeMap<Cow<'d, str>, &'d RawValue>,
    nodes: Vec<Node>,
    known: HashMap<&'d str, usize>,
    depth: usize,
}

impl<'d> Builder<'d> {
    /// A builder that looks up references among these schemas.
    pub(super) fn new(schemas: &'d BTreeMap<Cow<'d, str>, &'d RawValue>) -> Self {
        Self { schemas, nodes: Vec::new(), known: HashMap::new(), depth: 0 }
    }

    pub(super) fn finish(self, root: usize) -> Schema {
        Schema { nodes: self.nodes.into(), root }
    }

    /// The node of a named schema. It has its place before it is built, so that it may refer to itself; one that the
    /// document lacks is open.
    fn named(&mut self, name: &str) -> Result<usize, serde_json::Error> {
        if let Some(known) = self.known.get(name) {
            return Ok(*known);
        }
        let place = self.nodes.len();
        self.nodes.push(Node { open: true, ..Node::default() });
        if let Some((name, raw)) = self.schemas.get_key_value(name) {
            self.known.insert(name, place);
            self.nodes[place] = self.node(raw)?;
        }
        Ok(place)
    }

    /// The node of an unnamed schema.
    pub(super) fn place(&mut self, raw: &'d RawValue) -> Result<usize, serde_json::Error> {
        let node = self.node(raw)?;
        // Nearly every `$ref` comes with nothing but a description.
        if let Node { base: Some(base), .. } = node
            && node == (Node { base: Some(base), ..Node::default() })
        {
            return Ok(base);
        }
        self.nodes.push(node);
        Ok(self.nodes.len() - 1)
    }

    fn node(&mut self, raw: &'d RawValue) -> Result<Node, serde_json::Error> {
        if self.depth == DEPTH_MAX {
            return Err(serde::de::Error::custom(format!("schemas are nested more than {DEPTH_MAX} deep")));
        }
        self.depth += 1;
        let node = self.node_below(raw);
        self.depth -= 1;
        node
    }

    fn node_below(&mut self, raw: &'d RawValue) -> Result<Node, serde_json::Error> {
        let wire: Wire<'d> = serde_json::from_str(raw.get())?;
        let mut node = Node {
            open: wire.preserve_unknown_fields,
            embedded: wire.embedded_resource,
            atomic_map: wire.map_type.map(|text| text == "atomic"),
            atomic_list: wire.list_type.map(|text| text == "atomic"),
            merge: wire.patch_strategy.is_some_and(|text| text.contains("merge")),
            ..Node::default()
        };
        let all_of = wire.all_of.unwrap_or_default();
        let reference = wire.reference.or_else(|| all_of.into_iter().find_map(|part| part.reference));
        if let Some(reference) = reference {
            node.base = Some(self.named(reference.rsplit('/').next().unwrap_or_default())?);
        }
        let mut properties = Vec::new();
        for (name, raw) in wire.properties.unwrap_or_default() {
            properties.push((Box::from(&*name), self.place(raw)?));
        }
        node.properties = properties.into();
        match wire.additional_properties.map(RawValue::get) {
            None | Some("false") => {}
            Some("true") => node.open = true,
            Some(_) => node.additional = wire.additional_properties.map(|raw| self.place(raw)).transpose()?,
        }
        node.items = wire.items.map(|raw| self.place(raw)).transpose()?;
        Ok(node)
    }
}

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    components: Option<Components<'a>>,
}

#[derive(Deserialize)]
struct Components<'a> {
    #[serde(borrow, default)]
    schemas: BTreeMap<Cow<'a, str>, &'a RawValue>,
}

#[derive(Deserialize)]
struct Types<'a> {
    #[serde(borrow, rename = "x-kubernetes-group-version-kind")]
    of: Option<Vec<GroupVersionKind<'a>>>,
}

#[derive(Deserialize)]
struct GroupVersionKind<'a> {
    #[serde(borrow)]
    group: Cow<'a, str>,
    #[serde(borrow)]
    version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

impl GroupVersionKind<'_> {
    fn is(&self, type_ref: &TypeRef) -> bool {
        self.kind == type_ref.kind && self.group == type_ref.group() && self.version == type_ref.version()
    }
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, rename = "$ref")]
    reference: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "allOf")]
    all_of: Option<Vec<Reference<'a>>>,
    // Sorted by the map; the look-up is a binary search.
    #[serde(borrow)]
    properties: Option<BTreeMap<Cow<'a, str>, &'a RawValue>>,
    #[serde(borrow, rename = "additionalProperties")]
    additional_properties: Option<&'a RawValue>,
    #[serde(borrow)]
    items: Option<&'a RawValue>,
    #[serde(default, rename = "x-kubernetes-preserve-unknown-fields")]
    preserve_unknown_fields: bool,
    #[serde(default, rename = "x-kubernetes-embedded-resource")]
    embedded_resource: bool,
    #[serde(borrow, rename = "x-kubernetes-map-type")]
    map_type: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "x-kubernetes-list-type")]
    list_type: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "x-kubernetes-patch-strategy")]
    patch_strategy: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Reference<'a> {
    #[serde(borrow, rename = "$ref")]
    reference: Option<Cow<'a, str>>,
}

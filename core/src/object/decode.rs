//! From an API server's bytes to a [`Stored`].

use std::borrow::{Borrow, Cow};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::intern::Interner;
use super::owned::{Entry, OwnedSet, Ownership, Part, Record, lost};
use super::raw::{self, Text};
use super::{ControllerRef, Meta, ResourceVersion, Stored, parse_controller_annotation};
use crate::contract::{ObjectName, TypeRef};
use crate::names;

/// The manager that the API server invents for what stood in an object before its first apply (apimachinery
/// `managedfields/internal/lastappliedmanager.go`, `fieldmanager.go`).
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Decodes objects of any type; shared by all watches, so that what their objects have in common is kept once.
#[derive(Debug)]
pub struct Decoder {
    managers: HashSet<Arc<str>>,
    interner: Interner,
}

/// An object that is there but can't be read: it is never created over and never pruned.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", self.identity())]
pub struct Undecodable {
    /// What is wrong with it.
    pub reason: String,
    /// Where it lives, if that could be read.
    pub name: Option<ObjectName>,
    /// Its uid, if that could be read.
    pub uid: Option<Arc<str>>,
    /// Its version, if that could be read.
    pub resource_version: Option<ResourceVersion>,
}

impl Undecodable {
    fn identity(&self) -> impl fmt::Display {
        self.name.as_ref().map_or_else(|| "an object without a readable name".to_owned(), ToString::to_string)
    }
}

impl Decoder {
    /// A decoder that keeps what these field managers own.
    pub fn new<M: Into<Arc<str>>>(managers: impl IntoIterator<Item = M>) -> Self {
        Self { managers: managers.into_iter().map(Into::into).collect(), interner: Interner::default() }
    }

    /// Reads one object. `type_ref` stands in for an `apiVersion` and `kind` that it lacks, as items of lists do;
    /// `previous` is the copy known so far, for what our managers lost since.
    ///
    /// # Errors
    /// What is no object of Kubernetes; says who it is as far as that could be read.
    pub fn decode(&self, bytes: &[u8], type_ref: &TypeRef, previous: Option<&Stored>) -> Result<Stored, Undecodable> {
        self.decode_over(bytes, type_ref, |_| previous)
    }

    /// As [`Decoder::decode`], where the copy known so far has to be looked up by the object's name.
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub fn decode_over<P: Borrow<Stored>>(
        &self,
        bytes: &[u8],
        type_ref: &TypeRef,
        previous: impl FnOnce(&ObjectName) -> Option<P>,
    ) -> Result<Stored, Undecodable> {
        let text = std::str::from_utf8(bytes).map_err(|error| undecodable(bytes, &error))?.trim();
        let wire: Wire<'_> = serde_json::from_str(text).map_err(|error| undecodable(bytes, &error))?;
        let meta = self.meta(&wire, type_ref);
        let previous = previous(&meta.name);
        let previous = previous.as_ref().map(Borrow::borrow).filter(|previous| previous.meta.uid == meta.uid);
        let owned =
            self.ownership(wire.metadata.managed_fields, previous).map_err(|error| undecodable(bytes, &error))?;
        Ok(Stored { json: compact(text, &wire, type_ref), meta, owned })
    }

    fn meta(&self, wire: &Wire<'_>, fallback: &TypeRef) -> Meta {
        let metadata = &wire.metadata;
        let shared = |text: &Text<'_>| self.interner.text(&text.0);
        let annotations = metadata.annotations.as_ref();
        Meta {
            type_ref: self.interner.type_ref(
                wire.api_version.as_ref().map_or(&fallback.api_version, |text| &text.0),
                wire.kind.as_ref().map_or(&fallback.kind, |text| &text.0),
            ),
            name: ObjectName {
                namespace: metadata.namespace.as_ref().filter(|text| !text.0.is_empty()).map(shared),
                name: Arc::from(&*metadata.name.0),
            },
            uid: Arc::from(&*metadata.uid.0),
            resource_version: ResourceVersion::new(&metadata.resource_version.0),
            generation: metadata.generation,
            terminating: metadata.deletion_timestamp.is_some(),
            controller: self.controller(metadata).map(Box::new),
            finalizers: metadata.finalizers.iter().flatten().map(shared).collect(),
            installation: metadata.labels.as_ref().and_then(|labels| labels.installation.as_ref()).map(shared),
            desired: annotations.and_then(|annotations| annotations.desired.as_ref()).map(|text| Arc::from(&*text.0)),
            orphan_on_prune: annotations
                .and_then(|annotations| annotations.on_prune.as_ref())
                .is_some_and(|text| text.0 == names::ORPHAN),
            paused: annotations.is_some_and(|annotations| is_set(annotations.paused.as_ref())),
            release_prune: annotations.is_some_and(|annotations| is_set(annotations.release_prune.as_ref())),
        }
    }

    fn controller(&self, metadata: &WireMetadata<'_>) -> Option<ControllerRef> {
        let reference = metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        if let Some(owner) = reference {
            return Some(ControllerRef {
                type_ref: self.interner.type_ref(&owner.api_version.0, &owner.kind.0),
                name: Arc::from(&*owner.name.0),
                namespace: None,
                uid: Arc::from(&*owner.uid.0),
                block_owner_deletion: owner.block_owner_deletion == Some(true),
            });
        }
        let text = &metadata.annotations.as_ref()?.controller.as_ref()?.0;
        let (type_ref, namespace, name, uid) = parse_controller_annotation(text)?;
        // Where an owner reference reaches, nothing stands for one.
        let is_beyond = metadata.namespace.as_ref().is_none_or(|of_child| of_child.0 != namespace);
        is_beyond.then(|| ControllerRef {
            type_ref: self.interner.type_ref(&type_ref.api_version, &type_ref.kind),
            name: Arc::from(name),
            namespace: Some(self.interner.text(namespace)),
            uid: Arc::from(uid),
            block_owner_deletion: false,
        })
    }

    fn ownership(&self, managed: Option<&RawValue>, previous: Option<&Stored>) -> Result<Ownership, serde_json::Error> {
        let wire: Vec<WireEntry<'_>> = managed.map_or_else(|| Ok(Vec::new()), |raw| serde_json::from_str(raw.get()))?;
        let record = if wire.iter().any(|entry| entry.manager() == BEFORE_FIRST_APPLY) {
            Record::BeforeFirstApply
        } else if wire.iter().any(|entry| entry.fields.is_some()) {
            Record::Kept
        } else {
            Record::Wiped
        };
        let entries: Box<[Entry]> = wire.iter().filter_map(|entry| self.entry(entry)).collect();
        let all: Vec<_> = wire.iter().filter_map(|entry| Some((entry.manager(), entry.fields?.get()))).collect();
        let lost = previous.and_then(|previous| lost(&previous.owned, &entries, &all));
        Ok(Ownership { record, entries, lost })
    }

    /// The entry, where it is of one of our managers and of a kind that we write.
    fn entry(&self, wire: &WireEntry<'_>) -> Option<Entry> {
        let manager = self.managers.get(wire.manager())?;
        let fields = wire.fields?.get();
        let part = match (wire.operation.as_ref()?.0.as_ref(), wire.subresource.as_ref().map_or("", |text| &text.0)) {
            ("Apply", "") => Part::Apply,
            ("Update", "status") => Part::Status,
            ("Update", "") if raw::at(fields, &["f:status"]).is_some() => Part::Status,
            _ => return None,
        };
        let set = OwnedSet(self.interner.text(&without_owner_references(fields)));
        Some(Entry { manager: Arc::clone(manager), part, set })
    }
}

/// A `fieldsV1` without what it says of owner references.
fn without_owner_references(fields: &str) -> Cow<'_, str> {
    let owners = raw::at(fields, &["f:metadata", "f:ownerReferences"]);
    match owners.and_then(|owners| raw::member_span(fields, owners.get())) {
        Some(span) => Cow::Owned([&fields[..span.start], &fields[span.end..]].concat()),
        None => Cow::Borrowed(fields),
    }
}

/// The text to keep: without managedFields, with apiVersion and kind.
fn compact(text: &str, wire: &Wire<'_>, type_ref: &TypeRef) -> Arc<str> {
    let cut = wire.metadata.managed_fields.and_then(|raw| raw::member_span(text, raw.get()));
    let (before, after) = cut.map_or((text, ""), |span| (&text[..span.start], &text[span.end..]));
    if wire.api_version.is_some() && wire.kind.is_some() {
        return [before, after].concat().into();
    }
    let mut head = String::from("{");
    let missing =
        [("apiVersion", &wire.api_version, &type_ref.api_version), ("kind", &wire.kind, &type_ref.kind)].into_iter();
    for (field, _, value) in missing.filter(|(_, present, _)| present.is_none()) {
        head.push_str(&format!("\"{field}\":{},", serde_json::Value::from(value.as_str())));
    }
    // The object has metadata at least, so that a comma is right.
    [&head, before.strip_prefix('{').unwrap_or(before), after].concat().into()
}

/// The error for an object that could not be read, with what little can be.
fn undecodable(bytes: &[u8], reason: &dyn fmt::Display) -> Undecodable {
    let text = String::from_utf8_lossy(bytes);
    let read = |field: &str| -> Option<String> {
        raw::at(&text, &["metadata", field]).and_then(|raw| serde_json::from_str(raw.get()).ok())
    };
    Undecodable {
        reason: reason.to_string(),
        name: read("name").map(|name| ObjectName::new(read("namespace").as_deref(), &name)),
        uid: read("uid").map(Arc::from),
        resource_version: read("resourceVersion").map(|text| ResourceVersion::new(&text)),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    #[serde(borrow)]
    api_version: Option<Text<'a>>,
    #[serde(borrow)]
    kind: Option<Text<'a>>,
    #[serde(borrow)]
    metadata: WireMetadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMetadata<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    namespace: Option<Text<'a>>,
    #[serde(borrow)]
    uid: Text<'a>,
    #[serde(borrow)]
    resource_version: Text<'a>,
    generation: Option<i64>,
    deletion_timestamp: Option<IgnoredAny>,
    #[serde(borrow)]
    labels: Option<WireLabels<'a>>,
    #[serde(borrow)]
    annotations: Option<WireAnnotations<'a>>,
    #[serde(borrow)]
    owner_references: Option<Vec<WireOwner<'a>>>,
    #[serde(borrow)]
    finalizers: Option<Vec<Text<'a>>>,
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

/// [`names::INSTALLATION_LABEL`].
#[derive(Deserialize)]
struct WireLabels<'a> {
    #[serde(borrow, rename = "operatorhost.dev/installation")]
    installation: Option<Text<'a>>,
}

/// [`names::DESIRED_ANNOTATION`], [`names::ON_PRUNE_ANNOTATION`], [`names::CONTROLLER_ANNOTATION`],
/// [`names::PAUSED_ANNOTATION`], [`names::RELEASE_PRUNE_ANNOTATION`].
#[derive(Deserialize)]
struct WireAnnotations<'a> {
    #[serde(borrow, rename = "operatorhost.dev/desired")]
    desired: Option<Text<'a>>,
    #[serde(borrow, rename = "operatorhost.dev/on-prune")]
    on_prune: Option<Text<'a>>,
    #[serde(borrow, rename = "operatorhost.dev/controller")]
    controller: Option<Text<'a>>,
    #[serde(borrow, rename = "operatorhost.dev/paused")]
    paused: Option<Text<'a>>,
    #[serde(borrow, rename = "operatorhost.dev/release-prune")]
    release_prune: Option<Text<'a>>,
}

/// A switch is on unless it says otherwise.
fn is_set(annotation: Option<&Text<'_>>) -> bool {
    annotation.is_some_and(|text| text.0 != "false")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireOwner<'a> {
    #[serde(borrow)]
    api_version: Text<'a>,
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

#[derive(Deserialize)]
struct WireEntry<'a> {
    #[serde(borrow)]
    manager: Option<Text<'a>>,
    #[serde(borrow)]
    operation: Option<Text<'a>>,
    #[serde(borrow)]
    subresource: Option<Text<'a>>,
    #[serde(borrow, rename = "fieldsV1")]
    fields: Option<&'a RawValue>,
}

impl WireEntry<'_> {
    fn manager(&self) -> &str {
        self.manager.as_ref().map_or("", |text| &text.0)
    }
}

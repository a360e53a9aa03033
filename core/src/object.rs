//! One live object as the host keeps it: bytes of an API server come in, a [`Stored`] goes out.
//!
//! [`Decoder`] reads only the fields that the host decides by, cuts `managedFields` out of the text and keeps of them what
//! our managers own ([`Ownership`]). No tree of an object is ever built, and nothing borrows from the buffer it came in:
//! a kept slice would hold a whole page of a list.

mod decode;
mod fields;
mod intern;
mod owned;
mod raw;
mod version;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::contract::{LiveObject, ObjectName, TypeRef};

pub use decode::{Decoder, Undecodable};
pub use fields::{Element, Fields};
pub use owned::{Lost, OwnedSet, Ownership, Record};
pub use version::ResourceVersion;

/// One live object as the table keeps it.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The object's JSON text as the server wrote it, `managedFields` cut out; `apiVersion` and `kind` are always there.
    pub json: Arc<str>,
    /// What the host decides by, parsed once.
    pub meta: Meta,
    /// What our managers own of it.
    pub owned: Ownership,
}

/// The parsed part of an object.
#[derive(Clone, Debug)]
pub struct Meta {
    /// As the object says: a watch at one version may carry objects that were written at another, not the reverse.
    pub type_ref: Arc<TypeRef>,
    /// `metadata.namespace` and `metadata.name`.
    pub name: ObjectName,
    /// `metadata.uid`: another uid is another object.
    pub uid: Arc<str>,
    /// `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
    /// `metadata.generation`; None for types that have none.
    pub generation: Option<i64>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub terminating: bool,
    /// The owner reference with `controller: true`; where there is none, the host's annotation that stands for it.
    pub controller: Option<Box<ControllerRef>>,
    /// `metadata.finalizers`.
    pub finalizers: Box<[Arc<str>]>,
    /// The host's label: the installation that made this child.
    pub installation: Option<Arc<str>>,
    /// The host's annotation: hash of the desired object that was last applied.
    pub desired: Option<Arc<str>>,
    /// The host's annotation: left behind when no longer wanted.
    pub orphan_on_prune: bool,
    /// The host's annotation: work on this primary is suspended.
    pub paused: bool,
    /// The host's annotation: what the prune guard holds of this primary is meant so.
    pub release_prune: bool,
}

/// The object that controls another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerRef {
    /// Type of the owner, as it was written: an older version of the type stays when the primary's moves on.
    pub type_ref: Arc<TypeRef>,
    /// Name of the owner.
    pub name: Arc<str>,
    /// Namespace of the owner, where the host's annotation names it: an owner reference can't reach there, and the garbage collector does
    /// not know of it. None: an owner reference, to an object of the same namespace or to a cluster-scoped one.
    pub namespace: Option<Arc<str>>,
    /// Uid of the owner.
    pub uid: Arc<str>,
    /// Whether foreground deletion of the owner waits for this object.
    pub block_owner_deletion: bool,
}

impl ControllerRef {
    /// Whether the owner is of this type, at whatever version: an owner reference keeps the one that it was written with.
    pub fn is_a(&self, type_ref: &TypeRef) -> bool {
        self.type_ref.kind == type_ref.kind && self.type_ref.group() == type_ref.group()
    }

    /// Whether the host's annotation stands for the owner reference.
    pub fn is_tracked(&self) -> bool {
        self.namespace.is_some()
    }

    /// The owner of this child, if objects of the owner's type live in namespaces; else the namespace is not to be looked at.
    pub fn owner_of(&self, child: &ObjectName) -> ObjectName {
        let namespace = self.namespace.clone().or_else(|| child.namespace.clone());
        ObjectName { namespace, name: Arc::clone(&self.name) }
    }
}

/// What [`names::CONTROLLER_ANNOTATION`](crate::names::CONTROLLER_ANNOTATION) says of a primary, which lives in a namespace.
pub fn controller_annotation(type_ref: &TypeRef, name: &ObjectName, uid: &str) -> String {
    format!("{type_ref} {name} {uid}")
}

/// The reverse of [`controller_annotation`]: type, namespace, name, uid.
fn parse_controller_annotation(text: &str) -> Option<(TypeRef, &str, &str, &str)> {
    let mut parts = text.split(' ');
    let (type_, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    let (kind, api_version) = type_.split_once('.')?;
    let (namespace, name) = name.split_once('/')?;
    let is_whole =
        parts.next().is_none() && [kind, api_version, namespace, name, uid].iter().all(|part| !part.is_empty());
    is_whole.then(|| (TypeRef::new(api_version, kind), namespace, name, uid))
}

/// An entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference<'a> {
    /// `apps/v1`.
    #[serde(borrow)]
    pub api_version: Cow<'a, str>,
    /// `Deployment`.
    #[serde(borrow)]
    pub kind: Cow<'a, str>,
    /// Name of the owner.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// Uid of the owner.
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
    /// At most one reference of an object has it. Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    /// Defaults to false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

impl Stored {
    /// Whether the object is controlled by the one of this uid.
    pub fn controlled_by(&self, uid: &str) -> bool {
        self.meta.controller.as_deref().is_some_and(|controller| &*controller.uid == uid)
    }

    /// The object as modules see it; the text is shared.
    pub fn live(&self) -> LiveObject {
        LiveObject {
            type_ref: (*self.meta.type_ref).clone(),
            name: self.meta.name.clone(),
            json: Arc::clone(&self.json),
        }
    }

    /// The JSON text at a path of field names; None where a field is absent or null.
    pub fn part(&self, path: &[&str]) -> Option<&RawValue> {
        raw::at(&self.json, path)
    }

    /// The text of `.status`.
    pub fn status(&self) -> Option<&RawValue> {
        self.part(&["status"])
    }

    /// `metadata.labels`, parsed now.
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.parse(&["metadata", "labels"])
    }

    /// `metadata.annotations`, parsed now.
    pub fn annotations(&self) -> BTreeMap<String, String> {
        self.parse(&["metadata", "annotations"])
    }

    /// `metadata.ownerReferences`, parsed now.
    pub fn owner_references(&self) -> Vec<OwnerReference<'_>> {
        self.parse(&["metadata", "ownerReferences"])
    }

    /// The value at a path. Empty when absent, and when it is no such value: decoding has refused those that matter.
    fn parse<'a, T: Deserialize<'a> + Default>(&'a self, path: &[&str]) -> T {
        self.part(path).and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;

//! What a module is given, taken from the tables; and the digest by which an unchanged call is known.

use super::memory::InputDigest;
use operator_core::contract::{LiveObject, Related, Snapshot, TypeRef};
use operator_core::object::Stored;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// A snapshot with the objects that it was made of.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) primary: Arc<Stored>,
    /// Sorted by type and name.
    children: Vec<(TypeRef, Arc<Stored>)>,
    unavailable: Vec<TypeRef>,
    /// What `relate` asked for, sorted by the query's id.
    pub(super) related: Vec<Found>,
    /// Optional types of it that are not to be had.
    pub(super) unavailable_related: BTreeSet<TypeRef>,
    /// `relate` depends on time.
    pub(super) asked_clock: bool,
    /// What `external.ensure` last observed.
    observation: Option<Arc<str>>,
    /// Of the primary type's published schema: it decides what of a status is written.
    schema: u64,
}

/// What one query of `relate` found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) query: String,
    pub(super) type_ref: TypeRef,
    /// Sorted by name.
    pub(super) objects: Vec<Arc<Stored>>,
    pub(super) truncated: bool,
}

impl Taken {
    /// A snapshot without related objects. `children` are those of the declared types that the primary controls, as the tables hold them.
    pub(super) fn new(
        primary: Arc<Stored>,
        mut children: Vec<(TypeRef, Arc<Stored>)>,
        mut unavailable: Vec<TypeRef>,
        observation: Option<Arc<str>>,
        schema: u64,
    ) -> Self {
        children.sort_by(|(a_type, a), (b_type, b)| (a_type, &a.meta.name).cmp(&(b_type, &b.meta.name)));
        unavailable.sort();
        Self {
            primary,
            children,
            unavailable,
            related: Vec::new(),
            unavailable_related: BTreeSet::new(),
            asked_clock: false,
            observation,
            schema,
        }
    }

    /// Whether children of this type can't be had.
    pub(super) fn is_unavailable(&self, type_ref: &TypeRef) -> bool {
        self.unavailable.contains(type_ref)
    }

    /// The live children, with the declared type of each.
    pub(super) fn children(&self) -> &[(TypeRef, Arc<Stored>)] {
        &self.children
    }

    /// As the module gets it. The texts are shared with the tables, not copied.
    pub(super) fn for_module(&self) -> Snapshot {
        let live = |type_ref: &TypeRef, stored: &Arc<Stored>| LiveObject {
            type_ref: type_ref.clone(),
            name: stored.meta.name.clone(),
            json: Arc::clone(&stored.json),
        };
        let related = |found: &Found| Related {
            query: found.query.clone(),
            objects: found.objects.iter().map(|stored| live(&found.type_ref, stored)).collect(),
            truncated: found.truncated,
        };
        let unavailable: BTreeSet<&TypeRef> = self.unavailable.iter().chain(&self.unavailable_related).collect();
        Snapshot {
            primary: Arc::clone(&self.primary.json),
            children: self.children.iter().map(|(type_ref, stored)| live(type_ref, stored)).collect(),
            related: self.related.iter().map(related).collect(),
            observation: self.observation.clone(),
            unavailable: unavailable.into_iter().cloned().collect(),
        }
    }

    /// Digest of the module and of what it saw but its own status and the resourceVersions of what is its own.
    pub(super) fn input(&self, module: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        module.hash(&mut hasher);
        self.shown(|_| true).hash(&mut hasher);
        self.unavailable.hash(&mut hasher);
        self.unavailable_related.hash(&mut hasher);
        for found in &self.related {
            (&found.query, found.truncated).hash(&mut hasher);
            found.objects.iter().for_each(|stored| stored.json.hash(&mut hasher));
        }
        self.observation.hash(&mut hasher);
        hasher.finish()
    }

    /// Digest of what the module saw of the primary but its status, and of these children; of no resourceVersions.
    pub(super) fn shown(&self, is_asked: impl Fn(&Stored) -> bool) -> u64 {
        let mut hasher = DefaultHasher::new();
        for path in [&["spec"][..], &["metadata", "labels"], &["metadata", "annotations"]] {
            self.primary.part(path).map(|raw| raw.get()).hash(&mut hasher);
        }
        for stored in self.children.iter().map(|(_, stored)| stored).filter(|stored| is_asked(stored)) {
            stored.meta.uid.hash(&mut hasher);
            for part in ["spec", "data", "status"] {
                stored.part(&[part]).map(|raw| raw.get()).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// Digest of the module, the schema and every object with its version. `primary_version` stands for the primary's own: after the host's status
    /// write it is the written one, as a call would see nothing else that is new.
    pub(super) fn digest(&self, module: &str, primary_version: &str) -> InputDigest {
        let mut hash = Sha256::new();
        let mut part = |text: &str| {
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        part(module);
        part(&self.schema.to_string());
        part(&self.primary.meta.uid);
        part(primary_version);
        for (type_ref, stored) in &self.children {
            part(&type_ref.api_version);
            part(&type_ref.kind);
            part(&stored.meta.uid);
            part(&stored.meta.resource_version.to_string());
        }
        for found in &self.related {
            part("related");
            part(&found.query);
            part(if found.truncated { "truncated" } else { "whole" });
            part(&found.objects.len().to_string());
            for stored in &found.objects {
                part(&stored.meta.uid);
                part(&stored.meta.resource_version.to_string());
            }
        }
        for type_ref in self.unavailable.iter().chain(&self.unavailable_related) {
            part("unavailable");
            part(&type_ref.api_version);
            part(&type_ref.kind);
        }
        if let Some(observation) = &self.observation {
            part("observation");
            part(observation);
        }
        let full: [u8; 32] = hash.finalize().into();
        let mut short = InputDigest::default();
        short.copy_from_slice(&full[..16]);
        short
    }
}

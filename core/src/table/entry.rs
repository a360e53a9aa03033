//! Entries by name, and the index of children by their controller's uid.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::FENCE_TIMEOUT;
use crate::contract::ObjectName;
use crate::object::{ResourceVersion, Stored, Undecodable};

/// An object whose text could not be taken in; what could still be read of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Where it lives.
    pub name: ObjectName,
    /// Its uid, where that much was readable.
    pub uid: Option<Arc<str>>,
    /// Its version, where that much was readable.
    pub resource_version: Option<ResourceVersion>,
    /// What is wrong with it.
    pub message: String,
}

/// An object as it came in.
#[derive(Clone, Debug)]
pub enum Content {
    /// Readable.
    Present(Arc<Stored>),
    /// There, but not readable.
    Unreadable(Arc<Unreadable>),
}

impl Content {
    /// What decoding made of an object.
    ///
    /// # Errors
    /// Something so broken that not even its name can be read.
    pub fn from_decoded(decoded: Result<Stored, Undecodable>) -> Result<Self, Undecodable> {
        match decoded {
            Ok(object) => Ok(Self::Present(Arc::new(object))),
            Err(Undecodable { name: Some(name), uid, resource_version, reason }) => {
                Ok(Self::Unreadable(Arc::new(Unreadable { name, uid, resource_version, message: reason })))
            }
            Err(nameless) => Err(nameless),
        }
    }

    /// Where it lives.
    pub fn name(&self) -> &ObjectName {
        match self {
            Self::Present(object) => &object.meta.name,
            Self::Unreadable(object) => &object.name,
        }
    }

    /// Its uid.
    pub fn uid(&self) -> Option<&Arc<str>> {
        match self {
            Self::Present(object) => Some(&object.meta.uid),
            Self::Unreadable(object) => object.uid.as_ref(),
        }
    }

    /// Its version.
    pub fn version(&self) -> Option<&ResourceVersion> {
        match self {
            Self::Present(object) => Some(&object.meta.resource_version),
            Self::Unreadable(object) => object.resource_version.as_ref(),
        }
    }

    /// The readable object.
    pub fn present(&self) -> Option<&Arc<Stored>> {
        match self {
            Self::Present(object) => Some(object),
            Self::Unreadable(_) => None,
        }
    }

    pub(super) fn installation(&self) -> Option<&Arc<str>> {
        self.present().and_then(|object| object.meta.installation.as_ref())
    }

    pub(super) fn is_terminating(&self) -> bool {
        self.present().is_some_and(|object| object.meta.terminating)
    }

    pub(super) fn owner(&self) -> Option<&Arc<str>> {
        self.present().and_then(|object| object.meta.controller.as_deref()).map(|controller| &controller.uid)
    }
}

/// What the table holds for one name.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) content: Content,
    /// The label selection holds it, or held it when last seen: a child robbed of its label stays ours to restore.
    pub(super) selected: bool,
    /// Entered by our own write; its echo has not come yet.
    pub(super) fence: Option<Box<Fence>>,
    /// Left the label selection at that version, and nobody answered yet what became of it.
    pub(super) vanished: Option<ResourceVersion>,
    /// The table's epoch when it entered: versions of different epochs can't be compared.
    pub(super) epoch: u32,
}

/// Our own writes of one object whose echoes have not come yet.
#[derive(Clone, Debug)]
pub(super) struct Fence {
    /// When the last of them was answered.
    pub(super) since: Instant,
    pub(super) versions: Vec<ResourceVersion>,
}

impl Entry {
    /// The newest version that this entry accounts for.
    pub(super) fn version(&self) -> Option<&ResourceVersion> {
        self.vanished.as_ref().or_else(|| self.content.version())
    }

    /// Whether this is a state that we wrote ourselves and that was not yet told.
    pub(super) fn awaits(&self, uid: Option<&Arc<str>>, version: &ResourceVersion) -> bool {
        self.is_same_object(uid) && self.fence.as_ref().is_some_and(|fence| fence.versions.contains(version))
    }

    pub(super) fn is_fenced(&self, now: Instant) -> bool {
        self.fence.as_ref().is_some_and(|fence| now.saturating_duration_since(fence.since) < FENCE_TIMEOUT)
    }

    pub(super) fn is_same_object(&self, uid: Option<&Arc<str>>) -> bool {
        self.content.uid() == uid
    }
}

#[derive(Debug, Default)]
pub(super) struct Entries {
    by_name: HashMap<ObjectName, Entry>,
    by_owner: HashMap<Arc<str>, Vec<ObjectName>>,
}

impl Entries {
    pub(super) fn get(&self, name: &ObjectName) -> Option<&Entry> {
        self.by_name.get(name)
    }

    /// For everything but the content, which the index follows.
    pub(super) fn get_mut(&mut self, name: &ObjectName) -> Option<&mut Entry> {
        self.by_name.get_mut(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectName, &Entry)> {
        self.by_name.iter()
    }

    pub(super) fn insert(&mut self, name: ObjectName, entry: Entry) -> Option<Entry> {
        let old = self.remove(&name);
        if let Some(owner) = entry.content.owner() {
            self.by_owner.entry(owner.clone()).or_default().push(name.clone());
        }
        self.by_name.insert(name, entry);
        old
    }

    pub(super) fn remove(&mut self, name: &ObjectName) -> Option<Entry> {
        let old = self.by_name.remove(name)?;
        let Some(owner) = old.content.owner() else { return Some(old) };
        let Some(children) = self.by_owner.get_mut(owner) else { return Some(old) };
        children.retain(|child| child != name);
        if children.is_empty() {
            self.by_owner.remove(owner);
        }
        Some(old)
    }

    pub(super) fn children(&self, owner: &str) -> &[ObjectName] {
        self.by_owner.get(owner).map_or(&[], Vec::as_slice)
    }
}

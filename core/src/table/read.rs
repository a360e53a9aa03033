//! What a pass reads.

use std::sync::Arc;

use super::entry::{Content, Entry};
use super::watches::{Membership, Scope, WatchId};
use super::{Lookup, ObjectVersion, Table};
use crate::contract::{ObjectName, TypeRef};
use crate::object::Stored;

impl Table {
    /// What a name stands for.
    pub fn lookup(&self, name: &ObjectName) -> Lookup {
        match self.entries.get(name).map(|entry| &entry.content) {
            None => Lookup::Absent,
            Some(Content::Present(object)) => Lookup::Present(object.clone()),
            Some(Content::Unreadable(object)) => Lookup::Unreadable(object.clone()),
        }
    }

    /// Whether nothing has this name, as far as a watch has told that would tell of anything there.
    pub fn is_free(&self, name: &ObjectName) -> bool {
        let tells = |watch: &Membership| watch.told.is_some() && watch.scope.covers(name, false);
        self.entries.get(name).is_none() && self.watches.values().any(tells)
    }

    /// Which state of which object is known under this name, for [`Table::observed_absent`].
    pub fn known(&self, name: &ObjectName) -> Option<ObjectVersion> {
        let Entry { content, epoch, .. } = self.entries.get(name)?;
        Some(ObjectVersion {
            uid: content.uid()?.clone(),
            version: content.version()?.clone(),
            epoch: self.epoch,
            is_current: *epoch == self.epoch,
        })
    }

    /// Whether a child of this name left the selection and nobody answered yet what became of it.
    pub fn is_vanished(&self, name: &ObjectName) -> bool {
        self.entries.get(name).is_some_and(|entry| entry.vanished.is_some())
    }

    /// The readable objects that this object controls, sorted by name.
    pub fn children(&self, owner_uid: &str) -> Vec<Arc<Stored>> {
        let names = self.entries.children(owner_uid).iter();
        let objects = names.filter_map(|name| self.entries.get(name)?.content.present().cloned());
        let mut children: Vec<_> = objects.collect();
        children.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        children
    }

    /// How many readable objects that are not being deleted are controlled by objects of this type.
    pub fn count_children_of(&self, owners: &TypeRef) -> usize {
        let objects = self.entries.iter().filter_map(|(_, entry)| entry.content.present());
        let lasting = objects.filter(|object| !object.meta.terminating);
        lasting.filter(|object| object.meta.controller.as_deref().is_some_and(|owner| owner.is_a(owners))).count()
    }

    /// The names that a watch selects, in no order; unreadable objects too.
    pub fn names(&self, watch: WatchId) -> impl Iterator<Item = &ObjectName> {
        let scope = self.watches.get(&watch).map(|membership| &membership.scope);
        let entries = self.entries.iter();
        entries
            .filter(move |(name, entry)| scope.is_some_and(|scope| entry.is_held_by(scope, name)))
            .map(|(name, _)| name)
    }

    /// The readable objects of a scope, sorted by name, and whether it holds others; as far as its watches select them.
    pub fn select(&self, scope: &Scope) -> (Vec<Arc<Stored>>, bool) {
        let contents: Vec<&Content> = match (&scope.namespace, &scope.name) {
            (Some(namespace), Some(name)) => {
                let name = ObjectName { namespace: Some(namespace.clone()), name: name.clone() };
                self.entries.get(&name).map(|entry| &entry.content).into_iter().collect()
            }
            _ => {
                let held = self.entries.iter().filter(|(name, entry)| entry.is_held_by(scope, name));
                held.map(|(_, entry)| &entry.content).collect()
            }
        };
        let mut objects: Vec<_> = contents.iter().filter_map(|content| content.present().cloned()).collect();
        objects.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
        let has_unreadable = objects.len() < contents.len();
        (objects, has_unreadable)
    }

    /// How many objects the table holds.
    pub fn len(&self) -> usize {
        self.entries.iter().count()
    }

    /// Bytes of the objects' text that the table holds.
    pub fn bytes(&self) -> usize {
        self.entries.iter().filter_map(|(_, entry)| entry.content.present()).map(|object| object.json.len()).sum()
    }

    /// Whether the table holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

//! The watches that fill a table, and how far each of them has told its story.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Table;
use super::entry::{Content, Entry};
use crate::contract::ObjectName;
use crate::object::ResourceVersion;

/// A watch of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WatchId(u32);

/// Which objects of its type a watch selects. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope {
    /// Only this namespace.
    pub namespace: Option<Arc<str>>,
    /// Only this name.
    pub name: Option<Arc<str>>,
    /// Only what carries the installation's label.
    pub selected: bool,
}

impl Scope {
    /// One name, in its namespace if it has one.
    pub fn single(name: &ObjectName) -> Self {
        Self { namespace: name.namespace.clone(), name: Some(name.name.clone()), selected: false }
    }

    pub(super) fn covers(&self, name: &ObjectName, selected: bool) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| Some(namespace) == name.namespace.as_ref())
            && self.name.as_ref().is_none_or(|single| *single == name.name)
            && (selected || !self.selected)
    }
}

#[derive(Debug)]
pub(super) struct Membership {
    pub(super) scope: Scope,
    users: usize,
    /// Everything up to this version has been told: what is absent was absent or out of the scope at that version.
    pub(super) told: Option<ResourceVersion>,
    /// The newest of our own writes in this scope.
    pub(super) own: Option<ResourceVersion>,
    pub(super) list: Option<Listing>,
}

/// A list that is being received.
#[derive(Debug)]
pub(super) struct Listing {
    /// For consistent lists: what the server can't be behind of unless it went back in time.
    pub(super) floor: Option<ResourceVersion>,
    pub(super) seen: HashSet<ObjectName>,
    /// Last listed at a state older than what we have.
    pub(super) outdated: HashMap<ObjectName, Content>,
}

impl Membership {
    pub(super) fn has_told(&self, version: &ResourceVersion) -> bool {
        self.told.as_ref().and_then(|told| told.compare(version)).is_some_and(Ordering::is_ge)
    }

    /// An event or bookmark of the running watch: versions only grow there.
    pub(super) fn progress(&mut self, version: Option<&ResourceVersion>) {
        if self.list.is_none() && version.is_some() {
            self.told = version.cloned();
        }
    }
}

pub(super) fn newest<'a>(
    a: Option<&'a ResourceVersion>,
    b: Option<&'a ResourceVersion>,
) -> Option<&'a ResourceVersion> {
    match (a, b) {
        (Some(a), Some(b)) if a.compare(b) == Some(Ordering::Less) => Some(b),
        (Some(a), _) => Some(a),
        (None, b) => b,
    }
}

impl Table {
    /// Joins the watch of this scope; true if it is new, so that somebody has to run it.
    pub fn join_watch(&mut self, scope: &Scope) -> (WatchId, bool) {
        if let Some((id, watch)) = self.watches.iter_mut().find(|(_, watch)| watch.scope == *scope) {
            watch.users += 1;
            return (*id, false);
        }
        let id = WatchId(self.next_watch);
        self.next_watch += 1;
        let watch = Membership { scope: scope.clone(), users: 1, told: None, own: None, list: None };
        self.watches.insert(id, watch);
        (id, true)
    }

    /// Leaves a watch; true if nobody uses it any more, so that it has to stop. What no other watch selects is
    /// forgotten without a word: it has not changed, nobody looks at it any more.
    pub fn leave_watch(&mut self, id: WatchId) -> bool {
        let Some(watch) = self.watches.get_mut(&id) else { return false };
        watch.users -= 1;
        if watch.users > 0 {
            return false;
        }
        self.watches.remove(&id);
        let forgotten = self.entries.iter().filter(|(name, entry)| !self.is_covered(name, entry.selected));
        for name in forgotten.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.entries.remove(&name);
        }
        let untold = self.tombstones.keys().filter(|name| !self.is_covered(name, true));
        for name in untold.cloned().collect::<Vec<_>>() {
            self.tombstones.remove(&name);
        }
        true
    }

    /// A bookmark: everything up to this version has been told.
    pub fn progressed(&mut self, watch: WatchId, version: &ResourceVersion) {
        if let Some(watch) = self.watches.get_mut(&watch) {
            watch.progress(Some(version));
        }
    }

    /// The newest version that the server is known to have reached.
    pub(super) fn newest_version(&self) -> Option<ResourceVersion> {
        let versions = self.watches.values().flat_map(|watch| [watch.told.as_ref(), watch.own.as_ref()]);
        versions.fold(None, newest).cloned()
    }

    pub(super) fn is_covered(&self, name: &ObjectName, selected: bool) -> bool {
        self.watches.values().any(|watch| watch.scope.covers(name, selected))
    }

    /// Whether a watch that can tell a deletion from a stripped label selects this entry.
    pub(super) fn is_covered_without_label(&self, name: &ObjectName) -> bool {
        self.is_covered(name, false)
    }

    pub(super) fn is_selected(&self, content: &Content) -> bool {
        content.installation() == Some(&self.installation)
    }

    /// Whether a watch, other than that one, has told everything of this name up to this version.
    pub(super) fn has_been_told(
        &self,
        name: &ObjectName,
        selected: bool,
        version: &ResourceVersion,
        except: Option<WatchId>,
    ) -> bool {
        self.watches
            .iter()
            .any(|(id, watch)| Some(*id) != except && watch.scope.covers(name, selected) && watch.has_told(version))
    }
}

impl Entry {
    pub(super) fn is_held_by(&self, scope: &Scope, name: &ObjectName) -> bool {
        scope.covers(name, self.selected)
    }
}

//! Lists: what is not in them is gone, except for what is newer than them; and a server that went back in time.

use std::cmp::Ordering;
use std::time::Instant;

use super::own::Tombstone;
use super::watches::{Listing, WatchId};
use super::{Effects, Origin, Table};
use crate::contract::ObjectName;
use crate::object::ResourceVersion;

impl Table {
    /// A list (streamed or by pages) is about to be requested. `consistent`: without a resourceVersion, so that the
    /// server answers with its newest state; only such a list can show that the server went back in time.
    pub fn list_started(&mut self, watch: WatchId, consistent: bool) {
        let floor = if consistent { self.newest_version() } else { None };
        let Some(membership) = self.watches.get_mut(&watch) else { return };
        membership.list = Some(Listing { floor, seen: Default::default(), outdated: Default::default() });
    }

    /// All of a list has come in; `version` is the list's. Entries of this watch that are not in it and not newer than
    /// it are gone. One that shows that the server went back in time starts a new epoch, and the lists that follow show
    /// what there is.
    pub fn list_completed(&mut self, watch: WatchId, version: &ResourceVersion, now: Instant) -> Effects {
        let mut effects = Effects::default();
        let Some(membership) = self.watches.get_mut(&watch) else { return effects };
        let Some(list) = membership.list.take() else { return effects };
        membership.told = Some(version.clone());
        effects.went_back = self.contradicts(&list, version);
        if effects.went_back {
            self.start_epoch();
            return effects;
        }
        self.remove_unlisted(watch, &list, version, now, &mut effects);
        self.confirm_tombstones(watch, &list, version);
        effects
    }

    /// Whether a list can't follow on what we know: its version is below what the server had told already, or, as the
    /// versions may have grown past that since, it shows an object at an older state than one that it would have to know.
    fn contradicts(&self, list: &Listing, version: &ResourceVersion) -> bool {
        let is_below = |floor: &ResourceVersion| version.compare(floor) == Some(Ordering::Less);
        let is_known = |known: &ResourceVersion| known.compare(version).is_some_and(Ordering::is_le);
        list.floor.as_ref().is_some_and(is_below)
            || list.outdated.iter().any(|(name, content)| {
                let entry = self.entries.get(name).filter(|entry| entry.epoch == self.epoch);
                let known = entry.and_then(|entry| entry.content.version()).filter(|known| is_known(known));
                known.zip(content.version()).is_some_and(|(known, listed)| known.is_newer_than(listed))
            })
    }

    /// The server went back in time: nothing that was told before holds any more, in no watch of this type. Readers see
    /// the old state until the next list of each watch replaces it; they must not act on it.
    pub fn start_epoch(&mut self) {
        self.epoch += 1;
        for membership in self.watches.values_mut() {
            (membership.told, membership.own) = (None, None);
            membership.list.iter_mut().for_each(|list| list.floor = None);
        }
        self.tombstones.clear();
    }

    fn remove_unlisted(
        &mut self,
        watch: WatchId,
        list: &Listing,
        version: &ResourceVersion,
        now: Instant,
        effects: &mut Effects,
    ) {
        let Some(scope) = self.watches.get(&watch).map(|membership| membership.scope.clone()) else { return };
        let unlisted = self.entries.iter().filter(|(name, entry)| {
            let is_newer = || match entry.version().and_then(|own| own.compare(version)) {
                Some(order) => order.is_gt(),
                None => entry.is_fenced(now),
            };
            let is_spared = entry.epoch == self.epoch && is_newer();
            entry.is_held_by(&scope, name) && !list.seen.contains(*name) && !is_spared
        });
        let unlisted: Vec<ObjectName> = unlisted.map(|(name, _)| name.clone()).collect();
        for name in unlisted {
            self.unlisted(&name, scope.selected, version, effects);
        }
    }

    fn unlisted(&mut self, name: &ObjectName, by_label: bool, version: &ResourceVersion, effects: &mut Effects) {
        let Some(entry) = self.entries.get(name) else { return };
        if !by_label || entry.content.is_terminating() {
            self.forget(name, Origin::Watch, effects);
        } else if self.is_covered_without_label(name) {
            self.update(name, |entry| entry.selected = false);
        } else {
            self.doubt_disappearance(name, Some(version), effects);
        }
    }

    fn confirm_tombstones(&mut self, watch: WatchId, list: &Listing, version: &ResourceVersion) {
        let Some(scope) = self.watches.get(&watch).map(|membership| &membership.scope) else { return };
        let is_confirmed = |name: &ObjectName, tombstone: &Tombstone| {
            let vouches = !scope.selected || !self.is_covered_without_label(name);
            let is_listed = || list.outdated.get(name).is_some_and(|content| tombstone.is_of(content));
            vouches && scope.covers(name, true) && tombstone.is_before(version) && !is_listed()
        };
        let confirmed = self.tombstones.iter().filter(|(name, tombstone)| is_confirmed(name, tombstone));
        for name in confirmed.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.tombstones.remove(&name);
        }
    }
}

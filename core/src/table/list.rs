//! Lists: what is not in them is gone, except for what is newer than them; and a server that went back in time.

use std::cmp::Ordering;
use std::time::Instant;

use super::entry::Content;
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
        membership.list = Some(Listing { floor, seen: Default::default(), outdated: Vec::new() });
    }

    /// All of a list has come in; `version` is the list's. Entries of this watch that are not in it and not newer than
    /// it are gone. A version below what the server had already told (an etcd restored from a backup) starts a new
    /// epoch: the list replaces all, whatever the versions say.
    pub fn list_completed(&mut self, watch: WatchId, version: &ResourceVersion, now: Instant) -> Effects {
        let mut effects = Effects::default();
        let Some(membership) = self.watches.get_mut(&watch) else { return effects };
        let Some(list) = membership.list.take() else { return effects };
        let went_back = |floor: &ResourceVersion| version.compare(floor) == Some(Ordering::Less);
        effects.went_back = list.floor.as_ref().is_some_and(went_back);
        let replaces = effects.went_back || membership.replace;
        membership.told = Some(version.clone());
        membership.replace = false;
        if effects.went_back {
            self.start_epoch(watch);
        }
        self.remove_unlisted(watch, &list, version, replaces, now, &mut effects);
        self.confirm_tombstones(watch, &list, version);
        if replaces {
            self.replace_outdated(watch, list.outdated, &mut effects);
        }
        effects
    }

    /// Nothing that was told before holds any more, in no watch of this type.
    fn start_epoch(&mut self, discoverer: WatchId) {
        for (id, membership) in &mut self.watches {
            membership.own = None;
            if *id != discoverer {
                membership.told = None;
                membership.replace = true;
            }
        }
        self.tombstones.clear();
    }

    fn remove_unlisted(
        &mut self,
        watch: WatchId,
        list: &Listing,
        version: &ResourceVersion,
        replaces: bool,
        now: Instant,
        effects: &mut Effects,
    ) {
        let Some(scope) = self.watches.get(&watch).map(|membership| membership.scope.clone()) else { return };
        let unlisted = self.entries.iter().filter(|(name, entry)| {
            let is_spared = || match entry.version().and_then(|own| own.compare(version)) {
                Some(order) => order.is_gt(),
                None => entry.is_fenced(now),
            };
            entry.is_held_by(&scope, name) && !list.seen.contains(*name) && (replaces || !is_spared())
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
            let is_listed = || list.outdated.iter().any(|content| content.name() == name && tombstone.is_of(content));
            vouches && scope.covers(name, true) && tombstone.is_before(version) && !is_listed()
        };
        let confirmed = self.tombstones.iter().filter(|(name, tombstone)| is_confirmed(name, tombstone));
        for name in confirmed.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.tombstones.remove(&name);
        }
    }

    fn replace_outdated(&mut self, watch: WatchId, outdated: Vec<Content>, effects: &mut Effects) {
        let Some(by_label) = self.watches.get(&watch).map(|membership| membership.scope.selected) else { return };
        for content in outdated {
            let selected = by_label || self.is_selected(&content);
            self.enter(content, selected, None, Origin::Watch, effects);
        }
    }
}

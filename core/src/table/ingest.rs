//! Objects on their way in: events of a watch, and what single reads and our own writes share with them.

use std::cmp::Ordering;
use std::time::Instant;

use super::entry::{Content, Entry, Fence};
use super::own::Told;
use super::watches::WatchId;
use super::{Change, Effects, Origin, Table, Vanished};
use crate::contract::ObjectName;
use crate::object::ResourceVersion;

/// What an object that comes in is, against what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// News.
    Newer,
    /// Exactly what is there.
    Same,
    /// Overtaken by what is there, or by its deletion.
    Outdated,
}

impl Table {
    /// An ADDED or MODIFIED event, or an object of a list that was begun by [`Table::list_started`].
    pub fn upserted(&mut self, watch: WatchId, content: Content, now: Instant) -> Effects {
        let mut effects = Effects::default();
        let selected = self.is_selected(&content);
        let Some(membership) = self.watches.get_mut(&watch) else { return effects };
        membership.progress(content.version());
        if let Some(list) = &mut membership.list {
            list.seen.insert(content.name().clone());
            list.outdated.remove(content.name());
        }
        let is_listed = membership.list.is_some();
        let selected = selected || membership.scope.selected;
        let initial = is_listed && membership.told.is_none();
        if is_listed {
            self.note_told(content.name(), Told::Last);
        }
        match self.judge(&content, selected, Some(watch), now) {
            Verdict::Newer => self.enter(content, selected, None, Origin::Watch, &mut effects),
            // There may be others' changes before it, which nobody will tell of any more.
            Verdict::Same if is_listed => {
                self.wake_fenced(&content, &mut effects);
                self.echoed(content.name(), selected);
            }
            Verdict::Same => self.echoed(content.name(), selected),
            Verdict::Outdated if is_listed => {
                self.wake_fenced(&content, &mut effects);
                let list = self.watches.get_mut(&watch).and_then(|membership| membership.list.as_mut());
                list.into_iter().for_each(|list| _ = list.outdated.insert(content.name().clone(), content.clone()));
            }
            Verdict::Outdated => self.wake_unless_ours(watch, &content, &mut effects),
        }
        effects.changes.iter_mut().for_each(|change| change.initial = initial);
        effects
    }

    /// A DELETED event. From a watch that selects by label it may also mean that the label is gone.
    pub fn deleted(&mut self, watch: WatchId, content: &Content) -> Effects {
        let mut effects = Effects::default();
        let name = content.name();
        let Some(membership) = self.watches.get_mut(&watch) else { return effects };
        membership.progress(content.version());
        if let Some(list) = &mut membership.list {
            list.seen.remove(name);
            list.outdated.remove(name);
        }
        let by_label = membership.scope.selected;
        if self.is_entombed(content) {
            return effects;
        }
        let is_ours = self.tombstones.get(name).is_some_and(|tombstone| tombstone.is_of(content));
        let vouches = !by_label || !self.is_covered_without_label(name);
        if is_ours && vouches {
            self.tombstones.remove(name);
        }
        let Some(entry) = self.entries.get(name) else { return effects };
        let order = compare(content, entry);
        let outdated = match entry.is_same_object(content.uid()) {
            _ if entry.epoch != self.epoch => false,
            true => order.map_or(entry.fence.is_some(), Ordering::is_le),
            false => order != Some(Ordering::Greater),
        };
        if outdated {
            if !is_ours {
                self.wake_unless_ours(watch, content, &mut effects);
            }
            return effects;
        }
        if !by_label || content.is_terminating() || entry.content.is_terminating() {
            self.forget(name, Origin::Watch, &mut effects);
        } else if self.is_covered_without_label(name) {
            // That watch knows what became of it.
            self.update(name, |entry| entry.selected = false);
        } else {
            self.doubt_disappearance(name, content.version(), &mut effects);
        }
        effects
    }

    pub(super) fn judge(&self, content: &Content, selected: bool, from: Option<WatchId>, now: Instant) -> Verdict {
        if self.is_entombed(content) {
            return Verdict::Outdated;
        }
        let Some(entry) = self.entries.get(content.name()) else {
            let is_told = |version| self.has_been_told(content.name(), selected, version, from);
            return if content.version().is_some_and(is_told) { Verdict::Outdated } else { Verdict::Newer };
        };
        if entry.epoch != self.epoch {
            return Verdict::Newer;
        }
        let is_same_version = content.version().is_some() && content.version() == entry.content.version();
        if is_same_version && entry.is_same_object(content.uid()) {
            return Verdict::Same;
        }
        match compare(content, entry) {
            Some(Ordering::Greater) => Verdict::Newer,
            Some(_) => Verdict::Outdated,
            None if entry.is_fenced(now) => Verdict::Outdated,
            None => Verdict::Newer,
        }
    }

    pub(super) fn enter(
        &mut self,
        content: Content,
        selected: bool,
        fence: Option<Box<Fence>>,
        origin: Origin,
        effects: &mut Effects,
    ) {
        let name = content.name().clone();
        let new = content.present().cloned();
        if origin == Origin::Watch {
            self.note_told(&name, Told::at(&content));
        }
        let old =
            self.entries.insert(name.clone(), Entry { content, selected, fence, vanished: None, epoch: self.epoch });
        let old = old.and_then(|entry| entry.content.present().cloned());
        self.emit(Change { name, old, new, origin, initial: false }, effects);
    }

    pub(super) fn forget(&mut self, name: &ObjectName, origin: Origin, effects: &mut Effects) {
        let Some(entry) = self.entries.remove(name) else { return };
        if origin == Origin::Watch {
            self.note_told(name, Told::Gone(entry.content.uid().cloned()));
        }
        let old = entry.content.present().cloned();
        self.emit(Change { name: name.clone(), old, new: None, origin, initial: false }, effects);
    }

    /// Asks what became of a child that left the label selection; until then it stays.
    pub(super) fn doubt_disappearance(
        &mut self,
        name: &ObjectName,
        at: Option<&ResourceVersion>,
        effects: &mut Effects,
    ) {
        let version = at.cloned();
        let Some(entry) = self.entries.get_mut(name) else { return };
        let Some(uid) = entry.content.uid().cloned() else {
            return self.forget(name, Origin::Watch, effects);
        };
        entry.vanished = version.or_else(|| entry.content.version().cloned());
        effects.vanished.push(Vanished { name: name.clone(), uid, owner: entry.content.owner().cloned() });
    }

    fn echoed(&mut self, name: &ObjectName, selected: bool) {
        self.update(name, |entry| {
            entry.fence = None;
            entry.selected = selected;
        });
    }

    /// A state that our newer write already shows is somebody else's change, of which the key that wrote did not know;
    /// or the echo of an earlier write of ours.
    fn wake_unless_ours(&mut self, watch: WatchId, content: &Content, effects: &mut Effects) {
        let Some(entry) = self.entries.get(content.name()) else { return };
        let is_known = |version| {
            let is_ours = entry.awaits(content.uid(), version);
            is_ours || self.has_been_told(content.name(), entry.selected, version, Some(watch))
        };
        if !content.version().is_some_and(is_known) && !self.is_entombed(content) {
            self.wake_fenced(content, effects);
        }
    }

    fn wake_fenced(&mut self, content: &Content, effects: &mut Effects) {
        let name = content.name();
        let Some(entry) = self.entries.get(name).filter(|entry| entry.fence.is_some()) else { return };
        let current = entry.content.present().cloned();
        self.note_told(name, Told::at(content));
        let (name, origin) = (name.clone(), Origin::Watch);
        self.emit(Change { name, old: current.clone(), new: current, origin, initial: false }, effects);
    }

    pub(super) fn update(&mut self, name: &ObjectName, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_mut(name) {
            change(entry);
        }
    }
}

pub(super) fn compare(content: &Content, entry: &Entry) -> Option<Ordering> {
    content.version()?.compare(entry.version()?)
}

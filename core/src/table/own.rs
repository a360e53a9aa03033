//! The host's own writes and reads: answers that enter at once, deletions that are known before the watch tells of
//! them, and writes whose answer was lost.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Instant;

use super::entry::{Content, Fence};
use super::ingest::Verdict;
use super::watches::newest;
use super::{Change, Effects, ObjectVersion, Origin, Table};
use crate::contract::ObjectName;
use crate::object::{ResourceVersion, Stored};

/// An object that is gone though watches may still tell of its earlier states.
#[derive(Debug)]
pub(super) struct Tombstone {
    uid: Arc<str>,
    /// The last state that the table held, if it is of this epoch. Older ones under this name, of whichever object, are
    /// history.
    last: Option<ResourceVersion>,
    /// A read found nothing: later states are history as well. After our own delete they show that the object only
    /// began to terminate.
    is_seen_gone: bool,
}

impl Tombstone {
    pub(super) fn is_of(&self, content: &Content) -> bool {
        content.uid() == Some(&self.uid)
    }

    fn holds(&self, content: &Content) -> bool {
        let order = self.last.as_ref().and_then(|last| content.version()?.compare(last));
        match self.is_of(content) {
            true => self.is_seen_gone || order != Some(Ordering::Greater),
            false => order.is_some_and(Ordering::is_le),
        }
    }

    pub(super) fn is_before(&self, list: &ResourceVersion) -> bool {
        self.last.as_ref().and_then(|last| last.compare(list)).is_none_or(Ordering::is_lt)
    }
}

/// A write that waits for its answer. What watches tell of the name meanwhile is in the table at once; who is woken by
/// it is decided when the answer shows which of it was our own doing.
#[derive(Debug)]
pub(super) struct InFlight {
    /// Writes that are on their way: more than one where two modules want the same child.
    writers: u32,
    /// What the table held when it was sent.
    known: Option<ObjectVersion>,
    /// The table's epoch then: an answer from before the server went back in time tells nothing.
    epoch: u32,
    held: Option<Change>,
    told: Vec<Told>,
}

/// What a watch told, or a write was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    At {
        uid: Option<Arc<str>>,
        version: Option<ResourceVersion>,
    },
    Gone(Option<Arc<str>>),
    /// The last of states that may be several, by a list or a read: others' changes may be among them.
    Last,
}

impl Told {
    pub(super) fn at(content: &Content) -> Self {
        Self::At { uid: content.uid().cloned(), version: content.version().cloned() }
    }
}

impl Table {
    /// A write of this name is about to be sent. Exactly one of [`Table::own_write`], [`Table::own_delete`],
    /// [`Table::write_failed`] and [`Table::write_lost`] must follow.
    pub fn write_started(&mut self, name: &ObjectName) {
        if let Some(flight) = self.writes.get_mut(name) {
            flight.writers += 1;
            // Whose doing a change is can't be told any more: it is everybody's news.
            return flight.told.push(Told::Last);
        }
        let (known, epoch) = (self.known(name), self.epoch);
        self.writes.insert(name.clone(), InFlight { writers: 1, known, epoch, held: None, told: Vec::new() });
    }

    /// The server answered a write with this object. It enters if it is newer than what the table and its watches know.
    pub fn own_write(&mut self, object: Arc<Stored>, now: Instant) -> Effects {
        let mut effects = Effects::default();
        let name = object.meta.name.clone();
        if self.is_of_earlier_epoch(&name) {
            return self.write_lost(&name);
        }
        let version = object.meta.resource_version.clone();
        let content = Content::Present(object);
        let answer = Told::at(&content);
        let selected = self.is_selected(&content);
        let known = self.writes.get(&name).and_then(|flight| flight.known.as_ref());
        effects.went_back = known.is_some_and(|known| self.is_newer(known, &content));
        if effects.went_back {
            self.start_epoch();
        }
        for membership in self.watches.values_mut().filter(|watch| watch.scope.covers(&name, selected)) {
            membership.own = newest(membership.own.as_ref(), Some(&version)).cloned();
        }
        let vanished = self.entries.get_mut(&name).and_then(|entry| entry.vanished.take());
        let left_since = vanished.filter(|left| left.compare(&version).is_none_or(Ordering::is_ge));
        match self.judge(&content, selected, None, now) {
            Verdict::Newer if self.is_covered(&name, selected) => {
                let same = self.entries.get_mut(&name).filter(|entry| entry.is_same_object(content.uid()));
                let earlier = same.and_then(|entry| entry.fence.take()).map(|fence| fence.versions);
                let versions = earlier.into_iter().flatten().chain([version]).collect();
                let fence = Box::new(Fence { since: now, versions });
                self.enter(content, selected, Some(fence), Origin::OwnWrite, &mut effects);
            }
            Verdict::Newer => {
                // Cut loose: no watch tells of it any more, but for the earlier states that it may not have told of yet.
                let uid = content.uid().filter(|_| left_since.is_none()).cloned();
                uid.into_iter().for_each(|uid| self.bury(&name, &uid, false));
                self.forget(&name, Origin::OwnWrite, &mut effects);
            }
            Verdict::Same | Verdict::Outdated => {}
        }
        if left_since.is_some() {
            self.doubt_disappearance(&name, left_since.as_ref(), &mut effects);
        }
        self.write_ended(&name, Some(answer), &mut effects);
        effects
    }

    /// The server answered that this object is gone, not merely terminating: then the answer holds the object, and
    /// [`Table::own_write`] is right.
    pub fn own_delete(&mut self, name: &ObjectName, uid: &Arc<str>) -> Effects {
        if self.is_of_earlier_epoch(name) {
            return self.write_lost(name);
        }
        let mut effects = Effects::default();
        if self.entries.get(name).is_some_and(|entry| entry.is_same_object(Some(uid))) {
            self.bury(name, uid, false);
            self.forget(name, Origin::OwnWrite, &mut effects);
        }
        self.write_ended(name, Some(Told::Gone(Some(uid.clone()))), &mut effects);
        effects
    }

    /// The server refused a write, or it was never sent: nothing has changed.
    pub fn write_failed(&mut self, name: &ObjectName) -> Effects {
        let mut effects = Effects::default();
        self.write_ended(name, None, &mut effects);
        effects
    }

    /// Nobody knows whether the server carried out a write: the name is doubtful until it is read once.
    pub fn write_lost(&mut self, name: &ObjectName) -> Effects {
        self.doubtful.insert(name.clone());
        self.write_failed(name)
    }

    /// Whether the next pass must read this object from the server before it trusts the table.
    pub fn is_doubtful(&self, name: &ObjectName) -> bool {
        self.doubtful.contains(name)
    }

    /// A consistent read found this object. It enters if it is newer and if a watch selects it or it is the same object
    /// as before; what nobody watches would grow old here. `known` is what the table held when the read was sent.
    pub fn observed(&mut self, content: Content, known: Option<&ObjectVersion>, now: Instant) -> Effects {
        let went_back = known.is_some_and(|known| self.is_newer(known, &content));
        let mut effects = Effects { went_back, ..Effects::default() };
        if went_back {
            self.start_epoch();
        }
        let name = content.name().clone();
        let vanished = self.entries.get_mut(&name).and_then(|entry| entry.vanished.take());
        self.take_in_read(content, now, &mut effects);
        if vanished.is_some() {
            // The read may be older than the disappearance: the question stands.
            self.doubt_disappearance(&name, vanished.as_ref(), &mut effects);
        }
        effects
    }

    /// A consistent read that was sent because of a [`Vanished`](super::Vanished) found this object: it only lost its
    /// label, or another one has taken its name.
    pub fn vanished_found(&mut self, content: Content, now: Instant) -> Effects {
        let mut effects = Effects::default();
        self.update(&content.name().clone(), |entry| entry.vanished = None);
        self.take_in_read(content, now, &mut effects);
        effects
    }

    /// Whether a write that waits for its answer was sent before the server went back in time.
    fn is_of_earlier_epoch(&self, name: &ObjectName) -> bool {
        self.writes.get(name).is_some_and(|flight| flight.epoch != self.epoch)
    }

    /// Whether an answer shows the object at an earlier state than what was known when it was asked for.
    fn is_newer(&self, known: &ObjectVersion, answer: &Content) -> bool {
        known.is_current
            && known.epoch == self.epoch
            && answer.uid() == Some(&known.uid)
            && answer.version().is_some_and(|version| known.version.is_newer_than(version))
    }

    fn take_in_read(&mut self, content: Content, now: Instant, effects: &mut Effects) {
        let name = content.name().clone();
        self.doubtful.remove(&name);
        let entry = self.entries.get(&name);
        let is_ours = entry.is_some_and(|entry| entry.selected && entry.is_same_object(content.uid()));
        let selected = self.is_selected(&content) || is_ours && !self.is_covered_without_label(&name);
        if self.judge(&content, selected, None, now) != Verdict::Newer {
            return;
        }
        self.note_told(&name, Told::Last);
        if self.is_covered(&name, selected) {
            return self.enter(content, selected, None, Origin::Watch, effects);
        }
        // Another object took the name, and nobody asked for that one; watches may still tell of the earlier one's life.
        let gone = self.entries.get(&name).and_then(|entry| entry.content.uid().cloned());
        gone.into_iter().for_each(|uid| self.bury(&name, &uid, true));
        self.forget(&name, Origin::Watch, effects);
    }

    /// A consistent read found nothing. `known` is what the table held when the read was sent: only that is gone.
    pub fn observed_absent(&mut self, name: &ObjectName, known: Option<&ObjectVersion>) -> Effects {
        let mut effects = Effects::default();
        self.doubtful.remove(name);
        let Some(entry) = self.entries.get(name) else { return effects };
        let Some(known) = known else { return effects };
        let is_known = entry.is_same_object(Some(&known.uid)) && entry.content.version() == Some(&known.version);
        if !is_known || known.epoch != self.epoch {
            return effects;
        }
        self.bury(name, &known.uid, true);
        self.forget(name, Origin::Watch, &mut effects);
        effects
    }

    /// Nobody needs to know what became of a vanished child, as its parent is gone or terminating: it is taken for
    /// deleted.
    pub fn presumed_gone(&mut self, name: &ObjectName, uid: &Arc<str>) -> Effects {
        let mut effects = Effects::default();
        let entry = self.entries.get(name);
        if entry.is_some_and(|entry| entry.vanished.is_some() && entry.is_same_object(Some(uid))) {
            self.forget(name, Origin::Watch, &mut effects);
        }
        effects
    }

    pub(super) fn is_entombed(&self, content: &Content) -> bool {
        self.tombstones.get(content.name()).is_some_and(|tombstone| tombstone.holds(content))
    }

    /// Remembers a deletion until the watch tells of it. One that vanished from its watch will never be told of again.
    fn bury(&mut self, name: &ObjectName, uid: &Arc<str>, is_seen_gone: bool) {
        let Some(entry) = self.entries.get(name).filter(|entry| entry.vanished.is_none()) else { return };
        let last = entry.content.version().filter(|_| entry.epoch == self.epoch).cloned();
        self.tombstones.insert(name.clone(), Tombstone { uid: uid.clone(), last, is_seen_gone });
    }

    pub(super) fn note_told(&mut self, name: &ObjectName, told: Told) {
        if let Some(flight) = self.writes.get_mut(name) {
            flight.told.push(told);
        }
    }

    pub(super) fn emit(&mut self, change: Change, effects: &mut Effects) {
        let Some(flight) = self.writes.get_mut(&change.name) else { return effects.changes.push(change) };
        match &mut flight.held {
            Some(held) => held.new = change.new,
            None => flight.held = Some(change),
        }
    }

    fn write_ended(&mut self, name: &ObjectName, answer: Option<Told>, effects: &mut Effects) {
        if let Some(flight) = self.writes.get_mut(name).filter(|flight| flight.writers > 1) {
            flight.writers -= 1;
            return;
        }
        let Some(flight) = self.writes.remove(name) else { return };
        let is_ours = flight.told.iter().all(|told| answer.as_ref() == Some(told));
        let origin = if is_ours { Origin::OwnWrite } else { Origin::Watch };
        effects.changes.extend(flight.held.map(|change| Change { origin, ..change }));
    }
}

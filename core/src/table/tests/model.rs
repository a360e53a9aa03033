//! A model of a server, with everything between it and the table delivered in any order.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Action {
    /// Another writer's create or change, with or without our label.
    Foreign {
        name: usize,
        labelled: bool,
    },
    ForeignDelete {
        name: usize,
    },
    OwnWrite {
        name: usize,
    },
    OwnDelete {
        name: usize,
    },
    /// The oldest question about a vanished child is answered.
    Ask,
    /// A consistent read is answered by the server now; the answer arrives later.
    Read {
        name: usize,
    },
    /// The answer to a write, or to a read, arrives.
    Answer {
        pending: usize,
    },
    LoseAnswer {
        pending: usize,
    },
    /// A watch delivers its next event.
    Event {
        watch: usize,
    },
    Break {
        watch: usize,
    },
    /// A list is answered as of so many versions ago, but not before what that watch has told.
    List {
        watch: usize,
        lag: usize,
    },
    /// The list arrives.
    ListArrives {
        watch: usize,
    },
}

fn action() -> impl Strategy<Value = Action> {
    let name = 0..NAMES.len();
    let watch = 0..2_usize;
    prop_oneof![
        3 => (name.clone(), any::<bool>()).prop_map(|(name, labelled)| Action::Foreign { name, labelled }),
        1 => name.clone().prop_map(|name| Action::ForeignDelete { name }),
        4 => name.clone().prop_map(|name| Action::OwnWrite { name }),
        2 => name.clone().prop_map(|name| Action::OwnDelete { name }),
        2 => Just(Action::Ask),
        1 => name.prop_map(|name| Action::Read { name }),
        6 => (0..4_usize).prop_map(|pending| Action::Answer { pending }),
        1 => (0..4_usize).prop_map(|pending| Action::LoseAnswer { pending }),
        8 => watch.clone().prop_map(|watch| Action::Event { watch }),
        1 => watch.clone().prop_map(|watch| Action::Break { watch }),
        2 => (watch.clone(), 0..4_usize).prop_map(|(watch, lag)| Action::List { watch, lag }),
        2 => watch.prop_map(|watch| Action::ListArrives { watch }),
    ]
}

/// One step of the server's history.
#[derive(Clone, Debug)]
struct Step {
    version: u64,
    name: &'static str,
    before: Option<Draft>,
    after: Option<Draft>,
    is_foreign: bool,
}

#[derive(Debug)]
enum Pending {
    Written(Draft),
    Deleted { name: &'static str, uid: Arc<str> },
    Read { name: &'static str, found: Option<Draft>, known: Option<ObjectVersion> },
}

#[derive(Debug)]
enum Connection {
    Down,
    /// A list as of this version is on its way.
    Listing(u64),
    /// Delivers what happened after this version.
    Open(u64),
}

struct World {
    version: u64,
    uids: u64,
    live: BTreeMap<&'static str, Draft>,
    history: Vec<Step>,
    pending: VecDeque<Pending>,
    table: Table,
    watches: Vec<(WatchId, bool, Connection)>,
    vanished: Vec<Vanished>,
    /// By name: our newest answered write.
    answered: BTreeMap<&'static str, u64>,
    /// By name: the newest version that somebody was woken for.
    woken: BTreeMap<String, u64>,
    foreign_wakes: usize,
    /// Went back in time; whether the table knows.
    restored: Option<bool>,
    now: Instant,
}

impl World {
    /// With a selecting watch, and one of everything beside it if `twice`.
    fn new(twice: bool) -> Self {
        let mut table = Table::new(INSTALLATION);
        let scopes = if twice { vec![true, false] } else { vec![true] };
        let watches = scopes.into_iter().map(|selected| {
            let (id, _) = table.join_watch(&Scope { selected, ..Scope::default() });
            (id, selected, Connection::Down)
        });
        let watches = watches.collect();
        Self {
            version: 1,
            uids: 0,
            live: BTreeMap::new(),
            history: Vec::new(),
            pending: VecDeque::new(),
            table,
            watches,
            vanished: Vec::new(),
            answered: BTreeMap::new(),
            woken: BTreeMap::new(),
            foreign_wakes: 0,
            restored: None,
            now: Instant::now(),
        }
    }

    fn act(&mut self, action: &Action) {
        match *action {
            Action::Foreign { name, labelled } => {
                let mut object = self.changed(NAMES[name]);
                object.labelled = labelled;
                self.commit(NAMES[name], Some(object), true);
            }
            Action::ForeignDelete { name } if self.live.contains_key(NAMES[name]) => {
                self.commit(NAMES[name], None, true);
            }
            Action::OwnWrite { name } if !self.is_writing(NAMES[name]) => {
                self.table.write_started(&super::name(NAMES[name]));
                let mut object = self.changed(NAMES[name]);
                object.labelled = true;
                self.commit(NAMES[name], Some(object.clone()), false);
                self.pending.push_back(Pending::Written(object));
            }
            Action::OwnDelete { name } if !self.is_writing(NAMES[name]) => self.own_delete(NAMES[name]),
            Action::Ask if !self.vanished.is_empty() => {
                let vanished = self.vanished.remove(0);
                self.ask(&vanished);
            }
            Action::Read { name } => self.read(NAMES[name]),
            Action::Answer { pending } => {
                if let Some(answer) = self.take_pending(pending) {
                    self.answer(answer);
                }
            }
            Action::LoseAnswer { pending } => match self.take_pending(pending) {
                Some(Pending::Written(object)) => self.lose(&object.name.clone()),
                Some(Pending::Deleted { name, .. }) => self.lose(name),
                Some(Pending::Read { .. }) | None => {}
            },
            Action::Event { watch } => drop(self.event(watch)),
            Action::Break { watch } => {
                if let Some((_, _, connection)) = self.watches.get_mut(watch) {
                    *connection = Connection::Down;
                }
            }
            Action::List { watch, lag } => self.list(watch, lag),
            Action::ListArrives { watch } => self.list_arrives(watch),
            Action::ForeignDelete { .. } | Action::OwnWrite { .. } | Action::OwnDelete { .. } | Action::Ask => {}
        }
        self.never_behind_our_own_writes();
    }

    /// The object of that name with a new version, or a new object.
    fn changed(&mut self, name: &'static str) -> Draft {
        self.version += 1;
        match self.live.get(name) {
            Some(object) => Draft { version: self.version.to_string(), ..object.clone() },
            None => {
                self.uids += 1;
                draft(name, &format!("u{}", self.uids), self.version)
            }
        }
    }

    fn commit(&mut self, name: &'static str, after: Option<Draft>, is_foreign: bool) {
        if after.is_none() {
            self.version += 1;
        }
        let before = match &after {
            Some(object) => self.live.insert(name, object.clone()),
            None => self.live.remove(name),
        };
        self.history.push(Step { version: self.version, name, before, after, is_foreign });
    }

    /// The host awaits the answer to a write before it writes that name again.
    fn is_writing(&self, name: &str) -> bool {
        self.table.writes.contains_key(&super::name(name))
    }

    /// With uid and resourceVersion as preconditions, as the host deletes.
    fn own_delete(&mut self, name: &'static str) {
        let Some(known) = self.table.known(&super::name(name)) else { return };
        let is_current = |object: &&Draft| object.uid == *known.uid && object.version == known.version.to_string();
        if self.live.get(name).filter(is_current).is_none() {
            return;
        }
        self.table.write_started(&super::name(name));
        self.commit(name, None, false);
        self.pending.push_back(Pending::Deleted { name, uid: known.uid });
    }

    fn read(&mut self, name: &'static str) {
        let known = self.table.known(&super::name(name));
        self.pending.push_back(Pending::Read { name, found: self.live.get(name).cloned(), known });
    }

    fn take_pending(&mut self, index: usize) -> Option<Pending> {
        let index = if self.pending.is_empty() { 0 } else { index % self.pending.len() };
        self.pending.remove(index)
    }

    fn answer(&mut self, answer: Pending) {
        let effects = match answer {
            Pending::Written(object) => {
                let name = NAMES.into_iter().find(|name| *name == object.name).expect("a known name");
                let newest = self.answered.entry(name).or_default();
                *newest = (*newest).max(object.version.parse().expect("a number"));
                self.table.own_write(object.stored(), self.now)
            }
            Pending::Deleted { name, uid } => self.table.own_delete(&super::name(name), &uid),
            Pending::Read { found: Some(object), known, .. } => {
                self.table.observed(object.content(), known.as_ref(), self.now)
            }
            Pending::Read { name, found: None, known } => {
                self.table.observed_absent(&super::name(name), known.as_ref())
            }
        };
        self.take(effects);
    }

    fn lose(&mut self, name: &str) {
        let effects = self.table.write_lost(&super::name(name));
        self.take(effects);
    }

    fn event(&mut self, watch: usize) -> bool {
        let Some((id, selected, Connection::Open(after))) = self.watches.get_mut(watch) else { return false };
        let (id, selected) = (*id, *selected);
        let is_visible = |object: &&Draft| object.labelled || !selected;
        let next = self.history.iter().find(|step| {
            let seen = |object: &Option<Draft>| object.as_ref().filter(is_visible).is_some();
            step.version > *after && (seen(&step.before) || seen(&step.after))
        });
        let Some(step) = next.cloned() else { return false };
        *after = step.version;
        let effects = match (&step.before, step.after.as_ref().filter(is_visible)) {
            (_, Some(object)) => self.table.upserted(id, object.content(), self.now),
            (Some(before), None) => {
                let gone = Draft { version: step.version.to_string(), ..before.clone() };
                self.table.deleted(id, &gone.content())
            }
            (None, None) => Effects::default(),
        };
        self.take(effects);
        true
    }

    fn list(&mut self, watch: usize, lag: usize) {
        let (version, live) = (self.version, self.live.len());
        let Some((id, _, connection)) = self.watches.get_mut(watch) else { return };
        let told = self.table.watches[id].told.as_ref().and_then(ResourceVersion::number).unwrap_or(version);
        // A server that has not come so far says so, and is asked for a consistent list.
        let lag = if told > version { 0 } else { lag };
        let at = match lag {
            0 => version,
            lag => version.saturating_sub((lag + live) as u64).max(told),
        };
        *connection = Connection::Listing(at);
        self.table.list_started(*id, lag == 0);
    }

    fn list_arrives(&mut self, watch: usize) {
        let Some((id, selected, Connection::Listing(at))) = self.watches.get(watch) else { return };
        let (id, selected, at) = (*id, *selected, *at);
        let mut state = BTreeMap::new();
        for step in self.history.iter().filter(|step| step.version <= at) {
            state.insert(step.name, step.after.clone());
        }
        for object in state.into_values().flatten().filter(|object| object.labelled || !selected) {
            let effects = self.table.upserted(id, object.content(), self.now);
            self.take(effects);
        }
        let effects = self.table.list_completed(id, &super::version(at), self.now);
        self.watches[watch].2 = Connection::Open(at);
        self.take(effects);
    }

    /// The server goes back to an earlier version and counts from there again: connections break, answers are lost.
    fn restore(&mut self, to: u64) {
        let to = self.version.min(1 + to);
        self.version = to;
        self.history.retain(|step| step.version <= to);
        self.live.clear();
        for step in &self.history {
            match &step.after {
                Some(object) => self.live.insert(step.name, object.clone()),
                None => self.live.remove(step.name),
            };
        }
        self.answered.clear();
        self.break_all();
        while let Some(pending) = self.pending.pop_front() {
            match pending {
                Pending::Written(object) => self.lose(&object.name.clone()),
                Pending::Deleted { name, .. } => self.lose(name),
                Pending::Read { .. } => {}
            }
        }
        self.restored = Some(false);
    }

    /// Another type shows that the server went back, if this one has not.
    fn hear_of_the_epoch(&mut self) {
        if self.restored == Some(false) {
            self.table.start_epoch();
            self.break_all();
            self.restored = Some(true);
        }
    }

    fn break_all(&mut self) {
        self.watches.iter_mut().for_each(|(_, _, connection)| *connection = Connection::Down);
    }

    fn take(&mut self, effects: Effects) {
        if effects.went_back {
            assert!(self.restored.is_some(), "a server that never went back was taken for one that did");
            self.restored = Some(true);
            self.break_all();
        }
        self.vanished.extend(effects.vanished);
        for change in effects.changes.into_iter().filter(|change| change.origin == Origin::Watch) {
            self.foreign_wakes += 1;
            let known = self.table.known(&change.name).and_then(|known| known.version.number());
            self.woken.insert(change.name.name.to_string(), known.unwrap_or(self.version));
        }
    }

    fn never_behind_our_own_writes(&self) {
        for (name, answered) in &self.answered {
            match self.table.known(&super::name(name)) {
                Some(known) => assert!(
                    known.version.number() >= Some(*answered),
                    "{name}: a reader sees {} though our own write of {answered} was answered",
                    known.version
                ),
                None => assert!(
                    self.history.iter().any(|step| step.name == *name
                        && step.version > *answered
                        && step.after.as_ref().is_none_or(|object| !object.labelled)),
                    "{name}: a reader sees nothing though our own write of {answered} was answered"
                ),
            }
        }
    }

    /// Everything arrives, every question is answered.
    fn settle(&mut self) {
        while let Some(answer) = self.pending.pop_front() {
            self.answer(answer);
            self.never_behind_our_own_writes();
        }
        while let Some(watch) = self.watches.iter().position(|(.., open)| !matches!(open, Connection::Open(_))) {
            self.list(watch, 0);
            self.list_arrives(watch);
        }
        for watch in 0..self.watches.len() {
            while self.event(watch) {
                self.never_behind_our_own_writes();
            }
        }
        // Strays are found by lists alone.
        self.list(0, 0);
        self.list_arrives(0);
        while let Some(vanished) = self.vanished.pop() {
            self.ask(&vanished);
        }
    }

    /// A read after a disappearance, answered at once.
    fn ask(&mut self, vanished: &Vanished) {
        let known = self.table.known(&vanished.name);
        let effects = match self.live.get(&*vanished.name.name) {
            Some(object) => self.table.vanished_found(object.content(), self.now),
            None => self.table.observed_absent(&vanished.name, known.as_ref()),
        };
        self.take(effects);
    }

    fn equals_the_server(&self) {
        let shown = |name: &str| self.table.known(&super::name(name)).map(|known| (known.uid, known.version));
        let is_everything = self.watches.iter().any(|(_, selected, _)| !selected);
        for name in NAMES {
            let live = self.live.get(name).map(|object| (Arc::from(&*object.uid), version(&object.version)));
            let must_show = self.live.get(name).is_some_and(|object| object.labelled || is_everything);
            if must_show || shown(name).is_some() {
                assert_eq!(shown(name), live, "{name} at the end");
            }
        }
        assert!(self.table.writes.is_empty());
    }

    fn nobody_missed_a_change(&self) {
        // What another did to an object outside of the selection is not for us to see.
        let is_seen = |step: &&Step| step.after.as_ref().is_none_or(|object| object.labelled);
        let last_foreign =
            |name: &str| self.history.iter().rev().find(|step| step.name == name && step.is_foreign).filter(is_seen);
        for (name, object) in self.live.iter().filter(|(_, object)| object.labelled) {
            let Some(step) =
                last_foreign(name).filter(|step| step.after.as_ref().is_some_and(|is| is.uid == object.uid))
            else {
                continue;
            };
            assert!(
                self.woken.get(*name).is_some_and(|woken| *woken >= step.version),
                "{name}: nobody was woken for {} by another writer",
                step.version
            );
        }
    }
}

proptest! {
    #[test]
    fn never_behind_our_writes_and_in_the_end_what_the_server_has(
        twice in any::<bool>(),
        actions in prop::collection::vec(action(), 1..60),
    ) {
        let mut world = World::new(twice);
        for action in &actions {
            world.act(action);
        }
        world.settle();
        world.equals_the_server();
        world.nobody_missed_a_change();
    }

    #[test]
    fn a_server_that_went_back_is_what_the_table_shows_in_the_end(
        twice in any::<bool>(),
        before in prop::collection::vec(action(), 1..40),
        to in 0..20_u64,
        unnoticed in prop::collection::vec(action(), 0..10),
        after in prop::collection::vec(action(), 0..20),
    ) {
        let mut world = World::new(twice);
        before.iter().for_each(|action| world.act(action));
        world.restore(to);
        // Nobody acts on what the table shows before it knows.
        let others = |action: &&Action| !matches!(action, Action::OwnWrite { .. } | Action::OwnDelete { .. });
        unnoticed.iter().filter(others).for_each(|action| world.act(action));
        world.hear_of_the_epoch();
        after.iter().for_each(|action| world.act(action));
        world.settle();
        world.equals_the_server();
    }

    #[test]
    fn our_own_writes_never_wake_their_writer(
        twice in any::<bool>(),
        actions in prop::collection::vec(action(), 1..60),
    ) {
        let mut world = World::new(twice);
        for watch in 0..world.watches.len() {
            world.list(watch, 0);
            world.list_arrives(watch);
        }
        let ours = |action: &&Action| matches!(
            action,
            Action::OwnWrite { .. } | Action::OwnDelete { .. } | Action::Answer { .. } | Action::Event { .. }
        );
        for action in actions.iter().filter(ours) {
            world.act(action);
        }
        while let Some(answer) = world.pending.pop_front() {
            world.answer(answer);
        }
        for watch in 0..world.watches.len() {
            while world.event(watch) {}
        }
        prop_assert_eq!(world.foreign_wakes, 0, "an echo was taken for somebody else's change");
        world.equals_the_server();
    }
}

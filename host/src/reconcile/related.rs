//! The objects that modules ask for by `relate`: which key asks for which, and the watches of them.
//!
//! A watch begins when the first key asks and ends when the last no longer does.

use super::QueueKey;
use crate::watch::{TypeState, Watches, Watching};
use operator_core::contract::TypeRef;
use operator_core::related::{Asked, Askers, Moved, Place, Source};
use operator_core::table::Change;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many names are watched singly, over all types: each is a connection. Further ones are watched with all of their namespace.
const SINGLE_MAX: usize = 64;

/// Who asks for what, and what is watched for them.
#[derive(Debug, Default)]
pub(super) struct Related(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    askers: Askers<QueueKey>,
    watched: HashMap<Source, Watched>,
    /// How many of them are of a single name.
    singles: usize,
}

#[derive(Debug)]
struct Watched {
    watching: Watching,
    is_single: bool,
}

impl Related {
    /// Replaces what a key asks for.
    pub(super) fn ask(&self, watches: &Watches, key: &QueueKey, sources: HashSet<Source>) {
        let ended = self.lock().ask(watches, key, sources);
        // Not under the lock: what ends a watch has locks of its own.
        drop(ended);
    }

    /// Lets a key ask for more.
    pub(super) fn ask_also(&self, watches: &Watches, key: &QueueKey, sources: HashSet<Source>) {
        let mut state = self.lock();
        let sources = &state.askers.asked_by(key) | &sources;
        let ended = state.ask(watches, key, sources);
        drop((state, ended));
    }

    /// How that stands which answers each of these queries. A key that has to wait for one of them is woken when that may be over.
    pub(super) fn states(&self, key: &QueueKey, asked: &[Asked]) -> Vec<TypeState> {
        let mut state = self.lock();
        let of = |source| match state.watched.get(source) {
            Some(watched) => watched.watching.state(&source.type_ref),
            None => TypeState::Syncing,
        };
        let states: Vec<TypeState> = asked.iter().map(|asked| of(&asked.source)).collect();
        let mut is_waiting: HashMap<&TypeRef, bool> = HashMap::new();
        for (asked, of) in asked.iter().zip(&states) {
            *is_waiting.entry(&asked.source.type_ref).or_default() |= *of != TypeState::Synced;
        }
        for (type_ref, is_waiting) in is_waiting {
            state.askers.set_waiting(key, type_ref, is_waiting);
        }
        states
    }

    /// The keys that a change matters to.
    pub(super) fn of(&self, type_ref: &TypeRef, labels: Option<&str>, change: &Change) -> HashSet<QueueKey> {
        self.lock().askers.of(type_ref, labels, &change.name, change.initial)
    }

    /// The keys that waited for something of this type: how it stands has changed.
    pub(super) fn take_waiting(&self, type_ref: &TypeRef) -> HashSet<QueueKey> {
        self.lock().askers.take_waiting(type_ref)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Gives the watches that end.
    #[must_use = "they are to be dropped where no lock is held"]
    fn ask(&mut self, watches: &Watches, key: &QueueKey, sources: HashSet<Source>) -> Vec<Watched> {
        let Moved { begun, ended } = self.askers.set(key, sources);
        for source in begun {
            let is_single = source.place.name.is_some() && self.singles < SINGLE_MAX;
            self.singles += usize::from(is_single);
            let watching = match is_single {
                true => watches.select(&source),
                false => watches.select(&whole(&source)),
            };
            self.watched.insert(source, Watched { watching, is_single });
        }
        let ended: Vec<Watched> = ended.iter().filter_map(|source| self.watched.remove(source)).collect();
        self.singles -= ended.iter().filter(|watched| watched.is_single).count();
        ended
    }
}

/// Whatever has the labels in the namespace.
fn whole(source: &Source) -> Source {
    Source { place: Place { name: None, ..source.place.clone() }, ..source.clone() }
}
